// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (c *ControlPlane) controllerManager() component {
	args := []string{
		"--kubeconfig=" + c.kubeconfigOf(controllerManager),
		"--authentication-kubeconfig=" + c.kubeconfigOf(controllerManager),
		"--authorization-kubeconfig=" + c.kubeconfigOf(controllerManager),
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(c.ports.controllerManager),
		"--tls-cert-file=" + c.credentials.servingCertFile,
		"--tls-private-key-file=" + c.credentials.servingKeyFile,
		"--leader-elect=false",
		"--root-ca-file=" + c.credentials.caFile,
		"--service-account-private-key-file=" + c.credentials.serviceAccountKeyFile,
		// Each controller has its own user, as in any real cluster, so that tests can distinguish their writes.
		"--use-service-account-credentials=true",
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
		// Much longer than the interval at which kwok renews leases, so that no node becomes NotReady and no pod
		// is evicted because the machine is busy.
		"--node-monitor-grace-period=10m",
	}
	for _, what := range []string{"daemonset", "deployment", "endpoint", "job", "namespace", "replicaset", "service-endpoint", "statefulset"} {
		args = append(args, "--concurrent-"+what+"-syncs=20")
	}
	return component{name: controllerManager, args: args, ready: c.controllerManagerReady}
}

// controllerManagerReady returns nil once a controller has created the default ServiceAccount: no pod is admitted in a
// namespace before it exists.
func (c *ControlPlane) controllerManagerReady(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	if _, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return fmt.Errorf("get default ServiceAccount: %w", err)
	}
	return nil
}
