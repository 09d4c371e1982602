// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/klog/v2"
)

// oldestKubernetes is the oldest version of Kubernetes that is supported: the oldest one that is tested
// (make test-oldest). Below 1.31, kube-apiserver would read all objects of a resource from etcd to
// determine its current revision: it does not serve consistent reads from its watch cache by default
// (feature gate ConsistentListFromCache).
var oldestKubernetes = version.MajorMinor(1, 34)

// checkKubernetes returns an error if the version of the cluster is not supported. It retries until
// the API server answers or the context is done.
func checkKubernetes(ctx context.Context, client discovery.ServerVersionInterface) error {
	var unsupported error
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 100, Cap: 10 * time.Second}
	err := backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		info, err := client.ServerVersion()
		if err != nil {
			klog.FromContext(ctx).Info("Asking for the version of Kubernetes failed, will retry", "err", err)
			return false, nil
		}
		unsupported = supports(info.GitVersion)
		return true, nil
	})
	if err != nil {
		return nil //nolint:nilerr // the context is done
	}
	return unsupported
}

// supports returns an error if a version of Kubernetes is known not to be supported.
func supports(gitVersion string) error {
	v, err := version.ParseGeneric(gitVersion)
	if err != nil {
		klog.Background().Info("The version of Kubernetes is not understood, and taken for a supported one", "version", gitVersion, "err", err)
		return nil
	}
	if v.LessThan(oldestKubernetes) {
		return fmt.Errorf("this cluster has Kubernetes %s; the oldest version supported is %s", gitVersion, oldestKubernetes)
	}
	return nil
}
