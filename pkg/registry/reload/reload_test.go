// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/dependency/dependencytest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// hashA and hashB are hashes that match no content.
const (
	hashA = "v1.aabbccdd.00000000000000000000000000000001"
	hashB = "v1.aabbccdd.00000000000000000000000000000002"
)

// A Reload restarts the pods: the template gets a new annotation and the workload a record, written with our field
// manager. The user gets an answer and an event.
func TestReloadRestartsAWorkload(t *testing.T) {
	for name, o := range map[dependency.WorkloadKind]runtime.Object{
		kind.Deployment:  testDeployment(startedWith(stale)),
		kind.StatefulSet: &appsv1.StatefulSet{ObjectMeta: testMeta(kind.StatefulSet)},
		kind.DaemonSet:   &appsv1.DaemonSet{ObjectMeta: testMeta(kind.DaemonSet)},
	} {
		t.Run(string(name), func(t *testing.T) {
			view := testView(name)
			s := newServer(view, o)
			got, err := s.create(view.Name, &v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Reason: "rotated"}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}

			want := &v1alpha1.Reload{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: view.Name, CreationTimestamp: metav1.NewTime(now)},
				Spec:       v1alpha1.ReloadSpec{Reason: "rotated", Mode: v1alpha1.ReloadAlways},
				Status: v1alpha1.ReloadStatus{
					Triggered:   true,
					WorkloadRef: &view.Spec.WorkloadRef,
					Generation:  3,
					ConfigHash:  present,
					Message:     fmt.Sprintf("The pods of %s web are being replaced.", name),
				},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}

			sent := s.patches()
			if len(sent) != 1 {
				t.Fatalf("%d patches, want 1", len(sent))
			}
			p := sent[0]
			m := testMeta(name)
			wantPatch, err := (&policy.Policy{Mode: policy.Off}).RestartPatch(&dependency.Workload{UID: m.UID, ResourceVersion: m.ResourceVersion},
				&record.Restart{Present: record.Record{Hash: present}, Always: true,
					Last: record.LastReload{Time: metav1.NewMicroTime(now), Trigger: "Request", RequestedBy: "ada", Reason: "rotated"}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(wantPatch), string(p.Patch)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if p.PatchType != types.MergePatchType || p.Name != "web" || p.Namespace != "shop" || p.Resource.Resource != strings.ToLower(string(name))+"s" {
				t.Errorf("patch of %s %s/%s with type %s", p.Resource, p.Namespace, p.Name, p.PatchType)
			}
			if diff := cmp.Diff(metav1.PatchOptions{FieldManager: "configdep"}, p.PatchOptions); diff != "" {
				t.Errorf("options of the patch (-want +got):\n%s", diff)
			}
			event := fmt.Sprintf("Normal ConfigRestarted Restarted at the request of ada: rotated involvedObject{kind=%s,apiVersion=apps/v1}", name)
			if diff := cmp.Diff([]string{event}, s.told()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// A record would be adopted when the workload opts in, and say more than is known then.
func TestReload_RecordsContentOnlyOfWorkloadsThatOptedIn(t *testing.T) {
	for mode, records := range map[string]bool{"auto": true, "off": false} {
		view := testView(kind.Deployment)
		s := newServer(view, testDeployment(readingDB, func(o *appsv1.Deployment) { o.Annotations = map[string]string{policy.ReloadAnnotation: mode} }))
		s.Index = stubGraph{Graph: withDB(), Defaults: off}
		if _, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		after, err := s.client.AppsV1().Deployments("shop").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, hash := after.Annotations[record.ConfigHashAnnotation]
		_, sources := after.Annotations[record.AppliedSourcesAnnotation]
		if hash != records || sources != records || after.Annotations[record.LastReloadAnnotation] == "" {
			t.Errorf("%s: annotations = %v", mode, after.Annotations)
		}
		if after.Spec.Template.Annotations[record.ConfigHashAnnotation] == "" {
			t.Errorf("%s: annotations of the template = %v, want the hash for which its pods are created", mode, after.Spec.Template.Annotations)
		}
	}
}

// A dry run also goes to the API server, so that quota and policies apply, but changes nothing.
func TestDryRunLeavesNothing(t *testing.T) {
	view := testView(kind.Deployment)
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
			t.Errorf("options of the patch (-want +got):\n%s", diff)
		}
	}
	if n := len(s.patches()); n != 1 {
		t.Errorf("%d patches, want 1", n)
	}
	if told := s.told(); len(told) != 0 {
		t.Errorf("events %q", told)
	}
}

func TestReloadThatDoesNothing(t *testing.T) {
	tests := map[string]struct {
		live    *appsv1.Deployment
		request v1alpha1.Reload
		refused func(error) bool // nil: answered without a restart
		says    string
	}{
		"in sync": {
			testDeployment(startedWith(present)),
			v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Mode: v1alpha1.ReloadIfStale}}, nil, "no pods are found that run with old content",
		},
		"in sync, and paused": {
			testDeployment(startedWith(present), func(o *appsv1.Deployment) { o.Spec.Paused = true }),
			v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Mode: v1alpha1.ReloadIfStale}}, nil, "no pods are found that run with old content",
		},
		"paused": {
			testDeployment(func(o *appsv1.Deployment) { o.Spec.Paused = true }),
			v1alpha1.Reload{}, apierrors.IsConflict, "resume it first",
		},
		"deleted and created again": {
			testDeployment(func(o *appsv1.Deployment) { o.UID = "another" }),
			v1alpha1.Reload{}, apierrors.IsConflict, "deleted and created again",
		},
		"content other than what the client saw": {
			testDeployment(),
			v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Preconditions: &v1alpha1.ReloadPreconditions{ConfigHash: new(stale)}}},
			apierrors.IsConflict, "configHash",
		},
		"an invalid mode": {testDeployment(), v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Mode: "x"}}, apierrors.IsInvalid, "spec.mode"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			view := testView(kind.Deployment)
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

