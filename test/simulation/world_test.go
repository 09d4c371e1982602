// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/configdep/configdep/pkg/apis/policy/v1alpha1"
	"github.com/configdep/configdep/pkg/ingest"
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
	Reaction    reaction          `json:"reaction,omitempty"`
	Delay       time.Duration     `json:"delay,omitempty"`
	// MaxUnavailable is what its update strategy says; negative: 0, and 0: nothing.
	MaxUnavailable int `json:"maxUnavailable,omitempty"`
	// Agents are the sources that config agents in its pods apply, and Required those without which they apply nothing.
	Agents   sourceSet `json:"agents,omitempty"`
	Required sourceSet `json:"required,omitempty"`
	// Mounts: its pods mount the SecretProviderClass.
	Mounts bool `json:"mounts,omitempty"`
	// Syncs: the driver makes a Secret of what its pods mount.
	Syncs bool `json:"syncs,omitempty"`
	// Variables is the number of the variables that its owner adds.
	Variables int `json:"variables,omitempty"`
	// Keeps: an admission policy keeps the annotation of a pause.
	Keeps bool `json:"keeps,omitempty"`
	// Borrows: it is a Rollout that has the template of the first workload.
	Borrows bool `json:"borrows,omitempty"`
}

// world is the cluster: the objects that kube-apiserver stores, and the effects of the other controllers. Its
// methods return at once and are called by one goroutine.
type world struct {
	revision uint64
	skews    skews
	pace     time.Duration // of the other controllers; 0: they act at once
	kubelets kubelets
	uids     int
	stored   int       // how often the content of the SecretProviderClass has changed in its store
	syncs    time.Time // when the driver makes a Secret of it, or deletes that; zero: it is as it should be
	defaults defaults
	seeds    []seed

	annotations map[string]string // of the namespace
	annotated   uint64            // the revision at which the namespace was last written
	terminating bool              // the namespace is being deleted
	sources     [sourceCount]source
	changes     [sourceCount][]rewriting
	dates       [sourceCount]time.Time // of the last of them, as sources tell
	workloads   []*workload            // nil: absent
	key         int                    // the HMAC key that the servers share
	keyBefore   int                    // their previous key
	keys        int                    // the last key that was created

	waves    *waves // nil: restarts wait for no others
	policies [policyCount]*v1alpha1.ReloadPolicy

	servers []*server
	oracle  *oracle
	trace   *[]string // nil: not traced
}

func (w *world) logf(format string, args ...any) {
	if w.trace != nil {
		*w.trace = append(*w.trace, fmt.Sprintf("%s r%-4d ", time.Now().Format("15:04:05.000"), w.revision)+fmt.Sprintf(format, args...))
	}
}

// skews are the errors of clocks, which are constant in a history.
type skews struct {
	API     time.Duration    `json:"api"`
	Servers [2]time.Duration `json:"servers"`
	Nodes   [3]time.Duration `json:"nodes"`
}

// mostSkew is the error of a clock that is synchronized, as configdep assumes.
const mostSkew = time.Second

// small reports whether the clocks of the API server, the servers and all nodes are synchronized.
func (s *skews) small() bool {
	return s.API.Abs() <= mostSkew && s.Servers[0].Abs() <= mostSkew && s.Servers[1].Abs() <= mostSkew && !s.wrong(0) && !s.wrong(1) && !s.wrong(2)
}

// wrong reports whether the clock of a node is not.
func (s *skews) wrong(node int) bool { return s.Nodes[node].Abs() > mostSkew }

// apiTime is the time of the API server.
func (w *world) apiTime() time.Time { return time.Now().Add(w.skews.API) }

// nodeTime is the time of a node.
func (w *world) nodeTime(node int) time.Time {
	return time.Now().Add(w.skews.Nodes[node%len(w.skews.Nodes)])
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
	pods
	replicaSets
	jobs
	cronJobs
	podStatuses
	advancedStatefulSets
	rollouts
	policies // in histories with waves
	streamCount
)

// streamNames are the names of the streams in the index.
var streamNames = [streamCount]string{"deployments", "statefulsets", "daemonsets", "configmaps", "secrets", "namespaces", "pods", "replicasets/deployments", "jobs", "cronjobs", ingest.PodStatuses,
	ingest.StreamOf(customKinds[advanced]), ingest.StreamOf(customKinds[rollout]), ingest.Policies}

func (s streamID) String() string { return streamNames[s] }

func sourceStream(slot int) streamID {
	switch {
	case slot == class:
		return podStatuses
	case isSecret(slot):
		return secrets
	default:
		return configMaps
	}
}

