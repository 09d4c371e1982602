// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// history is a cluster with Secret db and pods that all read the Secret in the same way.
type history struct {
	*rand.Rand
	trace   []string
	now     time.Duration // since epoch, by the API server's clock
	version uint64

	data      map[string]string
	uid       int
	written   time.Duration // the time in managedFields
	created   time.Duration
	writes    []write
	source    *dependency.Source // as configdep knows it
	digester  *dependency.Digester
	skew      time.Duration // of configdep's clock
	spec      corev1.PodSpec
	workload  dependency.Workload
	stamp     string // on the template
	revision  uint64 // of the template
	older     []template
	pods      []*simulated
	began     time.Duration // when configdep was last started
	sinceThen dependency.Moment
	broken    bool // whether its watch is broken
	unseen    bool // whether content was written since the watch broke
}

// template is a previous template, which may still create pods.
type template struct {
	revision uint64
	stamp    string
}

// write is a write that may have changed the content.
type write struct {
	at      time.Duration
	data    map[string]string // after the write
	untimed bool              // removed a key, which leaves no time in managedFields
}

type simulated struct {
	pod  *corev1.Pod
	skew time.Duration // of its node's clock
	read map[string]string
	at   time.Duration // when the container read
}

func newHistory(seed uint64) *history {
	h := &history{Rand: rand.New(rand.NewPCG(seed, 0)), version: 100, digester: dependency.NewDigester(make([]byte, dependency.KeySize))}
	h.skew = h.between(-time.Second, time.Second)
	containers := []corev1.Container{fromEnv("a", false), fromEnv("a", true), fromEnvFrom(), fromFiles(""), fromFiles("a")}
	h.spec = corev1.PodSpec{Containers: []corev1.Container{containers[h.IntN(len(containers))]}, Volumes: volumes}
	h.workload = dependency.Workload{
		WorkloadKey: dependency.WorkloadKey{Kind: kind.Deployment, Namespace: "shop", Name: "web"}, Status: dependency.Status{Replicas: 1}, Traits: kind.Table(nil).Of(kind.Deployment).Traits,
		Annotations: map[string]string{},
	}
	h.workload.References, _ = dependency.References(nil, &h.spec)
	h.data = map[string]string{"a": "0", "b": "0"}
	h.writes = []write{{data: maps.Clone(h.data)}}
	h.restart()
	h.pass()
	h.start()
	return h
}

func (h *history) between(from, to time.Duration) time.Duration {
	return from + time.Duration(h.Int64N(int64(to-from)))
}

func (h *history) note(format string, args ...any) {
	h.trace = append(h.trace, fmt.Sprintf("%8v %5d ", h.now.Round(time.Millisecond), h.version)+fmt.Sprintf(format, args...))
}

// pass advances the time.
func (h *history) pass() {
	h.now += []time.Duration{h.between(0, time.Second), h.between(0, 10*time.Second), h.between(0, time.Minute), h.between(0, 10*time.Minute)}[h.IntN(4)]
}

func (h *history) step() {
	h.now += time.Millisecond
	if h.IntN(3) > 0 {
		h.pass()
	}
	h.version++
	switch n := h.IntN(100); {
	case n < 11:
		h.write("a")
	case n < 15:
		h.excursion()
	case n < 25:
		h.write("b")
	case n < 30:
		h.remove([]string{"a", "b"}[h.IntN(2)])
	case n < 40:
		h.written = h.now
		h.writes = append(h.writes, write{at: h.now, data: maps.Clone(h.data)})
		h.observe(true)
		h.note("metadata is written by a client that sets content")
	case n < 47:
		h.start()
	case n < 50 && len(h.older) > 0:
		h.startOf(h.older[h.IntN(len(h.older))])
	case n < 60 && len(h.pods) > 0:
		h.startContainer(h.pods[h.IntN(len(h.pods))], true)
	case n < 68 && len(h.pods) > 0:
		p := h.pods[h.IntN(len(h.pods))]
		p.pod.ResourceVersion = strconv.FormatUint(h.version, 10)
		h.note("the status of %s is written", p.pod.Name)
	case n < 75:
		h.restart()
	case n < 78:
		if h.broken = !h.broken; h.broken {
			h.note("the watch breaks")
		} else {
			h.observe(false)
			h.note("the watch begins again with a list")
		}
	case n < 80:
		h.replace()
	case n < 85:
		h.verify()
	case n < 89:
		h.record(false)
	case n < 96:
		h.record(true)
	default:
		h.template()
	}
}

