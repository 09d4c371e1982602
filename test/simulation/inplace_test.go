// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Restarts in place: the restarters and kubelets that carry them out, and what the oracle requires of the servers that ask for them.

// restarting is how the restarters and kubelets of a workload behave.
type restarting struct {
	delay time.Duration // until a restarter acts
	boot  time.Duration // until containers start again, and then until the pod is ready
	stuck bool          // they do not start again
}

// moment is the least of both.
const moment = 100 * time.Millisecond

// podInPlace is the state of a pod that can be restarted in place.
type podInPlace struct {
	taken   string // the annotation with which the restarter was started, or on which it has acted
	down    bool   // its containers have been stopped, and will start again
	stuck   bool   // its containers do not start again
	unready bool   // its containers have started again, and are not ready yet
}

// start notes that a container has started.
func (p *pod) start(i int, c container) {
	before := &p.containers[i]
	c.restarts, c.ran = before.restarts, true
	if before.ran {
		c.restarts++
	}
	p.containers[i] = c
	p.changed = true
	if variants[p.template.variant][i].role == restarter { // it takes what it was told before for done
		p.inPlace.taken = p.annotations[restartAnnotation]
		if !p.inPlace.unready {
			p.acts = time.Time{}
		}
	}
}

// stop notes that a container has ended.
func (p *pod) stop(i int) {
	p.containers[i] = container{restarts: p.containers[i].restarts, ran: p.containers[i].ran}
	p.changed = true
}

// annotatePod sets the annotations of a pod, which its restarter sees.
func (w *world) annotatePod(d *workload, p *pod, annotations map[string]string) {
	p.annotations, p.told = annotations, time.Now()
	if p.inPlace.down || p.inPlace.unready || !hasRestarter(p.template.variant) || p.containers[0].started == 0 || p.template.image == crashing {
		return
	}
	p.acts = time.Time{}
	if annotations[restartAnnotation] != p.inPlace.taken {
		p.acts = time.Now().Add(max(moment, d.restarter.delay))
	}
}

// act lets the restarter of a pod end all its containers, or the kubelet start them again.
func (w *world) act(d *workload, p *pod) {
	p.acts = time.Time{}
	if w.workloads[d.slot] != d || p.terminating || !slices.Contains(d.pods, p) {
		return
	}
	switch {
	case p.inPlace.unready:
		w.logf("    %s: pod %d is ready again", workloadName(d.slot), p.uid)
		p.inPlace.unready = false
		w.annotatePod(d, p, p.annotations)
		p.changed = true
	case !p.inPlace.down:
		w.logf("    %s: pod %d is restarted in place", workloadName(d.slot), p.uid)
		p.inPlace.taken, p.inPlace.down = p.annotations[restartAnnotation], true
		for i := range p.containers {
			p.stop(i)
		}
		p.acts = time.Now().Add(max(moment, d.restarter.boot))
	default:
		p.inPlace.down, p.inPlace.stuck, p.inPlace.unready = false, d.restarter.stuck, !d.restarter.stuck
		p.acts = time.Time{}
		if p.inPlace.unready {
			p.acts = time.Now().Add(max(moment, d.restarter.boot))
		}
	}
	w.kubelet(d, p)
	w.rollSoon(d)
}

// loseRestart restarts the restarter of a pod alone.
func (w *world) loseRestart(slot, n int) bool {
	d := w.workloads[slot]
	if d == nil || len(d.pods) == 0 {
		return false
	}
	p := d.pods[n%len(d.pods)]
	if p.terminating || !hasRestarter(p.template.variant) || p.containers[0].started == 0 {
		return false
	}
	p.stop(0)
	w.kubelet(d, p)
	w.rollSoon(d)
	return true
}

// unstick lets containers start again that did not.
func (w *world) unstick(d *workload) bool {
	d.restarter.stuck = false
	for _, p := range d.pods {
		if p.inPlace.stuck {
			p.inPlace.stuck = false
			w.kubelet(d, p)
		}
	}
	w.rollSoon(d)
	return true
}

func (d *workload) stuck() bool {
	return slices.ContainsFunc(d.pods, func(p *pod) bool { return p.inPlace.stuck || p.template.image == crashing })
}

// maxUnavailable returns the field of the update strategy.
func (m *manifest) maxUnavailable() *intstr.IntOrString {
	if m.unavailable == 0 {
		return nil
	}
	return new(intstr.FromInt(max(0, m.unavailable)))
}

func (m *manifest) strategy() (s appsv1.DeploymentStrategy) {
	if field := m.maxUnavailable(); field != nil {
		s.Type, s.RollingUpdate = appsv1.RollingUpdateDeploymentStrategyType, &appsv1.RollingUpdateDeployment{MaxUnavailable: field}
	}
	return s
}

// budgets returns the PodDisruptionBudgets of the namespace.
func (w *world) budgets() runtime.Object {
	out := &policyv1.PodDisruptionBudgetList{}
	for slot, d := range w.workloads {
		if d == nil {
			continue
		}
		b := policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: workloadName(slot)}}
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": workloadName(slot)}}
		if !d.pdb {
			b.Status.DisruptionsAllowed = 1
		}
		out.Items = append(out.Items, b)
	}
	return out
}

