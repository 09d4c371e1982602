// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

func TestIfStaleRestartsOnlyWhatIsKnownToBeStale(t *testing.T) {
	present := policy.Evaluator{Graph: withDB(), Defaults: policy.Defaults{Mode: policy.Off}}.Evaluate(workloadtest.Read(testDeployment(readingDB))).Present()
	hash := present.Hash
	prefix := "v1." + digester.KeyID() + "."
	stale := prefix + "00000000000000000000000000000002"
	const notSince = "the content has not changed since it was recorded. Pods that were already running then may"
	bySource := func(entry string) func(*appsv1.Deployment) {
		return recorded(policy.Record{Hash: stale, Sources: map[string]string{"Secret/db": entry}})
	}
	tests := map[string]struct {
		mode   v1alpha1.ReloadRequestMode
		record func(*appsv1.Deployment)
		says   string // a part of the message; empty: restarted
	}{
		"Always, when in sync":                              {v1alpha1.ReloadAlways, startedWith(hash), ""},
		"Always, without a hash":                            {v1alpha1.ReloadAlways, startedWith(""), ""},
		"Always, when stale":                                {v1alpha1.ReloadAlways, startedWith(stale), ""},
		"IfStale, when stale":                               {v1alpha1.ReloadIfStale, startedWith(stale), ""},
		"IfStale, when in sync":                             {v1alpha1.ReloadIfStale, startedWith(hash), "with the current content"},
		"IfStale, without a hash":                           {v1alpha1.ReloadIfStale, startedWith(""), "not recorded"},
		"IfStale, with another key of the hash":             {v1alpha1.ReloadIfStale, startedWith(strings.Replace(stale, digester.KeyID(), "00112233", 1)), "another key"},
		"IfStale, with another version of the hash":         {v1alpha1.ReloadIfStale, startedWith(strings.Replace(stale, "v1", "v2", 1)), "another key"},
		"IfStale, with an invalid hash":                     {v1alpha1.ReloadIfStale, startedWith("none"), "another key"},
		"IfStale, with a hash without prefix":               {v1alpha1.ReloadIfStale, startedWith(hash[len(prefix):]), "another key"},
		"IfStale, with a prefix without hash":               {v1alpha1.ReloadIfStale, startedWith(prefix), ""},
		"IfStale, while pods are evicted":                   {v1alpha1.ReloadIfStale, evicting(hash, "recreate"), "already being evicted"},
		"IfStale, after the strategy changed from recreate": {v1alpha1.ReloadIfStale, evicting(hash, "annotation"), ""},
		// The record on the workload lists each source, and is newer than the template.
		"IfStale, with a record of the content":         {v1alpha1.ReloadIfStale, recorded(present), notSince},
		"IfStale, with a record of other content":       {v1alpha1.ReloadIfStale, bySource("*.0123456789abcdef.1"), ""},
		"IfStale, when the template reads other keys":   {v1alpha1.ReloadIfStale, bySource("00000000.0123456789abcdef.1"), notSince},
		"IfStale, when the template reads a new source": {v1alpha1.ReloadIfStale, recorded(policy.Record{Hash: stale, Sources: map[string]string{}}), notSince},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			view := testView(kind.Deployment)
			live := testDeployment(readingDB, tt.record)
			s := newServer(view, live)
			s.Index = stubGraph{withDB(), off}
			got, err := s.create(view.Name, &v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Mode: tt.mode}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			restarted := len(s.patches()) == 1
			if restarted != (tt.says == "") || got.Status.Triggered != restarted || !strings.Contains(got.Status.Message, tt.says) {
				t.Errorf("restarted = %v, status = %+v, want a message with %q", restarted, got.Status, tt.says)
			}
			if want := policy.RecordOf(workloadtest.Read(live)).Hash; got.Status.PreviousHash != want || got.Status.ConfigHash != hash {
				t.Errorf("hash %s, before %s; want %s, before %s", got.Status.ConfigHash, got.Status.PreviousHash, hash, want)
			}
		})
	}
}

