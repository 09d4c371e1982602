// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

//go:build extended

package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/informers"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/hop"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/seeds"
)

// Two replicas serve clients that switch between them all the time, while one or the other is killed and all
// inputs change. In the end, every client holds the correct state.
func TestClientsHopBetweenReplicas(t *testing.T) {
	t.Parallel()
	replicas := []*install.Replica{replica(t, "hop-0", install.ReplicaOptions{}), replica(t, "hop-1", install.ReplicaOptions{})}
	acquainted(t, replicas...)
	h := newHopper(t, replicas...)
	namespaces := []string{newNamespace(t), newNamespace(t)}
	const ours = "hop=yes"

	// The log of the informers is printed if the test fails.
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(4), textlogger.Output(t.Output())))
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	copies := map[string]func() map[string]*v1alpha1.ConfigDependency{}
	var watching []*hop.Client
	for name, streaming := range map[string]bool{"an informer that starts with a watch": true, "an informer that lists": false} {
		informer := hop.NewInformer(through(t, h, replicas[0]), hop.Selection{Labels: ours}, streaming)
		running.Go(func() { informer.Run(ctx) })
		copies[name] = informer.Copy
		watching = append(watching, informer)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clientset(t, h.Config(replicas[0].AdminConfig())), 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = ours }))
	copies["an informer of the factory"] = hop.CopyOf(factory.Configdep().V1alpha1().ConfigDependencies().Informer())
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	defer stop()
	var followers []*hop.Follower
	for i := range 3 {
		f := &hop.Follower{Client: through(t, h, replicas[0]).ConfigDependencies(""), Options: metav1.ListOptions{LabelSelector: ours, Limit: int64(i * 7)}}
		followers = append(followers, f)
		running.Go(func() { f.Run(ctx) })
		copies[fmt.Sprintf("follower %d", i)] = f.Copy
	}

	asked, err := seeds.Read()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d; again: %s=%[1]d", asked.First, seeds.Variable)
	r := rand.New(rand.NewPCG(asked.First, 0))
	for step := range 120 {
		change(t, r, namespaces[r.IntN(len(namespaces))])
		switch {
		case step%40 == 39:
			r := replicas[step/40%2]
			r.Kill()
			if err := r.Start(); err != nil {
				t.Fatal(err)
			}
		case r.IntN(8) == 0:
			h.Cut()
		}
	}
	for _, r := range replicas {
		if err := r.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// All differences are reported, because they show whether a client or a replica has missed a change.
	await.Until(t, "all clients hold the current state", func(ctx context.Context) error {
		var errs []error
		for name, held := range copies {
			if err := compare(ctx, t, held, replicas, ours); err != nil {
				errs = append(errs, fmt.Errorf("%s (%d connections are open): %w", name, h.Open(), err))
			}
		}
		return errors.Join(errs...)
	})
	// The lister of the factory returns the objects that its informer holds.
	listed, err := factory.Configdep().V1alpha1().ConfigDependencies().Lister().ConfigDependencies(namespaces[0]).List(labels.Everything())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range listed {
		if o.Namespace != namespaces[0] {
			t.Errorf("the lister of a namespace returns an object of %s", o.Namespace)
		}
	}
	stop()
	running.Wait()
	for _, c := range watching {
		if tally, err := c.Tally(); err != nil {
			t.Errorf("%s: %s: %v", c.Name, tally, err)
		}
	}
	for i, f := range followers {
		tally, err := f.Tally()
		if t.Logf("follower %d: %+v", i, tally); err != nil {
			t.Error(err)
		}
		if tally.Watches < 5 {
			t.Errorf("follower %d never switched replicas", i)
		}
	}
}

// change changes an input of the objects of a namespace.
func change(t *testing.T, r *rand.Rand, namespace string) {
	t.Helper()
	apps, secrets := kube.AppsV1().Deployments(namespace), kube.CoreV1().Secrets(namespace)
	app, source := fmt.Sprint("app-", r.IntN(8)), fmt.Sprint("s", r.IntN(3))
	var err error
	switch r.IntN(6) {
	case 0:
		err = apps.Delete(t.Context(), app, metav1.DeleteOptions{})
	case 1:
		err = secrets.Delete(t.Context(), source, metav1.DeleteOptions{})
	case 2:
		s := secret(source, map[string]string{"password": fmt.Sprint(r.Uint64())})
		if _, err = secrets.Create(t.Context(), s, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
			_, err = secrets.Update(t.Context(), s, metav1.UpdateOptions{})
		}
	default:
		d := asleep(app, envFromSecret(source))
		d.Labels["hop"] = []string{"yes", "yes", "no"}[r.IntN(3)]
		if _, err = apps.Create(t.Context(), d, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
			_, err = apps.Update(t.Context(), d, metav1.UpdateOptions{})
		}
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		t.Fatal(err)
	}
}

// compare returns the differences between the objects of a client and the list of each replica, and between that
// list and the existing workloads.
func compare(ctx context.Context, t *testing.T, held func() map[string]*v1alpha1.ConfigDependency, replicas []*install.Replica, selector string) error {
	t.Helper()
	workloads, err := kube.AppsV1().Deployments("").List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return err
	}
	var errs []error // all errors, because they show whether a replica or the client is behind
	for _, r := range replicas {
		list, err := clientset(t, r.AdminConfig()).ConfigdepV1alpha1().ConfigDependencies("").List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		if len(list.Items) != len(workloads.Items) {
			errs = append(errs, fmt.Errorf("%s lists %d objects for %d workloads", r.Name(), len(list.Items), len(workloads.Items)))
			continue
		}
		want := map[string]*v1alpha1.ConfigDependency{}
		for i := range list.Items {
			want[list.Items[i].Namespace+"/"+list.Items[i].Name] = &list.Items[i]
		}
		if err := hop.Diff(want, held()); err != nil {
			errs = append(errs, fmt.Errorf("compared with the list of %s at %s: %w", r.Name(), list.ResourceVersion, err))
		}
	}
	return errors.Join(errs...)
}

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
