// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// The SecretProviderClass is a source whose content each pod has for itself: what the Secrets Store CSI driver of its node has mounted when the pod started,
// or when the driver last looked for rotations. The last container of each pod of some workloads reads it.

// mount is what a pod has mounted of the class. Its content is how often the driver has written the files.
type mount struct {
	source

	pod     string
	stored  int // the content of the store
	changes []rewriting
}

// addClass adds the volume of the class to a pod, and mounts it in the last container.
func addClass(spec *corev1.PodSpec) {
	attributes := map[string]string{"secretProviderClass": sourceNames[class]}
	v := corev1.Volume{Name: "class", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "secrets-store.csi.k8s.io", VolumeAttributes: attributes}}}
	spec.Volumes = append(slices.Clip(spec.Volumes), v)
	last := &spec.Containers[len(spec.Containers)-1]
	last.VolumeMounts = append(slices.Clip(last.VolumeMounts), corev1.VolumeMount{Name: v.Name, MountPath: "/etc/class"})
}

// object returns the SecretProviderClassPodStatus, of which each write of the status counts as a generation.
func (m *mount) object() runtime.Object {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "secrets-store.csi.x-k8s.io/v1", "kind": "SecretProviderClassPodStatus",
		"status": map[string]any{"podName": m.pod, "secretProviderClassName": sourceNames[class], "mounted": true,
			"objects": []any{map[string]any{"id": "password", "version": fmt.Sprint(m.stored)}}},
	}}
	o.SetNamespace(namespace)
	o.SetName(m.pod + "-" + namespace + "-" + sourceNames[class])
	o.SetUID(types.UID(fmt.Sprint("status-", m.uid)))
	o.SetResourceVersion(fmt.Sprint(m.version))
	o.SetGeneration(int64(m.content[0]))
	o.SetCreationTimestamp(metav1.NewTime(seconds(m.created)))
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: m.pod, UID: types.UID(fmt.Sprint("pod-", m.uid))}})
	o.SetLabels(map[string]string{"label": fmt.Sprint(m.label)})
	managers := []metav1.ManagedFieldsEntry{fields("driver", m.written, `{"f:status":{}}`)}
	if !m.labelled.IsZero() {
		managers = append(managers, fields("labeller", m.labelled, `{"f:metadata":{"f:labels":{"f:label":{}}}}`))
	}
	o.SetManagedFields(managers)
	return o
}

func (m *mount) snapshot() *mount { return new(*m) }

func (m *mount) reading() reading { return reading{m.content, m.changed} }

// mount sets up the volume of a pod.
func (w *world) mount(p *pod) {
	now := w.apiTime()
	p.mount = &mount{pod: p.name, stored: w.stored, source: source{mark: mark{present: true}, uid: p.uid, created: now, written: now, content: content{1}}}
	p.mount.changed = w.revision + 1
	w.tellMount(p, false)
	w.syncSoon(w.workloads[p.slot])
}

// tellMount emits the event of what a pod has mounted.
func (w *world) tellMount(p *pod, deleted bool) {
	if p.mount == nil {
		return
	}
	w.revision++
	p.mount.version = w.revision
	w.emit(event{stream: podStatuses, slot: class, mount: p.mount.snapshot(), deleted: deleted})
}

// poll lets the driver of a node update what pods have mounted, or another client write the metadata of their statuses.
func (w *world) poll(node int, update bool) (done bool) {
	for _, d := range w.workloads {
		if d == nil {
			continue
		}
		for _, p := range d.pods {
			m := p.mount
			switch {
			case m == nil || p.terminating || p.node() != node || update && m.stored == w.stored:
				continue
			case update:
				was := m.content
				m.content[0]++
				m.changes = append(slices.Clip(m.changes), rewriting{m.changed, w.revision + 1, time.Now(), true, was, m.content})
				m.stored, m.changed, m.written = w.stored, w.revision+1, w.apiTime()
				w.oracle.tally["updates of mounted classes"]++
				w.logf("    %s: the driver updates pod %d", workloadName(d.slot), p.uid)
			default:
				m.label++
				m.labelled = w.apiTime()
			}
			w.tellMount(p, false)
			w.syncSoon(d)
			done = true
		}
	}
	return done
}