// A rollout for the current content may not have reached all pods. Mode IfStale does not restart then, and says
// which pods were not replaced.
func TestIfStaleSaysWhichPodsAreNotReplaced(t *testing.T) {
	const (
		onDelete = "its update strategy is OnDelete: each pod is replaced when it is deleted"
		already  = "already has the current content, but "
		recorded = "the content has not changed since it was recorded for "
		all      = "Not restarted: the pods were started with the current content."
	)
	stamped := map[string]string{policy.ConfigHashAnnotation: present}
	template := func(annotations map[string]string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
	}
	meta := func(kind dependency.WorkloadKind) metav1.ObjectMeta {
		m := testMeta(kind)
		m.Annotations = stamped
		return m
	}
	statefulSet := func(annotations map[string]string, updated int32, strategy appsv1.StatefulSetUpdateStrategy) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{
			ObjectMeta: meta(kind.StatefulSet),
			Spec:       appsv1.StatefulSetSpec{Replicas: new(int32(3)), UpdateStrategy: strategy, Template: template(annotations)},
			Status:     appsv1.StatefulSetStatus{ObservedGeneration: 3, Replicas: 3, ReadyReplicas: 2, UpdatedReplicas: updated},
		}
	}
	daemonSet := func(updated int32) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{
			ObjectMeta: meta(kind.DaemonSet),
			Spec:       appsv1.DaemonSetSpec{UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}, Template: template(stamped)},
			Status:     appsv1.DaemonSetStatus{ObservedGeneration: 3, DesiredNumberScheduled: 5, CurrentNumberScheduled: 4, UpdatedNumberScheduled: updated},
		}
	}
	deployment := func(updated int32, change func(*appsv1.Deployment)) *appsv1.Deployment {
		o := testDeployment(startedWith(present), change)
		o.Spec.Replicas = new(int32(3))
		o.Status.Replicas, o.Status.UpdatedReplicas = 3, updated
		return o
	}
	byHand := appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
	held := appsv1.StatefulSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(2))}}
	unseen := statefulSet(stamped, 3, byHand)
	unseen.Status.ObservedGeneration = 2
	evicted := statefulSet(nil, 1, held)
	evicted.Annotations = map[string]string{
		policy.ReloadAnnotation: "auto", policy.StrategyAnnotation: "recreate", policy.ConfigHashAnnotation: present, policy.LastReloadAnnotation: `{"time":"2026-01-01T00:00:00.000000Z"}`,
	}
	tests := map[string]struct {
		kind dependency.WorkloadKind
		live runtime.Object
		says string
	}{
		"a StatefulSet, OnDelete": {
			kind.StatefulSet, statefulSet(stamped, 1, byHand),
			"the pod template of StatefulSet web " + already + "2 of 3 pods have an older pod template; " + onDelete + ".",
		},
		"a StatefulSet, OnDelete, all pods replaced": {kind.StatefulSet, statefulSet(stamped, 3, byHand), all},
		"a StatefulSet, OnDelete, the owner changed the template": {
			kind.StatefulSet, statefulSet(nil, 1, byHand),
			recorded + "StatefulSet web, but 2 of 3 pods have an older pod template; " + onDelete + ". The subresource pods shows",
		},
		"a StatefulSet with a partition": {
			kind.StatefulSet, statefulSet(stamped, 1, held),
			already + "2 of 3 pods have an older pod template; its partition is 2: pods with a lower ordinal are not replaced.",
		},
		"a StatefulSet whose controller is behind":                 {kind.StatefulSet, unseen, already + "the controller of the StatefulSet has not observed its latest change yet."},
		"a StatefulSet whose pods were evicted, with any template": {kind.StatefulSet, evicted, all},
		"a DaemonSet, OnDelete": {
			kind.DaemonSet, daemonSet(1),
			"the pod template of DaemonSet web " + already + "3 of 4 pods have an older pod template; " + onDelete + ".",
		},
		"a DaemonSet, OnDelete, one pod not created yet": {kind.DaemonSet, daemonSet(4), all},
		"a Deployment in the middle of a rollout": {
			kind.Deployment, deployment(1, func(*appsv1.Deployment) {}),
			already + "2 of 3 pods have an older pod template; they are being replaced.",
		},
		"a paused Deployment": {
			kind.Deployment, deployment(0, func(o *appsv1.Deployment) { o.Spec.Paused = true }),
			already + "3 of 3 pods have an older pod template; the Deployment is paused, and they will be replaced when it is resumed.",
		},
		"a Deployment whose rollout does not progress": {
			kind.Deployment, deployment(1, func(o *appsv1.Deployment) {
				o.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"}}
			}),
			already + "2 of 3 pods have an older pod template; the rollout is not progressing.",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			view := testView(tt.kind)
			got, err := newServer(view, tt.live).create(view.Name, &v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Mode: v1alpha1.ReloadIfStale}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Status.Triggered || !strings.Contains(got.Status.Message, tt.says) {
				t.Errorf("triggered: %v, message %q, want %q", got.Status.Triggered, got.Status.Message, tt.says)
			}
		})
	}
}

