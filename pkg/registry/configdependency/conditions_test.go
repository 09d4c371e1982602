// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

func secondOf(hour int) metav1.Time { return metav1.Date(2026, 2, 1, hour, 0, 0, 0, time.UTC) }

// web returns a Deployment whose pods all run, that reads the Secret db and mounts a share
// with the credential share-key. It was created in the first hour.
func web(change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	o := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", UID: "u", Generation: 2, CreationTimestamp: secondOf(1),
		Annotations: map[string]string{policy.ReloadAnnotation: "auto"},
	}}
	o.Spec.Template.Spec = corev1.PodSpec{
		Containers: []corev1.Container{{
			Name:         "app",
			EnvFrom:      []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}}},
			VolumeMounts: []corev1.VolumeMount{{Name: "share", MountPath: "/share"}},
		}},
		Volumes: []corev1.Volume{{Name: "share", VolumeSource: corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "share-key"}}}},
	}
	o.Status = appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
	for _, f := range change {
		f(o)
	}
	return o
}

func annotated(key, value string) func(*appsv1.Deployment) {
	return func(o *appsv1.Deployment) { o.Annotations[key] = value }
}

// secret returns a Secret that was created in the second hour, and whose content was written at a time.
func secret(name, content string, written metav1.Time) *corev1.Secret {
	s := ingesttest.Secret(name, "k", content)
	s.CreationTimestamp = secondOf(2)
	s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "owner", Time: &written, FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}}
	return s
}

// record writes down that the pods of a Deployment were started with the current content.
func (c *cluster) record(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	e := c.evaluate(d)
	present := e.Present()
	present.At = c.clock.Now()
	patch, err := record.Patch(e.Workload, present)
	if err != nil {
		t.Fatal(err)
	}
	d = d.DeepCopy()
	ingesttest.Patch(t, d, patch)
	c.set(d)
}

// startPod creates a pod of Deployment web, with a container that started at a time.
func (c *cluster) startPod(name string, at metav1.Time) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(name), CreationTimestamp: at, Labels: map[string]string{"pod-template-hash": "aaa"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-aaa", UID: "web-aaa", Controller: new(true)}},
		},
		Spec: web().Spec.Template.Spec,
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}},
		}},
	}
	c.set(p)
	return p
}

// The conditions Ready, Reconciling and Stalled in each state, as tools expect them that wait for objects (kstatus).
var kstatus = map[v1alpha1.State]string{
	v1alpha1.StateInSync:     "True/False/False",
	v1alpha1.StateStale:      "False/False/True",
	v1alpha1.StateUnknown:    "Unknown/False/False",
	v1alpha1.StateSettling:   "False/True/False",
	v1alpha1.StatePending:    "False/True/False",
	v1alpha1.StateRollingOut: "False/True/False",
	v1alpha1.StateBlocked:    "False/False/True",
	v1alpha1.StateFailed:     "False/False/True",
}