var workloadStreams = map[string]streamID{
	"Deployment": deployments, "StatefulSet": statefulSets, "DaemonSet": daemonSets, "Job": jobs, "CronJob": cronJobs,
	advanced: advancedStatefulSets, rollout: rollouts,
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
	pod       *pod
	mount     *mount
	other     runtime.Object // a ReplicaSet, a Job of a CronJob, or a ReloadPolicy
}

func (e *event) object() runtime.Object {
	switch {
	case e.workload != nil:
		return e.workload.object()
	case e.source != nil:
		return e.source.object(e.slot)
	case e.pod != nil:
		return e.pod.object()
	case e.mount != nil:
		return e.mount.object()
	case e.other != nil:
		return e.other.DeepCopyObject()
	default:
		return e.namespace
	}
}

// namespace returns the event of the current namespace.
func (w *world) namespace() event {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, ResourceVersion: fmt.Sprint(max(w.annotated, firstRevision)), Annotations: maps.Clone(w.annotations)}}
	if w.terminating {
		n.DeletionTimestamp = new(metav1.NewTime(seconds(time.Now())))
		n.Status.Phase = corev1.NamespaceTerminating
	}
	return event{stream: namespaces, namespace: n}
}

// emit sends an event to the servers.
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

// list returns the current objects of a stream.
func (w *world) list(id streamID) (events []event) {
	switch id {
	case namespaces:
		return []event{w.namespace()}
	case policies:
		return w.listPolicies()
	case configMaps, secrets:
		for slot := range w.sources {
			if s := w.sources[slot]; sourceStream(slot) == id && s.present {
				events = append(events, event{stream: id, slot: slot, source: &s})
			}
		}
		return events
	}
	for slot, d := range w.workloads {
		switch {
		case d == nil:
			continue
		case workloadStreams[d.kind] == id:
			m := d.manifest
			events = append(events, event{stream: id, slot: slot, workload: &m})
		case id == pods:
			for _, p := range d.pods {
				if !p.failed {
					events = append(events, event{stream: id, slot: slot, pod: p.snapshot()})
				}
			}
		case id == podStatuses:
			for _, p := range d.pods {
				if p.mount != nil {
					events = append(events, event{stream: id, slot: class, mount: p.mount.snapshot()})
				}
			}
		case id == replicaSets && d.kind == "Deployment":
			for _, s := range d.sets {
				events = append(events, event{stream: id, slot: slot, other: s.metadata(d)})
			}
		}
		if id == jobs && d.kind == "CronJob" {
			for _, s := range d.sets {
				events = append(events, event{stream: id, slot: slot, other: s.run(d)})
			}
		}
	}
	return events
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
	consider(w.syncs)
	for _, d := range w.workloads {
		if d != nil {
			consider(d.due)
			consider(d.deadline)
			consider(d.holder.due)
			for _, p := range d.pods {
				consider(p.acts)
				consider(p.agent.due)
				consider(p.wakes)
				consider(p.ends)
			}
		}
	}
	return at
}

// advance does everything that is due.
func (w *world) advance() (done bool) {
	now := time.Now()
	isDue := func(at *time.Time) bool {
		if at.IsZero() || at.After(now) {
			return false
		}
		*at, done = time.Time{}, true
		return true
	}
	if isDue(&w.syncs) {
		w.sync()
	}
	for _, d := range w.workloads {
		if d == nil {
			continue
		}
		if isDue(&d.due) && w.step(d) {
			d.due = now.Add(w.pace)
		}
		if !d.deadline.IsZero() && !d.deadline.After(now) {
			w.status(d)
			done = true
		}
		for _, p := range d.pods {
			if isDue(&p.acts) {
				w.act(d, p)
			}
			if isDue(&p.agent.due) {
				w.actAgent(d, p)
			}
			if isDue(&p.wakes) && slices.Contains(d.pods, p) {
				w.kubelet(d, p)
				w.rollSoon(d)
			}
			if isDue(&p.ends) && slices.Contains(d.pods, p) {
				w.end(d, p)
				w.rollSoon(d)
			}
		}
		if isDue(&d.holder.due) {
			w.react(d)
		}
	}
	return done
}

// replaceKey sets another HMAC key: a new one, or the previous one, as from a backup.
func (w *world) replaceKey(restored bool) bool {
	if restored && w.keyBefore == w.key {
		return false
	}
	if restored {
		w.key, w.keyBefore = w.keyBefore, w.key
	} else {
		w.keys++
		w.key, w.keyBefore = w.keys, w.key
	}
	return true
}
