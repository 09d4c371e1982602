// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/record"
)

// Mode IfStale goes by what the pods run with, as the state does.
func TestIfStale_RestartsOnlyWhatIsKnownToBeStale(t *testing.T) {
	hour := func(ago int) time.Time { return now.Add(-time.Duration(ago) * time.Hour) }
	current := func(g *dependency.Graph) { started(g, "web-1", "aaa", hour(2)) }
	stale := func(g *dependency.Graph) {
		current(g)
		changed(g, hour(1))
	}
	newer := func(g *dependency.Graph) {
		g.SetReplicaSet(&dependency.ReplicaSet{Namespace: "shop", Name: "web-bbb", Deployment: "web", Owner: testMeta(kind.Deployment).UID, Number: 2, Revision: "bbb"})
	}
	running := func(o *appsv1.Deployment) {
		o.Annotations, o.Status.UpdatedReplicas = map[string]string{kind.RevisionAnnotation: "2"}, 0
	}
	tests := map[string]struct {
		mode  v1alpha1.ReloadRequestMode
		known func(*dependency.Graph)
		live  func(*appsv1.Deployment)
		says  string // a part of the message; empty: restarted
	}{
		"Always, when current":   {v1alpha1.ReloadAlways, current, nil, ""},
		"Always, when stale":     {v1alpha1.ReloadAlways, stale, nil, ""},
		"Always, without a pod":  {v1alpha1.ReloadAlways, nil, nil, ""},
		"IfStale, when stale":    {v1alpha1.ReloadIfStale, stale, nil, ""},
		"IfStale, when current":  {v1alpha1.ReloadIfStale, current, nil, "the pods run with the current content"},
		"IfStale, without a pod": {v1alpha1.ReloadIfStale, nil, func(o *appsv1.Deployment) { o.Spec.Replicas = new(int32(0)); o.Status = appsv1.DeploymentStatus{} }, "no pods run"},
		"IfStale, when it is not known": {
			v1alpha1.ReloadIfStale, func(g *dependency.Graph) { started(g, "web-1", "aaa", hour(4)) }, nil, "1 of 1 pod may run with old content, but that is not certain",
		},
		"IfStale, when one of several is stale": {
			v1alpha1.ReloadIfStale, func(g *dependency.Graph) { stale(g); started(g, "web-2", "aaa", now.Add(-time.Minute)) }, nil, "",
		},
		"IfStale, when the stale pod is being replaced": {
			v1alpha1.ReloadIfStale, func(g *dependency.Graph) { stale(g); newer(g) }, running, "has been changed already, but 1 of 1 pods has an older pod template; they are being replaced",
		},
		"IfStale, when a stale pod is not of those that are being replaced": {
			v1alpha1.ReloadIfStale, func(g *dependency.Graph) { stale(g); newer(g); started(g, "web-2", "bbb", hour(2)) }, running, "",
		},
		"IfStale, while pods are evicted":                   {v1alpha1.ReloadIfStale, stale, evicting(hashA, "recreate"), "already being evicted"},
		"IfStale, after the strategy changed from recreate": {v1alpha1.ReloadIfStale, current, evicting(hashA, "annotation"), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			view := testView(kind.Deployment)
			live := testDeployment(readingDB)
			if tt.live != nil {
				tt.live(live)
			}
			s, graph := newServer(view, live), withDB()
			if tt.known != nil {
				tt.known(graph)
			}
			s.Index = stubGraph{Graph: graph, Defaults: off}
			got, err := s.create(view.Name, &v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Mode: tt.mode}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			restarted := len(s.patches()) == 1
			if restarted != (tt.says == "") || got.Status.Triggered != restarted || !strings.Contains(got.Status.Message, tt.says) {
				t.Errorf("restarted = %v, status = %+v, want a message with %q", restarted, got.Status, tt.says)
			}
		})
	}
}

// A rollout for the current content may not have reached all pods. Mode IfStale does not restart then, and says
// which pods were not replaced.
func TestIfStaleSaysWhichPodsAreNotReplaced(t *testing.T) {
	const (
		onDelete = "its update strategy is OnDelete: each pod is replaced when it is deleted"
		already  = "is known to run with old content, but "
		all      = "Not restarted: no pods are found that run with old content."
	)
	stamped := map[string]string{record.ConfigHashAnnotation: present}
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
	tests := map[string]struct {
		kind dependency.WorkloadKind
		live runtime.Object
		says string
	}{
		"a StatefulSet, OnDelete": {
			kind.StatefulSet, statefulSet(stamped, 1, byHand),
			"no pod of StatefulSet web " + already + "2 of 3 pods have an older pod template; " + onDelete + ".",
		},
		"a StatefulSet, OnDelete, all pods replaced": {kind.StatefulSet, statefulSet(stamped, 3, byHand), all},
		"a StatefulSet, OnDelete, the owner changed the template": {
			kind.StatefulSet, statefulSet(nil, 1, byHand),
			already + "2 of 3 pods have an older pod template; " + onDelete + ".",
		},
		"a StatefulSet with a partition": {
			kind.StatefulSet, statefulSet(stamped, 1, held),
			already + "2 of 3 pods have an older pod template; its partition is 2: pods with a lower ordinal are not replaced.",
		},
		"a StatefulSet whose controller is behind": {kind.StatefulSet, unseen, already + "the controller of the StatefulSet has not observed its latest change yet."},
		"a DaemonSet, OnDelete": {
			kind.DaemonSet, daemonSet(1),
			"no pod of DaemonSet web " + already + "3 of 4 pods have an older pod template; " + onDelete + ".",
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
			pods := record.PodsInPlace{ID: "0123456789abcdef", Total: 3}
			pods = pods.Keep([]types.UID{"a", "b"}, tt.failed, tt.refused)
			live := testDeployment(evicting(present, "in-place"), func(o *appsv1.Deployment) {
				o.Annotations[record.RecreatingAnnotation] = pods.Text()
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
