package reload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	authuser "k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/registry/configdependency"
)

// hashA and hashB are hashes of no content.
const (
	hashA = "v1.aabbccdd.00000000000000000000000000000001"
	hashB = "v1.aabbccdd.00000000000000000000000000000002"
)

// readingDB makes a Deployment read the Secret db.
func readingDB(o *appsv1.Deployment) {
	o.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", EnvFrom: []corev1.EnvFromSource{
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}},
	}}}
}

// withDB returns a graph with the Secret db.
func withDB() *dependency.Graph {
	graph := dependency.NewGraph()
	graph.SetSource(dependency.FromSecret(digester, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Data: map[string][]byte{"password": []byte("x")},
	}))
	return graph
}

// recorded makes the annotations of a Deployment tell with which content its pods were
// started.
func recorded(r policy.Record) func(*appsv1.Deployment) {
	return func(o *appsv1.Deployment) {
		sources, err := json.Marshal(r.Sources)
		if err != nil {
			panic(err)
		}
		o.Annotations = map[string]string{policy.ConfigHashAnnotation: r.Hash, policy.AppliedSourcesAnnotation: string(sources)}
	}
}

// evicting makes a Deployment one whose pods are being evicted, in favour of those that are
// started with a hash, and gives it a strategy that may be another by now.
func evicting(hash, strategy string) func(*appsv1.Deployment) {
	return func(o *appsv1.Deployment) {
		o.Annotations = map[string]string{
			policy.ReloadAnnotation: "auto", policy.StrategyAnnotation: strategy,
			policy.ConfigHashAnnotation: hash, policy.RecreatingAnnotation: "2026-01-01T00:00:00Z",
		}
	}
}

func TestIfStaleRestartsOnlyWhatIsKnownToBeStale(t *testing.T) {
	present := policy.Evaluate(withDB(), digester, dependency.FromDeployment(testDeployment(readingDB)), policy.Defaults{Mode: policy.Off}).Present()
	hash := present.Hash
	prefix := "v1." + digester.KeyID() + "."
	stale := prefix + "00000000000000000000000000000002"
	bySource := func(entry string) func(*appsv1.Deployment) {
		return recorded(policy.Record{Hash: stale, Sources: map[string]string{"Secret/db": entry}})
	}
	tests := map[string]struct {
		mode   v1alpha1.ReloadRequestMode
		record func(*appsv1.Deployment)
		says   string // empty: it restarts
	}{
		"Always, when in sync":                        {v1alpha1.ReloadAlways, startedWith(hash), ""},
		"Always, when nothing is known":               {v1alpha1.ReloadAlways, startedWith(""), ""},
		"Always, when stale":                          {v1alpha1.ReloadAlways, startedWith(stale), ""},
		"IfStale, when stale":                         {v1alpha1.ReloadIfStale, startedWith(stale), ""},
		"IfStale, when in sync":                       {v1alpha1.ReloadIfStale, startedWith(hash), "with the present content"},
		"IfStale, when nothing is known":              {v1alpha1.ReloadIfStale, startedWith(""), "not recorded"},
		"IfStale, with another key":                   {v1alpha1.ReloadIfStale, startedWith(strings.Replace(stale, digester.KeyID(), "00112233", 1)), "another key"},
		"IfStale, with another version":               {v1alpha1.ReloadIfStale, startedWith(strings.Replace(stale, "v1", "v2", 1)), "another key"},
		"IfStale, with a hash of its own":             {v1alpha1.ReloadIfStale, startedWith("none"), "another key"},
		"IfStale, with the end of the hash":           {v1alpha1.ReloadIfStale, startedWith(hash[len(prefix):]), "another key"},
		"IfStale, with a hash without digest":         {v1alpha1.ReloadIfStale, startedWith(prefix), ""},
		"IfStale, while pods are evicted":             {v1alpha1.ReloadIfStale, evicting(hash, "recreate"), "being evicted already"},
		"IfStale, when they are not evicted any more": {v1alpha1.ReloadIfStale, evicting(hash, "annotation"), ""},
		// What stands on the workload tells of each source, and is newer than the template.
		"IfStale, with a record of the content":         {v1alpha1.ReloadIfStale, recorded(present), "with the present content"},
		"IfStale, with a record of other content":       {v1alpha1.ReloadIfStale, bySource("*.0123456789abcdef.1"), ""},
		"IfStale, when the template reads other keys":   {v1alpha1.ReloadIfStale, bySource("00000000.0123456789abcdef.1"), "with the present content"},
		"IfStale, when the template reads a new source": {v1alpha1.ReloadIfStale, recorded(policy.Record{Hash: stale, Sources: map[string]string{}}), "with the present content"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			view := testView(dependency.Deployment)
			live := testDeployment(readingDB, tt.record)
			s := newServer(view, live)
			s.Graph = stubGraph{withDB()}
			got, err := s.create(view.Name, &v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Mode: tt.mode}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			restarted := len(s.patches()) == 1
			if restarted != (tt.says == "") || got.Status.Triggered != restarted || !strings.Contains(got.Status.Message, tt.says) {
				t.Errorf("restarted: %v, status %+v, want a message that says %q", restarted, got.Status, tt.says)
			}
			if want := policy.RecordOf(dependency.FromDeployment(live)).Hash; got.Status.PreviousHash != want || got.Status.ConfigHash != hash {
				t.Errorf("hash %s, before %s; want %s, before %s", got.Status.ConfigHash, got.Status.PreviousHash, hash, want)
			}
		})
	}
}

