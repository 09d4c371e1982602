// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/registry/configdependency"
	"github.com/configdep/configdep/pkg/registry/view"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

var (
	now      = time.Date(2026, 2, 3, 4, 5, 0, 0, time.UTC)
	digester = dependency.NewDigester(make([]byte, dependency.KeySize))
	app      = map[string]string{"app": "web"}
)

// cluster has StatefulSet web, which reads Secret db, with pods that stand in different ways
// to a change of it 60 s ago.
type cluster struct {
	*REST
	client *fake.Clientset
	graph  *dependency.Graph
	view   *v1alpha1.ConfigDependency
	synced bool
}

func (c *cluster) Lookup(namespace, name string) (*v1alpha1.ConfigDependency, error) {
	switch {
	case !c.synced:
		return nil, view.NotReady()
	case c.view == nil || namespace != c.view.Namespace || name != c.view.Name:
		return nil, apierrors.NewNotFound(v1alpha1.Resource("configdependencies"), name)
	}
	return c.view, nil
}

func (c *cluster) Read(f func(policy.Evaluator)) bool {
	if c.graph != nil {
		f(policy.Evaluator{Graph: c.graph, Defaults: policy.Defaults{Mode: policy.Off}})
	}
	return c.graph != nil
}

func (*cluster) Progress() dependency.Progress { return dependency.Progress{OneCounter: true} }

func readsDB() corev1.PodSpec {
	return corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{
		{Name: "app", EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}}}},
		{Name: "side"},
	}}
}

// pod returns one that was created and has started some seconds ago.
func pod(name string, seconds int) *corev1.Pod {
	at := metav1.NewTime(now.Add(-time.Duration(seconds) * time.Second))
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(name + "-uid"), CreationTimestamp: at, ResourceVersion: "200",
			Labels:          map[string]string{"app": "web", "controller-revision-hash": "web-1"},
			OwnerReferences: []metav1.OwnerReference{{UID: "web-uid", Controller: new(true)}},
		},
		Spec: readsDB(),
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "app", State: running, RestartCount: 2}, {Name: "side", State: running},
		}},
	}
}

func secret(value, version string, at time.Time) *dependency.Source {
	return dependency.FromSecret(digester, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", ResourceVersion: version, CreationTimestamp: metav1.NewTime(at)},
		Data:       map[string][]byte{"password": []byte(value)},
	}, dependency.SourceMarks{})
}

func newCluster(pods ...runtime.Object) *cluster {
	o := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web-uid", ResourceVersion: "90"},
		Spec:       appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: app}, Template: corev1.PodTemplateSpec{Spec: readsDB()}},
		Status:     appsv1.StatefulSetStatus{UpdateRevision: "web-2"},
	}
	c := &cluster{client: fake.NewClientset(append(pods, o)...), graph: dependency.NewGraph(), synced: true}
	before, after := secret("x", "100", now.Add(-time.Hour)), secret("y", "210", now.Add(-time.Minute))
	before.After(nil, nil, dependency.Arrival{})
	after.After(before, nil, dependency.Arrival{Live: true, Seen: now.Add(-time.Minute)})
	c.graph.SetDigester(digester)
	c.graph.SetSource(after)
	w := workloadtest.Read(o)
	c.graph.SetWorkload(w, dependency.Patterns{})
	e := policy.Evaluator{Graph: c.graph, Defaults: policy.Defaults{Mode: policy.Off}}.Evaluate(w)
	c.view = configdependency.Render(nil, e, e.Decide(policy.Observed{Now: now}))
	c.REST = NewREST(Config{
		Views: c, Index: c, Client: workloadtest.Client(c.client), Clock: testingclock.NewFakePassiveClock(now),
	})
	return c
}

func (c *cluster) get(name string) (*v1alpha1.ConfigDependencyPods, error) {
	ctx := genericapirequest.WithNamespace(context.Background(), "shop")
	o, err := c.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return o.(*v1alpha1.ConfigDependencyPods), nil
}

