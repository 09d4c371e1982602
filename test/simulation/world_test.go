// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	namespace    = "shop"
	fieldManager = "configdep"
)

// seed is the initial configuration of a workload.
type seed struct {
	Kind        string            `json:"kind"`
	Variants    [2]int            `json:"variants"`
	Replicas    int               `json:"replicas"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Template    map[string]string `json:"template,omitempty"` // the annotations of the pod template
	Reaction    reaction          `json:"reaction,omitempty"`
	Delay       time.Duration     `json:"delay,omitempty"`
	// MaxUnavailable is what its update strategy says; negative: 0, and 0: nothing.
	MaxUnavailable int `json:"maxUnavailable,omitempty"`
	// Agents are the sources that config agents in its pods apply, and Required those without which they apply nothing.
	Agents   sourceSet `json:"agents,omitempty"`
	Required sourceSet `json:"required,omitempty"`
}

// world is the cluster: the objects that kube-apiserver stores, and the effects of the other controllers. Its
// methods return at once and are called by one goroutine.
type world struct {
	revision uint64
	offsets  [2]uint64 // of the versions in the API, by revision counter
	skews    skews
	pace     time.Duration // of the other controllers; 0: they act at once
	uids     int
	defaults defaults
	seeds    []seed

	annotations map[string]string // of the namespace
	annotated   uint64            // the revision at which the namespace was last written
	terminating bool              // the namespace is being deleted
	sources     [sourceCount]source
	workloads   []*workload // nil: absent
	key         int         // the HMAC key that the servers share
	keyBefore   int         // their previous key
	keys        int         // the last key that was created
	backup      *backup
	restored    uint64 // when etcd was last restored
	webhook     webhook
	definition  definition

	read    []streamID // by the servers
	servers []*server
	oracle  *oracle
	trace   *[]string // nil: not traced
}

func (w *world) logf(format string, args ...any) {
	if w.trace != nil {
		*w.trace = append(*w.trace, fmt.Sprintf("%s r%-4d ", time.Now().Format("15:04:05.000"), w.revision)+fmt.Sprintf(format, args...))
	}
}

// streamID identifies one of the resources that change in a simulation.
type streamID int

const (
	deployments streamID = iota
	statefulSets
	daemonSets
	configMaps
	secrets
	namespaces
	boats
	agentPods
	streamCount
)

// ordinaryStreams are those that the servers read in every history.
const ordinaryStreams = boats

var streamNames = [streamCount]string{"deployments", "statefulsets", "daemonsets", "configmaps", "secrets", "namespaces", "boats", "agentpods"}

func (s streamID) String() string { return streamNames[s] }

func sourceStream(slot int) streamID {
	if isSecret(slot) {
		return secrets
	}
	return configMaps
}

func workloadStream(kind string) streamID {
	switch kind {
	case "Deployment":
		return deployments
	case "StatefulSet":
		return statefulSets
	case boat:
		return boats
	default:
		return daemonSets
	}
}

// event is a change of an object, as in a watch event.
type event struct {
	revision uint64
	stream   streamID
	slot     int
	deleted  bool
	// One of them is set; all are immutable.
	workload  *manifest
	source    *source
	namespace *corev1.Namespace
	pod       *metav1.PartialObjectMetadata
}

func (e *event) object() runtime.Object {
	switch {
	case e.workload != nil:
		return e.workload.object()
	case e.source != nil:
		return e.source.object(e.slot)
	case e.pod != nil:
		return e.pod.DeepCopy()
	default:
		return e.namespace
	}
}

// namespace returns the event of the current namespace.
func (w *world) namespace() event {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, ResourceVersion: fmt.Sprint(w.shown(namespaces, min(max(w.annotated, firstRevision), w.revision))), Annotations: maps.Clone(w.annotations)}}
	if w.terminating {
		n.DeletionTimestamp = new(metav1.NewTime(seconds(time.Now())))
		n.Status.Phase = corev1.NamespaceTerminating
	}
	return event{revision: w.revision, stream: namespaces, namespace: n}
}

// emit sends an event to the servers.
func (w *world) emit(e event) {
	e.revision = w.revision
	e.deleted = e.deleted || e.source != nil && !e.source.present
	for _, s := range w.servers {
		if s.alive && !s.view.absent[e.stream] {
			st := &s.streams[e.stream]
			st.queue = append(st.queue, e)
		}
	}
}

// list returns the current objects of a stream.
func (w *world) list(id streamID) (events []event) {
	switch id {
	case namespaces:
		return []event{w.namespace()}
	case agentPods:
		for slot, d := range w.workloads {
			if d == nil {
				continue
			}
			for _, p := range d.pods {
				if d.agents.sources != 0 {
					events = append(events, event{stream: id, slot: slot, pod: p.agentObject(d)})
				}
			}
		}
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

// terminateNamespace begins to delete the namespace. Its objects are deleted one by one.
func (w *world) terminateNamespace() bool {
	if w.terminating {
		return false
	}
	w.terminating = true
	w.wroteNamespace()
	return true
}

// endNamespace deletes the remaining objects of the namespace, which is created again at once.
func (w *world) endNamespace() bool {
	if !w.terminating {
		return false
	}
	for slot := range w.sources {
		w.deleteSource(slot)
	}
	for slot := range w.workloads {
		w.deleteWorkload(slot)
	}
	w.revision++
	gone := w.namespace()
	gone.deleted = true
	w.emit(gone)
	w.terminating, w.annotations = false, nil
	w.wroteNamespace()
	return true
}

// due returns when something happens by itself; zero: never.
func (w *world) due() (at time.Time) {
	consider := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for _, d := range w.workloads {
		if d != nil {
			consider(d.due)
			consider(d.holder.due)
			for _, p := range d.pods {
				consider(p.acts)
				consider(p.agent.due)
			}
		}
	}
	return at
}

// advance does everything that is due.
func (w *world) advance() (done bool) {
	now := time.Now()
	for _, d := range w.workloads {
		if d == nil {
			continue
		}
		if !d.due.IsZero() && !d.due.After(now) {
			d.due, done = time.Time{}, true
			if w.step(d) {
				d.due = now.Add(w.pace)
			}
			w.oracle.look()
		}
		for _, p := range d.pods {
			if !p.acts.IsZero() && !p.acts.After(now) {
				done = true
				w.act(d, p)
			}
			if !p.agent.due.IsZero() && !p.agent.due.After(now) {
				done = true
				w.actAgent(d, p)
			}
		}
		if !d.holder.due.IsZero() && !d.holder.due.After(now) {
			done = true
			w.react(d)
		}
	}
	return done
}
