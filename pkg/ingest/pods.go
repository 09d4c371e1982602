// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/agent/status"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/record"
)

// podPart is the pods that have not finished. One without a controller is a workload, too.
type podPart struct{}

// Pods is the name of the stream of pods in all namespaces.
const Pods = "pods"

// readPod is what is read of a pod.
type readPod struct {
	*dependency.Pod

	workload *dependency.Workload // that the pod itself is; nil: it has a controller, or Pods are not shown
}

// maxContainers limits the containers of a pod that are kept.
const maxContainers = 256

// pods returns the stream of pods. The API server leaves out those that have finished: nothing that runs has read anything with them.
func (c Scope) pods() *stream {
	s := &stream{
		name: Pods, resource: corev1.SchemeGroupVersion.WithResource("pods"), kind: "Pod", part: podPart{}, fields: kind.UnfinishedPods,
	}
	s.decode = func(raw []byte) (*object, error) {
		p, err := decodePod(raw)
		if err != nil {
			return nil, err
		}
		return reduced(&p.ObjectMeta, func(metav1.Object) (any, error) {
			return c.readPod(p, func() (*corev1.Pod, error) {
				whole := &corev1.Pod{}
				return whole, whole.Unmarshal(raw)
			})
		})
	}
	return s
}

// podParts are the parts of a pod that are read.
type podParts struct {
	metav1.ObjectMeta

	node, phase string
	ready       time.Time
	unready     int64
	// unscheduled is why the pod has no node, in one word.
	unscheduled string
	containers  []dependency.PodContainer
	// restarts: a container has a rule by which it may restart all others.
	restarts bool
}

// readPod returns what is kept of a pod; nil: nothing, as it belongs to no workload of a known kind. Whole returns all of the pod, which is needed of
// one without a controller, or one that may be restarted in place.
func (c Scope) readPod(p *podParts, whole func() (*corev1.Pod, error)) (any, error) {
	key, owner, found := c.Kinds.WorkloadOf(&p.ObjectMeta)
	labelled, hasLabels := c.Kinds.LabelledWorkload(&p.ObjectMeta)
	if !found && !hasLabels {
		return nil, nil //nolint:nilnil // nothing is kept of it
	}
	out := &readPod{Pod: &dependency.Pod{
		PodKey: dependency.PodKey{Namespace: p.Namespace, Name: p.Name}, UID: p.UID, Version: dependency.ParseVersion(p.ResourceVersion),
		Workload: key, Owner: owner, Created: p.CreationTimestamp.Time,
		Hash: dependency.Intern(bounded(p.Annotations[record.ConfigHashAnnotation])),
		Node: dependency.Intern(p.node), Phase: dependency.Intern(bounded(p.phase)), Ready: p.ready, Unready: p.unready, Containers: p.containers,
		Agent: agentReport(&p.ObjectMeta),
	}}
	if p.DeletionTimestamp != nil {
		out.Deleted, out.Grace = p.DeletionTimestamp.Time, ptr.Deref(p.DeletionGracePeriodSeconds, 0)
	}
	if _, told := p.Annotations[record.RestartAnnotation]; told || p.restarts {
		pod, err := whole()
		if err != nil {
			return nil, err
		}
		out.InPlace = inPlace(pod)
	}
	if hasLabels && key != labelled {
		out.Labelled = &labelled
	}
	if k := c.Kinds.Of(key.Kind); k != nil {
		out.Revision = dependency.Intern(k.PodRevision(p.Labels))
	}
	if key.Kind != kind.Pod || !slices.ContainsFunc(c.kinds(), func(k *kind.Kind) bool { return k.Name == kind.Pod }) {
		return out, nil
	}
	pod, err := whole()
	if err != nil {
		return nil, err
	}
	o, err := c.Kinds.Of(kind.Pod).Read(pod)
	if err != nil || o == nil {
		return out, err
	}
	c.Kinds.Relate(o)
	out.workload = c.Dialects.ReadWorkload(o)
	return out, nil
}

// maxTold limits the value of policy.RestartingAnnotation that is kept, in bytes: it names each container.
const maxTold = 64 << 10

// inPlace returns what a restart in place has to know about a pod.
func inPlace(p *corev1.Pod) *dependency.PodInPlace {
	out := &dependency.PodInPlace{Restarter: dependency.Intern(kind.RestarterOf(&p.Spec))}
	if value, restarting := bounded(p.Annotations[record.RestartAnnotation]), p.Annotations[record.RestartingAnnotation]; value != "" && len(restarting) <= maxTold {
		out.Told = map[string]string{record.RestartAnnotation: value, record.RestartingAnnotation: restarting}
		if told, valid := record.ToldLast(out.Told); valid {
			out.For, out.At, out.Restarts, out.Unfinished = dependency.Intern(bounded(told.Hash)), told.Again, told.Restarts, told.Unfinished
		}
	}
	return out
}

