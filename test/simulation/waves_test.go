// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/apis/policy/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/wave"
)

// Workloads that read the same sources, and whose restarts wait for each other, ReloadPolicies, and users who approve content. The oracle is in plans_test.go.

const (
	orderAnnotation    = "configdep.io/order"
	approvalAnnotation = "configdep.io/approval"
	withinAnnotation   = "configdep.io/healthy-within"
	approvedAnnotation = "configdep.io/approved"

	policyCount = 3
	// poison is the value of the key a of s0 with which containers crash.
	poison value = valueCount
)

// waves is a history in which restarts wait for each other.
type waves struct {
	// Max is --max-rollouts-in-progress.
	Max int `json:"max"`
}

// plan gives a server a planner.
func (s *server) plan(c clock.PassiveClock) {
	if s.planner = nil; s.world.waves != nil {
		s.planner = wave.New(s.world.waves.Max, c, func(changed, admitted []dependency.WorkloadKey) { s.controller.Queue(slices.Concat(changed, admitted)) })
	}
}

// reads reports whether a server reads a stream.
func (s *server) reads(id streamID) bool { return id != policies || s.planner != nil }

// tells returns what tells that the rollout is one of configdep.
func (m *manifest) tells() string {
	a := m.annotations
	return strings.Join([]string{m.template.identity(), a[appliedAnnotation], a[hashAnnotation], a[lastReloadAnnotation]}, "\n")
}

// crashes reports whether the containers of a pod crash.
func (p *pod) crashes() bool { return p.template.image == crashing || p.poisoned }

// poison lets a container that has just started crash if it has read the value with which it does.
func (w *world) poison(p *pod) {
	uses := slices.ContainsFunc(allUses[p.template.variant], func(u use) bool { return u.source == s0 && u.reads().has(0) })
	p.poisoned = w.waves != nil && uses && p.containers[0].read[0][s0].content[0] == poison
}

// cure lets the kubelet start the container of a pod again that crashes because of what it has read, when that has changed.
func (w *world) cure(p *pod) {
	if p.poisoned && !p.terminating && w.reading(s0).content[0] != poison {
		p.poisoned = false
		p.stop(0)
	}
}

// creating notes whether the containers of a pod wait for nothing but time.
func (w *world) creating(p *pod) {
	if is := w.waves != nil && p.containers[0].started == 0 && time.Now().Before(p.containers[0].until); is != p.creating {
		p.creating, p.changed = is, true
	}
}

func policyName(slot int) string { return fmt.Sprint("p", slot) }

// putPolicy creates or changes a ReloadPolicy.
func (w *world) putPolicy(slot int, text string) bool {
	p := &v1alpha1.ReloadPolicy{ObjectMeta: metav1.ObjectMeta{Name: policyName(slot)}}
	if err := json.Unmarshal([]byte(text), &p.Spec); err != nil {
		panic(err)
	}
	w.revision++
	if before := w.policies[slot]; before != nil {
		p.UID, p.Generation = before.UID, before.Generation+1
	} else {
		w.uids++
		p.UID, p.Generation = types.UID(fmt.Sprint("policy-", w.uids)), 1
	}
	p.ResourceVersion = fmt.Sprint(w.revision)
	w.policies[slot] = p
	w.emit(event{stream: policies, slot: slot, other: p})
	return true
}

func (w *world) deletePolicy(slot int) bool {
	p := w.policies[slot]
	if p == nil {
		return false
	}
	w.revision++
	w.policies[slot], p = nil, p.DeepCopy()
	p.ResourceVersion = fmt.Sprint(w.revision)
	w.emit(event{stream: policies, slot: slot, other: p, deleted: true})
	return true
}

func (w *world) listPolicies() (events []event) {
	for slot, p := range w.policies {
		if p != nil {
			events = append(events, event{stream: policies, slot: slot, other: p})
		}
	}
	return events
}

// decideContent approves or denies the content of a workload that a server shows, as its subresource does.
func (s *simulation) decideContent(o operation) bool {
	d, server := s.world.workloads[o.A], s.world.servers[o.C%len(s.world.servers)]
	if d == nil || !server.alive || !server.view.synced || server.view.workloads[o.A] == nil {
		return false
	}
	got := server.show(server.view.workloads[o.A])
	if got == nil {
		return false
	}
	a := approval{"Approved", got.hash, metav1.NewMicroTime(time.Now())}
	if o.B == 1 {
		a.Decision = "Denied"
	}
	text, err := json.Marshal(a)
	server.must(err)
	delete(s.world.oracle.approved, approvedHash{d.uid, got.hash})
	if o.B == 0 {
		s.world.oracle.approved[approvedHash{d.uid, got.hash}] = server.view.sources
	}
	return s.world.write(d, fieldManager, func(m *manifest) { m.annotations = with(m.annotations, approvedAnnotation, string(text)) })
}

