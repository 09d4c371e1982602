package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const replicas = 2

// template is a pod template. Its map is immutable.
type template struct {
	variant, image int
	annotations    map[string]string
}

// identity tells templates apart.
func (t *template) identity() string {
	var b strings.Builder
	fmt.Fprint(&b, t.variant, " ", t.image)
	for _, k := range slices.Sorted(maps.Keys(t.annotations)) {
		fmt.Fprintf(&b, " %s=%s", k, t.annotations[k])
	}
	return b.String()
}

func (t *template) crashes() bool { return t.image == crashing }

// manifest is a workload as the API shows it. Its maps are immutable.
type manifest struct {
	kind        string
	slot        int
	uid         int
	revision    uint64
	created     time.Time
	generation  int64
	annotations map[string]string
	label       int
	template    template
	paused      bool
	managers    []entry
	// Status: the generation that its controller has seen, the number of the newest
	// ReplicaSet, and whether pods of another template are left.
	observed   int64
	number     int64
	unfinished bool
}

// entry is one of managedFields.
type entry struct {
	manager  string
	at       time.Time
	template bool
}

// workload is a manifest with what its controllers have made of it.
type workload struct {
	manifest
	// owned are the annotations in the owner's manifest.
	owned     map[string]string
	revisions []*templateRevision
	pods      pods
	// older are pods that run on because those of the present template never got ready.
	older *pods

	truth truth
}

// templateRevision is a ReplicaSet or a ControllerRevision.
type templateRevision struct {
	template template
	number   int64
	created  time.Time
}

// pods are those of one template.
type pods struct {
	template template
	identity string // of the template; empty: there are none
	known    knowledge
	started  uint64 // at which revision of the world
	waiting  bool   // for a source or a key
	// thoughtWaiting: a server that does not know that they run may think so.
	thoughtWaiting bool
}

func workloadName(slot int) string { return "w" + strconv.Itoa(slot) }

// object returns the manifest as an API object.
func (m *manifest) object() runtime.Object {
	selector := map[string]string{"app": workloadName(m.slot)}
	meta := metav1.ObjectMeta{
		Namespace: namespace, Name: workloadName(m.slot), UID: types.UID(fmt.Sprint("workload-", m.uid)),
		ResourceVersion: fmt.Sprint(m.revision), CreationTimestamp: metav1.NewTime(seconds(m.created)), Generation: m.generation,
		Labels: map[string]string{"app": workloadName(m.slot), "label": fmt.Sprint(m.label)}, Annotations: maps.Clone(m.annotations),
	}
	for _, e := range m.managers {
		raw := `{"f:metadata":{"f:annotations":{}}}`
		if e.template {
			raw = `{"f:spec":{"f:template":{}}}`
		}
		meta.ManagedFields = append(meta.ManagedFields, fields(e.manager, e.at, raw))
	}
	t := podTemplate(m.template.variant, m.template.image, maps.Clone(m.template.annotations))
	updated := int32(replicas)
	if m.unfinished {
		updated = 1
	}
	switch m.kind {
	case "Deployment":
		if meta.Annotations == nil {
			meta.Annotations = map[string]string{}
		}
		meta.Annotations["deployment.kubernetes.io/revision"] = fmt.Sprint(m.number)
		return &appsv1.Deployment{
			ObjectMeta: meta,
			Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](replicas), Paused: m.paused, Template: t,
				Selector: &metav1.LabelSelector{MatchLabels: selector}},
			Status: appsv1.DeploymentStatus{ObservedGeneration: m.observed, Replicas: replicas,
				UpdatedReplicas: updated, ReadyReplicas: replicas, AvailableReplicas: replicas},
		}
	case "StatefulSet":
		status := appsv1.StatefulSetStatus{ObservedGeneration: m.observed, Replicas: replicas, ReadyReplicas: updated,
			UpdatedReplicas: updated, CurrentRevision: "1", UpdateRevision: "1"}
		if m.unfinished {
			status.UpdateRevision = "2"
		}
		return &appsv1.StatefulSet{
			ObjectMeta: meta,
			Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To[int32](replicas), Template: t, Selector: &metav1.LabelSelector{MatchLabels: selector}},
			Status:     status,
		}
	default:
		return &appsv1.DaemonSet{
			ObjectMeta: meta,
			Spec:       appsv1.DaemonSetSpec{Template: t, Selector: &metav1.LabelSelector{MatchLabels: selector}},
			Status: appsv1.DaemonSetStatus{ObservedGeneration: m.observed, DesiredNumberScheduled: replicas,
				UpdatedNumberScheduled: updated, NumberAvailable: updated},
		}
	}
}

// templateWritten is what managedFields tell of when the template was last written.
func (m *manifest) templateWritten() time.Time {
	at := m.created
	for _, e := range m.managers {
		if e.template && e.at.After(at) {
			at = e.at
		}
	}
	return seconds(at)
}

func (w *world) createWorkload(slot int) bool {
	if w.workloads[slot] != nil {
		return false
	}
	w.uids++
	seed := w.seeds[slot]
	d := &workload{manifest: manifest{
		kind: seed.kind, slot: slot, uid: w.uids, created: time.Now(), generation: 1, annotations: maps.Clone(seed.annotations),
		template: template{variant: seed.variants[0]},
		managers: []entry{{manager: "owner", at: time.Now(), template: true}},
	}, owned: maps.Clone(seed.annotations)}
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
	w.emit(event{stream: workloadStream(d.kind), slot: slot, workload: &gone, deleted: true})
	return true
}