func TestPreconditions(t *testing.T) {
	view := &v1alpha1.ConfigDependency{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment.web", UID: "view-uid"},
		Spec:       v1alpha1.ConfigDependencySpec{WorkloadRef: v1alpha1.WorkloadReference{UID: "workload-uid"}},
	}
	live := func(uid types.UID) *dependency.Workload {
		return &dependency.Workload{WorkloadKey: dependency.WorkloadKey{Kind: dependency.Deployment, Name: "web"}, UID: uid}
	}
	with := func(uid *types.UID, hash *string) *v1alpha1.Reload {
		return &v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Preconditions: &v1alpha1.ReloadPreconditions{UID: uid, ConfigHash: hash}}}
	}
	tests := map[string]struct {
		request *v1alpha1.Reload
		live    *dependency.Workload
		says    string // empty: they hold
	}{
		"none":                         {&v1alpha1.Reload{}, live("workload-uid"), ""},
		"empty ones":                   {with(nil, nil), live("workload-uid"), ""},
		"the UID of the view":          {with(new(types.UID("view-uid")), nil), live("workload-uid"), ""},
		"the UID of the workload":      {with(new(types.UID("workload-uid")), nil), live("workload-uid"), ""},
		"another UID":                  {with(new(types.UID("x")), nil), live("workload-uid"), `uid is "x"`},
		"an empty UID":                 {with(new(types.UID("")), nil), live("workload-uid"), `uid is ""`},
		"the UID in the metadata":      {&v1alpha1.Reload{ObjectMeta: metav1.ObjectMeta{UID: "view-uid"}}, live("workload-uid"), ""},
		"another one in the metadata":  {&v1alpha1.Reload{ObjectMeta: metav1.ObjectMeta{UID: "x"}}, live("workload-uid"), `uid is "x"`},
		"the present hash":             {with(nil, new(hashA)), live("workload-uid"), ""},
		"another hash":                 {with(nil, new(hashB)), live("workload-uid"), "configHash is"},
		"an empty hash":                {with(nil, new("")), live("workload-uid"), "configHash is"},
		"a workload of the same name,": {&v1alpha1.Reload{}, live("new-uid"), "deleted and created again"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := checkPreconditions(view, tt.request, tt.live, hashA)
			if tt.says == "" {
				if err != nil {
					t.Errorf("error %v", err)
				}
				return
			}
			if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v, want a conflict that says %q", err, tt.says)
			}
		})
	}
}

var deployments = schema.GroupResource{Group: "apps", Resource: "deployments"}

