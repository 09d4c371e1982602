// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// PodKey names a pod in the cluster.
type PodKey struct{ Namespace, Name string }

// Pod is the part of a pod that is kept: what tells with which content its containers were started. Finished pods are not kept.
type Pod struct {
	PodKey
	UID types.UID
	// Version is the resourceVersion; 0: it is not a number.
	Version uint64
	// Workload is the workload that the pod belongs to, and Owner its UID; empty: the UID is not known, because a ReplicaSet is between them.
	Workload WorkloadKey
	Owner    types.UID
	// Labelled is a custom resource that the pod belongs to as well, by its labels; nil: there is none.
	Labelled *WorkloadKey
	// Created is by the API server's clock, in whole seconds, and so is Deleted, when the pod is to be gone; zero: it is not being deleted.
	Created, Deleted time.Time
	// Grace is how many seconds it has to end while it is being deleted.
	Grace int64
	// Revision is the label by which its controller identifies the pod template; empty: there is none.
	Revision string
	// Hash is the hash of the content that the pod template was written for; empty: the template has none.
	Hash  string
	Node  string
	Phase string
	// Ready is since when the pod has been ready, by the clock of its node; zero: it is not.
	Ready time.Time
	// Unready is since when it has not been ready, by the same clock, in seconds since 1970; 0: it is ready, or its kubelet has not said so.
	Unready int64
	// Containers are the init containers and then the others, in the order of the pod; not more than maxContainers. Ephemeral ones are not kept.
	Containers []PodContainer
	// Agent is what the config agent of the pod reports; nil: the pod has none that is known.
	Agent *AgentReport
	// InPlace is kept of a pod that can be restarted in place, or has been told to; nil: it is none.
	InPlace *PodInPlace
}

// PodInPlace is what a restart in place has to know about a pod.
type PodInPlace struct {
	// Restarter is the name of the container that restarts all others; empty: there is none.
	Restarter string
	// Told has the annotations that say of which restart it was told.
	Told map[string]string
	// For is the hash of the content for which it was told to restart, At is when, by configdep's clock, and Restarts are the restart counts of its
	// containers then; empty: it was told of no restart. Unfinished: it had been told of another one, which may have been reported later.
	For        string
	At         time.Time
	Restarts   map[string]int32
	Unfinished bool
}

// StartedFor returns the hash of the content for which a container was started, and a time before which it cannot have read anything: its pod was created
// then, or it was restarted in place.
func (p *Pod) StartedFor(c *PodContainer) (hash string, at time.Time) {
	if told := p.InPlace; told != nil && told.For != "" {
		// The kubelet sets volumes up again when the pod is told.
		switch before, had := told.Restarts[c.Name]; {
		case !had || c.Restarts <= before, told.Unfinished && c.Restarts == before+1 && !c.Started.After(told.At):
		case c.Restarts == before+1:
			return told.For, c.Started
		default:
			return told.For, told.At
		}
	}
	return p.Hash, p.Created
}

// PodContainer is the part of a container that is kept.
type PodContainer struct {
	Name string
	Role ContainerRole
	// Started is when it last started, by the clock of its node and in whole seconds; zero: it has not, or its kubelet does not know any longer.
	Started time.Time
	// Waiting is why it does not run, in a word of its kubelet, or of the scheduler for a pod without a node; empty: it runs, or has ended.
	Waiting string
	// Restarts is how often it has been restarted within the pod.
	Restarts int32
	// Ended: it does not run, and has. Ran: it has run at some time, as far as its kubelet knows.
	Ended, Ran bool
}

// ContainerRole is the role of a container in its pod.
type ContainerRole uint8

// The roles.
const (
	RegularContainer ContainerRole = iota
	InitContainer
	SidecarContainer
)

// NotStarted is the value of PodContainer.Waiting of a container of which its kubelet has reported nothing.
const NotStarted = "NotStarted"

// WaitsFor returns why a container of the pod does not run, in one word of its kubelet or the scheduler; empty: all run, have ended, or are about to start.
func (p *Pod) WaitsFor() string {
	for i := range p.Containers {
		switch why := p.Containers[i].Waiting; why {
		case "", NotStarted, "ContainerCreating", "PodInitializing":
		default:
			return why
		}
	}
	return ""
}

