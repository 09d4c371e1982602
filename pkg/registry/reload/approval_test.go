// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	authuser "k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/dependency/dependencytest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

func requiring(o *appsv1.Deployment) {
	o.Annotations = map[string]string{policy.ReloadAnnotation: "auto", policy.ApprovalAnnotation: "required"}
}

// newChanged returns a server with Deployment web, whose pod runs with old content, and the hash of the current content.
func newChanged(change ...func(*appsv1.Deployment)) (s *server, hash string) {
	live := testDeployment(readingDB, requiring)
	graph := withDB()
	started(graph, "web-1", "aaa", now.Add(-2*time.Hour))
	before := decide.Evaluator{Graph: graph, Defaults: off}.Evaluate(workloadtest.Read(live)).Present()
	before.At = now.Add(-2 * time.Hour)
	live.Annotations[record.ConfigHashAnnotation], live.Annotations[record.AppliedSourcesAnnotation] = before.Hash, before.Text()
	for _, f := range change {
		f(live)
	}
	changed(graph, now.Add(-time.Hour))
	s = newServer(testView(kind.Deployment), live)
	s.Index = stubGraph{Graph: graph, Defaults: off}
	return s, dependencytest.ConfigHash(digester, graph, "shop", workloadtest.Read(live).References)
}

func (s *server) decide(spec v1alpha1.ApprovalSpec, options metav1.CreateOptions) (*v1alpha1.Approval, error) {
	ctx := genericapirequest.WithNamespace(context.Background(), "shop")
	ctx = genericapirequest.WithUser(ctx, &authuser.DefaultInfo{Name: "ada"})
	request := &v1alpha1.Approval{Spec: spec, Status: v1alpha1.ApprovalStatus{DecidedBy: "eve"}}
	request.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}} // which the generic API server adds
	o, err := Approvals{s.REST}.Create(ctx, "deployment.web", request, nil, &options)
	if err != nil {
		return nil, err
	}
	return o.(*v1alpha1.Approval), nil
}