// unseenAgain reports whether content would be written for the second time while the watch is broken. Changes that
// are reverted in that time are not noticed.
func (h *history) unseenAgain() bool {
	again := h.broken && h.unseen
	h.unseen = h.broken
	return again
}

func (h *history) write(key string) { h.set(key, strconv.Itoa(h.IntN(3))) }

// excursion changes content and changes it back.
func (h *history) excursion() {
	before, found := h.data["a"]
	if h.broken || !found {
		return
	}
	if h.IntN(2) == 0 {
		h.record(true)
		h.now += h.between(0, 10*time.Minute)
	}
	h.set("a", before+"?")
	h.pass()
	h.version++
	switch h.IntN(6) {
	case 0:
		h.start()
	case 1:
		h.restart()
	case 2:
		h.startContainer(h.pods[h.IntN(len(h.pods))], true)
	}
	h.now += time.Millisecond
	h.version++
	h.set("a", before)
	h.version++
	h.verify()
}

func (h *history) set(key, value string) {
	if h.unseenAgain() {
		return
	}
	h.data[key] = value
	h.written = h.now
	h.writes = append(h.writes, write{at: h.now, data: maps.Clone(h.data)})
	h.observe(true)
	h.note("the data are %v", h.data)
}

func (h *history) remove(key string) {
	if _, found := h.data[key]; !found || h.unseenAgain() {
		return
	}
	delete(h.data, key)
	h.writes = append(h.writes, write{at: h.now, data: maps.Clone(h.data), untimed: true})
	h.observe(true)
	h.note("key %s is removed: %v", key, h.data)
}

func (h *history) secret() *dependency.Source {
	o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: secret, UID: types.UID(strconv.Itoa(h.uid)), ResourceVersion: strconv.FormatUint(h.version, 10), CreationTimestamp: h.api(h.created),
		ManagedFields: []metav1.ManagedFieldsEntry{{Time: new(h.api(h.written)), FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}},
	}, Data: map[string][]byte{}}
	for k, v := range h.data {
		o.Data[k] = []byte(v)
	}
	return dependency.FromSecret(h.digester, o, policy.Dialects(nil).ReadSource(o.Annotations))
}

// api is a time as the API server writes it.
func (h *history) api(at time.Duration) metav1.Time {
	return metav1.NewTime(epoch.Add(at).Truncate(time.Second))
}

// observe lets configdep read the Secret, live or after its watch was broken.
func (h *history) observe(live bool) {
	if h.broken {
		return
	}
	h.unseen = false
	s := h.secret()
	s.After(h.source, nil, dependency.Arrival{Live: live, Seen: epoch.Add(h.now + h.between(0, 500*time.Millisecond) + h.skew)})
	h.source = s
}

// restart makes configdep lose what it has seen.
func (h *history) restart() {
	s := h.secret()
	s.After(nil, nil, dependency.Arrival{})
	h.source, h.began, h.broken, h.unseen = s, h.now, false, false
	h.sinceThen = dependency.Moment{Version: h.version}
	h.workload.StartVersion, h.workload.RecordedAt = 0, dependency.Moment{}
	h.note("configdep is restarted")
}

// start creates a pod, the container of which starts some time later.
func (h *history) start() { h.startOf(template{h.revision, h.stamp}) }

