// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// clientCA provides the CAs by which clients are recognized: that of users, and that of
// the aggregator.
type clientCA interface {
	dynamiccertificates.CAContentProvider
	dynamiccertificates.ControllerRunner
}

// loadedClientCA is a clientCA that is loaded before the first connection is accepted.
// The generic API server begins to serve and to load at the same time. Before it has
// loaded, the aggregator is anonymous to it, and its users are refused. When it has loaded
// one CA of the two, it asks for certificates of that one alone; then the aggregator may
// send none, and is anonymous for as long as it keeps the connection.
type loadedClientCA struct {
	clientCA
	loaded func() bool
}

// loadClientCA makes the server wait for its CAs.
func loadClientCA(serving *genericapiserver.SecureServingInfo, authentication *genericapiserver.AuthenticationInfo) {
	all, loads := serving.ClientCA.(clientCA)
	if !loads || authentication.RequestHeaderConfig == nil {
		return // it is without, or they come from files
	}
	aggregator := authentication.RequestHeaderConfig.CAContentProvider
	serving.ClientCA = &loadedClientCA{all, func() bool {
		known := len(aggregator.CurrentCABundleContent())
		return known > 0 && len(all.CurrentCABundleContent()) > known
	}}
}

// RunOnce is called before the server accepts connections. It does not wait for ever, as
// a cluster may have no CA of users.
func (c *loadedClientCA) RunOnce(ctx context.Context) error {
	go c.clientCA.Run(ctx, 1)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// When it fails, callers remain anonymous, as without this.
	_ = wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) { return c.loaded(), nil })
	return nil
}

// Run has been begun by RunOnce.
func (c *loadedClientCA) Run(ctx context.Context, _ int) { <-ctx.Done() }
