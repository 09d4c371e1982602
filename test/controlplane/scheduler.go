// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"strconv"

	"k8s.io/client-go/kubernetes"
)

func (c *ControlPlane) scheduler() component {
	return component{
		name: scheduler,
		args: []string{
			"--kubeconfig=" + c.kubeconfigOf(scheduler),
			"--authentication-kubeconfig=" + c.kubeconfigOf(scheduler),
			"--authorization-kubeconfig=" + c.kubeconfigOf(scheduler),
			"--bind-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(c.ports.scheduler),
			"--tls-cert-file=" + c.credentials.servingCertFile,
			"--tls-private-key-file=" + c.credentials.servingKeyFile,
			"--leader-elect=false",
			"--kube-api-qps=1000",
			"--kube-api-burst=2000",
		},
		ready: c.schedulerReady,
	}
}

// schedulerReady queries the scheduler itself, which is ready when its caches are in sync.
func (c *ControlPlane) schedulerReady(ctx context.Context) error {
	config := c.RESTConfig()
	config.Host = loopback("https", c.ports.scheduler)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return fmt.Errorf("readyz: %w", err)
	}
	return nil
}