// maxInterned limits the texts that Intern remembers.
const maxInterned = 1 << 16

// interned are the texts that Intern has returned. Package unique would forget them, because nothing keeps its handles.
var interned struct {
	sync.Mutex
	texts map[string]string
}

// Intern returns a text that is mostly in memory once, however many pods have it.
func Intern(text string) string {
	if text == "" {
		return ""
	}
	interned.Lock()
	defer interned.Unlock()
	known, found := interned.texts[text]
	if !found {
		if len(interned.texts) == maxInterned || interned.texts == nil {
			interned.texts = map[string]string{}
		}
		known = strings.Clone(text) // which may be part of a larger one
		interned.texts[known] = known
	}
	return known
}

// pods are the pods by name and by workload, and which workloads have applied a source by their agents.
type pods struct {
	byName     tree[PodKey, *Pod]
	byWorkload tree[podOf, *Pod]
	agents     int // how many of them have an agent
	users      tree[agentUse, int]
	// shared are the sources of all agents, by what sumOfAgentSources returns. Snapshots have none.
	shared map[uint64]*sharedSources
}

// podOf orders pods by their workload, and then by name.
type podOf struct {
	workload *WorkloadKey
	pod      string
}

func newPods() pods {
	return pods{
		byName: newTree[PodKey, *Pod](comparePodKeys),
		byWorkload: newTree[podOf, *Pod](func(a, b *podOf) int {
			if a.workload != b.workload {
				if c := compareWorkloads(a.workload, b.workload); c != 0 {
					return c
				}
			}
			return strings.Compare(a.pod, b.pod)
		}),
		users: newTree[agentUse, int](func(a, b *agentUse) int {
			return cmp.Or(compareSources(&a.source, &b.source), compareWorkloads(&a.workload, &b.workload))
		}),
		shared: map[uint64]*sharedSources{},
	}
}

func comparePodKeys(a, b *PodKey) int {
	if a.Namespace != b.Namespace {
		return strings.Compare(a.Namespace, b.Namespace)
	}
	return strings.Compare(a.Name, b.Name)
}

func (p pods) clone() pods {
	p.byName, p.byWorkload, p.users, p.shared = p.byName.clone(), p.byWorkload.clone(), p.users.clone(), nil
	return p
}

// Pod returns a pod, or nil.
func (g *Graph) Pod(key PodKey) *Pod { return g.pods.byName.get(key) }

// EachPod calls f for every pod, by namespace and name.
func (g *Graph) EachPod(f func(*Pod)) { g.pods.byName.each(f) }

// Pods returns the number of pods.
func (g *Graph) Pods() int { return g.pods.byName.len() }

// PodsOf calls f for the pods of a workload, by the names of its runs and their own, until it returns false: also for those that are being deleted.
func (g *Graph) PodsOf(w *Workload, f func(*Pod) bool) {
	if !w.Recurring {
		newest := g.newestReplicaSet(w)
		g.podsOf(w.WorkloadKey, func(p *Pod) bool { return !p.belongsTo(w, newest) || f(p) })
		return
	}
	related(g.runs.of, w.WorkloadKey, func(key WorkloadKey) (more bool) {
		more = true
		if g.runs.all.get(key).Owner == w.UID {
			g.podsOf(key, func(p *Pod) bool {
				more = f(p)
				return more
			})
		}
		return more
	})
}

// podsOf calls f for the pods under the key of a workload or a run, until it returns false.
func (g *Graph) podsOf(key WorkloadKey, f func(*Pod) bool) {
	g.pods.byWorkload.from(podOf{workload: &key}, func(of *podOf, p *Pod) bool { return *of.workload == key && f(p) })
}