// A workload with a strategy that is not allowed is not restarted with another one, not even on request.
func TestReloadByAStrategyThatIsNotAllowed(t *testing.T) {
	view := testView(kind.Deployment)
	s := newServer(view, testDeployment(func(o *appsv1.Deployment) {
		o.Annotations = map[string]string{policy.ReloadAnnotation: "auto", policy.StrategyAnnotation: "recreate"}
	}))
	s.Index = stubGraph{Graph: newGraph(), Defaults: policy.Defaults{Mode: policy.Off, Strategies: []record.Strategy{record.Annotate}}}
	for _, dryRun := range [][]string{nil, {metav1.DryRunAll}} {
		_, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{DryRun: dryRun})
		if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `annotation configdep.io/strategy="recreate" is not allowed: configdep is installed without this strategy (--strategies)`) {
			t.Errorf("error %v", err)
		}
	}
	if sent, told := s.patches(), s.told(); len(sent) != 0 || len(told) != 0 {
		t.Errorf("patches %v, events %q", sent, told)
	}
}

// Content cannot be judged while the index is being read again.
func TestReloadWhileTheIndexIsReadAgain(t *testing.T) {
	view := testView(kind.Deployment)
	s := newServer(view, testDeployment())
	s.Index = stubGraph{}
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

// Restarts on request do not count as automatic restarts, and do not reset their back-off.
func TestReloadKeepsTheRecordOfRestartsByItself(t *testing.T) {
	view := testView(kind.Deployment)
	automatic := record.NewAutomaticReload(nil, now.Add(-time.Minute), time.Second, "Secret/db")
	automatic.Streak = 5
	raw, err := json.Marshal(automatic)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(view, testDeployment(func(o *appsv1.Deployment) {
		o.Annotations = map[string]string{record.LastReloadAnnotation: string(raw)}
	}))
	if _, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	after, err := s.client.AppsV1().Deployments("shop").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := record.LastReloadOf(workloadtest.Read(after))
	want := &record.LastReload{Time: metav1.NewMicroTime(now), Trigger: "Request", RequestedBy: "ada", Automatic: automatic.Automatic, Streak: 5}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("last reload (-want +got):\n%s", diff)
	}
}

// If the owner asked for evictions, the template does not change, however the workload is restarted. Pods are only
// evicted if the workload has opted in.
func TestReloadEvictsWhereTheStrategySaysSo(t *testing.T) {
	for mode, evicts := range map[string]bool{"auto": true, "off": false} {
		view := testView(kind.Deployment)
		s := newServer(view, testDeployment(func(o *appsv1.Deployment) {
			o.Annotations = map[string]string{policy.StrategyAnnotation: "recreate", policy.ReloadAnnotation: mode}
		}))
		got, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if says := strings.Contains(got.Status.Message, "evicted, one by one"); !got.Status.Triggered || says != evicts {
			t.Errorf("%s: status %+v", mode, got.Status)
		}
		patch := string(s.patches()[0].Patch)
		if strings.Contains(patch, record.RecreatingAnnotation) != evicts || strings.Contains(patch, `"template"`) == evicts {
			t.Errorf("%s: patch %s", mode, patch)
		}
	}
}

func TestUnknownNamesAndKinds(t *testing.T) {
	s := newServer(testView(kind.Deployment))
	if _, err := s.create("deployment.api", &v1alpha1.Reload{}, metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("error for an unknown name = %v", err)
	}
	s = newServer(testView(kind.CronJob))
	if _, err := s.create("cronjob.web", &v1alpha1.Reload{}, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("error for a kind without rollouts = %v", err)
	}
	if n := len(s.client.Actions()); n != 0 {
		t.Errorf("%d requests to the API server, want none", n)
	}
}