// In each case, the Secrets db and share-key exist at first, and a pod has read them.
func TestConditions(t *testing.T) {
	const (
		noPod   = -1
		current = 0
		unknown = 2 // the hour before the sources were written
	)
	changedAt := func(ago time.Duration) func(*cluster) {
		return func(c *cluster) {
			c.set(secret("db", "two", metav1.NewTime(c.clock.Now())))
			c.clock.Step(ago)
		}
	}
	gone := func(name string) func(*cluster) {
		return func(c *cluster) { c.remove(ingesttest.Secret(name)) }
	}
	status := func(s appsv1.DeploymentStatus) func(*appsv1.Deployment) {
		return func(o *appsv1.Deployment) { o.Status = s }
	}
	off := annotated(policy.ReloadAnnotation, "off")
	scaledDown := func(o *appsv1.Deployment) {
		o.Spec.Replicas, o.Status = new(int32), appsv1.DeploymentStatus{ObservedGeneration: 2}
	}
	failed := appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 1, Conditions: []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"},
	}}
	const resolved, complete = "SourcesResolved True AllPresent", "RolloutComplete True Complete"
	tests := map[string]struct {
		workload   ingesttest.Object
		started    int
		unrecorded bool
		then       func(*cluster)
		state      v1alpha1.State
		want       []string // type, status and reason
	}{
		"automatic restarts are off, and the pods run with the current content": {
			workload: web(off), unrecorded: true, state: v1alpha1.StateInSync,
			want: []string{resolved, "InSync True ContentApplied", complete},
		},
		"automatic restarts are off, and content has changed": {
			workload: web(off), unrecorded: true, then: changedAt(time.Minute), state: v1alpha1.StateStale,
			want: []string{resolved, "InSync False NotOptedIn", complete},
		},
		"automatic restarts are off, and content was written before it was read": {
			workload: web(off), started: unknown, unrecorded: true, state: v1alpha1.StateUnknown,
			want: []string{resolved, "InSync Unknown WrittenSinceStart", complete},
		},
		"no pod runs": {
			workload: web(scaledDown), started: noPod, state: v1alpha1.StateInSync,
			want: []string{resolved, "InSync True NoPods", complete},
		},
		"it has just opted in, and the record is yet to be written": {
			workload: web(), unrecorded: true, state: v1alpha1.StateInSync,
			want: []string{resolved, "InSync True ContentApplied", complete},
		},
		"its pods run with the current content": {
			workload: web(), state: v1alpha1.StateInSync,
			want: []string{resolved, "InSync True ContentApplied", complete},
		},
		"content has just changed": {
			workload: web(), then: changedAt(time.Millisecond), state: v1alpha1.StateSettling,
			want: []string{resolved, "InSync False SourceChanged", complete},
		},
		"content has changed and is quiet": {
			workload: web(), then: changedAt(time.Minute), state: v1alpha1.StatePending,
			want: []string{resolved, "InSync False SourceChanged", complete},
		},
		"its pods are being replaced": {
			workload: web(status(appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 1})), state: v1alpha1.StateRollingOut,
			want: []string{resolved, "InSync True ContentApplied", "RolloutComplete False NotObserved"},
		},
		"its pods are evicted": {
			workload: web(annotated(record.RecreatingAnnotation, "2026-02-01T04:00:00Z"), annotated(policy.StrategyAnnotation, "recreate")), state: v1alpha1.StateRollingOut,
			want: []string{resolved, "InSync True ContentApplied", "RolloutComplete False Recreating"},
		},
		"its rollout does not progress": {
			workload: web(status(failed)), state: v1alpha1.StateFailed,
			want: []string{resolved, "InSync True ContentApplied", "RolloutComplete False ProgressDeadlineExceeded"},
		},
		"content has gone that pods read": {
			workload: web(), then: gone("db"), state: v1alpha1.StateBlocked,
			want: []string{"SourcesResolved False SourceMissing", "InSync True ContentApplied", complete},
		},
		"content has changed, and something else has gone": {
			workload: web(), then: func(c *cluster) { changedAt(time.Minute)(c); gone("share-key")(c) }, state: v1alpha1.StateBlocked,
			want: []string{"SourcesResolved False SourceMissing", "InSync False SourceMissing", complete},
		},
		"content has gone, and no pod runs that read it": {
			workload: web(scaledDown), started: noPod, then: gone("db"), state: v1alpha1.StateBlocked,
			want: []string{"SourcesResolved False SourceMissing", "InSync True ContentApplied", complete},
		},
		"something has gone that pods need and do not read": {
			workload: web(), then: gone("share-key"), state: v1alpha1.StateBlocked,
			want: []string{"SourcesResolved False SourceMissing", "InSync True ContentApplied", complete},
		},
		"an annotation cannot be read": {
			workload: web(annotated(policy.SettleAnnotation, "soon")), then: changedAt(time.Minute), state: v1alpha1.StateBlocked,
			want: []string{resolved, "InSync False InvalidAnnotation", complete},
		},
		"a CronJob has nothing to restart": {
			workload: workload(kind.CronJob, "shop", "report", nil, "Secret/db"), started: noPod, unrecorded: true, state: v1alpha1.StateInSync,
			want: []string{resolved, "InSync True NextRunReadsContent", "RolloutComplete Unknown NoRollout"},
		},
	}
	seen := map[v1alpha1.State]bool{}
	for name, tt := range tests {
		seen[tt.state] = true
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, secret("db", "one", secondOf(3)), secret("share-key", "one", secondOf(3)), tt.workload)
			switch tt.started {
			case noPod:
			case current:
				c.startPod("web-1", metav1.NewTime(secondOf(3).Add(time.Minute)))
			default:
				c.startPod("web-1", secondOf(tt.started))
			}
			if !tt.unrecorded {
				c.record(t, tt.workload.(*appsv1.Deployment))
			}
			if tt.then != nil {
				tt.then(c)
			}
			view := c.render(tt.workload, 1)
			if view.Status.State != tt.state {
				t.Errorf("state %s, want %s: %s", view.Status.State, tt.state, view.Status.Message)
			}
			var got, summary []string
			for _, condition := range view.Status.Conditions {
				switch condition.Type {
				case v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled:
					summary = append(summary, string(condition.Status))
					if condition.Reason != string(view.Status.State) || condition.Message != view.Status.Message {
						t.Errorf("%s has reason %s and says %q, want the state and its message", condition.Type, condition.Reason, condition.Message)
					}
				default:
					got = append(got, condition.Type+" "+string(condition.Status)+" "+condition.Reason)
				}
				if condition.Message == "" {
					t.Errorf("%s says nothing", condition.Type)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if got := strings.Join(summary, "/"); got != kstatus[tt.state] {
				t.Errorf("Ready, Reconciling and Stalled are %s, want %s", got, kstatus[tt.state])
			}
		})
	}
	for _, state := range v1alpha1.States {
		if !seen[state] {
			t.Errorf("no case has the state %s", state)
		}
	}
}

