// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/plan"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

var begin = time.Date(2026, 2, 3, 4, 0, 0, 0, time.UTC)

// world is a cluster in which StatefulSets of two namespaces read the Secret db of their own.
type world struct {
	*ingesttest.Cluster
	*REST
	clock *testingclock.FakePassiveClock
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{clock: testingclock.NewFakePassiveClock(begin)}
	w.Cluster = ingesttest.New(t, w.clock)
	x := ingest.NewIndex(w.clock)
	x.SetDefaults(policy.Defaults{Mode: policy.Auto})
	w.Start(x, ingest.Scope{}, 7)
	w.REST = NewREST(Config{Views: w, Index: x, MaxInProgress: 1, Clock: w.clock})
	w.List()
	return w
}

// Lookup implements Config.Views.
func (w *world) Lookup(namespace, name string) (*v1alpha1.ConfigDependency, error) {
	if namespace == "empty" {
		return nil, apierrors.NewNotFound(v1alpha1.Resource("configdependencies"), name)
	}
	return &v1alpha1.ConfigDependency{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u"}}, nil
}

// set adds a StatefulSet with a pod that has read the Secret.
func (w *world) set(t *testing.T, namespace, name string, annotations map[string]string) {
	t.Helper()
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "app", EnvFrom: []corev1.EnvFromSource{{
		SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}}}}}}
	s := ingesttest.StatefulSet(name, pod)
	s.Namespace, s.UID, s.Annotations, s.Status.UpdateRevision = namespace, types.UID(namespace+name), annotations, "r1"
	w.Set(s)
	w.Set(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name + "-0", UID: types.UID(namespace + name + "-0"), Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: "r1"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: name, UID: s.UID, Controller: new(true)}},
		},
		Spec: pod,
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.clock.Now())}}}}},
	})
}

func (w *world) secret(namespace, content string) {
	s := ingesttest.Secret("db", "password", content)
	s.Namespace = namespace
	w.Set(s)
}

func (w *world) pass(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

func (w *world) ask(namespace string, o *v1alpha1.PlanOptions) (*v1alpha1.ConfigDependencyPlan, error) {
	got, err := w.Get(genericapirequest.WithNamespace(context.Background(), namespace), "statefulset.web", o)
	if err != nil {
		return nil, err
	}
	return got.(*v1alpha1.ConfigDependencyPlan), nil
}

// want compares the restarts of an answer: name, position, in how many seconds it begins, and why it waits.
func want(t *testing.T, what string, got *v1alpha1.ConfigDependencyPlan, err error, restarts ...string) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	var all []string
	for i := range got.Restarts {
		r := &got.Restarts[i]
		text := fmt.Sprint(r.Name, " ", r.Position, " ")
		if r.StartTime != nil {
			text += fmt.Sprint(r.StartTime.Sub(got.Time.Time).Seconds(), "s")
		}
		all = append(all, text+" "+r.Reason)
	}
	if fmt.Sprint(all) != fmt.Sprint(restarts) {
		t.Errorf("%s: restarts %q, want %q", what, all, restarts)
	}
}

// An answer has the restarts of one namespace, and counts those of others, before a change and after it.
func TestGet_ShowsOneNamespace(t *testing.T) {
	w := newWorld(t)
	for _, namespace := range []string{"a", "b"} {
		w.secret(namespace, "1")
		w.pass(time.Minute)
		w.set(t, namespace, "web", nil)
	}
	w.set(t, "b", "api", map[string]string{record.Prefix + "approval": "required"})
	w.pass(time.Hour)

	got, err := w.ask("a", &v1alpha1.PlanOptions{})
	want(t, "nothing is due", got, err)
	got, err = w.ask("a", &v1alpha1.PlanOptions{Assume: "secret/db"})
	want(t, "if it changed", got, err, "statefulset.web 1 0s SourceChanged")
	if got.Assumed != "Secret/db" || got.Summary.ClusterPlanned != 1 || got.UID != "u" {
		t.Errorf("%+v", got)
	}
	got, err = w.ask("b", &v1alpha1.PlanOptions{Assume: "Secret/db", AllNamespaces: true})
	if !apierrors.IsTooManyRequests(err) && err != nil {
		t.Error(err)
	}
	want(t, "in all namespaces", got, err, "statefulset.web 2 60s Budget", "statefulset.api 0  Approval")
	if s := got.Summary; s.Planned != 1 || s.Held != 1 || s.ClusterPlanned != 2 || s.CompletionTime == nil || s.CompletionTime.Sub(got.Time.Time) != 2*time.Minute {
		t.Errorf("summary %+v", s)
	}

	w.secret("a", "2")
	w.pass(time.Hour)
	got, err = w.ask("b", nil)
	want(t, "others", got, err)
	if s := got.Summary; s.ClusterPlanned != 0 { // opted in a moment ago: nothing is recorded yet
		t.Errorf("summary %+v", s)
	}
	if _, err = w.ask("empty", nil); !apierrors.IsNotFound(err) {
		t.Errorf("error = %v", err)
	}
}