// Admission policies of the cluster see a copy of the request with its defaults, and may deny the request before
// anything is changed.
func TestAdmissionOfTheRequest(t *testing.T) {
	view := testView(kind.Deployment)
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
		t.Errorf("request in admission (-want +got):\n%s", diff)
	}
	if request.Spec.Reason != "rotated" {
		t.Errorf("admission changed the request: %+v", request.Spec)
	}
	if n := len(s.client.Actions()); n != 0 {
		t.Errorf("%d requests to the API server, want none", n)
	}
}

// The message says why new pods may not be created soon, although the restart was made.
func TestCaveats(t *testing.T) {
	statefulSet := func(spec appsv1.StatefulSetSpec) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{ObjectMeta: testMeta(kind.StatefulSet), Spec: spec}
	}
	partition := func(n int32) appsv1.StatefulSetUpdateStrategy {
		return appsv1.StatefulSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: &n}}
	}
	tests := map[string]struct {
		kind dependency.WorkloadKind
		live runtime.Object
		says string
	}{
		"a Deployment":                  {kind.Deployment, testDeployment(), "are being replaced."},
		"a Deployment with no replicas": {kind.Deployment, testDeployment(func(o *appsv1.Deployment) { o.Spec.Replicas = new(int32(0)) }), "; but it has no replicas now."},
		"a Deployment with replicas":    {kind.Deployment, testDeployment(func(o *appsv1.Deployment) { o.Spec.Replicas = new(int32(2)) }), "are being replaced."},
		"a StatefulSet":                 {kind.StatefulSet, statefulSet(appsv1.StatefulSetSpec{UpdateStrategy: partition(0)}), "are being replaced."},
		"a StatefulSet, OnDelete": {
			kind.StatefulSet,
			statefulSet(appsv1.StatefulSetSpec{UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}}),
			"The rollout of StatefulSet web has begun; but its update strategy is OnDelete: each pod is replaced when it is deleted.",
		},
		"a StatefulSet with a partition":                                  {kind.StatefulSet, statefulSet(appsv1.StatefulSetSpec{UpdateStrategy: partition(3)}), "its partition is 3"},
		"a StatefulSet with no replicas":                                  {kind.StatefulSet, statefulSet(appsv1.StatefulSetSpec{Replicas: new(int32(0)), UpdateStrategy: partition(3)}), "no replicas"},
		"a StatefulSet without a strategy":                                {kind.StatefulSet, statefulSet(appsv1.StatefulSetSpec{}), "are being replaced."},
		"a Deployment whose source is missing":                            {kind.Deployment, testDeployment(readingDB), "; but Secret db is missing, so new pods cannot start."},
		"a Deployment whose pods are evicted and whose source is missing": {kind.Deployment, testDeployment(readingDB, evicting("", "recreate")), "evicted, one by one; but Secret db is missing"},
		"a StatefulSet whose pods are evicted": {
			kind.StatefulSet,
			&appsv1.StatefulSet{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "shop", Name: "web", UID: testMeta(kind.StatefulSet).UID, ResourceVersion: testMeta(kind.StatefulSet).ResourceVersion,
					Annotations: map[string]string{policy.ReloadAnnotation: "auto", policy.StrategyAnnotation: "recreate"},
				},
				Spec: appsv1.StatefulSetSpec{UpdateStrategy: partition(3)},
			}, "evicted, one by one.",
		},
		"a DaemonSet": {kind.DaemonSet, &appsv1.DaemonSet{ObjectMeta: testMeta(kind.DaemonSet)}, "are being replaced."},
		"a DaemonSet, OnDelete": {kind.DaemonSet, &appsv1.DaemonSet{
			ObjectMeta: testMeta(kind.DaemonSet),
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

// The recorded hash covers what the workload reads by its live template, which may be newer than the view.
func TestHashIsThatOfTheLiveTemplate(t *testing.T) {
	view := testView(kind.Deployment)
	live := testDeployment(readingDB)
	s := newServer(view, live)
	graph := withDB()
	s.Index = stubGraph{Graph: graph, Defaults: off}
	got, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := dependencytest.ConfigHash(digester, graph, "shop", workloadtest.Read(live).References)
	if got.Status.ConfigHash != want || want == present {
		t.Errorf("hash = %s, want %s (and not %s)", got.Status.ConfigHash, want, present)
	}
}

// What discovery and the generic API server need from the storage.
func TestStorage(t *testing.T) {
	r := &REST{}
	if _, ok := r.New().(*v1alpha1.Reload); !ok {
		t.Errorf("kind %T", r.New())
	}
	if got := r.GroupVersionKind(schema.GroupVersion{}).String(); got != "configdep.io/v1alpha1, Kind=Reload" {
		t.Errorf("discovery = %s", got)
	}
	if !r.PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() {
		t.Error("the UID of the request, a precondition, is cleared before it is checked")
	}
}
