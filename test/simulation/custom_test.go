// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	workloads "github.com/configdep/configdep/pkg/workload"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// Workloads that are custom resources: AdvancedStatefulSets, which are managed as StatefulSets are, and Rollouts, which are managed as Deployments are,
// or have the template of a Deployment. The pods of those are replaced when a time in their specification says so, without another template.

const (
	advanced = "AdvancedStatefulSet"
	rollout  = "Rollout"
)

var customKinds = map[string]*kind.Kind{advanced: workloadtest.Preset("kruise-statefulset"), rollout: workloadtest.Preset("argo-rollout")}

var kinds = kind.Table(append(kind.BuiltIn(), customKinds[advanced], customKinds[rollout]))

func kindOf(name string) *kind.Kind { return kinds.Of(dependency.WorkloadKind(name)) }

// ordered reports whether the pods have ordinals.
func (m *manifest) ordered() bool { return m.kind == "StatefulSet" || m.kind == advanced }

// surges reports whether the pods are managed by way of ReplicaSets.
func (m *manifest) surges() bool { return m.kind == "Deployment" || m.kind == rollout }

// described returns an object with the fields of one of Kubernetes' own, and others, as one of a kind that is described.
func described(name string, o runtime.Object, change func(spec, status map[string]any)) runtime.Object {
	k := customKinds[name]
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err)
	}
	fields["apiVersion"], fields["kind"] = k.GroupVersionKind().ToAPIVersionAndKind()
	change(fields["spec"].(map[string]any), fields["status"].(map[string]any))
	raw, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	out, err := k.Decode(raw)
	if err != nil {
		panic(err)
	}
	return out
}

// asRollout changes the fields of a Deployment to those of a Rollout.
func (m *manifest) asRollout(spec, status map[string]any) {
	p := &m.progress
	status["observedGeneration"], status["phase"] = fmt.Sprint(p.observed), "Progressing"
	if status["currentPodHash"] = p.hash; p.failed {
		status["phase"] = "Degraded"
	} else if p.restarted && !m.unfinished() {
		status["phase"] = "Healthy"
	}
	if m.restartAt != "" {
		spec["restartAt"] = m.restartAt
	}
	if m.borrows {
		delete(spec, "template")
		spec["workloadRef"] = map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": workloadName(lender)}
	}
}

// lender is the slot of the workload whose template others have.
const lender = 0

// lend gives the workloads that have the template of a Deployment what that is now.
func (w *world) lend(from *workload) {
	if from.slot != lender || from.kind != "Deployment" {
		return
	}
	for _, d := range w.workloads {
		if d != nil && d.borrows && (d.bare || d.template.identity() != from.template.identity()) {
			d.template, d.bare = from.template, false
			w.rollSoon(d)
		}
	}
}

// borrow completes manifests with what the server has read of the template that they have.
func (v *view) borrow() {
	for slot, m := range v.workloads {
		if !m.borrows {
			continue
		}
		from := v.workloads[lender]
		complete := *m
		if complete.bare = from == nil || from.kind != "Deployment"; !complete.bare {
			complete.template = from.template
		}
		v.workloads[slot] = &complete
	}
}

// seesNone reports whether the record alone tells what the pods of a custom resource run with, because there should be some and the server sees none.
func (s *server) seesNone(m *manifest) bool {
	return customKinds[m.kind] != nil && m.wanted() > 0 && !slices.ContainsFunc(s.podsOf(m.slot), func(p *pod) bool {
		return !p.created.Before(m.created) && (m.kind == rollout || p.owner.UID == m.owner().UID)
	})
}

// toRestart returns a pod that is older than the time of a restart, or nil.
func (d *workload) toRestart() *pod {
	at, err := time.Parse(time.RFC3339, d.restartAt)
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(d.pods, func(p *pod) bool { return !p.terminating && seconds(p.created).Before(at) })
	if i < 0 {
		return nil
	}
	return d.pods[i]
}