// bounded returns a text that any client may have written, if it has no more bytes than those that configdep or a kubelet writes.
func bounded(value string) string {
	if len(value) > record.MaxHash {
		return ""
	}
	return value
}

// add adds a container.
func (p *podParts) add(name string, role dependency.ContainerRole) {
	if len(p.containers) < maxContainers {
		p.containers = append(p.containers, dependency.PodContainer{Name: dependency.Intern(name), Role: role, Waiting: dependency.NotStarted})
	}
}

// containerStatus is what a kubelet reports of a container.
type containerStatus struct {
	name     string
	started  time.Time
	ran      bool // it runs, or has ended
	ended    bool
	before   bool // it has run before
	waiting  string
	restarts int32
}

// report completes a container with what its kubelet reports.
func (p *podParts) report(s *containerStatus) {
	i := slices.IndexFunc(p.containers, func(c dependency.PodContainer) bool { return c.Name == s.name })
	if i < 0 {
		return
	}
	c := &p.containers[i]
	c.Ended, c.Ran = s.ended, s.ran || s.before || s.restarts > 0
	if c.Restarts = s.restarts; s.ran {
		c.Started, c.Waiting = s.started, ""
	} else if s.waiting != "" {
		c.Waiting = word(s.waiting)
	}
}

// word returns why a container waits, or dependency.NotStarted if that is no word of a kubelet or the scheduler.
func word(reason string) string {
	if reason = bounded(reason); reason == "" || strings.ContainsFunc(reason, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }) {
		return dependency.NotStarted
	}
	return dependency.Intern(reason)
}

// wait completes the containers of a pod that has no node.
func (p *podParts) wait() {
	if p.unscheduled == "" {
		return
	}
	for i := range p.containers {
		if c := &p.containers[i]; c.Waiting == dependency.NotStarted {
			c.Waiting = word(p.unscheduled)
		}
	}
}

// agentReport returns what the config agent of a pod reports; nil: the pod has none that is known.
func agentReport(m *metav1.ObjectMeta) *dependency.AgentReport {
	if m.Labels[status.Label] != status.LabelValue {
		return nil
	}
	out := &dependency.AgentReport{}
	value, reported := m.Annotations[status.Annotation]
	if !reported {
		return out
	}
	report, err := status.Parse(value)
	if err != nil {
		out.State, out.Message = dependency.AgentUnreadable, "the annotation "+status.Annotation+" "+err.Error()
		return out
	}
	out.State, out.Message = dependency.AgentState(report.State), strings.Map(dependency.Printable, report.Message)
	sources := make([]dependency.AgentSource, 0, len(report.Sources))
	for _, s := range report.Sources {
		kind := dependency.SourceKind(s.Kind)
		// Whether a source of another namespace has changed is not for those who can read this one.
		if kind.Observed() && s.Namespace == m.Namespace && len(validation.NameIsDNSSubdomain(s.Name, false)) == 0 {
			sources = append(sources, dependency.AgentSource{
				Kind: kind, Name: s.Name, UID: types.UID(s.UID), Version: dependency.ParseVersion(s.ResourceVersion),
			})
		}
	}
	out.Sources = slices.Clip(dependency.SortAgentSources(sources))
	return out
}

func (podPart) each(g *dependency.Graph, f func(namespace, name string)) {
	g.EachPod(func(p *dependency.Pod) { f(p.Namespace, p.Name) })
}

func (podPart) holds(g *dependency.Graph, o *object) bool {
	p := g.Pod(dependency.PodKey{Namespace: o.Namespace, Name: o.Name})
	return p != nil && p.UID == o.value.(*readPod).UID && p.Version != 0 && p.Version == dependency.ParseVersion(o.ResourceVersion)
}

func (podPart) put(x *Index, o *object, at dependency.Arrival) touched {
	read := o.value.(*readPod)
	agents := x.graph.HasAgents()
	what := x.known(x.graph.SetPod(read.Pod), agents)
	if read.workload != nil {
		own := *o
		own.value = read.workload
		what.add(workloadPart(kind.Pod).put(x, &own, at))
	} else { // it may have got a controller
		what.add(workloadPart(kind.Pod).drop(x, read.Namespace, read.Name, at))
	}
	return what
}

func (podPart) drop(x *Index, namespace, name string, at dependency.Arrival) touched {
	agents := x.graph.HasAgents()
	what := x.known(x.graph.DeletePod(dependency.PodKey{Namespace: namespace, Name: name}), agents)
	what.add(workloadPart(kind.Pod).drop(x, namespace, name, at))
	return what
}

// known returns those of some workloads that are in the graph as what a change affects. A run of a CronJob is part of that. Agents: there were any
// before the change.
func (x *Index) known(keys []dependency.WorkloadKey, agents bool) (what touched) {
	for _, key := range keys {
		key = x.graph.Shown(key)
		if w := x.graph.Workload(key); w != nil && (agents || x.graph.Judges(w) || x.graph.HasAgents()) {
			what.workloads = append(what.workloads, key)
		}
	}
	return what
}