// What another client removes is known to this process all the same.
func TestInSyncAfterTheRecordWasRemoved(t *testing.T) {
	c := withWebInSync(t)
	c.set(web())
	for _, condition := range c.render(web(), 1).Status.Conditions {
		if condition.Type == v1alpha1.ConditionInSync && (condition.Status != metav1.ConditionTrue || condition.Reason != decide.ReasonRecordRemoved) {
			t.Errorf("%s, %s: %s", condition.Status, condition.Reason, condition.Message)
		}
	}
}

// A Secret that the driver of a mounted SecretProviderClass may make is shown as absent, and keeps no pod from starting.
func TestSourcesResolved_SecretThatADriverMakes(t *testing.T) {
	for class, want := range map[string]string{
		"keys": "True AllPresent: Secret db is absent. The driver of a SecretProviderClass may create it once a pod mounts that.",
		"":     "False SourceMissing: Secret db is missing; Secret share-key is missing: new pods cannot start.",
	} {
		d := web(func(o *appsv1.Deployment) {
			pod := &o.Spec.Template.Spec
			pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "store", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
				Driver: "secrets-store.csi.k8s.io", VolumeAttributes: map[string]string{"secretProviderClass": class},
			}}})
			pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "store", MountPath: "/store"})
		})
		for _, c := range newCluster(t, d).render(d, 1).Status.Conditions {
			if got := string(c.Status) + " " + c.Reason + ": " + c.Message; c.Type == v1alpha1.ConditionSourcesResolved && got != want {
				t.Errorf("class %q: %s\nwant %s", class, got, want)
			}
		}
	}
}

// A refusal is known to no object, so views of what is due look again for it.
func TestRefusedRestart(t *testing.T) {
	c := withWebInSync(t)
	c.set(secret("db", "two", metav1.NewTime(c.clock.Now())))
	c.clock.Step(time.Minute)
	key, at := keyOf(web()), c.clock.Now()
	due := renderer{}.Render(c.now(), key, at)
	if due.Object.Status.State != v1alpha1.StatePending || !due.Timed {
		t.Fatalf("rendered = %+v", due)
	}
	graph := c.now().Graph
	graph.SetRefusal(key, &dependency.Refusal{Hash: due.Object.Status.ConfigHash, Why: "quota", Until: at.Add(time.Hour)})
	refused := renderer{}.Render(c.now(), key, due.Next)
	if s := refused.Object.Status; s.State != v1alpha1.StateBlocked || s.Reason != decide.ReasonRefused || !strings.HasSuffix(s.Message, "The API server refuses it: quota") || !refused.Timed {
		t.Errorf("refused: %+v", s)
	}
	if again := (renderer{}).Render(c.now(), key, at.Add(time.Hour)); !refused.Next.After(due.Next) || again.Object.Status.State != v1alpha1.StatePending {
		t.Errorf("an hour later: %+v", again.Object.Status)
	}
}

// Transitions are dated by what the cluster remembers, so that every replica says the same.
func TestTransitionsOfConditions(t *testing.T) {
	tests := map[string]struct {
		workload *appsv1.Deployment
		written  metav1.Time
		want     []metav1.Time // of SourcesResolved, InSync and RolloutComplete
	}{
		"content was written after all else":    {web(), secondOf(5), []metav1.Time{secondOf(2), secondOf(5), secondOf(5)}},
		"content was never written again":       {web(), secondOf(2), []metav1.Time{secondOf(2), secondOf(2), secondOf(2)}},
		"the workload is newer than its source": {web(func(o *appsv1.Deployment) { o.CreationTimestamp = secondOf(7) }), secondOf(5), []metav1.Time{secondOf(7), secondOf(7), secondOf(7)}},
		"it was restarted afterwards": {
			web(annotated(record.LastReloadAnnotation, `{"time":"2026-02-01T09:00:00.000000Z"}`)), secondOf(5),
			[]metav1.Time{secondOf(2), secondOf(9), secondOf(9)},
		},
		"it was restarted before": {
			web(annotated(record.LastReloadAnnotation, `{"time":"2026-02-01T03:00:00.000000Z"}`)), secondOf(5),
			[]metav1.Time{secondOf(2), secondOf(5), secondOf(5)},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, secret("db", "one", tt.written), tt.workload)
			var got []metav1.Time
			for _, condition := range c.render(tt.workload, 1).Status.Conditions {
				got = append(got, condition.LastTransitionTime)
			}
			for i := range tt.want {
				if !got[i].Equal(&tt.want[i]) {
					t.Errorf("condition %d since %v, want %v", i, got[i], tt.want[i])
				}
			}
		})
	}
}