// A restart in place that gets no further is not said to be on its way: the view calls it Failed.
func TestIfStaleSaysThatARestartHasHalted(t *testing.T) {
	const (
		failed   = "Pod web-0 has not become ready within 10m0s of its restart in place."
		refused  = "Pod web-0 cannot be told to restart: no."
		progress = " 1 of 3 pods has been restarted in place. "
	)
	for name, tt := range map[string]struct{ failed, refused, want string }{
		"it goes on": {want: "Not restarted: the pods are already being restarted in place, one by one."},
		"a pod has not come back": {
			failed: failed,
			want:   "Not restarted: a restart in place has halted. " + failed + progress + "The restart goes on when this pod is ready or has been deleted, or when content changes again.",
		},
		"a pod cannot be told": {
			refused: refused,
			want:    "Not restarted: a restart in place has halted. " + refused + progress + "Telling the remaining pods is retried, with increasing delays.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pods := policy.PodsInPlace{ID: "0123456789abcdef", Total: 3}
			pods = pods.Keep([]types.UID{"a", "b"}, tt.failed, tt.refused)
			live := testDeployment(evicting(present, "in-place"), func(o *appsv1.Deployment) {
				o.Annotations[policy.RecreatingAnnotation] = pods.Text()
				o.Spec.Template.Spec = corev1.PodSpec{
					InitContainers: []corev1.Container{{
						Name: "restarter", RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
						RestartPolicyRules: []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}},
						VolumeMounts:       []corev1.VolumeMount{{Name: "restart", MountPath: "/etc/configdep"}},
					}},
					Volumes: []corev1.Volume{{Name: "restart", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
						Items: []corev1.DownwardAPIVolumeFile{{Path: "restart", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['configdep.io/restart']"}}},
					}}}},
				}
			})
			view := testView(kind.Deployment)
			got, err := newServer(view, live).create(view.Name, &v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Mode: v1alpha1.ReloadIfStale}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Status.Triggered || got.Status.Message != tt.want {
				t.Errorf("triggered: %v, message %q, want %q", got.Status.Triggered, got.Status.Message, tt.want)
			}
		})
	}
}

// A pod that was created between a change and a change back may have read the changed content: until the pods are
// verified, the message does not call them current.
func TestIfStaleClaimsNothingInDoubt(t *testing.T) {
	view := testView(kind.Deployment)
	live := testDeployment(readingDB)
	graph := withDB()
	record := policy.Evaluator{Graph: graph, Defaults: policy.Defaults{Mode: policy.Off}}.Evaluate(workloadtest.Read(live)).Present()
	recorded(record)(live)
	startedWith(record.Hash)(live)
	graph.SetWorkload(workloadtest.Read(live), dependency.Patterns{})
	key := dependency.SourceKey{Kind: dependency.Secret, Namespace: "shop", Name: "db"}
	for i, password := range []string{"y", "x"} {
		changed := dependency.FromSecret(digester, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", ResourceVersion: strconv.Itoa(10 + i)}, Data: map[string][]byte{"password": []byte(password)},
		}, dependency.SourceMarks{})
		changed.After(graph.Source(key), nil, dependency.Arrival{Live: true, Seen: now, Order: uint64(10 + i)})
		graph.SetSource(changed)
	}
	s := newServer(view, live)
	s.Index = stubGraph{graph, off}
	got, err := s.create(view.Name, &v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Mode: v1alpha1.ReloadIfStale}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Status.Triggered || !strings.Contains(got.Status.Message, "changed back") {
		t.Errorf("%+v", got.Status)
	}
}

// Sources beyond the bound are not reported as content that changed and changed back.
func TestIfStale_SaysThatThereAreTooManySources(t *testing.T) {
	c := &content{previous: hashA, known: true, inDoubt: true}
	for truncated, want := range map[bool]string{true: "too many sources", false: "changed and changed back"} {
		l := &workload.Live{Workload: &dependency.Workload{Status: dependency.Status{Replicas: 1}, Truncated: truncated}}
		if got := unneeded(c, l); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