// belongsTo reports whether a pod under the key of a workload belongs to it, and not to an earlier one of the same name. Newest is the newest ReplicaSet of the
// workload, or nil.
func (p *Pod) belongsTo(w *Workload, newest *ReplicaSet) bool {
	if p.Owner != "" && p.Workload == w.WorkloadKey {
		return p.Owner == w.UID
	}
	// Between them is a ReplicaSet, or something that is not read. A Deployment adopts the pods of one that was deleted without them, or that a backup has restored before.
	return !p.Created.Before(w.Created.Time) || newest != nil && p.Revision == newest.Revision
}

// Judges reports whether it makes a difference what the pods of a workload run with: it consumes sources.
func (g *Graph) Judges(w *Workload) bool {
	return len(w.References) > 0 || g.extra.get(w.WorkloadKey) != nil
}

// SetPod adds a pod, or replaces the one of the same name. It returns the workloads and runs for which that makes a difference.
func (g *Graph) SetPod(p *Pod) (changed []WorkloadKey) {
	before := g.Pod(p.PodKey)
	next := *p // the reflector may still have it
	if w := g.Workload(p.Workload); w != nil {
		next.Workload = w.WorkloadKey // whose texts are in memory already
	}
	g.pods.shareAgent(&next)
	g.replacePod(before, &next)
	if before != nil && before.says(&next) {
		return nil
	}
	changed = next.workloads()
	if before != nil {
		for _, key := range before.workloads() {
			if !slices.Contains(changed, key) {
				changed = append(changed, key)
			}
		}
	}
	return changed
}

// DeletePod removes a pod, if it exists, and returns the workloads and runs for which that makes a difference.
func (g *Graph) DeletePod(key PodKey) (changed []WorkloadKey) {
	p := g.Pod(key)
	if p == nil {
		return nil
	}
	g.replacePod(p, nil)
	return p.workloads()
}

// workloads returns the workloads that the pod belongs to.
func (p *Pod) workloads() (keys []WorkloadKey) {
	if p.Workload.Name != "" {
		keys = append(keys, p.Workload)
	}
	if p.Labelled != nil {
		keys = append(keys, *p.Labelled)
	}
	return keys
}

// eachPlace calls f for the places of the pod among those of its workloads.
func (p *Pod) eachPlace(f func(*podOf)) {
	if p == nil {
		return
	}
	if p.Workload.Name != "" {
		f(&podOf{&p.Workload, p.Name})
	}
	if p.Labelled != nil {
		f(&podOf{p.Labelled, p.Name})
	}
}

// replacePod replaces a pod by its next state. Either may be nil.
func (g *Graph) replacePod(before, now *Pod) {
	if before != nil && (now == nil || before.Workload != now.Workload || !ptr.Equal(before.Labelled, now.Labelled)) {
		before.eachPlace(func(at *podOf) { g.pods.byWorkload.delete(*at) })
	}
	now.eachPlace(func(at *podOf) { g.pods.byWorkload.set(at, now) })
	switch {
	case now != nil:
		g.pods.byName.set(&now.PodKey, now)
	case before != nil:
		g.pods.byName.delete(before.PodKey)
	}
	g.replaceAgent(before, now)
}

// says reports whether another state of a pod says the same, but for its version.
func (p *Pod) says(other *Pod) bool {
	return p.UID == other.UID && p.Workload == other.Workload && p.Owner == other.Owner && ptr.Equal(p.Labelled, other.Labelled) && p.Deleted.Equal(other.Deleted) && p.Grace == other.Grace &&
		p.Revision == other.Revision && p.Hash == other.Hash && p.Node == other.Node && p.Phase == other.Phase && p.Ready.Equal(other.Ready) && p.Unready == other.Unready &&
		slices.EqualFunc(p.Containers, other.Containers, PodContainer.says) && p.Agent.says(other.Agent) && p.InPlace.says(other.InPlace)
}

func (p *PodInPlace) says(other *PodInPlace) bool {
	if p == nil || other == nil {
		return p == other
	}
	return p.Restarter == other.Restarter && maps.Equal(p.Told, other.Told)
}

func (c PodContainer) says(other PodContainer) bool {
	return c.Name == other.Name && c.Role == other.Role && c.Started.Equal(other.Started) && c.Waiting == other.Waiting && c.Restarts == other.Restarts &&
		c.Ended == other.Ended && c.Ran == other.Ran
}
