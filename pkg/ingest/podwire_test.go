// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/randfill"

	"github.com/configdep/configdep/pkg/agent/status"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/record"
)

// randomPod returns a pod of which any field may be set. Many statuses are of its containers, and what is looked for is often there.
func randomPod(seed int64) *corev1.Pod {
	f := randfill.NewWithSeed(seed).NilChance(0.4).NumElements(0, 3).MaxDepth(12).Funcs(
		func(at *metav1.Time, c randfill.Continue) {
			*at = metav1.Unix(int64(c.Intn(4))*1_700_000_000, int64(c.Intn(2)))
		},
		func(at *metav1.MicroTime, c randfill.Continue) {
			*at = metav1.MicroTime{Time: time.Unix(int64(c.Intn(2)), 0)}
		},
		func(e *metav1.FieldsV1, _ randfill.Continue) { *e = metav1.FieldsV1{} },
		func(c *corev1.PodCondition, r randfill.Continue) {
			r.FillNoCustom(c)
			c.Type = []corev1.PodConditionType{corev1.PodReady, corev1.PodReady, corev1.PodScheduled, "Other"}[r.Intn(4)]
			c.Status = []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}[r.Intn(2)]
		},
		func(c *corev1.Container, r randfill.Continue) {
			r.FillNoCustom(c)
			if c.RestartPolicy != nil && r.Intn(2) == 0 {
				c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			}
		},
		func(p *corev1.Pod, r randfill.Continue) {
			r.FillNoCustom(p)
			if r.Intn(2) == 0 {
				p.Annotations = map[string]string{record.ConfigHashAnnotation: r.String(9), status.Annotation: r.String(9), "other": "x"}
			}
			names := func(statuses []corev1.ContainerStatus, containers []corev1.Container) {
				for i := range min(len(statuses), len(containers)) {
					statuses[i].Name = containers[i].Name
				}
			}
			names(p.Status.ContainerStatuses, p.Spec.Containers)
			names(p.Status.InitContainerStatuses, p.Spec.InitContainers)
		},
	)
	p := &corev1.Pod{}
	f.Fill(p)
	return p
}

// onlyRead removes what is not read of the metadata of a pod.
func onlyRead(m *metav1.ObjectMeta) {
	annotations := map[string]string{}
	for key, value := range m.Annotations {
		if isReadOfPods(key) {
			annotations[key] = value
		}
	}
	for i := range m.OwnerReferences {
		m.OwnerReferences[i].BlockOwnerDeletion = nil
	}
	*m = metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, CreationTimestamp: m.CreationTimestamp,
		DeletionTimestamp: m.DeletionTimestamp, DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds, Labels: m.Labels, Annotations: annotations, OwnerReferences: m.OwnerReferences,
	}
}

// The decoder finds what the one of Kubernetes finds.
func TestDecodePod_AsKubernetesDoes(t *testing.T) {
	var ready, unready, started, sidecars, waiting, unscheduled int
	for seed := range int64(300) {
		raw, err := randomPod(seed).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		whole := &corev1.Pod{}
		if err := whole.Unmarshal(raw); err != nil {
			t.Fatal(err)
		}
		want := partsOf(whole)
		got, err := decodePod(raw)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		onlyRead(&want.ObjectMeta)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(podParts{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
		if !got.ready.IsZero() {
			ready++
		}
		if got.unready != 0 {
			unready++
		}
		for _, c := range got.containers {
			if !c.Started.IsZero() {
				started++
			}
			if c.Waiting != "" && c.Waiting == got.unscheduled {
				unscheduled++
			}
			if c.Role == dependency.SidecarContainer {
				sidecars++
			}
			if c.Waiting != "" && c.Waiting != dependency.NotStarted {
				waiting++
			}
		}
	}
	if min(ready, unready, started, sidecars, waiting, unscheduled) < 10 {
		t.Errorf("too little was tested: %d ready pods, %d that are not, %d started containers, %d sidecars, %d that wait, %d without a node", ready, unready, started, sidecars, waiting, unscheduled)
	}
}

// What breaks off, or is no pod, is refused or read in part, and breaks nothing.
func TestDecodePod_OfBrokenInput(t *testing.T) {
	for seed := range int64(8) {
		raw, err := randomPod(seed).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		step := 1 + len(raw)/3000
		for n := 0; n < len(raw); n += step {
			_, _ = decodePod(raw[:n])
			broken := append([]byte(nil), raw...)
			broken[n] ^= byte(1 + n%255)
			_, _ = decodePod(broken)
		}
	}
}

func FuzzDecodePod(f *testing.F) {
	for seed := range int64(3) {
		raw, err := randomPod(seed).Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(_ *testing.T, raw []byte) {
		if p, err := decodePod(raw); err == nil {
			_, _ = Scope{}.readPod(p, func() (*corev1.Pod, error) {
				whole := &corev1.Pod{}
				return whole, whole.Unmarshal(raw)
			})
		}
	})
}

// The containers that are kept have a limit, and so has why one waits.
func TestDecodePod_Bound(t *testing.T) {
	p := &corev1.Pod{}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: strings.Repeat("x", 1<<20)},
	}}}
	for range 2 * maxContainers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "app"})
	}
	raw, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodePod(raw)
	if err != nil || len(got.containers) != maxContainers || len(partsOf(p).containers) != maxContainers {
		t.Errorf("%d containers, %v", len(got.containers), err)
	}
	if c := &got.containers[0]; c.Waiting != dependency.NotStarted {
		t.Errorf("a container waits for %d bytes of reason", len(c.Waiting))
	}
}

