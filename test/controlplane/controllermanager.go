// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	return component{name: controllerManager, args: args, prepare: c.forgetServiceAccount, ready: c.controllerManagerReady}
}

// forgetServiceAccount deletes a ServiceAccount that no test uses, so that its return shows that this process has started its
// controllers, and not an earlier one: kube-controller-manager exits if kube-apiserver is stopped before that.
func (c *ControlPlane) forgetServiceAccount(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	err = client.CoreV1().ServiceAccounts(corev1.NamespaceNodeLease).Delete(ctx, "default", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete a ServiceAccount: %w", err)
	}
	return nil
}

// controllerManagerReady returns nil once a controller has created the default ServiceAccounts: no pod is admitted in a
// namespace before it exists.
func (c *ControlPlane) controllerManagerReady(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	for _, namespace := range []string{metav1.NamespaceDefault, corev1.NamespaceNodeLease} {
		if _, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return fmt.Errorf("get default ServiceAccount of %s: %w", namespace, err)
		}
	}
	return nil
}