// calmWaves goes on as long as workloads are restarted, which may take many windows.
func (s *simulation) calmWaves() {
	for n := -1; s.world.waves != nil && n != s.world.oracle.patches && s.world.oracle.violation == ""; {
		n = s.world.oracle.patches
		s.sleep(calmFor + windowPeriod)
	}
}

// policy draws what a ReloadPolicy says.
func (m maker) policy() string {
	var spec v1alpha1.ReloadPolicySpec
	one := func(n int) bool { return m.IntN(n) == 0 }
	if one(2) {
		var names []string
		for slot := range m.h.Workloads {
			if m.IntN(3) > 0 {
				names = append(names, workloadName(slot))
			}
		}
		spec.WorkloadSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: append(names, "w0")}}}
	}
	if one(4) {
		spec.Sources = []v1alpha1.SourcePattern{pick(m, v1alpha1.SourcePattern{Kind: "Secret", Name: "s*"}, v1alpha1.SourcePattern{Kind: "ConfigMap", Name: "c0"}, v1alpha1.SourcePattern{Kind: "Secret", Name: "s0"})}
	}
	for range pick(m, 0, 1, 1, 2) {
		b := v1alpha1.Budget{Scope: pick(m, "", v1alpha1.ScopePolicy, v1alpha1.ScopeNamespace, v1alpha1.ScopeSource)}
		if one(3) {
			b.Pods = new(intstr.Parse(pick(m, "1", "3", "4", "30%")))
		} else {
			b.Workloads = new(intstr.Parse(pick(m, "1", "1", "2", "20%", "40%", "0")))
		}
		if one(5) {
			b.Schedule, b.Duration = everyFive, &metav1.Duration{Duration: 2 * time.Minute}
		}
		spec.Budgets = append(spec.Budgets, b)
	}
	if one(6) {
		spec.Windows = []v1alpha1.Window{{Kind: pick(m, v1alpha1.WindowKind("Allow"), "Deny"), Schedule: everyFive, Duration: metav1.Duration{Duration: time.Duration(1+m.IntN(3)) * time.Minute}}}
	}
	if one(4) {
		spec.BakeTime = &metav1.Duration{Duration: pick(m, 20*time.Second, 2*time.Minute)}
	}
	if one(2) {
		spec.FailureLimit = new(int32(1 + m.IntN(2)))
	}
	if spec.Suspend = one(7); one(2) {
		spec.Requests = v1alpha1.RequestsBound
	}
	if one(8) {
		spec.Approval = v1alpha1.ApprovalRequired
	}
	switch m.IntN(40) {
	case 0:
		spec.BakeTime = &metav1.Duration{Duration: -time.Second}
	case 1:
		spec.WorkloadSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like", Values: []string{"w0"}}}}
	case 2:
		spec.Budgets = []v1alpha1.Budget{{}}
	}
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// everyFive is a schedule that fires every five minutes, for windows and budgets.
const everyFive = "*/5 * * * *"

// common are operations of other histories that are drawn in those with waves, too.
var common = []string{"set key", "set key", "set key", "set content", "there and back", "recreate source", "remove key", "wait", "wait", "wait", "look", "calm", "set image", "restart", "pause", "resume", "scale",
	"evict pod", "undo", "rewrite", "opt", "recreate workload", "reload", "reload", "impair", "mend", "mend", "fault", "kill", "birth", "lead", "resign", "hand over", "hand over", "replace key", "restart container"}