func TestGetShowsWhichPodsAreStale(t *testing.T) {
	ending := pod("web-2", 600)
	ending.DeletionTimestamp, ending.Finalizers = new(metav1.NewTime(now)), []string{"x"}
	fresh := pod("web-1", 10)
	fresh.Labels["controller-revision-hash"] = "web-2"
	waiting := pod("web-3", 10)
	waiting.Status = corev1.PodStatus{Phase: corev1.PodPending}
	unsure := pod("web-4", 60)
	unsure.ResourceVersion = "220"
	c := newCluster(pod("web-0", 600), fresh, ending, waiting, unsure)
	got, err := c.get("statefulset.web")
	if err != nil {
		t.Fatal(err)
	}
	if want := (v1alpha1.PodSummary{Current: 1, Stale: 1, Unknown: 1, NotStarted: 1, Terminating: 1}); got.Summary != want {
		t.Errorf("the summary is %+v", got.Summary)
	}
	want := &v1alpha1.ConfigDependencyPods{
		ObjectMeta:       metav1.ObjectMeta{Namespace: "shop", Name: "statefulset.web", UID: c.view.UID},
		WorkloadRef:      c.view.Spec.WorkloadRef,
		Time:             metav1.NewTime(now),
		ConfigHash:       c.view.Status.ConfigHash,
		TemplateRevision: "web-2",
		Summary:          got.Summary,
		Pods: []v1alpha1.PodContent{{
			Name: "web-0", UID: "web-0-uid", NodeName: "node-1", Phase: "Running", CreationTimestamp: metav1.NewTime(now.Add(-600 * time.Second)),
			TemplateRevision: "web-1", State: "Stale", Reason: "StartedBefore", Message: "Secret db has changed since the container started.", StaleSources: []string{"Secret/db"},
			Containers: []v1alpha1.ContainerContent{
				{
					Name: "app", Type: "Regular", StartedAt: new(metav1.NewTime(now.Add(-600 * time.Second))), RestartCount: 2,
					State: "Stale", Reason: "StartedBefore", Message: "Secret db has changed since the container started.",
					Sources: []v1alpha1.ContainerSource{{
						Kind: "Secret", Name: "db", State: "Stale", Reason: "StartedBefore", Message: "Secret db has changed since the container started.",
						LastChanged: new(metav1.NewTime(now.Add(-time.Minute))),
					}},
				},
				{
					Name: "side", Type: "Regular", StartedAt: new(metav1.NewTime(now.Add(-600 * time.Second))),
					State: "Current", Reason: "NothingRead", Message: "It reads no ConfigMap or Secret whose changes count.",
				},
			},
		}},
	}
	all := got.Pods
	got.Pods = got.Pods[:1]
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got.Pods = all
	table, err := c.ConvertToTable(t.Context(), got, nil)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, r := range table.Rows {
		rows = append(rows, fmt.Sprint(r.Cells[0], " ", r.Cells[1], " ", r.Cells[3], " ", r.Cells[6]))
		o := r.Object.Object.(*v1alpha1.ConfigDependencyPods)
		if o.Name != r.Cells[0] || len(o.Pods) != 1 || o.Pods[0].Name != o.Name || len(r.Cells) != len(table.ColumnDefinitions) {
			t.Errorf("row %v has %d pods of %s", r.Cells, len(o.Pods), o.Name)
		}
	}
	if diff := cmp.Diff([]string{
		"web-0 Stale web-1 (old) Secret/db",
		"web-1 Current web-2 <none>",
		"web-2 Terminating web-1 (old) Secret/db",
		"web-3 NotStarted web-1 (old) <none>",
		"web-4 Unknown web-1 (old) <none>",
	}, rows); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	if _, err := json.Marshal(got); err != nil {
		t.Error(err)
	}
}

func TestGetIsRefused(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", fmt.Errorf("User \"configdep\" cannot list resource \"pods\""))
	fails := func(verb, resource string, err error) func(*cluster) {
		return func(c *cluster) {
			c.client.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
		}
	}
	tests := map[string]struct {
		do   func(*cluster)
		name string
		want func(error) bool
	}{
		"a name that is none":           {func(*cluster) {}, "statefulset.other", apierrors.IsNotFound},
		"before the first sync":         {func(c *cluster) { c.synced = false }, "statefulset.web", apierrors.IsServiceUnavailable},
		"while the index is read again": {func(c *cluster) { c.graph = nil }, "statefulset.web", apierrors.IsServiceUnavailable},
		"deleted just now": {fails("get", "statefulsets", apierrors.NewNotFound(schema.GroupResource{Resource: "statefulsets"}, "web")),
			"statefulset.web", apierrors.IsNotFound},
		"gone from the index":       {func(c *cluster) { c.graph = dependency.NewGraph() }, "statefulset.web", apierrors.IsNotFound},
		"the server lacks a right":  {fails("list", "pods", forbidden), "statefulset.web", apierrors.IsInternalError},
		"the API server is busy":    {fails("list", "pods", apierrors.NewTooManyRequests("busy", 2)), "statefulset.web", apierrors.IsTooManyRequests},
		"a page that has expired":   {fails("list", "pods", apierrors.NewResourceExpired("too old")), "statefulset.web", apierrors.IsServerTimeout},
		"an answer that is none":    {fails("list", "pods", context.DeadlineExceeded), "statefulset.web", apierrors.IsInternalError},
		"too many requests at once": {func(c *cluster) { c.fill() }, "statefulset.web", apierrors.IsTooManyRequests},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(pod("web-0", 600))
			tt.do(c)
			got, err := c.get(tt.name)
			if !tt.want(err) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// fill takes all places for requests.
func (c *cluster) fill() {
	for range maxRequests {
		c.requests <- struct{}{}
	}
}

// A request gives its place back, however it ended.
func TestRequestsMakeRoomForOthers(t *testing.T) {
	c := newCluster(pod("web-0", 600))
	for i := range 3 * maxRequests {
		if _, err := c.get("statefulset.web"); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	c.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, context.Canceled })
	for i := range 3 * maxRequests {
		if _, err := c.get("statefulset.web"); !apierrors.IsInternalError(err) {
			t.Fatalf("request %d: %v", i, err)
		}
	}
}

func TestTruncatedAnswersSaySo(t *testing.T) {
	c := newCluster(pod("web-0", 600))
	c.maxPods = 1
	c.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.PodList{ListMeta: metav1.ListMeta{Continue: "1"}, Items: []corev1.Pod{*pod("web-0", 600)}}, nil
	})
	got, err := c.get("statefulset.web")
	if err != nil || !got.Truncated || len(got.Pods) != 1 || got.Message != "Only the first 1 pods that the selector matches were read." {
		t.Errorf("%+v, %v", got, err)
	}
}