// An Approval is recorded on the workload, for its content alone. The user gets an answer that says what happens next, and an event.
func TestApproval(t *testing.T) {
	closed := func(o *appsv1.Deployment) {
		o.Annotations[policy.WindowsAnnotation] = `[{kind: Allow, schedule: "0 22 * * *", duration: 1h}]`
	}
	for name, tt := range map[string]struct {
		decision v1alpha1.ApprovalDecision
		change   func(*appsv1.Deployment)
		dryRun   bool
		says     string
	}{
		"approved":                  {v1alpha1.ApprovalApproved, nil, false, "Approved. Secret/db has changed. A restart is due."},
		"approved, before a window": {v1alpha1.ApprovalApproved, closed, false, "Approved. Secret/db has changed. A restart is due at 2026-02-03T22:00:00Z, when one may begin by the annotation configdep.io/windows."},
		"denied":                    {v1alpha1.ApprovalDenied, nil, false, "Denied. The workload is not restarted until the content changes again, or is approved."},
		"a dry run":                 {v1alpha1.ApprovalApproved, nil, true, "Dry run, nothing is recorded: Approved. Secret/db has changed. A restart is due."},
		"approved after it was denied": {v1alpha1.ApprovalApproved, func(o *appsv1.Deployment) {
			a := record.NewApproval(record.Denied, "h", "eve", "", metav1.NewMicroTime(now))
			o.Annotations[record.ApprovedAnnotation] = a.Text()
		}, false, "Approved. Secret/db has changed. A restart is due."},
	} {
		t.Run(name, func(t *testing.T) {
			s, hash := newChanged(func(o *appsv1.Deployment) {
				if tt.change != nil {
					tt.change(o)
				}
			})
			options := metav1.CreateOptions{}
			if tt.dryRun {
				options.DryRun = []string{metav1.DryRunAll}
			}
			spec := v1alpha1.ApprovalSpec{Decision: tt.decision, ConfigHash: hash, Reason: "see INC-4711"}
			got, err := s.decide(spec, options)
			if err != nil {
				t.Fatal(err)
			}
			shown, err := s.Views.Lookup("shop", "deployment.web")
			if err != nil {
				t.Fatal(err)
			}
			want := &v1alpha1.Approval{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment.web", CreationTimestamp: metav1.NewTime(now)},
				Spec:       spec,
				Status:     v1alpha1.ApprovalStatus{WorkloadRef: &shown.Spec.WorkloadRef, DecidedBy: "ada", DecisionTime: new(metav1.NewTime(now)), Message: tt.says},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			sent := s.patches()
			if len(sent) != 1 {
				t.Fatalf("%d patches, want 1", len(sent))
			}
			m, a := testMeta(kind.Deployment), record.NewApproval(string(tt.decision), hash, "ada", "see INC-4711", metav1.NewMicroTime(now))
			wantPatch, err := record.ApprovalPatch(workloadtest.Read(&appsv1.Deployment{ObjectMeta: m}), &a)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(wantPatch), string(sent[0].Patch)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(metav1.PatchOptions{FieldManager: "configdep", DryRun: options.DryRun}, sent[0].PatchOptions); diff != "" {
				t.Errorf("options of the patch (-want +got):\n%s", diff)
			}
			events := []string{"Normal ConfigApproval " + string(tt.decision) + " by ada: the content " + hash + ". The reason is: see INC-4711 involvedObject{kind=Deployment,apiVersion=apps/v1}"}
			if tt.dryRun {
				events = nil
			}
			if diff := cmp.Diff(events, s.told()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// Nothing is recorded of content that the user has not seen, or that waits for no approval.
func TestApproval_Refused(t *testing.T) {
	annotated := func(key, value string) func(*appsv1.Deployment) {
		return func(o *appsv1.Deployment) { o.Annotations[key] = value }
	}
	for name, tt := range map[string]struct {
		change func(*appsv1.Deployment)
		server func(*server)
		spec   func(*v1alpha1.ApprovalSpec)
		code   int32
		says   string
	}{
		"other content":          {nil, nil, func(s *v1alpha1.ApprovalSpec) { s.ConfigHash = hashA }, http.StatusConflict, "the content of Deployment web has changed meanwhile"},
		"nothing asks for one":   {annotated(policy.ApprovalAnnotation, ""), nil, nil, http.StatusConflict, "Deployment web needs no approval."},
		"automatic restarts off": {annotated(policy.ReloadAnnotation, "off"), nil, nil, http.StatusConflict, "Deployment web needs no approval. 1 of 1 pod runs with old content of Secret/db"},
		"it is being deleted": {func(o *appsv1.Deployment) {
			o.DeletionTimestamp, o.Finalizers = new(metav1.NewTime(now)), []string{"x"}
		}, nil, nil, http.StatusConflict, "is being deleted"},
		"deleted and created":     {func(o *appsv1.Deployment) { o.UID = "another" }, nil, nil, http.StatusConflict, "deleted and created again"},
		"a server that observes":  {nil, func(s *server) { s.Observe = true }, nil, http.StatusConflict, "--observe"},
		"the index is being read": {nil, func(s *server) { s.Index = stubGraph{} }, nil, http.StatusServiceUnavailable, ""},
		"no decision":             {nil, nil, func(s *v1alpha1.ApprovalSpec) { s.Decision = "" }, http.StatusUnprocessableEntity, `spec.decision: Unsupported value: "": supported values: "Approved", "Denied"`},
		"no hash":                 {nil, nil, func(s *v1alpha1.ApprovalSpec) { s.ConfigHash = "" }, http.StatusUnprocessableEntity, "spec.configHash: Required value"},
		"a reason of two lines":   {nil, nil, func(s *v1alpha1.ApprovalSpec) { s.Reason = "a\nb" }, http.StatusUnprocessableEntity, "spec.reason"},
		"a kind without rollouts": {nil, func(s *server) {
			v := testView("Pod")
			v.Name, v.Spec.WorkloadRef.APIVersion = "deployment.web", "v1"
			s.Views = stubViews{v}
		}, nil, http.StatusConflict, "Pod web needs no approval. configdep does not restart a Pod."},
		"an unknown name": {nil, func(s *server) { s.Views = stubViews{} }, nil, http.StatusNotFound, "deployment.web"},
		"a policy denies": {nil, func(s *server) {
			s.client.PrependReactor("patch", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, deniedByAdmission })
		}, nil, http.StatusForbidden, "no rollouts on Fridays"},
	} {
		t.Run(name, func(t *testing.T) {
			s, hash := newChanged(func(o *appsv1.Deployment) {
				if tt.change != nil {
					tt.change(o)
				}
			})
			spec := v1alpha1.ApprovalSpec{Decision: v1alpha1.ApprovalApproved, ConfigHash: hash}
			if tt.server != nil {
				tt.server(s)
			}
			if tt.spec != nil {
				tt.spec(&spec)
			}
			_, err := s.decide(spec, metav1.CreateOptions{})
			status, ok := err.(apierrors.APIStatus)
			if !ok || status.Status().Code != tt.code || !strings.Contains(status.Status().Message, tt.says) {
				t.Errorf("error = %v, want %d with %q", err, tt.code, tt.says)
			}
			if sent := s.patches(); len(sent) != 0 && tt.code != http.StatusForbidden {
				t.Errorf("patches %v", sent)
			}
			if told := s.told(); len(told) != 0 {
				t.Errorf("events %q", told)
			}
		})
	}
}

// A server that only observes answers dry runs.
func TestApproval_DryRunOfAServerThatObserves(t *testing.T) {
	s, hash := newChanged()
	s.Observe = true
	if _, err := s.decide(v1alpha1.ApprovalSpec{Decision: v1alpha1.ApprovalDenied, ConfigHash: hash}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Error(err)
	}
}

// After a conflict, the content is looked at again.
func TestApproval_Conflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, hash := newChanged()
		tries := 0
		s.client.PrependReactor("patch", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
			if tries++; tries < 3 {
				return true, nil, apierrors.NewConflict(deployments, "web", errors.New("modified"))
			}
			write(s.Index.(stubGraph).Graph, now, dependency.Arrival{Seen: now}, "z")
			return true, nil, apierrors.NewConflict(deployments, "web", errors.New("modified"))
		})
		_, err := s.decide(v1alpha1.ApprovalSpec{Decision: v1alpha1.ApprovalApproved, ConfigHash: hash}, metav1.CreateOptions{})
		if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "look at it again") || tries != 3 {
			t.Errorf("error after %d tries: %v", tries, err)
		}
	})
}