var (
	deniedByRole      = forbidden(`User "system:serviceaccount:configdep-system:configdep" cannot patch resource "deployments" in API group "apps" in the namespace "shop"`)
	deniedByAdmission = forbidden("ValidatingAdmissionPolicy 'freeze' denied request: no rollouts on Fridays")
	deniedByQuota     = forbidden("exceeded quota: compute")
)

func forbidden(why string) error {
	return apierrors.NewForbidden(deployments, "web", errors.New(why))
}

func TestErrorsOfTheAPIServer(t *testing.T) {
	view := testView(dependency.Deployment)
	tests := map[string]struct {
		err  error
		code int32
		says string
	}{
		"the workload has gone":            {apierrors.NewNotFound(deployments, "web"), http.StatusNotFound, `configdependencies.configdep.io "deployment.web" not found`},
		"our rights do not suffice":        {deniedByRole, http.StatusInternalServerError, "configdep lacks a right, not you"},
		"what right is told":               {deniedByRole, http.StatusInternalServerError, `cannot patch resource "deployments"`},
		"nor those to read":                {forbidden(`User "x" cannot get resource "deployments"`), http.StatusInternalServerError, "configdep lacks a right"},
		"a policy refuses":                 {deniedByAdmission, http.StatusForbidden, "no rollouts on Fridays"},
		"a quota refuses":                  {deniedByQuota, http.StatusForbidden, "exceeded quota"},
		"a webhook finds it invalid":       {apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "web", nil), http.StatusUnprocessableEntity, "is invalid"},
		"it changes all the time":          {apierrors.NewConflict(deployments, "web", errors.New("the object has been modified")), http.StatusConflict, "has been modified"},
		"the API server is busy":           {apierrors.NewTooManyRequests("busy", 1), http.StatusTooManyRequests, "busy"},
		"wrapped, which would be a 500":    {fmt.Errorf("patching: %w", deniedByQuota), http.StatusForbidden, "exceeded quota"},
		"the connection broke":             {errors.New("connection refused"), http.StatusInternalServerError, "restarting Deployment web: connection refused"},
		"the client has not waited for us": {context.Canceled, http.StatusInternalServerError, "restarting Deployment web: context canceled"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			status, ok := apiError(tt.err, view).(apierrors.APIStatus)
			if !ok {
				t.Fatal("not an API error by itself, so the generic API server makes a 500 of it")
			}
			if got := status.Status(); got.Code != tt.code || !strings.Contains(got.Message, tt.says) {
				t.Errorf("%d %s, want %d and %q", got.Code, got.Message, tt.code, tt.says)
			}
		})
	}
}

// stubViews and stubGraph serve one view and no sources.
type stubViews struct{ view *v1alpha1.ConfigDependency }

func (s stubViews) Lookup(namespace, name string) (*v1alpha1.ConfigDependency, error) {
	if s.view == nil || s.view.Namespace != namespace || s.view.Name != name {
		return nil, apierrors.NewNotFound(v1alpha1.Resource("configdependencies"), name)
	}
	return s.view, nil
}

type stubGraph struct{ *dependency.Graph }

// Read is that of an index that has synced, or with a nil graph of one that has not.
func (s stubGraph) Read(f func(*dependency.Graph)) bool {
	if s.Graph == nil {
		return false
	}
	f(s.Graph)
	return true
}

var (
	digester = dependency.NewDigester(make([]byte, dependency.KeySize))
	present  = digester.ConfigHash(nil, nil, nil) // of a workload without sources
	stale    = present[:len(present)-4] + "beef"
	now      = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
)

func testMeta(kind dependency.WorkloadKind) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: types.UID(kind + "-uid"), ResourceVersion: "7", Generation: 3}
}

func testView(kind dependency.WorkloadKind) *v1alpha1.ConfigDependency {
	m := testMeta(kind)
	key := dependency.WorkloadKey{Kind: kind, Namespace: m.Namespace, Name: m.Name}
	e := policy.Evaluate(dependency.NewGraph(), digester, &dependency.Workload{WorkloadKey: key, UID: m.UID}, policy.Defaults{Mode: policy.Off})
	return configdependency.Render(e, e.Decide(policy.Observed{Now: now}), 7)
}