// restartByTime replaces the next of the pods that are older than the time of a restart, once that has come.
func (w *world) restartByTime(d *workload) bool {
	at, _ := time.Parse(time.RFC3339, d.restartAt)
	if wait := at.Sub(w.apiTime()); wait > 0 {
		d.due = time.Now().Add(wait)
		return false
	}
	w.remove(d, d.toRestart())
	return true
}

// objects adds custom resources to what a client reads and patches.
type objects struct {
	workloads.Objects

	server *server
	reload *reloadRequest
}

// Get implements workload.Objects.
func (o objects) Get(ctx context.Context, k *kind.Kind, namespace, name string) (kind.Object, error) {
	if k.Decode == nil {
		return o.Objects.Get(ctx, k, namespace, name)
	}
	found, err := o.server.ask(clienttesting.NewGetAction(k.Resource, namespace, name), o.reload)
	if err != nil {
		return nil, err
	}
	return found.(kind.Object), nil
}

// Patch implements workload.Objects.
func (o objects) Patch(ctx context.Context, k *kind.Kind, namespace, name string, typ types.PatchType, data []byte, options metav1.PatchOptions) (metav1.Object, error) {
	if k.Decode == nil {
		return o.Objects.Patch(ctx, k, namespace, name, typ, data, options)
	}
	found, err := o.server.ask(clienttesting.NewPatchActionWithOptions(k.Resource, namespace, name, typ, data, options), o.reload)
	if err != nil {
		return nil, err
	}
	return found.(metav1.Object), nil
}

// addCustom makes the workloads of a sixth of the histories custom resources, of which a third have the template of a Deployment.
func (h *history) addCustom(begin int) {
	m := maker{rand.New(rand.NewPCG(h.Seed, 8)), h}
	if m.IntN(6) > 0 {
		return
	}
	insert := func(at int, operations ...operation) { h.Operations = slices.Insert(h.Operations, at, operations...) }
	slot := m.workload()
	if slices.ContainsFunc(h.Workloads, func(s seed) bool {
		return s.Kind == "Job" || s.Kind == "CronJob" || s.Annotations[strategyAnnotation] == "in-place"
	}) {
		return
	}
	if h.Workloads[slot].Kind = pick(m, advanced, advanced, rollout); m.IntN(3) == 0 {
		borrower := h.Workloads[lender]
		borrower.Kind, borrower.Borrows, borrower.Annotations = rollout, true, maps.Clone(borrower.Annotations)
		h.Workloads[lender].Kind, h.Workloads[lender].Replicas = "Deployment", 0
		h.Workloads, slot = append(h.Workloads[:1], borrower), 1
		insert(m.IntN(begin+1), operation{Do: "create workload", A: slot})
	}
	begin = min(begin, len(h.Operations))
	for range 3 + m.IntN(4) {
		at := begin + m.IntN(len(h.Operations)-begin+1)
		insert(at, operation{Do: pick(m, "hold", "release", "relist"), A: m.server(), B: pick(m, int(advancedStatefulSets), int(rollouts), int(deployments), int(pods))},
			operation{Do: "set content", A: m.source(), Content: m.content()}, operation{Do: "wait", Wait: pick(m, 0, time.Second, 3*time.Second, time.Minute)})
		if m.IntN(2) == 0 {
			insert(at, pick(m, operation{Do: "rewrite", A: slot, B: 2, C: -1}, operation{Do: "evict pod", A: slot, C: m.IntN(4)}, operation{Do: "calm"},
				operation{Do: "set image", A: lender, B: m.IntN(2), C: m.IntN(3)}, operation{Do: "recreate workload", A: lender}, operation{Do: "reload", A: slot, C: m.IntN(12)},
				operation{Do: "hand over", A: m.server(), B: m.IntN(2)}, operation{Do: "kill", A: m.server()}, operation{Do: "birth", A: m.server()}))
		}
	}
}
