// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	configdepv1alpha1 "github.com/configdep/configdep/pkg/generated/clientset/versioned/typed/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/informers"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/hop"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/seeds"
)

// newHopper returns a Hopper for replicas.
func newHopper(t *testing.T, replicas ...*install.Replica) *hop.Hopper {
	t.Helper()
	var addresses []string
	for _, r := range replicas {
		addresses = append(addresses, r.Address())
	}
	h, err := hop.New(addresses...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// through returns a client that connects through a Hopper.
func through(t *testing.T, h *hop.Hopper, r *install.Replica) configdepv1alpha1.ConfigdepV1alpha1Interface {
	t.Helper()
	return clientset(t, h.Config(r.AdminConfig())).ConfigdepV1alpha1()
}

// acquainted waits until each replica knows the versions of the others. A replica that has just started does not,
// for some seconds.
func acquainted(t *testing.T, replicas ...*install.Replica) {
	t.Helper()
	began := time.Now()
	for _, a := range replicas {
		for _, b := range replicas {
			await.Until(t, b.Name()+" knows versions of "+a.Name(), func(ctx context.Context) error {
				list, err := clientset(t, a.AdminConfig()).ConfigdepV1alpha1().ConfigDependencies("default").List(ctx, metav1.ListOptions{})
				if err != nil {
					return err
				}
				w, err := clientset(t, b.AdminConfig()).ConfigdepV1alpha1().ConfigDependencies("default").Watch(ctx,
					metav1.ListOptions{ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true, TimeoutSeconds: new(int64(3))})
				if err != nil {
					return err
				}
				defer w.Stop()
				e, open := <-w.ResultChan()
				switch {
				case !open:
					return errors.New("the watch has ended")
				case e.Type == watch.Error:
					return apierrors.FromObject(e.Object)
				default:
					return nil
				}
			})
		}
	}
	t.Logf("acquainted after %v", time.Since(began))
}

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

// When replicas are replaced one after the other, as an update does, clients resume at another replica and need
// not list again.
func TestRollingRestartWithoutLists(t *testing.T) {
	t.Parallel()
	drains := install.ReplicaOptions{Args: []string{"--shutdown-delay-duration=2s"}}
	replicas := []*install.Replica{replica(t, "roll-0", drains), replica(t, "roll-1", drains)}
	acquainted(t, replicas...)
	namespace := newNamespace(t)
	h := newHopper(t, replicas...)
	f := &hop.Follower{Client: through(t, h, replicas[0]).ConfigDependencies(namespace)}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	defer running.Wait()
	defer stop()
	n := 0
	follows := func() {
		t.Helper()
		n++
		create(t, kube.AppsV1().Deployments(namespace).Create, asleep(fmt.Sprint("app-", n)))
		await.Until(t, "the follower holds the current state", func(context.Context) error {
			if got := len(f.Copy()); got != n {
				return fmt.Errorf("the follower has %d objects, want %d", got, n)
			}
			return nil
		})
	}
	follows()
	for range 2 {
		for _, r := range replicas {
			if err := r.Terminate(); err != nil {
				t.Errorf("%s did not stop in order: %v", r.Name(), err)
			}
			follows()
			restart(t, r)
			acquainted(t, replicas...) // minReadySeconds waits for that
		}
	}
	tally, err := f.Tally()
	if err != nil {
		t.Error(err)
	}
	if tally.Lists != 1 || tally.Watches < 3 {
		t.Errorf("%+v", tally)
	}
}

// A client that resumes at another replica, or from a list in pages, gets no outdated objects: kubectl wait would
// accept a past state.
func TestNothingOldIsReplayed(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	deployments := kube.AppsV1().Deployments(namespace)
	write(t, namespace, "Secret/db", "password", "x")
	web := single("web", envFromSecret("db"))
	optedIn(web, "configdep.io/settle", "1s")
	create(t, deployments.Create, web)
	create(t, deployments.Create, asleep("again"))
	view(t, namespace, "deployment.web", is(v1alpha1.StateInSync, "ContentApplied"))
	write(t, namespace, "Secret/db", "password", "y")
	view(t, namespace, "deployment.web", is(v1alpha1.StateInSync, "ContentApplied"), func(o *v1alpha1.ConfigDependency) error {
		if o.Status.LastReload == nil {
			return errors.New("not restarted yet")
		}
		return nil
	})
	before := view(t, namespace, "deployment.again")
	remove(t, deployments.Delete, "again")
	create(t, deployments.Create, asleep("again"))
	view(t, namespace, "deployment.again", func(o *v1alpha1.ConfigDependency) error {
		if o.UID == before.UID {
			return errors.New("still the previous object")
		}
		return nil
	})
	acquainted(t, server.Replicas...)
	for _, from := range everywhere {
		for _, limit := range []int64{0, 1} {
			list, err := from.ConfigdepV1alpha1().ConfigDependencies(namespace).List(t.Context(), metav1.ListOptions{Limit: limit})
			if err != nil {
				t.Fatal(err)
			}
			for _, to := range everywhere {
				w, err := to.ConfigdepV1alpha1().ConfigDependencies(namespace).Watch(t.Context(),
					metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: new(int64(1))})
				if err != nil {
					t.Fatal(err)
				}
				for e := range w.ResultChan() {
					o, ok := e.Object.(*v1alpha1.ConfigDependency)
					if !ok {
						t.Errorf("from %s to %s: %v", from.name, to.name, apierrors.FromObject(e.Object))
						continue
					}
					// Only inputs beyond the watermark are sent again: here the last one.
					if e.Type == watch.Deleted || o.UID == before.UID || o.Status.State != v1alpha1.StateInSync && o.Name == "deployment.web" {
						t.Errorf("from %s to %s: %s %s, %s", from.name, to.name, e.Type, o.Name, o.Status.State)
					}
				}
			}
		}
	}
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

// kubectl wait continues when the replica that it watches is killed.
func TestKubectlWaitOutlivesReplicas(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("web", envFromSecret("db")))
	view(t, namespace, "deployment.web")
	replicas := []*install.Replica{replica(t, "wait-0", install.ReplicaOptions{}), replica(t, "wait-1", install.ReplicaOptions{})}
	h := newHopper(t, replicas...)
	kubeconfig := kubeconfigOf(t, h.Config(replicas[0].AdminConfig()))
	waited := make(chan error, 1)
	go func() {
		out, err := cluster.Kubectl(t.Context(), "--kubeconfig="+kubeconfig, "-n", namespace, "wait", "--for=condition=SourcesResolved", "cfgdep/deployment.web", "--timeout=2m")
		if err != nil {
			err = errors.Join(err, errors.New(out))
		}
		waited <- err
	}()
	for _, r := range replicas {
		await.Until(t, "kubectl is watching", func(ctx context.Context) error {
			select {
			case err := <-waited:
				t.Fatalf("kubectl wait has ended: %v", err)
			default:
			}
			return watched(ctx, replicas)
		})
		r.Kill()
		restart(t, r)
	}
	write(t, namespace, "Secret/db", "password", "x")
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

// watched returns an error unless a client is watching ConfigDependencies of some replica. A connection alone is no sign of
// that: it may be for an earlier request, which kubectl does not repeat.
func watched(ctx context.Context, replicas []*install.Replica) error {
	for _, r := range replicas {
		samples, err := scrape(ctx, r.Name(), r.AdminConfig())
		if err != nil {
			return err
		}
		for _, s := range samples {
			if s.Metric[model.MetricNameLabel] == "apiserver_longrunning_requests" && s.Metric["verb"] == "WATCH" &&
				s.Metric["resource"] == "configdependencies" && s.Value > 0 {
				return nil
			}
		}
	}
	return errors.New("no client is watching")
}

// kubeconfigOf writes a kubeconfig for a client.
func kubeconfigOf(t *testing.T, c *rest.Config) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["hop"] = &clientcmdapi.Cluster{Server: c.Host, TLSServerName: c.ServerName, CertificateAuthorityData: c.CAData}
	config.AuthInfos["hop"] = &clientcmdapi.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}
	config.Contexts["hop"] = &clientcmdapi.Context{Cluster: "hop", AuthInfo: "hop"}
	config.CurrentContext = "hop"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