// tell applies a patch of a pod.
func (w *world) tell(r *request, d *workload, resource schema.GroupResource) (runtime.Object, error) {
	var body struct {
		Metadata struct {
			UID             string            `json:"uid"`
			ResourceVersion string            `json:"resourceVersion"`
			Annotations     map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	decoder := json.NewDecoder(bytes.NewReader(r.patch().GetPatch()))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil {
		w.oracle.fail("a patch of a pod sets more than annotations: %v: %s", err, r.patch().GetPatch())
		return nil, apierrors.NewBadRequest(err.Error())
	}
	for key := range body.Metadata.Annotations {
		if key != restartAnnotation && key != restartingAnnotation {
			w.oracle.fail("a patch of a pod sets the annotation %s", key)
		}
	}
	var p *pod
	if d != nil {
		if i := slices.IndexFunc(d.pods, func(p *pod) bool { return p.name == r.name }); i >= 0 {
			p = d.pods[i]
		}
	}
	switch o := w.oracle; {
	case p == nil:
		return nil, apierrors.NewNotFound(resource, r.name)
	case body.Metadata.UID == "" || body.Metadata.ResourceVersion == "":
		o.fail("a patch of a pod without preconditions: %s", r.patch().GetPatch())
	case body.Metadata.UID != fmt.Sprint("pod-", p.uid) || body.Metadata.ResourceVersion != fmt.Sprint(p.version):
		return nil, apierrors.NewConflict(resource, r.name, fmt.Errorf("the object has been modified"))
	case d.refused:
		return nil, apierrors.NewForbidden(resource, r.name, fmt.Errorf("a policy of the cluster denies it"))
	}
	w.annotatePod(d, p, merged(p.annotations, body.Metadata.Annotations))
	w.tellPod(d, p, false)
	w.oracle.tally["restarts of pods in place"]++
	return p.object(), nil
}

// addInPlace lets workloads of a quarter of the histories ask for restarts in place, whose pods restart late, or not at all, while content
// changes and leaders come and go.
func (h *history) addInPlace(begin int) {
	m := maker{rand.New(rand.NewPCG(h.Seed, 3)), h}
	if m.IntN(4) > 0 {
		return
	}
	slot := m.workload()
	for i := range h.Workloads {
		s := &h.Workloads[i]
		if s.Kind == "Job" || s.Kind == "CronJob" || i != slot && m.IntN(2) == 0 {
			continue
		}
		s.Variants[0] = restartable(s.Variants[0])
		if m.IntN(4) > 0 {
			s.Variants[1] = restartable(s.Variants[1])
		}
		s.Annotations[strategyAnnotation] = "in-place"
		s.Replicas = 1 + m.IntN(3)
		s.MaxUnavailable = pick(m, 0, 0, 0, 1, 2, 2, -1)
		if s.Annotations[reloadAnnotation] == "" {
			s.Annotations[reloadAnnotation] = "auto"
		}
	}
	insert := func(at int, operations ...operation) int {
		h.Operations = slices.Insert(h.Operations, at, operations...)
		return at + len(operations)
	}
	changes := func() operation {
		return operation{Do: "set content", A: m.source(), Content: m.content()}
	}
	s := &h.Workloads[slot]
	for range 2 + m.IntN(3) {
		at := begin + m.IntN(len(h.Operations)-begin+1)
		if m.IntN(2) == 0 {
			at = insert(at, operation{Do: "calm"})
		}
		at = insert(at, operation{Do: "restarter", A: slot, B: m.IntN(5) / 4,
			C: pick(m, 0, 1, 5, 40, 700), Wait: pick(m, 0, time.Second, 5*time.Second, 30*time.Second, 4*time.Minute)})
		at = insert(at, changes(), changes(), operation{Do: "wait", Wait: pick(m, 2*time.Second, 7*time.Second, 20*time.Second)})
		if m.IntN(4) == 0 { // one of the pods has been told, and does not know
			for n := range s.Replicas {
				at = insert(at, operation{Do: "lose restart", A: slot, C: n})
			}
			at = insert(at, operation{Do: "wait", Wait: 4 * time.Minute})
		}
		for range m.IntN(5) {
			at = insert(at, pick(m, changes(), changes(),
				operation{Do: "lose restart", A: slot, C: m.IntN(4)}, operation{Do: "lose restart", A: slot, C: m.IntN(4)},
				operation{Do: "restarter", A: slot}, operation{Do: "unstick", A: slot}, operation{Do: "unstick", A: slot},
				operation{Do: "protect", A: slot, B: m.IntN(2)}, operation{Do: "refuse", A: slot, B: m.IntN(2)},
				operation{Do: "evict pod", A: slot, C: m.IntN(4)}, operation{Do: "lose node", A: slot, C: m.IntN(4)},
				operation{Do: "scale", A: slot, B: m.IntN(5), C: m.IntN(2)}, operation{Do: "scale", A: slot, B: 1 + m.IntN(4), C: m.IntN(2)},
				operation{Do: "restart container", A: slot, C: m.IntN(12)}, operation{Do: "set image", A: slot, B: m.IntN(2), C: m.IntN(3)},
				operation{Do: "fault", A: slot, B: 1 + m.IntN(int(faultCount)-1), C: 1 + m.IntN(2)},
				operation{Do: "hand over", A: m.server(), B: m.IntN(2)}, operation{Do: "kill", A: m.server(), B: m.IntN(2)},
				operation{Do: "birth", A: m.server()}, operation{Do: "lead", A: m.server()}, operation{Do: "resign", A: m.server(), B: m.IntN(2)},
				operation{Do: "toggle", A: slot, Annotation: strategyAnnotation, Text: pick(m, "in-place", "in-place", "annotation", "recreate")},
				operation{Do: "opt", A: slot, Annotation: reloadAnnotation, Text: pick(m, "auto", "auto", "off")},
				operation{Do: "rewrite", A: slot, B: 1, C: -1}, operation{Do: "undo", A: slot},
				operation{Do: "wait", Wait: pick(m, time.Second, 6*time.Second, 30*time.Second, 4*time.Minute)},
				operation{Do: "look"}))
		}
	}
	if m.IntN(3) > 0 {
		h.Operations = append(h.Operations, operation{Do: "unstick", A: slot})
	}
}