func (h *history) startOf(of template) {
	p := &simulated{skew: h.between(-time.Second, time.Second), pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("web-", len(h.pods)), CreationTimestamp: h.api(h.now), Annotations: map[string]string{},
			Labels: map[string]string{"pod-template-hash": strconv.FormatUint(of.revision, 10)},
		},
		Spec: h.spec,
	}}
	if of.stamp != "" {
		p.pod.Annotations[policy.ConfigHashAnnotation] = of.stamp
	}
	h.pods = append(h.pods, p)
	h.note("%s is created of template %d", p.pod.Name, of.revision)
	h.startContainer(p, false)
}

// startContainer starts the container of a pod, unless a key is missing. The container has read its environment up
// to a second before; of a volume that existed, it sees the content of the kubelet's last refresh.
func (h *history) startContainer(p *simulated, again bool) {
	if _, found := h.data["a"]; !found && !h.optional() {
		return
	}
	p.at, p.read = h.now, map[string]string{}
	maps.Copy(p.read, h.data)
	if again && h.spec.Containers[0].VolumeMounts != nil {
		p.at = max(h.now-h.between(0, 90*time.Second), epoch.Sub(epoch)+p.pod.CreationTimestamp.Sub(epoch)+time.Second)
		p.at = min(p.at, h.now)
		p.read = h.dataAt(p.at)
	}
	if h.IntN(2) == 0 { // other writes of the API server in between
		h.now += h.between(0, time.Second)
	}
	h.version++
	p.pod.ResourceVersion = strconv.FormatUint(h.version, 10)
	status := corev1.ContainerStatus{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{
		StartedAt: metav1.NewTime(epoch.Add(h.now + p.skew).Truncate(time.Second))}}}
	if again {
		status.RestartCount = 1
	}
	p.pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	h.note("the container of %s starts with %v", p.pod.Name, p.read)
}

// optional reports whether the container starts without the key that it reads.
func (h *history) optional() bool {
	c := &h.spec.Containers[0]
	return len(c.Env) > 0 && *c.Env[0].ValueFrom.SecretKeyRef.Optional
}

func (h *history) dataAt(at time.Duration) map[string]string {
	i := len(h.writes) - 1
	for i > 0 && h.writes[i].at > at {
		i--
	}
	return maps.Clone(h.writes[i].data)
}

// record records the current content on the workload and, with a rollout, on the template.
func (h *history) record(rollOut bool) {
	h.workload.Annotations[policy.ReloadAnnotation] = "auto"
	before := h.workload.Marks.Sources
	_, e := h.evaluate()
	present := e.Present()
	h.workload.Marks.Verified = ""
	sources, err := json.Marshal(present.Sources)
	if err != nil {
		panic(err)
	}
	h.workload.Marks.Hash, h.workload.Marks.Sources = present.Hash, string(sources)
	if string(sources) != before {
		h.workload.RecordedAt.Version = h.version
	}
	h.note("the content is recorded; rollout: %v", rollOut)
	if rollOut && h.stamp != present.Hash {
		h.retire()
		h.stamp = present.Hash
		h.renew()
	}
}