// look records what a pod has mounted.
func (v *view) look(m *mount) {
	v.mounts[m.pod] = m
	for _, ch := range m.changes {
		v.read[class][ch.to] = true
	}
}

// now returns a source as a server has read it last; of the class, as it has read what a pod has mounted.
func (s *server) now(of int, p *pod) *source {
	if of != class {
		return &s.view.sources[of]
	}
	if m := s.view.mounts[p.name]; m != nil && m.uid == p.uid {
		return &m.source
	}
	return &source{}
}

func (r *reads) now() *source { return r.server.now(r.source, r.pod) }

// changes returns the changes of the source; of the class, those of what the pod has mounted.
func (r *reads) changes() []rewriting {
	if r.source == class {
		return r.pod.mount.changes
	}
	return r.world.changes[r.source]
}

// statusMargin is by how much the time of a status may differ from that of a record: it has seconds, and is that of another clock.
const statusMargin = time.Second + 2*mostSkew

// updated reports whether the driver has updated the files after a time.
func (m *mount) updated(after time.Time) bool {
	return len(m.changes) > 0 && m.changes[len(m.changes)-1].at.After(after)
}

// updatedAround reports whether the source is the class, and the driver updated the pod at about a time.
func (r *reads) updatedAround(at time.Time) bool {
	return r.source == class && slices.ContainsFunc(r.changes(), func(ch rewriting) bool { return ch.at.Sub(at).Abs() < statusMargin })
}

// addClass lets workloads of a quarter of the histories mount the class, which drivers of nodes update at different times, while containers crash,
// and servers read that late.
func (h *history) addClass(begin int) {
	m := maker{rand.New(rand.NewPCG(h.Seed, 7)), h}
	if m.IntN(4) > 0 {
		return
	}
	for i := range h.Workloads {
		if s := &h.Workloads[i]; i == 0 || m.IntN(2) == 0 {
			s.Mounts = true
			switch m.IntN(8) {
			case 0:
				s.Annotations[kindsAnnotation] = "secretproviderclass"
			case 1:
				s.Annotations[reloadAnnotation], s.Annotations[sourcesAnnotation] = "listed", "secretproviderclass/k*"
			}
		}
	}
	rotate, poll := operation{Do: "rotate"}, func() operation { return operation{Do: "poll", A: m.IntN(3), B: m.IntN(8) / 7} }
	pause := func() operation {
		return operation{Do: "wait", Wait: pick(m, 100*time.Millisecond, 2*time.Second, 40*time.Second, 2*time.Minute, 5*time.Minute)}
	}
	crash := func() operation {
		return operation{Do: "restart container", A: m.workload(), C: m.IntN(12), Wait: pick(m, 0, 10*time.Second)}
	}
	begin = min(begin, len(h.Operations))
	for range 3 + m.IntN(4) {
		at := begin + m.IntN(len(h.Operations)-begin+1)
		some := []operation{pause(), rotate, poll(), pause(), poll(), poll(), pause(), poll()}
		for range m.IntN(5) {
			some = slices.Insert(some, m.IntN(len(some)+1), pick(m, crash(), crash(), rotate, poll(), operation{Do: "calm"}, operation{Do: "look"},
				operation{Do: pick(m, "hold", "release", "relist"), A: m.server(), B: int(podStatuses)},
				operation{Do: "opt in at rest", A: m.workload()}, operation{Do: "opt", A: m.workload(), Annotation: reloadAnnotation, Text: pick(m, "auto", "off")},
				operation{Do: "evict pod", A: m.workload(), C: m.IntN(4)}, operation{Do: "hand over", A: m.server()},
				operation{Do: "kill", A: m.server()}, operation{Do: "birth", A: m.server()}))
		}
		h.Operations = slices.Insert(h.Operations, at, some...)
	}
}