func testDeployment(change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	o := &appsv1.Deployment{ObjectMeta: testMeta(dependency.Deployment)}
	for _, f := range change {
		f(o)
	}
	return o
}

func startedWith(hash string) func(*appsv1.Deployment) {
	return func(o *appsv1.Deployment) {
		o.Spec.Template.Annotations = map[string]string{policy.ConfigHashAnnotation: hash}
	}
}

// server is the storage with a cluster of one workload behind it.
type server struct {
	*REST
	client *fake.Clientset
	events *record.FakeRecorder
}

func newServer(view *v1alpha1.ConfigDependency, objects ...runtime.Object) *server {
	client := fake.NewClientset(objects...)
	events := record.NewFakeRecorder(10)
	events.IncludeObject = true
	return &server{client: client, events: events, REST: &REST{
		Views:    stubViews{view},
		Graph:    stubGraph{dependency.NewGraph()},
		Client:   client,
		Recorder: events,
		Clock:    testingclock.NewFakePassiveClock(now),
		Defaults: policy.Defaults{Mode: policy.Off},
		Digester: func() *dependency.Digester { return digester },
	}}
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

// patches returns what was sent.
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

// A Reload restarts the pods: the template gets a new annotation and the workload a
// record, under our field manager, and the user an answer and an event.
func TestReloadRestartsAWorkload(t *testing.T) {
	for kind, o := range map[dependency.WorkloadKind]runtime.Object{
		dependency.Deployment:  testDeployment(startedWith(stale)),
		dependency.StatefulSet: &appsv1.StatefulSet{ObjectMeta: testMeta(dependency.StatefulSet)},
		dependency.DaemonSet:   &appsv1.DaemonSet{ObjectMeta: testMeta(dependency.DaemonSet)},
	} {
		t.Run(string(kind), func(t *testing.T) {
			view := testView(kind)
			s := newServer(view, o)
			got, err := s.create(view.Name, &v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Reason: "rotated"}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}

			previous := ""
			if kind == dependency.Deployment {
				previous = stale
			}
			want := &v1alpha1.Reload{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: view.Name, CreationTimestamp: metav1.NewTime(now)},
				Spec:       v1alpha1.ReloadSpec{Reason: "rotated", Mode: v1alpha1.ReloadAlways},
				Status: v1alpha1.ReloadStatus{
					Triggered:    true,
					WorkloadRef:  &view.Spec.WorkloadRef,
					Generation:   3,
					PreviousHash: previous,
					ConfigHash:   present,
					Message:      fmt.Sprintf("The pods of %s web are being replaced.", kind),
				},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}

			sent := s.patches()
			if len(sent) != 1 {
				t.Fatalf("%d patches", len(sent))
			}
			p := sent[0]
			m := testMeta(kind)
			wantPatch, err := (&policy.Policy{}).RestartPatch(&dependency.Workload{UID: m.UID, ResourceVersion: m.ResourceVersion},
				policy.Record{Hash: present, Sources: map[string]string{}},
				policy.LastReload{Time: metav1.NewMicroTime(now), Trigger: "Request", RequestedBy: "ada", Reason: "rotated"}, true)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(wantPatch), string(p.Patch)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if p.PatchType != types.MergePatchType || p.Name != "web" || p.Namespace != "shop" || p.Resource.Resource != strings.ToLower(string(kind))+"s" {
				t.Errorf("patch of %s %s/%s as %s", p.Resource, p.Namespace, p.Name, p.PatchType)
			}
			if diff := cmp.Diff(metav1.PatchOptions{FieldManager: "configdep"}, p.PatchOptions); diff != "" {
				t.Errorf("options of the patch (-want +got):\n%s", diff)
			}
			event := fmt.Sprintf("Normal ConfigReloaded Restarted on request of ada: rotated involvedObject{kind=%s,apiVersion=apps/v1}", kind)
			if diff := cmp.Diff([]string{event}, s.told()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// A dry run asks the API server as well, so that quota and policies have their say, but
// leaves nothing behind.
func TestDryRunLeavesNothing(t *testing.T) {
	view := testView(dependency.Deployment)
	s := newServer(view, testDeployment())
	got, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	if !got.Status.Triggered || !strings.HasPrefix(got.Status.Message, "Dry run: ") {
		t.Errorf("status %+v", got.Status)
	}
	for _, p := range s.patches() {
		if diff := cmp.Diff([]string{metav1.DryRunAll}, p.PatchOptions.DryRun); diff != "" {
			t.Errorf("the patch is no dry run (-want +got):\n%s", diff)
		}
	}
	if n := len(s.patches()); n != 1 {
		t.Errorf("%d patches", n)
	}
	if told := s.told(); len(told) != 0 {
		t.Errorf("events %q", told)
	}
}

func TestReloadThatDoesNothing(t *testing.T) {
	tests := map[string]struct {
		live    *appsv1.Deployment
		request v1alpha1.Reload
		refused func(error) bool // nil: answered, but nothing is triggered
		says    string
	}{
		"in sync": {
			testDeployment(startedWith(present)),
			v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Mode: v1alpha1.ReloadIfStale}}, nil, "with the present content",
		},
		"in sync, and paused": {
			testDeployment(startedWith(present), func(o *appsv1.Deployment) { o.Spec.Paused = true }),
			v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Mode: v1alpha1.ReloadIfStale}}, nil, "with the present content",
		},
		"paused": {
			testDeployment(func(o *appsv1.Deployment) { o.Spec.Paused = true }),
			v1alpha1.Reload{}, apierrors.IsConflict, "resume it first",
		},
		"created again": {
			testDeployment(func(o *appsv1.Deployment) { o.UID = "another" }),
			v1alpha1.Reload{}, apierrors.IsConflict, "deleted and created again",
		},
		"other content than the client saw": {
			testDeployment(),
			v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Preconditions: &v1alpha1.ReloadPreconditions{ConfigHash: new(stale)}}},
			apierrors.IsConflict, "configHash",
		},
		"invalid": {testDeployment(), v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Mode: "x"}}, apierrors.IsInvalid, "spec.mode"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			view := testView(dependency.Deployment)
			s := newServer(view, tt.live)
			got, err := s.create(view.Name, &tt.request, metav1.CreateOptions{})
			switch {
			case tt.refused != nil:
				if !tt.refused(err) || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("error %v", err)
				}
			case err != nil:
				t.Fatal(err)
			case got.Status.Triggered || !strings.Contains(got.Status.Message, tt.says) || got.Status.Generation != 3:
				t.Errorf("status %+v", got.Status)
			}
			if sent := s.patches(); len(sent) != 0 {
				t.Errorf("patches %v", sent)
			}
			if told := s.told(); len(told) != 0 {
				t.Errorf("events %q", told)
			}
		})
	}
}

