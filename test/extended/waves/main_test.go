// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package waves changes what hundreds of workloads read, with two replicas of the server, and checks on the API server that limits on restarts hold at each
// moment.
package waves

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/pkg/judge"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

var (
	cluster *controlplane.ControlPlane
	server  *install.Installation
	kube    kubernetes.Interface
	apis    []versioned.Interface // of the replicas
)

func TestMain(m *testing.M) {
	os.Exit(install.Run(m, controlplane.Options{Nodes: 2}, install.Options{
		Replicas: 2, Race: install.RaceDetector,
		Args: []string{"--settle=0s", "--release-settle=0s", "--min-interval=0s", "--shutdown-delay-duration=0s", "--leader-elect-lease-duration=4s"},
		Before: func(ctx context.Context, c *controlplane.ControlPlane) error {
			root, err := controlplane.RepositoryRoot()
			if err != nil {
				return err
			}
			_, err = c.Kubectl(ctx, "apply", "-k", filepath.Join(root, "artifacts", "policies"), "--cache-dir="+filepath.Join(c.Dir(), "cache-before"))
			return err
		},
	}, func(c *controlplane.ControlPlane, i *install.Installation) {
		config := c.RESTConfig()
		config.QPS = -1
		cluster, server, kube = c, i, kubernetes.NewForConfigOrDie(config)
		for _, r := range i.Replicas {
			apis = append(apis, versioned.NewForConfigOrDie(r.AdminConfig()))
		}
	}))
}

// fleet is Deployments that have opted in and read the Secret db of their namespace.
type fleet struct {
	*testing.T

	name       string
	namespaces []string
	names      []string // in each namespace
}

func newFleet(t *testing.T, name string, namespaces, each int) *fleet {
	t.Helper()
	f := &fleet{T: t, name: name}
	for i := range namespaces {
		f.namespaces = append(f.namespaces, fmt.Sprintf("%s-%03d", name, i))
	}
	for i := range each {
		f.names = append(f.names, fmt.Sprintf("app-%03d", i))
	}
	f.each(func(ctx context.Context, namespace string) error {
		_, err := kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"fleet": name}}}, metav1.CreateOptions{})
		return err
	})
	f.write("first")
	f.must(await.NextSecond(t.Context()))
	f.each(func(ctx context.Context, namespace string) error {
		return inParallel(ctx, f.names, func(ctx context.Context, app string) error {
			_, err := kube.AppsV1().Deployments(namespace).Create(ctx, deployment(name, app), metav1.CreateOptions{})
			return err
		})
	})
	f.await(map[string]int{"InSync": f.size()})
	return f
}

func deployment(fleet, name string) *appsv1.Deployment {
	labels := map[string]string{"app": name, "fleet": fleet}
	db := corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{policy.ReloadAnnotation: "auto"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app", EnvFrom: []corev1.EnvFromSource{db}}}},
			},
		},
	}
}

func (f *fleet) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fleet) size() int { return len(f.namespaces) * len(f.names) }

func (f *fleet) each(do func(ctx context.Context, namespace string) error) {
	f.Helper()
	f.must(inParallel(f.Context(), f.namespaces, do))
}

