// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package uninstall removes the server in every possible state, in the right and in a wrong order, and checks that
// the namespace controller can still delete namespaces.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

// All tests share this. They run one after the other.
var (
	cluster *controlplane.ControlPlane
	client  kubernetes.Interface
)

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{NoNodes: true}, func(c *controlplane.ControlPlane) {
		cluster, client = c, kubernetes.NewForConfigOrDie(c.RESTConfig())
	}))
}

// installed installs the server until the test ends.
func installed(t *testing.T) *install.Installation {
	t.Helper()
	server, err := install.Install(t.Context(), cluster, install.Options{Replicas: 2, Args: []string{"--shutdown-delay-duration=1s"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Stop()
		if err := server.CheckLogs(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// deleteNamespace creates a namespace with an object, and deletes the namespace.
func deleteNamespace(t *testing.T) (name string) {
	t.Helper()
	ctx := t.Context()
	made, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bystander-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().ConfigMaps(made.Name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "app"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Namespaces().Delete(ctx, made.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	return made.Name
}

func namespaceGone(t *testing.T, name string) {
	t.Helper()
	await.Until(t, "namespace "+name+" is deleted", func(ctx context.Context) error {
		found, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("the namespace exists: %+v", found.Status)
		}
		return err
	})
}

// stuck waits until the namespace controller reports that it cannot delete a namespace.
func stuck(t *testing.T, name string) {
	t.Helper()
	await.Until(t, "the namespace controller reports an error", func(ctx context.Context) error {
		found, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range found.Status.Conditions {
			if c.Type == corev1.NamespaceDeletionDiscoveryFailure && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, "configdep.io") {
				return nil
			}
		}
		return fmt.Errorf("conditions = %+v", found.Status.Conditions)
	})
}

// undeploy runs the script that users run.
func undeploy(ctx context.Context, t *testing.T) {
	t.Helper()
	cmd := cluster.Command(ctx, filepath.Join("..", "..", "..", "hack", "undeploy.sh"))
	cmd.Env = append(cmd.Env, "KUBECTL="+cluster.KubectlPath())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("undeploy: %v\n%s", err, out)
	}
}

// nothingLeft checks that no object of configdep remains.
func nothingLeft(t *testing.T) {
	t.Helper()
	namespaceGone(t, install.Namespace)
	for _, kind := range []string{"apiservices", "mutatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings", "clusterroles", "clusterrolebindings", "flowschemas", "prioritylevelconfigurations", "rolebindings -n kube-system"} {
		out, err := cluster.Kubectl(t.Context(), append([]string{"get", "-o", "name"}, strings.Fields(kind)...)...)
		if err != nil {
			t.Error(err)
		}
		if strings.Contains(out, "configdep") {
			t.Errorf("some %s remain:\n%s", kind, out)
		}
		if !strings.Contains(kind, "webhook") && !strings.HasPrefix(kind, "validating") && strings.TrimSpace(out) == "" {
			t.Errorf("no %s found", kind)
		}
	}
}

func unavailable(t *testing.T) {
	t.Helper()
	if _, err := cluster.Kubectl(t.Context(), "wait", "--for=condition=Available=false", "apiservice/"+install.APIService, "--timeout="+await.Limit.String()); err != nil {
		t.Fatal(err)
	}
}

// A working server does not block the deletion of namespaces, not even while it is being removed.
func TestWhileItIsRemoved(t *testing.T) {
	installed(t)
	namespaceGone(t, deleteNamespace(t))

	removed := make(chan struct{})
	go func() {
		defer close(removed)
		undeploy(t.Context(), t)
	}()
	var deleted []string
	for done := false; !done; {
		deleted = append(deleted, deleteNamespace(t))
		select {
		case <-removed:
			done = true
		case <-time.After(200 * time.Millisecond): // several during the removal, but not thousands
		}
	}
	for _, name := range append(deleted, deleteNamespace(t)) {
		namespaceGone(t, name)
	}
	nothingLeft(t)
}

// If all replicas are gone, no namespace can be deleted, as with any aggregated API, because the namespace
// controller cannot list its objects. Removing the server solves that at once.
func TestWhileItIsDown(t *testing.T) {
	server := installed(t)
	for _, r := range server.Replicas {
		r.Kill()
	}
	unavailable(t)
	name := deleteNamespace(t)
	stuck(t, name)
	undeploy(t.Context(), t)
	namespaceGone(t, name)
	namespaceGone(t, deleteNamespace(t))
	nothingLeft(t)
}

// A server that has lost its permissions never becomes ready, and is removed like any other.
func TestWhileItIsBroken(t *testing.T) {
	server := installed(t)
	if err := client.RbacV1().ClusterRoleBindings().Delete(t.Context(), install.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, r := range server.Replicas {
		r.Kill()
		if err := r.Start(); err != nil {
			t.Fatal(err)
		}
	}
	unavailable(t)
	name := deleteNamespace(t)
	stuck(t, name)
	undeploy(t.Context(), t)
	namespaceGone(t, name)
	nothingLeft(t)
}

// If a user deletes the namespace of the server but not the APIService, the server deletes the APIService before
// it stops.
func TestNamespaceFirst(t *testing.T) {
	installed(t)
	if err := client.CoreV1().Namespaces().Delete(t.Context(), install.Namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the APIService is deleted", func(ctx context.Context) error {
		_, err := cluster.Kubectl(ctx, "get", "apiservice", install.APIService)
		if err == nil {
			return errors.New("the APIService exists")
		}
		if !strings.Contains(err.Error(), "not found") {
			return err
		}
		return nil
	})
	namespaceGone(t, install.Namespace)
	namespaceGone(t, deleteNamespace(t))
	undeploy(t.Context(), t)
	nothingLeft(t)
}