// write changes a workload in the name of a field manager, and tells whether that made a
// difference.
func (w *world) write(d *workload, manager string, change func(*manifest)) bool {
	before := d.manifest
	change(&d.manifest)
	now := &d.manifest
	templateTook, templateLost := compareTemplates(&before.template, &now.template)
	metaTook, metaLost := compareMaps(before.annotations, now.annotations)
	if now.label != before.label {
		metaTook = true
	}
	if now.paused != before.paused {
		metaTook = true // spec, and not the template
	}
	if !templateTook && !templateLost && !metaTook && !metaLost {
		return false
	}
	if templateTook || templateLost || now.paused != before.paused {
		now.generation++
	}
	if templateTook || templateLost {
		d.truth.templated = w.revision + 1
	}
	now.managers = slices.Clone(now.managers)
	if templateTook || metaTook { // fields that are only removed leave the time as it was
		i := slices.IndexFunc(now.managers, func(e entry) bool { return e.manager == manager })
		if i < 0 {
			i = len(now.managers)
			now.managers = append(now.managers, entry{manager: manager})
		}
		now.managers[i].at = time.Now()
		now.managers[i].template = now.managers[i].template || templateTook
	}
	for i := range now.managers {
		if e := &now.managers[i]; e.manager == fieldManager {
			e.template = now.template.annotations[hashAnnotation] != "" || now.template.annotations[reloadedAtAnnotation] != ""
		}
	}
	w.wroteWorkload(d)
	return true
}

func compareTemplates(before, now *template) (took, lost bool) {
	took, lost = compareMaps(before.annotations, now.annotations)
	return took || before.image != now.image || before.variant != now.variant, lost
}

// compareMaps tells whether anything was set, and whether anything was removed.
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

func (w *world) wroteWorkload(d *workload) {
	w.revision++
	d.revision = w.revision
	copied := d.manifest
	w.emit(event{stream: workloadStream(d.kind), slot: d.slot, workload: &copied})
	w.roll(d)
	w.oracle.look()
}

// roll does what the controllers of kube-controller-manager and the kubelets do.
func (w *world) roll(d *workload) {
	identity := d.template.identity()
	if identity != d.pods.identity && !d.paused {
		w.newPods(d, identity)
	}
	w.status(d)
}

// newPods begins a rollout. Old pods run until those of the new template are ready, so
// that they are still there when the old template comes back before that.
func (w *world) newPods(d *workload, identity string) {
	if d.pods.identity != "" && !d.pods.waiting && d.older == nil {
		old := d.pods
		d.older = &old
	}
	d.truth.rolled = d.revision
	w.revise(d, identity)
	if d.older != nil && d.older.identity == identity {
		d.pods, d.older = *d.older, nil
		w.oracle.tally.rollbacks++
		w.oracle.servedOn(d)
		w.logf("    %s: its old pods, of revision %d, serve on", workloadName(d.slot), d.pods.started)
		return
	}
	d.pods = pods{template: d.template, identity: identity, waiting: true}
	w.start(d)
}

// revise makes the ReplicaSet or ControllerRevision of the present template the newest.
func (w *world) revise(d *workload, identity string) {
	d.number++
	d.revisions = slices.Clone(d.revisions)
	for _, r := range d.revisions {
		if r.template.identity() == identity {
			r.number = d.number
			return
		}
	}
	d.revisions = append(d.revisions, &templateRevision{template: d.template, number: d.number, created: time.Now()})
}

// newest returns the revision of the present template.
func (d *workload) newest() *templateRevision {
	return slices.MaxFunc(d.revisions, func(a, b *templateRevision) int { return int(a.number - b.number) })
}

// start starts the pods of the present template if what they need is there.
func (w *world) start(d *workload) {
	for _, u := range variants[d.pods.template.variant] {
		if s := &w.sources[u.source]; !u.starts(s.present, s.content) {
			return
		}
	}
	d.pods.waiting = false
	d.pods.known, d.pods.started = startedWith(w.contents()), w.revision
	w.logf("    %s: pods start", workloadName(d.slot))
	if !d.pods.template.crashes() {
		d.older = nil
	}
}

// startWaiting starts pods whose last missing source has appeared.
func (w *world) startWaiting() {
	for _, d := range w.workloads {
		if d != nil && d.pods.waiting {
			w.start(d)
			w.status(d)
		}
		if d != nil && d.pods.thoughtWaiting {
			w.oracle.servedOn(d)
		}
	}
}

// status writes the status, if it has changed.
func (w *world) status(d *workload) {
	unfinished := d.older != nil || d.pods.waiting || d.pods.identity != d.template.identity() || d.template.crashes()
	if d.observed == d.generation && d.unfinished == unfinished {
		return
	}
	d.observed, d.unfinished = d.generation, unfinished
	w.revision++
	d.revision = w.revision
	copied := d.manifest
	w.emit(event{stream: workloadStream(d.kind), slot: d.slot, workload: &copied})
}