func inParallel(ctx context.Context, all []string, do func(context.Context, string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for _, one := range all {
		group.Go(func() error { return do(ctx, one) })
	}
	return group.Wait()
}

// write writes the Secrets, as soon as that is certainly a change for all pods.
func (f *fleet) write(password string) {
	f.Helper()
	await.Until(f, "the pods of "+f.name+" have run for a while", func(ctx context.Context) error {
		pods, err := kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: "fleet=" + f.name})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			at := p.CreationTimestamp.Time
			if c := p.Status.ContainerStatuses; len(c) > 0 && c[0].State.Running != nil {
				at = c[0].State.Running.StartedAt.Time
			}
			if time.Since(at) < judge.ClockMargin+2*time.Second {
				return fmt.Errorf("one was started at %v", at)
			}
		}
		return nil
	})
	f.each(func(ctx context.Context, namespace string) error {
		return apply(ctx, "/api/v1/namespaces/"+namespace+"/secrets/db", fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: db}, stringData: {password: %q}}`, password))
	})
}

const policies = "/apis/policy.configdep.io/v1alpha1/reloadpolicies/"

// apply creates an object of some path, or changes it.
func apply(ctx context.Context, path, text string) error {
	return kube.CoreV1().RESTClient().Patch(types.ApplyPatchType).AbsPath(path).Param("fieldManager", "test").Body([]byte(text)).Do(ctx).Error()
}

// limit creates a ReloadPolicy for the namespaces, or changes it. Its name is that of the fleet.
func (f *fleet) limit(spec string) {
	f.Helper()
	f.must(apply(f.Context(), policies+f.name, fmt.Sprintf("{apiVersion: policy.configdep.io/v1alpha1, kind: ReloadPolicy, metadata: {name: %[1]s}, spec: {namespaceSelector: {matchLabels: {fleet: %[1]s}}, %[2]s}}", f.name, spec)))
	_, err := cluster.Kubectl(f.Context(), "wait", "--for=condition=Accepted", "reloadpolicy/"+f.name, "--timeout=2m")
	f.must(err)
}

func (f *fleet) unlimit() {
	f.Helper()
	f.must(kube.CoreV1().RESTClient().Delete().AbsPath(policies + f.name).Do(f.Context()).Error())
}

// view is what a replica shows of a Deployment.
type view struct{ State, Message string }

// views returns what a replica shows, by namespace and name. The states Pending and Blocked are followed by a slash and the reason.
func (f *fleet) views(ctx context.Context, replica int) (map[string]view, error) {
	list, err := apis[replica].ConfigdepV1alpha1().ConfigDependencies("").List(ctx, metav1.ListOptions{LabelSelector: "fleet=" + f.name})
	if err != nil {
		return nil, err
	}
	out := map[string]view{}
	for i := range list.Items {
		o := &list.Items[i]
		state := string(o.Status.State)
		if o.Status.State == v1alpha1.StatePending || o.Status.State == v1alpha1.StateBlocked {
			state += "/" + o.Status.Reason
		}
		out[o.Namespace+"/"+o.Spec.WorkloadRef.Name] = view{state, o.Status.Message}
	}
	return out, nil
}

// await waits until both replicas show as many Deployments in each state, and the same of each. It returns that.
func (f *fleet) await(want map[string]int) (shown map[string]view) {
	f.Helper()
	await.Until(f, fmt.Sprintf("both replicas show %v", want), func(ctx context.Context) error {
		var of [2]map[string]view
		for i := range of {
			var err error
			if of[i], err = f.views(ctx, i); err != nil {
				return err
			}
			states := map[string]int{}
			for _, v := range of[i] {
				states[v.State]++
			}
			if diff := cmp.Diff(want, states); diff != "" {
				return fmt.Errorf("replica %d (-want +got):\n%s", i, diff)
			}
		}
		shown = of[0]
		if diff := cmp.Diff(of[0], of[1]); diff != "" {
			return errors.New("the replicas differ:\n" + diff)
		}
		return nil
	})
	return shown
}

// awaitWaiting waits until both replicas show that n Deployments wait, with the reason and a message, some are rolling out, and the others are in sync.
func (f *fleet) awaitWaiting(state string, n, rollingOut int, message string) {
	f.Helper()
	want := map[string]int{state: n, "RollingOut": rollingOut}
	if others := f.size() - n - rollingOut; others > 0 {
		want["InSync"] = others
	}
	for name, v := range f.await(want) {
		if want := "Secret/db has changed. " + message; v.State == state && v.Message != want {
			f.Fatalf("the message of %s is\n%s, want\n%s", name, v.Message, want)
		}
	}
}

// metric returns a metric of a replica, by its name and labels.
func metric(ctx context.Context, replica int, name string) (float64, error) {
	text, err := apis[replica].Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, errors.New("no metric " + name)
}

// leader returns which replica leads.
func (f *fleet) leader() (leader int) {
	f.Helper()
	await.Until(f, "a replica leads", func(ctx context.Context) error {
		var last error
		for i := range apis {
			leads, err := metric(ctx, i, "configdep_leader")
			if leader = i; err == nil && leads == 1 {
				return nil
			}
			last = errors.Join(last, err)
		}
		return fmt.Errorf("none does (%w)", last)
	})
	return leader
}

// cordon keeps new pods from being scheduled, so that no rollout becomes complete, or lets them go.
func (f *fleet) cordon(is bool) {
	f.Helper()
	nodes, err := kube.CoreV1().Nodes().List(f.Context(), metav1.ListOptions{})
	f.must(err)
	for i := range nodes.Items {
		_, err := kube.CoreV1().Nodes().Patch(f.Context(), nodes.Items[i].Name, types.MergePatchType, fmt.Appendf(nil, `{"spec": {"unschedulable": %t}}`, is), metav1.PatchOptions{})
		f.must(err)
	}
}

// awaitStuck waits until some number of pods cannot be scheduled.
func (f *fleet) awaitStuck(n int) {
	f.Helper()
	await.Until(f, fmt.Sprintf("%d pods cannot be scheduled", n), func(ctx context.Context) error {
		pods, err := kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: "fleet=" + f.name, FieldSelector: "spec.nodeName="})
		if err != nil {
			return err
		}
		stuck := 0
		for i := range pods.Items {
			if len(pods.Items[i].Status.Conditions) > 0 { // the scheduler says why
				stuck++
			}
		}
		if stuck != n {
			err = fmt.Errorf("%d cannot", stuck)
		}
		return err
	})
}

// wave is what happens to the Deployments from one moment on, as the API server tells it.
type wave struct {
	mu         sync.Mutex
	begun      []string            // restarts, in this order
	inProgress map[string]struct{} // rollouts that are not complete
	most       int                 // how many were in progress at a time
	done       int                 // how many are complete
}

// watch begins a wave.
func (f *fleet) watch() *wave {
	f.Helper()
	of := metav1.ListOptions{LabelSelector: "fleet=" + f.name}
	list, err := kube.AppsV1().Deployments("").List(f.Context(), of)
	f.must(err)
	templates := map[string]string{}
	for i := range list.Items {
		d := &list.Items[i]
		templates[d.Namespace+"/"+d.Name] = fmt.Sprint(d.Spec.Template.Annotations)
	}
	events, err := watchtools.NewRetryWatcherWithContext(f.Context(), list.ResourceVersion, &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.LabelSelector = of.LabelSelector
		return kube.AppsV1().Deployments("").Watch(ctx, o)
	}})
	f.must(err)
	w := &wave{inProgress: map[string]struct{}{}}
	go func() {
		for e := range events.ResultChan() {
			if d, is := e.Object.(*appsv1.Deployment); is {
				w.see(d, templates)
			}
		}
	}()
	return w
}

func (w *wave) see(d *appsv1.Deployment, templates map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key, template := d.Namespace+"/"+d.Name, fmt.Sprint(d.Spec.Template.Annotations)
	if template != templates[key] {
		templates[key], w.inProgress[key] = template, struct{}{}
		w.begun = append(w.begun, key)
		w.most = max(w.most, len(w.inProgress))
	}
	_, inProgress := w.inProgress[key]
	if s, n := &d.Status, *d.Spec.Replicas; inProgress && s.ObservedGeneration == d.Generation && s.UpdatedReplicas == n && s.AvailableReplicas == n && s.Replicas == n {
		delete(w.inProgress, key)
		w.done++
	}
}

// seen returns the restarts so far, how many were in progress at a time, and how many are complete.
func (w *wave) seen() (begun []string, most, done int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.begun), w.most, w.done
}

// awaitWave waits until some restarts have begun, and some are complete.
func (f *fleet) awaitWave(w *wave, wantBegun, wantDone int) {
	f.Helper()
	await.Watching(f, fmt.Sprintf("%d restarts have begun, and %d are complete", wantBegun, wantDone), func(context.Context) error {
		if begun, _, done := w.seen(); len(begun) < wantBegun || done < wantDone {
			return fmt.Errorf("%d have, and %d are", len(begun), done)
		}
		return nil
	})
}