// Admission policies of the cluster see the request without the status that the client has sent.
func TestApproval_Admission(t *testing.T) {
	s, hash := newChanged()
	ctx := genericapirequest.WithNamespace(t.Context(), "shop")
	var seen v1alpha1.Approval
	refuse := func(_ context.Context, o runtime.Object) error {
		o.(*v1alpha1.Approval).DeepCopyInto(&seen)
		return apierrors.NewForbidden(v1alpha1.Resource("configdependencies"), "deployment.web", errors.New("not today"))
	}
	spec := v1alpha1.ApprovalSpec{Decision: v1alpha1.ApprovalApproved, ConfigHash: hash}
	_, err := Approvals{s.REST}.Create(ctx, "deployment.web", &v1alpha1.Approval{Spec: spec, Status: v1alpha1.ApprovalStatus{Message: "done"}}, refuse, &metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || len(s.client.Actions()) != 0 {
		t.Errorf("error %v, requests %v", err, s.client.Actions())
	}
	if diff := cmp.Diff(v1alpha1.Approval{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment.web"}, Spec: spec}, seen); diff != "" {
		t.Errorf("request in admission (-want +got):\n%s", diff)
	}
}

// What discovery and the generic API server need from the storage.
func TestApproval_Storage(t *testing.T) {
	r := Approvals{&REST{}}
	if _, ok := r.New().(*v1alpha1.Approval); !ok {
		t.Errorf("kind %T", r.New())
	}
	if got := r.GroupVersionKind(schema.GroupVersion{}).String(); got != "configdep.io/v1alpha1, Kind=Approval" {
		t.Errorf("discovery = %s", got)
	}
	if r.PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() {
		t.Error("the answer has a UID that the client has sent")
	}
}
