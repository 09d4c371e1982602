// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// template is a pod template. Its map is immutable.
type template struct {
	variant, image int
	annotations    map[string]string
	env            string // see envOf
}

// identity distinguishes templates.
func (t *template) identity() string {
	var b strings.Builder
	b.WriteString(strconv.Itoa(t.variant))
	b.WriteByte(' ')
	b.WriteString(strconv.Itoa(t.image))
	for _, k := range slices.Sorted(maps.Keys(t.annotations)) {
		b.WriteString(" " + k + "=" + t.annotations[k])
	}
	if t.env != "" {
		b.WriteString(" " + t.env)
	}
	return b.String()
}

// manifest is a workload as the API shows it. Its maps are immutable.
type manifest struct {
	kind        string
	slot        int
	uid         int
	revision    uint64 // of the world
	created     time.Time
	generation  int64
	annotations map[string]string
	label       int
	template    template
	templates   int64 // how often the template of a DaemonSet was written, as the API server counts it
	paused      bool
	replicas    int    // for a DaemonSet: the nodes that should have a pod
	tainted     bool   // pods of a DaemonSet stay on other nodes
	partition   int    // of a StatefulSet
	onDelete    bool   // pods are not replaced
	unavailable int    // maxUnavailable, as in a seed
	mounts      bool   // as in a seed
	syncs       bool   // as in a seed
	borrows     bool   // as in a seed
	bare        bool   // it borrows from none
	restartAt   string // of a Rollout
	deleting    bool   // in the foreground
	managers    []entry
	progress    progress
	// restarted is the revision of the world at which a server restarted it; 0: the rollout has been complete since, another client has written what tells
	// of it, or there was none.
	restarted uint64
}

// entry is one entry of managedFields.
type entry struct {
	manager  string
	at       time.Time
	template bool
}

// workload is a manifest with the objects of its controllers.
type workload struct {
	manifest
	// written is the manifest as a client last wrote it, before the controllers acted.
	written manifest
	holder  owner

	// owned are the annotations in the owner's manifest.
	owned         map[string]string
	number, taken int64
	sets          []*set
	pods          []*pod
	// current is the identity of the template of the pods below a partition.
	current string
	// largest is the identity of the template of the ReplicaSet with the most pods.
	largest string
	ended   bool // a Job that has run
	// due is when the controllers act; zero: they have nothing to do.
	due time.Time
	// deadline is when the rollout of a Deployment fails, unless it progresses; zero: it is complete, or has failed.
	deadline time.Time
	// pdb: a PodDisruptionBudget refuses every eviction; refused: a policy engine denies the patches of the
	// server.
	pdb, refused bool
	refusals     refusals
	// pausedByServer: the last to pause or resume it was a server.
	pausedByServer bool
	restarter      restarting
	agents         agents
}

func workloadName(slot int) string { return "w" + strconv.Itoa(slot) }