// During a rollout the workload changes many times a second: the patch is made anew from
// what is there then.
func TestConflictsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := testView(dependency.Deployment)
		s := newServer(view, testDeployment())
		version := 7
		s.client.PrependReactor("get", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
			version++
			return true, testDeployment(func(o *appsv1.Deployment) { o.ResourceVersion = fmt.Sprint(version) }), nil
		})
		s.client.PrependReactor("patch", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
			if version < 10 {
				return true, nil, apierrors.NewConflict(deployments, "web", errors.New("modified"))
			}
			return true, testDeployment(func(o *appsv1.Deployment) { o.Generation = 4 }), nil
		})
		got, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !got.Status.Triggered || got.Status.Generation != 4 {
			t.Errorf("status %+v", got.Status)
		}
		var versions []string
		for _, p := range s.patches() {
			var sent struct {
				Metadata struct{ ResourceVersion string }
			}
			if err := json.Unmarshal(p.Patch, &sent); err != nil {
				t.Fatal(err)
			}
			versions = append(versions, sent.Metadata.ResourceVersion)
		}
		if diff := cmp.Diff([]string{"8", "9", "10"}, versions); diff != "" {
			t.Errorf("versions in the patches (-want +got):\n%s", diff)
		}
		if told := s.told(); len(told) != 1 {
			t.Errorf("events %q", told)
		}
	})
}

