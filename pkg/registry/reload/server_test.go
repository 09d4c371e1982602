// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	authuser "k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	eventrecord "k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/dependency/dependencytest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/render"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// readingDB makes a Deployment read the Secret db.
func readingDB(o *appsv1.Deployment) {
	o.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", EnvFrom: []corev1.EnvFromSource{
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}},
	}}}
}

// off are the defaults of a server without automatic restarts.
var off = policy.Defaults{Mode: policy.Off}

// newGraph returns an empty graph.
func newGraph() *dependency.Graph {
	graph := dependency.NewGraph()
	graph.SetDigester(digester)
	return graph
}

// withDB returns a graph with the Secret db.
func withDB() *dependency.Graph {
	graph := newGraph()
	write(graph, now.Add(-3*time.Hour), dependency.Arrival{}, "x")
	return graph
}

// write writes the Secret db at a time.
func write(graph *dependency.Graph, written time.Time, at dependency.Arrival, password string) {
	at.Live = !at.Seen.IsZero()
	s := dependencytest.Source(digester, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "db", ResourceVersion: strconv.FormatInt(written.Unix(), 10),
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "owner", Time: new(metav1.NewTime(written)), FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}},
		},
		Data: map[string][]byte{"password": []byte(password)},
	}, dependency.SourceMarks{})
	s.Remember(graph.Source(s.SourceKey), graph, at)
	graph.SetSource(s)
}

// changed changes the Secret db at a time, as the server sees at once.
func changed(graph *dependency.Graph, at time.Time) {
	write(graph, at, dependency.Arrival{Seen: at}, "y")
}

// started adds a pod of Deployment web, whose container started at a time.
func started(graph *dependency.Graph, name, revision string, at time.Time) {
	graph.SetPod(&dependency.Pod{
		PodKey: dependency.PodKey{Namespace: "shop", Name: name}, UID: types.UID(name), Workload: dependency.WorkloadKey{Kind: kind.Deployment, Namespace: "shop", Name: "web"},
		Created: at, Revision: revision, Containers: []dependency.PodContainer{{Name: "app", Started: at}},
	})
}

// evicting sets the annotations of a Deployment whose pods are being evicted in favor of pods with a hash, and its
// strategy, which may have changed since.
func evicting(hash, strategy string) func(*appsv1.Deployment) {
	return func(o *appsv1.Deployment) {
		o.Annotations = map[string]string{
			policy.ReloadAnnotation: "auto", policy.StrategyAnnotation: strategy,
			record.ConfigHashAnnotation: hash, record.RecreatingAnnotation: "2026-01-01T00:00:00Z",
		}
	}
}

// stubViews and stubGraph serve one view and no sources.
type stubViews struct{ view *v1alpha1.ConfigDependency }

type stubGraph decide.Evaluator

var (
	digester = dependency.NewDigester(make([]byte, dependency.KeySize))
	present  = digester.ContentHash("shop", nil) // the hash of a workload without sources
	stale    = present[:len(present)-4] + "beef"
	now      = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
)

func testMeta(kind dependency.WorkloadKind) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: types.UID(kind + "-uid"), ResourceVersion: "7", Generation: 3}
}

func testView(kind dependency.WorkloadKind) *v1alpha1.ConfigDependency {
	m := testMeta(kind)
	key := dependency.WorkloadKey{Kind: kind, Namespace: m.Namespace, Name: m.Name}
	e := decide.Evaluator{Graph: newGraph(), Defaults: policy.Defaults{Mode: policy.Off}}.Evaluate(&dependency.Workload{WorkloadKey: key, UID: m.UID})
	return render.ConfigDependency(nil, e, e.Decide(now))
}

func testDeployment(change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	o := &appsv1.Deployment{
		ObjectMeta: testMeta(kind.Deployment),
		Status:     appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1},
	}
	for _, f := range change {
		f(o)
	}
	return o
}

func startedWith(hash string) func(*appsv1.Deployment) {
	return func(o *appsv1.Deployment) {
		o.Spec.Template.Annotations = map[string]string{record.ConfigHashAnnotation: hash}
	}
}

// server is the storage, with a cluster of one workload.
type server struct {
	*REST
	client *fake.Clientset
	events *eventrecord.FakeRecorder
}

func newServer(view *v1alpha1.ConfigDependency, objects ...runtime.Object) *server {
	client := fake.NewClientset(objects...)
	events := eventrecord.NewFakeRecorder(10)
	events.IncludeObject = true
	return &server{client: client, events: events, REST: &REST{
		Views:  stubViews{view},
		Index:  stubGraph{Graph: newGraph(), Defaults: off},
		Client: workloadtest.Client(client),
		Sink:   notify.KubernetesEvents{Recorder: events},
		Clock:  testingclock.NewFakePassiveClock(now),
	}}
}

func (s stubViews) Lookup(namespace, name string) (*v1alpha1.ConfigDependency, error) {
	if s.view == nil || s.view.Namespace != namespace || s.view.Name != name {
		return nil, apierrors.NewNotFound(v1alpha1.Resource("configdependencies"), name)
	}
	return s.view, nil
}

// Read acts as an index that has synced or, with a nil graph, one that has not.
func (s stubGraph) Read(f func(decide.Evaluator)) bool {
	if s.Graph == nil {
		return false
	}
	f(decide.Evaluator(s))
	return true
}

func (s *server) create(name string, request *v1alpha1.Reload, options metav1.CreateOptions) (*v1alpha1.Reload, error) {
	ctx := genericapirequest.WithNamespace(context.Background(), "shop")
	ctx = genericapirequest.WithUser(ctx, &authuser.DefaultInfo{Name: "ada"})
	o, err := s.Create(ctx, name, request, nil, &options)
	if err != nil {
		return nil, err
	}
	return o.(*v1alpha1.Reload), nil
}

// patches returns the patches that were sent.
func (s *server) patches() (out []clienttesting.PatchActionImpl) {
	for _, a := range s.client.Actions() {
		if p, ok := a.(clienttesting.PatchActionImpl); ok {
			out = append(out, p)
		}
	}
	return out
}

func (s *server) told() (out []string) {
	for {
		select {
		case e := <-s.events.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}