// Why a pod waits is one word: tenants can write anything there, and messages contain it.
func TestDecodePod_WhyItWaits(t *testing.T) {
	for name, tt := range map[string]struct {
		conditions []corev1.PodCondition
		waiting    []string // of init container and container; empty: nothing is reported
		want       []string
	}{
		"nothing is reported": {nil, []string{"", ""}, []string{"NotStarted", "NotStarted"}},
		"no node": {
			[]corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available"}},
			[]string{"", ""}, []string{"Unschedulable", "Unschedulable"},
		},
		"a node": {[]corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, Reason: "x"}}, []string{"", ""}, []string{"NotStarted", "NotStarted"}},
		"the kubelet says more": {
			[]corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable"}},
			[]string{"CrashLoopBackOff", "PodInitializing"}, []string{"CrashLoopBackOff", "PodInitializing"},
		},
		"no word":                 {nil, []string{"a b", "a\nb"}, []string{"NotStarted", "NotStarted"}},
		"an escape sequence":      {nil, []string{"\x1b[31mred", "\u202eder"}, []string{"NotStarted", "NotStarted"}},
		"no word for having none": {[]corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "a b"}}, []string{"", ""}, []string{"NotStarted", "NotStarted"}},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "c0"}}, Containers: []corev1.Container{{Name: "c1"}}}}
		p.Status.Conditions = tt.conditions
		for i, reason := range tt.waiting {
			if reason != "" {
				s := corev1.ContainerStatus{Name: "c" + string(rune('0'+i)), State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
				p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
			}
		}
		raw, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		parts, err := decodePod(raw)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range parts.containers {
			got = append(got, parts.containers[i].Waiting)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// partsOf returns the parts that decodePod reads of a pod.
func partsOf(p *corev1.Pod) *podParts {
	out := &podParts{ObjectMeta: p.ObjectMeta, node: p.Spec.NodeName, phase: string(p.Status.Phase)}
	for i := range p.Status.Conditions {
		switch c := &p.Status.Conditions[i]; {
		case c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue:
			out.ready = c.LastTransitionTime.Time
		case c.Type == corev1.PodReady && !c.LastTransitionTime.IsZero():
			out.unready = c.LastTransitionTime.Unix()
		case c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse:
			out.unscheduled = c.Reason
		}
	}
	for i := range p.Spec.InitContainers {
		role := dependency.InitContainer
		if ptr.Deref(p.Spec.InitContainers[i].RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			role = dependency.SidecarContainer
		}
		out.add(p.Spec.InitContainers[i].Name, role)
		out.restarts = out.restarts || len(p.Spec.InitContainers[i].RestartPolicyRules) > 0
	}
	for i := range p.Spec.Containers {
		out.add(p.Spec.Containers[i].Name, dependency.RegularContainer)
		out.restarts = out.restarts || len(p.Spec.Containers[i].RestartPolicyRules) > 0
	}
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range statuses {
			s := &statuses[i]
			reported := containerStatus{name: s.Name, restarts: s.RestartCount, before: s.LastTerminationState != corev1.ContainerState{}}
			switch {
			case s.State.Running != nil:
				reported.started, reported.ran = s.State.Running.StartedAt.Time, true
			case s.State.Terminated != nil: // such as an init container, which was started with some content
				reported.started, reported.ran, reported.ended = s.State.Terminated.StartedAt.Time, true, true
			case s.State.Waiting != nil:
				reported.waiting = s.State.Waiting.Reason
			}
			out.report(&reported)
		}
	}
	for i := range out.containers {
		if c := &out.containers[i]; c.Waiting == dependency.NotStarted && out.unscheduled != "" {
			c.Waiting = word(out.unscheduled)
		}
	}
	return out
}