// Not for ever: the user waits, and is told at last.
func TestConflictsThatDoNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := testView(dependency.Deployment)
		s := newServer(view, testDeployment())
		s.client.PrependReactor("patch", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewConflict(deployments, "web", errors.New("modified"))
		})
		start := time.Now()
		_, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{})
		if !apierrors.IsConflict(err) {
			t.Errorf("error %v", err)
		}
		if took := time.Since(start); took < 3*time.Second || took > 10*time.Second || len(s.patches()) < 20 {
			t.Errorf("tried %d times in %s", len(s.patches()), took)
		}
		if told := s.told(); len(told) != 0 {
			t.Errorf("events %q", told)
		}
	})
}

// A workload that goes between two tries is gone; one that is paused is paused.
func TestTryingAgainDecidesAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := testView(dependency.Deployment)
		s := newServer(view, testDeployment())
		reads := 0
		s.client.PrependReactor("get", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
			reads++
			return true, testDeployment(func(o *appsv1.Deployment) { o.Spec.Paused = reads > 1 }), nil
		})
		s.client.PrependReactor("patch", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewConflict(deployments, "web", errors.New("modified"))
		})
		_, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{})
		if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "paused") || reads != 2 {
			t.Errorf("after %d reads: %v", reads, err)
		}
	})
}

// What the API server says of the patch is what the user gets to hear.
func TestRefusalsOfThePatch(t *testing.T) {
	tests := map[string]struct {
		verb string
		err  error
		code int32
		says string
	}{
		"by our rights to patch": {"patch", deniedByRole, http.StatusInternalServerError, "configdep lacks a right, not you"},
		"by a policy":            {"patch", deniedByAdmission, http.StatusForbidden, "no rollouts on Fridays"},
		"because it has gone":    {"patch", apierrors.NewNotFound(deployments, "web"), http.StatusNotFound, "deployment.web"},
		"or had gone before":     {"get", apierrors.NewNotFound(deployments, "web"), http.StatusNotFound, "deployment.web"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			view := testView(dependency.Deployment)
			s := newServer(view, testDeployment())
			s.client.PrependReactor(tt.verb, "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, tt.err
			})
			_, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{})
			status, ok := err.(apierrors.APIStatus)
			if !ok {
				t.Fatalf("error %v", err)
			}
			if got := status.Status(); got.Code != tt.code || !strings.Contains(got.Message, tt.says) {
				t.Errorf("%d %s", got.Code, got.Message)
			}
			if told := s.told(); len(told) != 0 {
				t.Errorf("events %q", told)
			}
		})
	}
}

// While the index is being read anew nothing can be said of the content.
func TestReloadWhileTheIndexIsReadAnew(t *testing.T) {
	view := testView(dependency.Deployment)
	s := newServer(view, testDeployment())
	s.Graph = stubGraph{}
	_, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{})
	if !apierrors.IsServiceUnavailable(err) {
		t.Errorf("error %v", err)
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); !ok || seconds != 1 {
		t.Errorf("retry after %d seconds, %v", seconds, ok)
	}
	if sent, told := s.patches(), s.told(); len(sent) != 0 || len(told) != 0 {
		t.Errorf("patches %v, events %q", sent, told)
	}
}

// Restarts on request neither count as those by itself nor let the back-off of them begin
// anew.
func TestReloadKeepsTheRecordOfRestartsByItself(t *testing.T) {
	view := testView(dependency.Deployment)
	automatic := policy.Automatic(nil, now.Add(-time.Minute), time.Second, "Secret/db")
	automatic.Streak = 5
	raw, err := json.Marshal(automatic)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(view, testDeployment(func(o *appsv1.Deployment) {
		o.Annotations = map[string]string{policy.LastReloadAnnotation: string(raw)}
	}))
	if _, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	after, err := s.client.AppsV1().Deployments("shop").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := policy.LastReloadOf(dependency.FromDeployment(after))
	want := &policy.LastReload{Time: metav1.NewMicroTime(now), Trigger: "Request", RequestedBy: "ada", Automatic: automatic.Automatic, Streak: 5}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("last reload (-want +got):\n%s", diff)
	}
}