// A plan is used again for a while, and one of another assumption is made only after a pause.
func TestGet_Pace(t *testing.T) {
	w := newWorld(t)
	w.secret("a", "1")
	w.set(t, "a", "web", nil)
	slow := time.Duration(0)
	w.Clock = &slowClock{w.clock, &slow}
	first, err := w.ask("a", nil)
	if err != nil {
		t.Fatal(err)
	}
	w.pass(keep - time.Millisecond)
	if again, err := w.ask("a", nil); err != nil || !again.Time.Equal(&first.Time) {
		t.Errorf("answer %+v, %v, want the same plan", again, err)
	}
	slow = time.Second
	w.pass(time.Millisecond)
	if again, err := w.ask("a", nil); err != nil || again.Time.Equal(&first.Time) {
		t.Errorf("answer %+v, %v, want another plan", again, err)
	}
	if _, err := w.ask("a", &v1alpha1.PlanOptions{Assume: "Secret/db"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.ask("a", &v1alpha1.PlanOptions{Assume: "Secret/db"}); err != nil {
		t.Fatal(err)
	}
	_, err = w.ask("a", &v1alpha1.PlanOptions{Assume: "Secret/other"})
	if after, is := apierrors.SuggestsClientDelay(err); !is || !apierrors.IsTooManyRequests(err) || after < 1 {
		t.Errorf("error = %v, want to be asked again later", err)
	}
	w.pass(10 * time.Second)
	if _, err := w.ask("a", &v1alpha1.PlanOptions{Assume: "Secret/other"}); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.pass(time.Minute)
	for err = apierrors.NewTimeoutError("", 0); apierrors.IsTimeout(err); { // or it has its turn before it is seen that the client has gone
		_, err = w.Get(genericapirequest.WithNamespace(ctx, "a"), "statefulset.web", nil)
	}
	if err != nil {
		t.Error(err)
	}
	made := w.clock.Now()
	if again, err := w.ask("a", nil); err != nil || again.Time.After(made) {
		t.Errorf("%+v, %v, want the plan that was made for a client that has gone", again, err)
	}
}

// slowClock advances whenever it is asked.
type slowClock struct {
	*testingclock.FakePassiveClock
	by *time.Duration
}

func (c *slowClock) Now() time.Time {
	now := c.FakePassiveClock.Now()
	c.SetTime(now.Add(*c.by))
	return now
}

func TestGet_RefusesBadOptions(t *testing.T) {
	w := newWorld(t)
	for _, o := range []v1alpha1.PlanOptions{{Assume: "db"}, {Assume: "Secret/"}, {Assume: "Pod/db"}, {Assume: "Secret/*"}, {Assume: "Secret/a/b"}, {AllNamespaces: true}} {
		if _, err := w.ask("a", &o); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "Secret/db") {
			t.Errorf("%+v: error = %v, want 400 that says what is allowed", o, err)
		}
	}
	codec := func() runtime.ParameterCodec {
		scheme := runtime.NewScheme()
		if err := v1alpha1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		return runtime.NewParameterCodec(scheme)
	}()
	var o v1alpha1.PlanOptions
	if err := codec.DecodeParameters(url.Values{"assume": {"Secret/db"}, "allNamespaces": {"true"}}, v1alpha1.SchemeGroupVersion, &o); err != nil || o.Assume != "Secret/db" || !o.AllNamespaces {
		t.Errorf("%+v, %v", o, err)
	}
	if err := codec.DecodeParameters(url.Values{"allNamespaces": {"perhaps"}}, v1alpha1.SchemeGroupVersion, &o); err == nil {
		t.Error("no error")
	}
}

// What an answer has is limited, and the rest is counted.
func TestShow_Limits(t *testing.T) {
	p := newPlan(maxRestarts + 3)
	out, size := show(p, "a")
	if len(out.Restarts) != maxRestarts || out.MoreRestarts != 3 || size > maxBytes || out.Summary.Held != maxRestarts+3 {
		t.Errorf("%d restarts, %d more, %d bytes, %+v", len(out.Restarts), out.MoreRestarts, size, out.Summary)
	}
	for i := range p.Restarts {
		p.Restarts[i].Message = strings.Repeat("x", 4096)
	}
	if out, size = show(p, "a"); size > maxBytes || len(out.Restarts) < 200 || int64(len(out.Restarts))+out.MoreRestarts != maxRestarts+3 {
		t.Errorf("%d restarts, %d more, %d bytes", len(out.Restarts), out.MoreRestarts, size)
	}
}

func newPlan(n int) *plan.Plan {
	p := &plan.Plan{At: begin}
	for i := range n {
		p.Restarts = append(p.Restarts, plan.Restart{Workload: dependency.WorkloadKey{Kind: "StatefulSet", Namespace: "a", Name: fmt.Sprint("s", i)}})
	}
	return p
}
