// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

//go:build extended

package integration

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// RetryWatcher starts each watch at the last version that it has seen, without a list. It misses nothing,
// whichever replica answers.
func TestRetryWatcherHopsBetweenReplicas(t *testing.T) {
	t.Parallel()
	replicas := []*install.Replica{replica(t, "retry-0", install.ReplicaOptions{}), replica(t, "retry-1", install.ReplicaOptions{})}
	acquainted(t, replicas...)
	h := newHopper(t, replicas...)
	client := through(t, h, replicas[0])
	namespace := newNamespace(t)
	list, err := client.ConfigDependencies(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := watchtools.NewRetryWatcherWithContext(t.Context(), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.ConfigDependencies(namespace).Watch(ctx, o)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	seen := &watching{t: t, Interface: w}
	for i := range 6 {
		name := fmt.Sprint("app-", i)
		create(t, kube.AppsV1().Deployments(namespace).Create, asleep(name))
		seen.until(name+" is added", event(watch.Added, "deployment."+name))
		// A replica may be behind the previous one, and reports when it has caught up.
		for _, r := range replicas {
			await.Until(t, r.Name()+" has caught up", func(ctx context.Context) error {
				_, err := clientset(t, r.AdminConfig()).ConfigdepV1alpha1().ConfigDependencies(namespace).List(ctx, metav1.ListOptions{ResourceVersion: seen.version})
				return err
			})
		}
		remove(t, kube.AppsV1().Deployments(namespace).Delete, name)
		seen.until(name+" is deleted", event(watch.Deleted, "deployment."+name))
		h.Cut()
	}
}
