// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// deleteNamespace creates a namespace with an object, and deletes the namespace.
func deleteNamespace(t *testing.T) (name string) {
	t.Helper()
	name, err := tryToDeleteNamespace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func tryToDeleteNamespace(ctx context.Context) (name string, err error) {
	made, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bystander-"}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	_, err = client.CoreV1().ConfigMaps(made.Name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "app"}}, metav1.CreateOptions{})
	return made.Name, errors.Join(err, client.CoreV1().Namespaces().Delete(ctx, made.Name, metav1.DeleteOptions{}))
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

// A working server does not block the deletion of namespaces, not even while it is being removed.
func TestUndeploy_WhileItServes(t *testing.T) {
	installed(t, install.Options{})
	namespaceGone(t, deleteNamespace(t))

	removed := make(chan struct{})
	go func() {
		defer close(removed)
		undeploy(t)
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