// object returns the manifest as an API object.
func (m *manifest) object() runtime.Object {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": workloadName(m.slot)}}
	meta := metav1.ObjectMeta{
		Namespace: namespace, Name: workloadName(m.slot), UID: types.UID(fmt.Sprint("workload-", m.uid)),
		ResourceVersion: fmt.Sprint(m.revision), CreationTimestamp: metav1.NewTime(seconds(m.created)), Generation: m.generation,
		Labels: map[string]string{"app": workloadName(m.slot), "label": fmt.Sprint(m.label)}, Annotations: maps.Clone(m.annotations),
	}
	if m.deleting {
		meta.DeletionTimestamp = new(metav1.NewTime(seconds(m.created)))
		meta.Finalizers = []string{metav1.FinalizerDeleteDependents}
	}
	for _, e := range m.managers {
		raw := `{"f:metadata":{"f:annotations":{}}}`
		if e.template {
			raw = `{"f:spec":{"f:template":{}}}`
		}
		meta.ManagedFields = append(meta.ManagedFields, fields(e.manager, e.at, raw))
	}
	t := podTemplate(&m.template)
	t.Annotations = maps.Clone(t.Annotations)
	if m.mounts {
		addClass(&t.Spec)
	}
	p := &m.progress
	all, updated, ready := int32(p.all), int32(p.updated), int32(p.ready)
	replicas := new(int32(m.replicas))
	switch m.kind {
	case "Deployment", rollout:
		if meta.Annotations == nil {
			meta.Annotations = map[string]string{}
		}
		if p.number > 0 && m.kind == "Deployment" {
			meta.Annotations["deployment.kubernetes.io/revision"] = fmt.Sprint(p.number)
		}
		var conditions []appsv1.DeploymentCondition
		if p.failed {
			conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"}}
		}
		d := &appsv1.Deployment{
			ObjectMeta: meta,
			Spec:       appsv1.DeploymentSpec{Replicas: replicas, Paused: m.paused, Template: t, Selector: selector, Strategy: m.strategy()},
			Status: appsv1.DeploymentStatus{Conditions: conditions, ObservedGeneration: p.observed, Replicas: all,
				UpdatedReplicas: updated, ReadyReplicas: ready, AvailableReplicas: ready},
		}
		if m.kind == rollout {
			return described(rollout, d, m.asRollout)
		}
		return d
	case "Job":
		return &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: t, Selector: selector}, Status: batchv1.JobStatus{Active: all}}
	case "CronJob":
		return &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{Schedule: "@daily", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: t}}}}
	case "StatefulSet", advanced:
		status := appsv1.StatefulSetStatus{ObservedGeneration: p.observed, Replicas: all, ReadyReplicas: ready, AvailableReplicas: ready,
			UpdatedReplicas: updated, CurrentRevision: p.current, UpdateRevision: p.update}
		strategy := appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(m.partition)), MaxUnavailable: m.maxUnavailable()}}
		if m.onDelete {
			strategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		}
		set := &appsv1.StatefulSet{
			ObjectMeta: meta,
			Spec:       appsv1.StatefulSetSpec{Replicas: replicas, Template: t, Selector: selector, UpdateStrategy: strategy},
			Status:     status,
		}
		if m.kind == advanced {
			return described(advanced, set, func(_, _ map[string]any) {})
		}
		return set
	default:
		strategy := appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType}
		if field := m.maxUnavailable(); field != nil {
			strategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: field}
		}
		if m.onDelete {
			strategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		}
		if meta.Annotations == nil {
			meta.Annotations = map[string]string{}
		}
		meta.Annotations[appsv1.DeprecatedTemplateGeneration] = fmt.Sprint(m.templates)
		return &appsv1.DaemonSet{
			ObjectMeta: meta,
			Spec:       appsv1.DaemonSetSpec{Template: t, Selector: selector, UpdateStrategy: strategy},
			Status: appsv1.DaemonSetStatus{ObservedGeneration: p.observed, DesiredNumberScheduled: int32(p.desired),
				CurrentNumberScheduled: all, UpdatedNumberScheduled: updated, NumberAvailable: ready, NumberReady: ready,
				NumberMisscheduled: int32(p.misscheduled)},
		}
	}
}

func (w *world) createWorkload(slot int) bool {
	if w.workloads[slot] != nil || w.terminating {
		return false
	}
	w.uids++
	seed := w.seeds[slot]
	now := w.apiTime()
	d := &workload{manifest: manifest{
		kind: seed.Kind, slot: slot, uid: w.uids, created: now, generation: 1, templates: 1, annotations: maps.Clone(seed.Annotations),
		template: template{variant: seed.Variants[0], env: ownedEnv(seed.Variants[0], seed.Variables)}, replicas: seed.Replicas, unavailable: seed.MaxUnavailable, mounts: seed.Mounts, syncs: seed.Syncs, borrows: seed.Borrows,
		managers: []entry{{manager: "owner", at: now, template: true}},
	}, owned: maps.Clone(seed.Annotations), holder: newOwner(&seed), agents: agents{sources: seed.Agents, required: seed.Required}}
	if from := w.workloads[lender]; d.borrows {
		if d.bare = from == nil || from.kind != "Deployment"; !d.bare {
			d.template = from.template
		}
	}
	w.workloads[slot] = d
	w.wroteWorkload(d)
	return true
}