// Owners who have asked for evictions do not suffer a change of the template, whoever
// restarts the workload. Only of those that have opted in are pods evicted.
func TestReloadEvictsWhereTheStrategySaysSo(t *testing.T) {
	for mode, evicts := range map[string]bool{"auto": true, "off": false} {
		view := testView(dependency.Deployment)
		s := newServer(view, testDeployment(func(o *appsv1.Deployment) {
			o.Annotations = map[string]string{policy.StrategyAnnotation: "recreate", policy.ReloadAnnotation: mode}
		}))
		got, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if says := strings.Contains(got.Status.Message, "evicted, one after the other"); !got.Status.Triggered || says != evicts {
			t.Errorf("%s: status %+v", mode, got.Status)
		}
		patch := string(s.patches()[0].Patch)
		if strings.Contains(patch, policy.RecreatingAnnotation) != evicts || strings.Contains(patch, `"template"`) == evicts {
			t.Errorf("%s: patch %s", mode, patch)
		}
	}
}

func TestUnknownNamesAndKinds(t *testing.T) {
	s := newServer(testView(dependency.Deployment))
	if _, err := s.create("deployment.api", &v1alpha1.Reload{}, metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("unknown name: %v", err)
	}
	s = newServer(testView(dependency.CronJob))
	if _, err := s.create("cronjob.web", &v1alpha1.Reload{}, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a kind without a rollout: %v", err)
	}
	if n := len(s.client.Actions()); n != 0 {
		t.Errorf("%d requests to the API server", n)
	}
}

// Policies of the cluster see the request with its defaults, and may refuse it before
// anything is done; they get a copy.
func TestAdmissionOfTheRequest(t *testing.T) {
	view := testView(dependency.Deployment)
	s := newServer(view, testDeployment())
	ctx := genericapirequest.WithNamespace(t.Context(), "shop")
	refusal := apierrors.NewForbidden(v1alpha1.Resource("configdependencies"), view.Name, errors.New("not today"))
	var seen v1alpha1.Reload
	refuse := func(_ context.Context, o runtime.Object) error {
		o.(*v1alpha1.Reload).DeepCopyInto(&seen)
		o.(*v1alpha1.Reload).Spec.Reason = "changed"
		return refusal
	}
	request := &v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Reason: "rotated"}}
	if _, err := s.Create(ctx, view.Name, request, refuse, &metav1.CreateOptions{}); !errors.Is(err, refusal) {
		t.Errorf("error %v", err)
	}
	want := v1alpha1.Reload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: view.Name},
		Spec:       v1alpha1.ReloadSpec{Reason: "rotated", Mode: v1alpha1.ReloadAlways},
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("admission saw (-want +got):\n%s", diff)
	}
	if request.Spec.Reason != "rotated" {
		t.Errorf("admission has changed the request: %+v", request.Spec)
	}
	if n := len(s.client.Actions()); n != 0 {
		t.Errorf("%d requests to the API server", n)
	}
}