// addWaves replaces a quarter of the histories by those of workloads that wait for each other.
func (h *history) addWaves() {
	m := maker{rand.New(rand.NewPCG(h.Seed, 16)), h}
	if m.IntN(4) > 0 {
		return
	}
	h.Waves, h.Workloads, h.Operations = &waves{Max: pick(m, 1, 2, 2, -1, -1)}, nil, nil
	h.Kubelets = kubelets{Start: pick(m, 0, 2*time.Second, 2*time.Second, 20*time.Second), Grace: pick(m, 0, 3*time.Second), Deadline: pick(m, 0, 2*time.Minute, 10*time.Minute)}
	h.Pace, h.Mode, h.ReleaseSettle, h.Skews.Nodes = pick(m, 0, 100*time.Millisecond), "off", 0, [3]time.Duration{}
	if m.IntN(2) == 0 {
		h.Skews = skews{}
	}
	add := func(o ...operation) { h.Operations = append(h.Operations, o...) }
	for source := range firstSources {
		add(operation{Do: "create source", A: source, Content: content{1, 1, 1}})
	}
	for slot := range 4 + m.IntN(5) {
		s := seed{Kind: pick(m, "Deployment", "Deployment", "Deployment", "StatefulSet", "DaemonSet"), Replicas: 1 + m.IntN(3), Annotations: map[string]string{reloadAnnotation: "auto"}}
		s.Variants = [2]int{pick(m, readsOneKey, readsSecretAndMap, readsS0, readsS0), readsS0}
		if m.IntN(3) == 0 {
			s.Annotations[orderAnnotation] = pick(m, "-1", "1", "2")
		}
		h.Workloads = append(h.Workloads, s)
		add(operation{Do: "create workload", A: slot})
	}
	for id := range h.Servers {
		add(operation{Do: "birth", A: id})
	}
	add(operation{Do: "lead"}, calm)
	for range 25 + m.IntN(30) {
		wait := operation{Do: "wait", Wait: pick(m, 0, 300*time.Millisecond, time.Second, 2*time.Second, 5*time.Second, 20*time.Second, time.Minute, 6*time.Minute)}
		switch m.IntN(16) {
		case 0, 1:
			add(operation{Do: "put policy", A: m.IntN(policyCount), Text: m.policy()})
		case 2:
			add(operation{Do: "delete policy", A: m.IntN(policyCount)})
		case 3, 4:
			add(change(s0, 0, 1+value(m.IntN(int(poison)-1))), wait)
		case 5:
			if m.IntN(2) == 0 {
				add(operation{Do: "put policy", A: m.IntN(policyCount), Text: `{"budgets":[{"workloads":1}],"failureLimit":1}`})
			}
			add(change(s0, 0, poison), wait, operation{Do: "wait", Wait: pick(m, time.Second, 3*time.Minute)})
		case 6:
			o := operation{Do: pick(m, "toggle", "toggle", "toggle", "toggle namespace"), A: m.workload(), Annotation: pick(m, orderAnnotation, orderAnnotation, approvalAnnotation, withinAnnotation, holdAnnotation, windowsAnnotation)}
			o.Text = pick(m, map[string][]string{orderAnnotation: {"-1", "0", "1", "2", "first", ""}, approvalAnnotation: {"required", ""}, withinAnnotation: {"20s", "2m", ""},
				holdAnnotation: {"INC-4711", "", ""}, windowsAnnotation: {aMinuteInFive, "", ""}}[o.Annotation]...)
			add(o)
		case 7:
			for slot := range h.Workloads {
				if m.IntN(2) == 0 {
					add(operation{Do: "decide", A: slot, B: m.IntN(8) / 7, C: m.server()})
				}
			}
		case 8:
			add(operation{Do: pick(m, "hold", "release", "release", "relist"), A: m.server(), B: int(pick(m, deployments, deployments, statefulSets, secrets, pods, replicaSets, policies, policies, namespaces))})
		case 9:
			add(operation{Do: "hand over", A: m.server(), B: m.IntN(2)}, wait)
		default:
			name := pick(m, common...)
			o := actions[name].make(m)
			o.Do = name
			add(o, wait)
		}
	}
	if m.IntN(2) == 0 { // all that holds ends
		add(change(s0, 0, 2), operation{Do: "toggle namespace", Annotation: approvalAnnotation}, operation{Do: "toggle namespace", Annotation: holdAnnotation})
		for slot := range policyCount {
			add(operation{Do: "delete policy", A: slot})
		}
		for slot := range h.Workloads {
			add(operation{Do: "toggle", A: slot, Annotation: holdAnnotation}, operation{Do: "toggle", A: slot, Annotation: approvalAnnotation}, operation{Do: "resume", A: slot})
		}
		add(calm)
	}
}

// approval is the decision of a user.
type approval struct {
	Decision   string           `json:"decision"`
	ConfigHash string           `json:"configHash"`
	Time       metav1.MicroTime `json:"time"`
}

type approvedHash struct {
	workload int
	hash     string
}