// verify does what the controller does when content has changed and changed back.
func (h *history) verify() {
	if h.broken {
		return
	}
	_, e := h.evaluate()
	now := epoch.Add(h.now + h.skew)
	d := e.Decide(policy.Observed{Now: now})
	if d.Action != policy.Inspect {
		return
	}
	found, err := policy.InspectPods(d.Excursions, func(look func(*corev1.Pod)) error {
		for _, p := range h.pods {
			if p.pod.Labels["pod-template-hash"] == strconv.FormatUint(h.revision, 10) {
				look(p.pod)
			}
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	found.Of = d.Excursions
	if d = e.Decide(policy.Observed{Now: now, Inspected: found}); d.Action != policy.WriteVerified {
		return
	}
	patch, err := policy.VerifiedPatch(&h.workload, e.Present(), now)
	if err != nil {
		panic(err)
	}
	written := policy.MarksOf(annotationsOf(patch))
	m := &h.workload.Marks
	m.Hash, m.Sources, m.Verified = written.Hash, written.Sources, written.Verified
	h.workload.RecordedAt.Version = h.version
	h.note("the pods are verified")
}

// replace deletes the Secret and creates it again with the same content.
func (h *history) replace() {
	if h.broken {
		return
	}
	g := dependency.NewGraph()
	g.SetSource(h.source)
	g.SetWorkload(&h.workload, dependency.Patterns{})
	g.DeleteSource(h.source.SourceKey, dependency.Change{Version: h.version, Exact: true, Seen: epoch.Add(h.now + h.skew)})
	deleted := g.Deleted(h.source.SourceKey)
	h.writes = append(h.writes, write{at: h.now, untimed: true})
	h.note("the Secret is deleted")
	data := h.data
	h.data = nil
	for range h.IntN(3) {
		h.pass()
		h.version++
		if h.optional() {
			h.start()
		}
	}
	h.now += time.Millisecond
	h.version++
	h.data = data
	h.created, h.written = h.now, h.now
	h.uid++
	h.source = h.secret()
	h.source.After(nil, deleted, dependency.Arrival{Live: true, Seen: epoch.Add(h.now + h.skew)})
	h.writes = append(h.writes, write{at: h.now, data: maps.Clone(h.data)})
	h.note("the Secret is created again")
}

// template changes the template, which creates a new pod.
func (h *history) template() {
	h.retire()
	h.renew()
}

func (h *history) retire() { h.older = append(h.older, template{h.revision, h.stamp}) }

func (h *history) renew() {
	h.revision = h.version
	h.workload.StartVersion, h.workload.TemplateWritten = h.version, h.api(h.now).Time
	h.note("the template changes")
	h.version++
	h.start()
}

func (h *history) evaluate() (*dependency.Graph, *policy.Evaluation) {
	g := dependency.NewGraph()
	g.SetDigester(h.digester)
	g.SetSince(h.sinceThen)
	g.SetSource(h.source)
	w := h.workload
	g.SetWorkload(&w, dependency.Patterns{})
	return g, policy.Evaluator{Graph: g, Defaults: policy.Defaults{Mode: policy.Off}}.Evaluate(&w)
}

// check compares the verdicts with the actual state.
func (h *history) check(seen map[string]int) (wrong string) {
	if h.broken {
		return ""
	}
	k := Know(h.evaluate())
	k.Ordered = true
	k.Revision = strconv.FormatUint(h.revision, 10)
	for _, p := range h.pods {
		if p.read == nil {
			continue
		}
		v := k.Judge(FromPod(p.pod), nil)
		seen[fmt.Sprint(v.State, " ", v.Reason)]++
		same := h.reads(p.read) == h.reads(h.data)
		switch since := h.since(p); {
		case v.State == Current && !same && !since.forgotten(v.Reason):
			return fmt.Sprintf("%s is judged %s, %s, but was started with %v, and now the data are %v", p.pod.Name, v.State, v.Reason, p.read, h.data)
		case v.State == Stale && v.Reason != ReasonRecordDiffers && same && (since.changes < 2 || !since.back && since.all <= 4): // dependency remembers 4
			return fmt.Sprintf("%s is judged %s, %s, but was started with %v, which is the current content", p.pod.Name, v.State, v.Reason, p.read)
		}
	}
	return ""
}

// reads renders the part of the data that the container reads.
func (h *history) reads(data map[string]string) string {
	if c := &h.spec.Containers[0]; c.Env != nil || len(c.VolumeMounts) > 0 && c.VolumeMounts[0].SubPath != "" {
		a, found := data["a"]
		return fmt.Sprint(a, found)
	}
	return fmt.Sprint(data)
}

func (h *history) since(p *simulated) (s since) {
	for i, w := range h.writes {
		if w.at > p.at {
			s.all++
		}
		if w.at <= p.at || i == 0 || h.reads(w.data) == h.reads(h.writes[i-1].data) {
			continue
		}
		s.changes++
		if w.at <= h.began {
			s.back = true
			s.removed = s.removed || w.untimed
		}
	}
	return s
}
