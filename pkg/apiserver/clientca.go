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

// clientCA provides the CAs that verify client certificates: the CA of users, and the CA
// of the aggregator.
type clientCA interface {
	dynamiccertificates.CAContentProvider
	dynamiccertificates.ControllerRunner
}

// loadedClientCA is a clientCA that is loaded before the first connection is accepted.
// The generic API server starts to serve while it loads the CAs. Until they are loaded, the
// aggregator is anonymous and its users are refused. While only one of the two CAs is
// loaded, the server asks for certificates from only that CA, so the aggregator may send
// none and remain anonymous for the lifetime of the connection.
type loadedClientCA struct {
	clientCA
	loaded func() bool
}

// loadClientCA makes the server wait for its CAs.
func loadClientCA(serving *genericapiserver.SecureServingInfo, authentication *genericapiserver.AuthenticationInfo) {
	all, loads := serving.ClientCA.(clientCA)
	if !loads || authentication.RequestHeaderConfig == nil {
		return // there are no CAs, or they come from files
	}
	aggregator := authentication.RequestHeaderConfig.CAContentProvider
	serving.ClientCA = &loadedClientCA{all, func() bool {
		known := len(aggregator.CurrentCABundleContent())
		return known > 0 && len(all.CurrentCABundleContent()) > known
	}}
}

// RunOnce is called before the server accepts connections. It waits for a limited time,
// because a cluster may have no CA for users.
func (c *loadedClientCA) RunOnce(ctx context.Context) error {
	go c.clientCA.Run(ctx, 1)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// On failure, clients remain anonymous, as without loadedClientCA.
	_ = wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) { return c.loaded(), nil })
	return nil
}

// Run only waits: RunOnce has started the clientCA.
func (c *loadedClientCA) Run(ctx context.Context, _ int) { <-ctx.Done() }