// Why new pods may not come at once, although the restart was made.
func TestCaveats(t *testing.T) {
	statefulSet := func(spec appsv1.StatefulSetSpec) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{ObjectMeta: testMeta(dependency.StatefulSet), Spec: spec}
	}
	partition := func(n int32) appsv1.StatefulSetUpdateStrategy {
		return appsv1.StatefulSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: &n}}
	}
	tests := map[string]struct {
		kind dependency.WorkloadKind
		live runtime.Object
		says string
	}{
		"a Deployment":                  {dependency.Deployment, testDeployment(), "are being replaced."},
		"a Deployment with no replicas": {dependency.Deployment, testDeployment(func(o *appsv1.Deployment) { o.Spec.Replicas = new(int32(0)) }), "; but it has no replicas now."},
		"a Deployment with replicas":    {dependency.Deployment, testDeployment(func(o *appsv1.Deployment) { o.Spec.Replicas = new(int32(2)) }), "are being replaced."},
		"a StatefulSet":                 {dependency.StatefulSet, statefulSet(appsv1.StatefulSetSpec{UpdateStrategy: partition(0)}), "are being replaced."},
		"a StatefulSet, OnDelete": {
			dependency.StatefulSet,
			statefulSet(appsv1.StatefulSetSpec{UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}}), "OnDelete",
		},
		"a StatefulSet with a partition":                {dependency.StatefulSet, statefulSet(appsv1.StatefulSetSpec{UpdateStrategy: partition(3)}), "its partition is 3"},
		"a StatefulSet with no replicas":                {dependency.StatefulSet, statefulSet(appsv1.StatefulSetSpec{Replicas: new(int32(0)), UpdateStrategy: partition(3)}), "no replicas"},
		"a StatefulSet without a strategy":              {dependency.StatefulSet, statefulSet(appsv1.StatefulSetSpec{}), "are being replaced."},
		"a Deployment whose source is missing":          {dependency.Deployment, testDeployment(readingDB), "; but Secret db is missing, so that new pods do not start."},
		"a Deployment whose pods are evicted, the same": {dependency.Deployment, testDeployment(readingDB, evicting("", "recreate")), "evicted, one after the other; but Secret db is missing"},
		"a StatefulSet whose pods are evicted": {
			dependency.StatefulSet,
			&appsv1.StatefulSet{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "shop", Name: "web", UID: testMeta(dependency.StatefulSet).UID, ResourceVersion: testMeta(dependency.StatefulSet).ResourceVersion,
					Annotations: map[string]string{policy.ReloadAnnotation: "auto", policy.StrategyAnnotation: "recreate"},
				},
				Spec: appsv1.StatefulSetSpec{UpdateStrategy: partition(3)},
			}, "evicted, one after the other.",
		},
		"a DaemonSet": {dependency.DaemonSet, &appsv1.DaemonSet{ObjectMeta: testMeta(dependency.DaemonSet)}, "are being replaced."},
		"a DaemonSet, OnDelete": {dependency.DaemonSet, &appsv1.DaemonSet{
			ObjectMeta: testMeta(dependency.DaemonSet),
			Spec:       appsv1.DaemonSetSpec{UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}},
		}, "OnDelete"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			view := testView(tt.kind)
			got, err := newServer(view, tt.live).create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if !got.Status.Triggered || !strings.Contains(got.Status.Message, tt.says) {
				t.Errorf("triggered: %v, message %q", got.Status.Triggered, got.Status.Message)
			}
		})
	}
}

// The hash that is written is that of what the workload reads at that moment by its live
// template, not by the view, which may be older.
func TestHashIsThatOfTheLiveTemplate(t *testing.T) {
	view := testView(dependency.Deployment)
	live := testDeployment(readingDB)
	s := newServer(view, live)
	graph := withDB()
	s.Graph = stubGraph{graph}
	got, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := digester.ConfigHash(dependency.FromDeployment(live).References, graph.Sources("shop"), nil)
	if got.Status.ConfigHash != want || want == present {
		t.Errorf("hash %s, want %s (and not %s)", got.Status.ConfigHash, want, present)
	}
}

// What discovery and the generic API server ask of the storage.
func TestStorage(t *testing.T) {
	r := &REST{}
	if _, ok := r.New().(*v1alpha1.Reload); !ok {
		t.Errorf("kind %T", r.New())
	}
	if got := r.GroupVersionKind(schema.GroupVersion{}).String(); got != "configdep.io/v1alpha1, Kind=Reload" {
		t.Errorf("in discovery: %s", got)
	}
	if !r.PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() {
		t.Error("the UID of the request, a precondition, is wiped before it is checked")
	}
}