func (w *world) deleteWorkload(slot int) bool {
	d := w.workloads[slot]
	if d == nil {
		return false
	}
	w.workloads[slot] = nil
	w.revision++
	gone := d.manifest
	gone.revision = w.revision
	w.emit(event{stream: workloadStreams[d.kind], slot: slot, workload: &gone, deleted: true})
	for _, s := range d.sets {
		w.tellSet(d, s, true)
	}
	for _, p := range d.pods {
		w.tellPod(d, p, true)
		w.tellMount(p, true)
	}
	w.syncSoon(d)
	return true
}

// terminate deletes a workload in the foreground: it exists until its pods have ended, which takes a while, and
// for ever on a lost node.
func (w *world) terminate(slot int) bool {
	d := w.workloads[slot]
	if d == nil || d.deleting {
		return false
	}
	d.deleting = true
	w.wroteWorkload(d)
	return true
}

// write changes a workload with a field manager, and reports whether that made a difference.
func (w *world) write(d *workload, manager string, change func(*manifest)) bool {
	before := d.manifest
	change(&d.manifest)
	now := &d.manifest
	if manager != fieldManager && now.tells() != before.tells() {
		now.restarted = 0
	}
	if manager != fieldManager {
		w.keepPause(d, &before)
	}
	templateTook, templateLost := compareTemplates(&before.template, &now.template)
	metaTook, metaLost := compareMaps(before.annotations, now.annotations)
	spec := now.paused != before.paused || now.replicas != before.replicas || now.partition != before.partition || now.onDelete != before.onDelete || now.restartAt != before.restartAt
	metaTook = metaTook || now.label != before.label || spec
	if !templateTook && !templateLost && !metaTook && !metaLost {
		d.manifest = before
		return false
	}
	if templateTook || templateLost || spec {
		now.generation++
	}
	if templateTook || templateLost {
		now.templates++
	}
	now.managers = slices.Clone(now.managers)
	if templateTook || metaTook { // if fields are only removed, the time does not change
		i := slices.IndexFunc(now.managers, func(e entry) bool { return e.manager == manager })
		if i < 0 {
			i = len(now.managers)
			now.managers = append(now.managers, entry{manager: manager})
		}
		now.managers[i].at = w.apiTime()
		now.managers[i].template = now.managers[i].template || templateTook
	}
	for i := range now.managers {
		if e := &now.managers[i]; e.manager == fieldManager {
			e.template = now.template.annotations[hashAnnotation] != "" || now.template.annotations[reloadedAtAnnotation] != ""
		}
	}
	d.holder.noticed(manager)
	w.wroteWorkload(d)
	return true
}

func compareTemplates(before, now *template) (took, lost bool) {
	took, lost = compareMaps(before.annotations, now.annotations)
	return took || before.image != now.image || before.variant != now.variant || before.env != now.env, lost
}

// compareMaps reports whether anything was set, and whether anything was removed.
func compareMaps(before, now map[string]string) (took, lost bool) {
	for k, v := range now {
		if old, found := before[k]; !found || old != v {
			took = true
		}
	}
	for k := range before {
		if _, found := now[k]; !found {
			lost = true
		}
	}
	return took, lost
}

// wroteWorkload emits the event of a workload that was written, and lets its controllers act.
func (w *world) wroteWorkload(d *workload) {
	w.revision++
	w.tellWorkload(d)
	d.written = d.manifest
	if s := d.newest(); s != nil && d.kind == "Deployment" && s.identity == d.template.identity() {
		s.annotations = merged(s.annotations, d.annotations) // annotations of sets are never removed
	}
	w.rollSoon(d)
	w.lend(d)
}

func merged(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}

// tellWorkload emits the event of a workload.
func (w *world) tellWorkload(d *workload) {
	d.revision = w.revision
	copied := d.manifest
	w.emit(event{stream: workloadStreams[d.kind], slot: d.slot, workload: &copied})
}
