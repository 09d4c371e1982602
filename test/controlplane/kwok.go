// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	_ "embed"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// StuckAnnotation on a pod, with any value, keeps the pod Pending after it has been scheduled, as if its image could not
// be pulled. Tests use it to make a rollout stuck.
const StuckAnnotation = "controlplane.test/stuck"

// kwokConfig configures what happens to nodes and pods. The binary has no defaults.
//
//go:embed kwok.yaml
var kwokConfig []byte

func (c *ControlPlane) kwok() component {
	return component{
		name: kwok,
		args: []string{
			"--kubeconfig=" + c.kubeconfigOf(kwok),
			"--config=" + c.file("kwok.yaml"),
		},
		prepare: c.releaseNodes,
		ready:   c.nodesReady,
	}
}

func (c *ControlPlane) writeKwokConfig() error {
	if err := os.WriteFile(c.file("kwok.yaml"), kwokConfig, 0o644); err != nil {
		return fmt.Errorf("write configuration of kwok: %w", err)
	}
	return nil
}

// releaseNodes deletes the Leases by which an earlier process of kwok holds the nodes, for minutes after its end.
func (c *ControlPlane) releaseNodes(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	err = client.CoordinationV1().Leases(corev1.NamespaceNodeLease).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("release nodes: %w", err)
	}
	return nil
}

// nodesReady creates missing nodes and returns nil once kwok holds all, and they are Ready.
func (c *ControlPlane) nodesReady(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	if have := len(list.Items); have < c.options.Nodes {
		return c.createNodes(ctx, client, have)
	}
	for _, node := range list.Items {
		if !isReady(&node) {
			return fmt.Errorf("node %s is not Ready", node.Name)
		}
	}
	leases, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Leases of nodes: %w", err)
	}
	if held := len(leases.Items); held < c.options.Nodes {
		return fmt.Errorf("kwok holds %d of %d nodes", held, c.options.Nodes)
	}
	return nil
}

func (c *ControlPlane) createNodes(ctx context.Context, client kubernetes.Interface, first int) error {
	for i := first; i < c.options.Nodes; i++ {
		if _, err := client.CoreV1().Nodes().Create(ctx, newNode(i), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create node: %w", err)
		}
	}
	return fmt.Errorf("%d nodes are not Ready: they have just been created", c.options.Nodes-first)
}

// newNode returns a node as its kubelet would register it, with capacity for a thousand pods.
func newNode(i int) *corev1.Node {
	name := fmt.Sprintf("node-%d", i)
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("64"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("1000"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname:   name,
				corev1.LabelOSStable:   "linux",
				corev1.LabelArchStable: "amd64",
				"type":                 "kwok",
			},
			Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
		},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: capacity,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeHostName, Address: name},
				{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.64.%d.%d", i/250, i%250+1)},
			},
			NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "kwok"},
			// Pods that need it are scheduled to nodes that declare it alone.
			DeclaredFeatures: []string{"RestartAllContainersOnContainerExits"},
		},
	}
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
