package simulation

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	namespace    = "shop"
	fieldManager = "configdep"
)

// seed is what a workload is created from.
type seed struct {
	kind        string
	variants    [2]int
	annotations map[string]string
}

// world is the cluster: what kube-apiserver stores, and what the other controllers make
// of it. Its methods return at once and are called by one goroutine.
type world struct {
	revision    uint64
	uids        int
	defaultMode string
	seeds       []seed

	annotations map[string]string // of the namespace
	sources     [sourceCount]source
	workloads   []*workload // nil: absent
	key         int         // which HMAC key the servers share

	servers []*server
	oracle  *oracle
	trace   *[]string // nil: nobody reads it
}

func (w *world) logf(format string, args ...any) {
	if w.trace != nil {
		*w.trace = append(*w.trace, fmt.Sprintf("%s r%-4d ", time.Now().Format("15:04:05.000"), w.revision)+fmt.Sprintf(format, args...))
	}
}

// streamID is one of the resources that change in a simulation.
type streamID int

const (
	deployments streamID = iota
	statefulSets
	daemonSets
	configMaps
	secrets
	namespaces
	streamCount
)

var streamNames = [streamCount]string{"deployments", "statefulsets", "daemonsets", "configmaps", "secrets", "namespaces"}

func (s streamID) String() string { return streamNames[s] }

func sourceStream(slot int) streamID {
	if isSecret(slot) {
		return secrets
	}
	return configMaps
}

func workloadStream(kind string) streamID {
	return map[string]streamID{"Deployment": deployments, "StatefulSet": statefulSets, "DaemonSet": daemonSets}[kind]
}

// event is a change of an object as a watch tells of it.
type event struct {
	revision uint64
	stream   streamID
	slot     int
	deleted  bool
	// One of them; all are immutable.
	workload    *manifest
	source      *source
	annotations map[string]string
}

func (e *event) object() runtime.Object {
	switch {
	case e.workload != nil:
		return e.workload.object()
	case e.source != nil:
		return e.source.object(e.slot)
	default:
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: namespace, ResourceVersion: fmt.Sprint(e.revision), Annotations: maps.Clone(e.annotations)}}
	}
}

// emit sends an event on its way to the servers.
func (w *world) emit(e event) {
	e.revision = w.revision
	e.deleted = e.deleted || e.source != nil && !e.source.present
	for _, s := range w.servers {
		if s.alive {
			st := &s.streams[e.stream]
			st.queue = append(st.queue, e)
		}
	}
}

// list returns the present objects of a stream.
func (w *world) list(id streamID) (events []event) {
	switch id {
	case namespaces:
		return []event{{revision: w.revision, stream: id, annotations: w.annotations}}
	case configMaps, secrets:
		for slot := range w.sources {
			if s := w.sources[slot]; sourceStream(slot) == id && s.present {
				events = append(events, event{stream: id, slot: slot, source: &s})
			}
		}
	default:
		for slot, d := range w.workloads {
			if d != nil && workloadStream(d.kind) == id {
				m := d.manifest
				events = append(events, event{stream: id, slot: slot, workload: &m})
			}
		}
	}
	return events
}

func (w *world) contents() (c contents) {
	for slot := range w.sources {
		c[slot] = w.sources[slot].content
	}
	return c
}

func (w *world) marks() (m [sourceCount]mark) {
	for slot := range w.sources {
		m[slot] = w.sources[slot].mark
	}
	return m
}

// annotateNamespace sets an annotation of the namespace, or removes it when the text is
// empty.
func (w *world) annotateNamespace(annotation, text string) bool {
	if w.annotations[annotation] == text {
		return false
	}
	w.annotations = with(w.annotations, annotation, text)
	w.revision++
	w.emit(event{stream: namespaces, annotations: w.annotations})
	w.oracle.look()
	return true
}

// with returns a copy of a map with a key set, or without it when the text is empty.
func with(m map[string]string, key, text string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	if text == "" {
		delete(out, key)
	} else {
		out[key] = text
	}
	return out
}

// replaceKey puts another HMAC key in place.
func (w *world) replaceKey() bool {
	w.key++
	w.oracle.look()
	return true
}

// annotate sets an annotation of a workload in its owner's manifest and applies it.
func (w *world) annotate(slot int, annotation, text string) bool {
	d := w.workloads[slot]
	if d == nil {
		return false
	}
	d.owned = with(d.owned, annotation, text)
	return w.write(d, "owner", func(m *manifest) { m.annotations = with(m.annotations, annotation, text) })
}

// setTemplate applies an image and a variant.
func (w *world) setTemplate(slot, variant, image int) bool {
	d := w.workloads[slot]
	return d != nil && w.write(d, "owner", func(m *manifest) { m.template.variant, m.template.image = variant, image })
}

// rewrite replaces metadata, template or both by the owner's manifest, which has none of
// the annotations that others have set. An image of -1 is the present one.
func (w *world) rewrite(slot int, metadata, spec bool, image int) bool {
	d := w.workloads[slot]
	return d != nil && w.write(d, "owner", func(m *manifest) {
		if metadata {
			m.annotations = d.owned
		}
		if spec {
			m.template.annotations = nil
		}
		if image >= 0 {
			m.template.image = image
		}
	})
}

func (w *world) editWorkload(slot int, owner bool) bool {
	d := w.workloads[slot]
	manager := "editor"
	if owner {
		manager = "owner"
	}
	return d != nil && w.write(d, manager, func(m *manifest) { m.label++ })
}

// undo is kubectl rollout undo.
func (w *world) undo(slot int) bool {
	d := w.workloads[slot]
	if d == nil || d.paused || len(d.revisions) < 2 {
		return false
	}
	sorted := slices.SortedFunc(slices.Values(d.revisions), func(a, b *templateRevision) int { return int(b.number - a.number) })
	return w.write(d, "kubectl-rollout", func(m *manifest) { m.template = sorted[1].template })
}

// restart is kubectl rollout restart.
func (w *world) restart(slot int) bool {
	d := w.workloads[slot]
	return d != nil && !d.paused && w.write(d, "kubectl-rollout", func(m *manifest) {
		m.template.annotations = with(m.template.annotations, "kubectl.kubernetes.io/restartedAt", time.Now().Format(time.RFC3339Nano))
	})
}

func (w *world) pause(slot int, paused bool) bool {
	d := w.workloads[slot]
	return d != nil && d.kind == "Deployment" && w.write(d, "kubectl", func(m *manifest) { m.paused = paused })
}
