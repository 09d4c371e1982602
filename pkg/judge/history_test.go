// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/judge"
	"github.com/configdep/configdep/test/seeds"
)

// In random histories, what a container that is called Current has read is the current content, and what one that is called Stale has read is not. Nodes
// and the server have clocks of their own, watches are late and break, kubelets refresh volumes now and then, and servers restart.
func TestJudge_TellsTheTruthInHistories(t *testing.T) {
	seen, excused, histories := map[string]int{}, map[string]int{}, 0
	seeds.Each(t, 400, func(t *testing.T, seed uint64) {
		histories++
		w := newWorld(seed)
		for range 30 {
			w.step()
			if wrong := w.check(seen, excused); wrong != "" {
				t.Fatalf("%s\n%s", wrong, strings.Join(w.trace, "\n"))
			}
		}
	})
	for _, of := range []map[string]int{seen, excused} {
		for _, what := range slices.Sorted(maps.Keys(of)) {
			t.Logf("%7d in 1000 histories: %s", of[what]*1000/histories, what)
		}
	}
	if histories < 100 { // with a single seed
		return
	}
	for _, verdict := range []string{ // else the histories do not test them
		"Current StartedAfter", "Current SameContent", "Current CreatedFor", "Current Recorded", "Stale StartedBefore", "Stale RecordDiffers", "Unknown ClockMargin, doubt",
		"Unknown WrittenSinceStart", "Unknown WrittenSinceStart, doubt", "Unknown FilesChanged", "Unknown NodeClock", "Unknown SourceMissing",
	} {
		if seen[verdict] < histories/50 {
			t.Errorf("verdict %s occurred %d times, want more", verdict, seen[verdict])
		}
	}
}

const (
	namespace = "default"
	skew      = 2000 // milliseconds by which synchronized clocks differ from that of the API server, at most
	refresh   = 90 * time.Second
)

// world is a history so far. Its time is that of the API server's clock.
type world struct {
	*rand.Rand
	now     time.Time
	queue   []event
	sources []*source
	nodes   []*node
	pods    []*pod
	trace   []string
	last    int // the last number that was given to anything

	// The pod template, and what is recorded on the workload.
	hash     string
	revision int
	written  time.Time
	record   *record

	server
	liveFiles, seenFiles, noRevision bool
}

// event is something that happens at a time.
type event struct {
	at time.Time
	do func()
}

// server is configdep.
type server struct {
	*dependency.Graph

	digester *dependency.Digester
	skew     time.Duration
	running  bool
	watch    int       // the number of the watch; 0: it is broken
	started  time.Time // when its first list was made
	read     time.Time // when it last read anything, by its clock
	gaps     []gap
	restarts int
}

// gap is a time in which the server ran and its watch may have been broken.
type gap struct {
	from, to time.Time
	known    []int // the states that the server knew, by source
}

// source is a source with all its states, the last one last.
type source struct {
	dependency.Reference
	states []state
	known  int // the state that the server has read
	first  int // the state that the server read first
}

// state is a state of a source after a write.
type state struct {
	at      time.Time
	data    map[string]string // nil: it is absent
	uid     types.UID
	version int
	created time.Time
	changed time.Time // when content was last written, by its managedFields
}

// node is a node with its clock.
type node struct {
	name   string
	skew   time.Duration
	broken bool
}

// pod is a pod with what its containers have really read.
type pod struct {
	dependency.Pod
	*node
	gone    bool
	mounted time.Time // zero: its volumes are not mounted
	reads   []map[reading]read
}

// reading is a way in which a container reads a source.
type reading struct {
	source int
	file   bool
}

// read is what a container has read, when, and the index of the state in which the source was.
type read struct {
	content string
	state   int
	at      time.Time
}

func (r read) String() string { return fmt.Sprintf("%q at %s", r.content, r.at.Format("15:04:05.000")) }

// record is what the workload says about the content of its pods.
type record struct {
	contents []string
	at       time.Time // by the server's clock
	proven   bool
	forHash  string
}

func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewSource(int64(seed))), now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	w.now = w.now.Add(w.upTo(time.Second))
	w.server = server{digester: dependency.NewDigester(make([]byte, dependency.KeySize)), skew: w.difference()}
	w.liveFiles, w.seenFiles, w.noRevision = w.chance(6), w.chance(4), w.chance(3)
	for i := range 1 + w.Intn(3) {
		s := &source{Reference: w.reference(fmt.Sprint("s", i))}
		s.states = []state{{at: w.now}}
		w.sources = append(w.sources, s)
	}
	for i := range 3 {
		n := &node{name: fmt.Sprint("node", i), skew: w.difference()}
		if w.chance(12) {
			n.broken, n.skew = true, (w.upTo(4*time.Hour)-2*time.Hour)/time.Duration(1+w.Intn(60))
		}
		w.nodes = append(w.nodes, n)
		w.note("%s has a clock that differs by %v", n.name, n.skew)
	}
	w.note("the server has a clock that differs by %v", w.skew)
	for _, s := range w.sources {
		w.note("%s: %+v, required %v", s.Name, s.Uses, s.RequiredKeys)
		if !w.chance(8) {
			w.write(s, w.content(), true)
		}
	}
	w.advance(w.upTo(time.Hour))
	if w.chance(2) {
		w.start()
	}
	w.template()
	w.scale()
	w.advance(w.upTo(time.Hour))
	if !w.running {
		w.start()
	}
	return w
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, w.now.Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (w *world) chance(n int) bool { return w.Intn(n) == 0 }

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.Int63n(int64(d))) }

func (w *world) difference() time.Duration {
	return time.Duration(w.Intn(2*skew+1)-skew) * time.Millisecond
}

func (w *world) number() int {
	w.last++
	return w.last
}

// The containers of the pod template, in the order in which they start.
var containers = []dependency.PodContainer{
	{Name: "init", Role: dependency.InitContainer}, {Name: "sidecar", Role: dependency.SidecarContainer}, {Name: "app"}, {Name: "other"},
}

// reference returns what the pod template reads of a source.
func (w *world) reference(name string) dependency.Reference {
	r := dependency.Reference{Kind: dependency.ConfigMap, Name: name}
	keys := func() []string { return [][]string{{"a"}, {"b"}, {"a", "b"}}[w.Intn(3)] }
	volume := dependency.Use{Type: dependency.Volume, Optional: w.chance(3)}
	if w.chance(2) {
		volume.Keys = keys()
	}
	mounted := false
	for i := range containers {
		use := dependency.Use{Container: containers[i].Name, Optional: w.chance(3)}
		switch w.Intn(6) {
		case 0, 1:
			use.Type, use.Keys = dependency.Env, []string{[]string{"a", "b"}[w.Intn(2)]}
		case 2:
			use.Type = dependency.EnvFrom
		case 3, 4:
			use.Type, use.Keys, use.Optional, use.SubPath = volume.Type, volume.Keys, volume.Optional, w.chance(3)
			mounted = true
		default:
			continue
		}
		if use.Type == dependency.Env && !use.Optional {
			r.RequiredKeys = append(r.RequiredKeys, use.Keys...)
		}
		r.Uses = append(r.Uses, use)
	}
	if mounted && !volume.Optional {
		r.RequiredKeys = append(r.RequiredKeys, volume.Keys...)
	}
	slices.Sort(r.RequiredKeys)
	r.RequiredKeys = slices.Compact(r.RequiredKeys)
	return r
}

// at calls do after a time.
func (w *world) after(d time.Duration, do func()) {
	at := w.now.Add(d)
	i := len(w.queue)
	for i > 0 && w.queue[i-1].at.After(at) {
		i--
	}
	w.queue = slices.Insert(w.queue, i, event{at, do})
}

// advance lets time pass.
func (w *world) advance(d time.Duration) {
	end := w.now.Add(d)
	for len(w.queue) > 0 && !w.queue[0].at.After(end) {
		e := w.queue[0]
		w.queue = w.queue[1:]
		w.now = e.at
		e.do()
	}
	w.now = end
}

func (w *world) step() {
	switch w.Intn(6) {
	case 0:
		w.advance(w.upTo(400 * time.Millisecond))
	case 1, 2:
		w.advance(w.upTo(5 * time.Second))
	case 3, 4:
		w.advance(w.upTo(30 * time.Second))
	default:
		w.advance(w.upTo(10 * time.Minute))
	}
	if w.watch > 0 && w.chance(2) {
		w.read = w.clock() // by a bookmark
	}
	s := w.sources[w.Intn(len(w.sources))]
	switch w.Intn(18) {
	case 0, 1, 2:
		w.change(s)
	case 3:
		w.thereAndBack(s)
	case 4:
		w.touch(s)
	case 5:
		w.removeKey(s)
	case 6:
		w.remove(s)
	case 7, 8, 9:
		w.crash()
	case 10:
		w.scale()
	case 11:
		w.rollOut()
	case 12:
		w.release(s)
	case 13:
		w.forgetStatus()
	case 14:
		w.stop()
	case 15:
		w.breakWatch()
	case 16, 17:
		w.baseline()
	}
}

// The sources.

func (w *world) content() map[string]string {
	data := map[string]string{}
	for _, key := range []string{"a", "b", "c"} {
		if !w.chance(5) {
			data[key] = fmt.Sprint(w.Intn(3))
		}
	}
	return data
}

func (s *source) current() *state { return &s.states[len(s.states)-1] }

// write writes content to a source, or deletes or creates it.
func (w *world) write(s *source, data map[string]string, moves bool) {
	before := s.current()
	now := state{at: w.now, data: data, version: w.number(), uid: before.uid, created: before.created, changed: before.changed}
	switch {
	case data == nil:
	case before.data == nil:
		now.uid, now.created = types.UID(fmt.Sprint(s.Name, "-", now.version)), w.now.Truncate(time.Second)
		now.changed = now.created
	case moves:
		now.changed = w.now.Truncate(time.Second)
	}
	s.states = append(s.states, now)
	w.note("%s is %v, version %d, changed %s", s.Name, data, now.version, now.changed.Format(time.TimeOnly))
	index, watch := len(s.states)-1, w.watch
	if watch > 0 {
		w.after(w.upTo(2*time.Second), func() { w.deliver(s, index, watch) })
	}
}

func (w *world) change(s *source) {
	before := s.current().data
	data := w.content()
	if maps.Equal(before, data) && before != nil {
		return
	}
	added := before == nil
	for key, value := range data {
		was, had := before[key]
		added = added || !had || was != value
	}
	w.write(s, data, added)
}

func (w *world) thereAndBack(s *source) {
	before := s.current().data
	w.change(s)
	w.advance(w.upTo(time.Duration(1+w.Intn(40)) * time.Second))
	if now := s.current().data; before != nil && !maps.Equal(now, before) {
		w.write(s, before, now == nil || !isPart(before, now, true))
	}
}

// isPart reports whether other data has all keys of data, and with the same values, if they count.
func isPart(data, of map[string]string, values bool) bool {
	for key, value := range data {
		if was, had := of[key]; !had || values && was != value {
			return false
		}
	}
	return true
}

// touch writes metadata.
func (w *world) touch(s *source) {
	if data := s.current().data; data != nil {
		w.write(s, data, w.chance(2))
	}
}

func (w *world) removeKey(s *source) {
	data := maps.Clone(s.current().data)
	for key := range data {
		if key == []string{"a", "b", "c"}[w.Intn(3)] {
			delete(data, key)
			w.write(s, data, false)
			return
		}
	}
}

// remove deletes a source, and creates it again.
func (w *world) remove(s *source) {
	before := s.current().data
	if before == nil {
		w.write(s, w.content(), true)
		return
	}
	w.write(s, nil, false)
	switch w.Intn(4) {
	case 0:
		w.advance(w.upTo(10 * time.Second))
		w.write(s, before, true)
	case 1:
		w.advance(w.upTo(10 * time.Minute))
		w.write(s, w.content(), true)
	case 2:
		w.write(s, w.content(), true)
	}
}

// The server.

func (w *world) clock() time.Time { return w.now.Add(w.skew) }

// start starts the server, which reads everything.
func (w *world) start() {
	w.Graph, w.running, w.started, w.gaps = dependency.NewGraph(), true, w.now, nil
	w.restarts++
	workload := &dependency.Workload{WorkloadKey: dependency.WorkloadKey{Kind: "Deployment", Namespace: namespace, Name: "app"}}
	for _, s := range w.sources {
		workload.References = append(workload.References, s.Reference)
	}
	w.SetWorkload(workload, dependency.Patterns{})
	for _, s := range w.sources {
		if s.first = len(s.states) - 1; s.current().data != nil {
			w.put(s, s.first, dependency.Arrival{})
		}
		s.known = s.first
	}
	w.watch, w.read = w.number(), w.clock()
	w.note("the server starts")
}

// stop stops the server, which starts again later.
func (w *world) stop() {
	if !w.running {
		return
	}
	w.note("the server stops")
	w.running, w.watch = false, 0
	w.after(w.upTo(5*time.Minute), w.start)
}

// breakWatch breaks the watch of the server, which makes a list later.
func (w *world) breakWatch() {
	if w.watch == 0 {
		return
	}
	w.note("the watch breaks")
	w.watch = 0
	from, restarts := w.read.Add(-w.skew), w.restarts
	w.after(w.upTo(3*time.Minute), func() {
		if w.running && w.restarts == restarts {
			w.list(from)
		}
	})
}

func (w *world) list(from time.Time) {
	w.note("the server makes a list")
	now, since, gap := w.clock(), w.read, gap{from: from, to: w.now}
	for _, s := range w.sources {
		gap.known = append(gap.known, s.known)
	}
	w.gaps = append(w.gaps, gap)
	for _, s := range w.sources {
		key := dependency.SourceKey{Kind: s.Kind, Namespace: namespace, Name: s.Name}
		last := len(s.states) - 1
		switch known := w.Source(key); {
		case s.current().data == nil && known != nil:
			w.DeleteSource(key, dependency.Arrival{Seen: now, Since: since})
		case s.current().data != nil && (known == nil || known.ResourceVersion != fmt.Sprint(s.current().version)):
			w.put(s, last, dependency.Arrival{Seen: now, Order: uint64(w.number()), Since: since})
		}
		s.known = last
	}
	w.watch, w.read = w.number(), now
}

// deliver lets the server see a state of a source by an event.
func (w *world) deliver(s *source, index, watch int) {
	if w.watch != watch || index <= s.known {
		return
	}
	if index > s.known+1 { // events are in order
		w.deliver(s, index-1, watch)
	}
	w.note("the server sees version %d of %s", s.states[index].version, s.Name)
	s.known, w.read = index, w.clock()
	if s.states[index].data != nil {
		w.put(s, index, dependency.Arrival{Live: true, Seen: w.clock(), Order: uint64(w.number())})
		return
	}
	key := dependency.SourceKey{Kind: s.Kind, Namespace: namespace, Name: s.Name}
	w.DeleteSource(key, dependency.Arrival{Live: true, Seen: w.clock()})
}

func (w *world) put(s *source, index int, at dependency.Arrival) {
	state := &s.states[index]
	changed := metav1.NewTime(state.changed)
	object := &corev1.ConfigMap{Data: maps.Clone(state.data), ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: s.Name, UID: state.uid, ResourceVersion: fmt.Sprint(state.version), CreationTimestamp: metav1.NewTime(state.created),
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", Time: &changed, FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}},
	}}
	next := dependency.FromConfigMap(w.digester, object, dependency.SourceMarks{})
	next.Remember(w.Source(next.SourceKey), w.Graph, at)
	w.SetSource(next)
}

// knows reports whether the server has read the last state of all sources.
func (w *world) knows() bool {
	return w.watch > 0 && !slices.ContainsFunc(w.sources, func(s *source) bool { return s.known < len(s.states)-1 })
}

// The workload.

func (w *world) contentHash() string {
	var references []dependency.Reference
	for _, s := range w.sources {
		references = append(references, s.Reference)
	}
	return w.digester.ConfigHash(namespace, references, w.Sources(namespace))
}

// template writes the pod template, for the content that the server knows.
func (w *world) template() {
	w.hash, w.revision, w.written = "", w.revision+1, w.now.Truncate(time.Second)
	if w.running && !w.chance(4) {
		w.hash = w.contentHash()
	}
	w.note("template %d is written, with hash %s", w.revision, w.hash)
}

// rollOut restarts the workload.
func (w *world) rollOut() {
	w.template()
	if w.hash != "" && w.knows() && w.chance(2) {
		w.record = w.newRecord()
		w.record.proven, w.record.forHash = true, w.hash
		w.note("the record is about the pods of the new template")
	}
	w.replace()
}

// replace replaces the pods by those of the current template.
func (w *world) replace() {
	for _, p := range w.pods {
		w.after(w.upTo(20*time.Second), func() { w.deletePod(p) })
	}
	w.scale()
}

func (w *world) deletePod(p *pod) {
	p.gone = true
	w.pods = slices.DeleteFunc(w.pods, func(other *pod) bool { return other == p })
}

// release writes content and template at once.
func (w *world) release(s *source) {
	w.change(s)
	w.advance(w.upTo(300 * time.Millisecond))
	w.template()
	w.advance(w.upTo(200 * time.Millisecond))
	w.replace()
}

// union returns all that pods read of a source in a state.
func (s *source) union(state *state) string { return content(s.Uses, state.data) }

func (w *world) newRecord() *record {
	r := &record{at: w.clock()}
	for _, s := range w.sources {
		r.contents = append(r.contents, s.union(&s.states[s.known]))
	}
	return r
}

// baseline records the content with which the pods run, if they do, or adopts it.
func (w *world) baseline() {
	if !w.knows() {
		return
	}
	r := w.newRecord()
	r.proven = true
	for _, p := range w.pods {
		for i := range p.Containers {
			for of, was := range p.reads[i] {
				s := w.sources[of.source]
				r.proven = r.proven && was.content == content(s.uses(p.Containers[i].Name, of.file), s.current().data)
			}
		}
	}
	w.note("baseline, proven %v", r.proven)
	w.record = r
}

// The pods.

// uses returns how a container uses a source, as files or in its environment.
func (s *source) uses(container string, file bool) (uses []dependency.Use) {
	for _, u := range s.Uses {
		if u.Container == container && (u.Type == dependency.Volume) == file {
			uses = append(uses, u)
		}
	}
	return uses
}

// content returns what uses show of data.
func content(uses []dependency.Use, data map[string]string) string {
	var out []string
	for _, u := range uses {
		keys := u.Keys
		if keys == nil {
			keys = slices.Sorted(maps.Keys(data))
		}
		for _, key := range keys {
			if value, found := data[key]; found {
				out = append(out, key+"="+value)
			}
		}
	}
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(out))), " ")
}

// readable reports whether a container can be started with uses of data, or volumes be mounted.
func readable(uses []dependency.Use, data map[string]string) bool {
	for _, u := range uses {
		if u.Optional {
			continue
		}
		if data == nil {
			return false
		}
		if u.Type == dependency.EnvFrom {
			continue
		}
		for _, key := range u.Keys {
			if _, found := data[key]; !found {
				return false
			}
		}
	}
	return true
}

// stateAt returns the index of the last state that can be read, and that a source had by a time; -1: none.
func (s *source) stateAt(uses []dependency.Use, last int, at time.Time) int {
	for i := last; i >= 0; i-- {
		if !s.states[i].at.After(at) && readable(uses, s.states[i].data) {
			return i
		}
	}
	return -1
}

// scale creates pods of the current template.
func (w *world) scale() {
	for range 1 + w.Intn(2) {
		w.after(w.upTo(2*time.Second), w.createPod)
	}
}

func (w *world) createPod() {
	if len(w.pods) > 4 {
		w.deletePod(w.pods[0])
	}
	p := &pod{node: w.nodes[w.Intn(len(w.nodes))], reads: make([]map[reading]read, len(containers))}
	p.PodKey = dependency.PodKey{Namespace: namespace, Name: fmt.Sprint("pod", w.number())}
	p.Created, p.Hash, p.Revision = w.now.Truncate(time.Second), w.hash, fmt.Sprint(w.revision)
	p.Containers = slices.Clone(containers)
	for i := range p.Containers {
		p.Containers[i].Waiting = "PodInitializing"
	}
	w.pods = append(w.pods, p)
	w.note("%s is created on %s with template %s, hash %s", p.Name, p.name, p.Revision, p.Hash)
	w.after(w.soon(), func() { w.mount(p) })
}

// soon is a time that a kubelet takes.
func (w *world) soon() time.Duration {
	if w.chance(5) {
		return w.upTo(time.Minute)
	}
	return w.upTo(1500 * time.Millisecond)
}

// mount mounts the volumes of a pod, if it can, and starts its init containers.
func (w *world) mount(p *pod) {
	for _, s := range w.sources {
		for _, u := range s.Uses {
			if u.Type == dependency.Volume && !readable([]dependency.Use{u}, s.current().data) {
				w.after(w.soon(), func() { w.mount(p) })
				return
			}
		}
	}
	p.mounted = w.now
	w.run(p, 0)
}

// run starts a container of a pod, and then the next.
func (w *world) run(p *pod, container int) {
	if p.gone {
		return
	}
	if !w.begin(p, container) {
		w.after(w.soon(), func() { w.run(p, container) })
		return
	}
	if container+1 < len(containers) {
		w.after(w.soon()/2, func() { w.run(p, container+1) })
	}
}

// begin starts a container, if it can.
func (w *world) begin(p *pod, container int) bool {
	c := &p.Containers[container]
	reads := map[reading]read{}
	for i, s := range w.sources {
		if uses := s.uses(c.Name, false); len(uses) > 0 {
			last := len(s.states) - 1
			at := w.now.Add(-w.upTo(300 * time.Millisecond))
			if at.Before(p.mounted) {
				at = p.mounted
			}
			for last > 0 && s.states[last].at.After(at) {
				last--
			}
			if !readable(uses, s.states[last].data) {
				return false
			}
			reads[reading{i, false}] = read{content(uses, s.states[last].data), last, at}
		}
		if uses := s.uses(c.Name, true); len(uses) > 0 {
			at := w.now.Add(-w.upTo(refresh))
			if at.Before(p.mounted) {
				at = p.mounted
			}
			// A kubelet that cannot refresh a volume leaves it as it is.
			state := s.stateAt(uses, len(s.states)-1, at)
			reads[reading{i, true}] = read{content(uses, s.states[state].data), state, at}
		}
	}
	p.reads[container] = reads
	c.Waiting, c.Started = "", w.now.Add(p.node.skew).Truncate(time.Second)
	w.note("%s of %s starts at %s of %s (restarts %d) and reads %v", c.Name, p.Name, c.Started.Format(time.TimeOnly), p.name, c.Restarts, reads)
	return true
}

// crash restarts a container in place, sooner or later.
func (w *world) crash() {
	p, container := w.anyContainer()
	if p == nil || container == 0 || p.Containers[container].Waiting != "" {
		return
	}
	p.Containers[container].Waiting = "CrashLoopBackOff"
	var again func()
	again = func() {
		p.Containers[container].Restarts++
		if !p.gone && !w.begin(p, container) {
			p.Containers[container].Restarts--
			w.after(w.soon(), again)
		}
	}
	again2 := again
	if w.chance(3) {
		w.after(w.upTo(5*time.Minute), again2)
	} else {
		w.after(w.upTo(3*time.Second), again2)
	}
}

func (w *world) anyContainer() (*pod, int) {
	if len(w.pods) == 0 {
		return nil, 0
	}
	return w.pods[w.Intn(len(w.pods))], w.Intn(len(containers))
}

// forgetStatus lets a kubelet forget when a container started: mostly of an init container, which has long ended.
func (w *world) forgetStatus() {
	p, container := w.anyContainer()
	if p == nil || container > 0 && p.Containers[container].Restarts == 0 || p.Containers[container].Waiting != "" {
		return
	}
	if last := &p.Containers[len(containers)-1]; container == 0 && last.Waiting != "" && last.Restarts == 0 {
		return
	}
	w.note("the kubelet forgets %s of %s", p.Containers[container].Name, p.Name)
	p.Containers[container].Started = time.Time{}
}

// The oracle.

// check compares all verdicts with what the containers have read, and describes one that is wrong.
func (w *world) check(seen, excused map[string]int) (wrong string) {
	if !w.running {
		return ""
	}
	f := judge.Facts{
		Now: w.clock(), Complete: w.started.Add(w.skew), Hash: w.contentHash(), Released: w.written, LiveFiles: w.liveFiles, SeenFiles: w.seenFiles,
	}
	if !w.noRevision {
		f.Revision = fmt.Sprint(w.revision)
	}
	for i, s := range w.sources {
		source := judge.Source{Reference: s.Reference, Periods: w.Periods(dependency.SourceKey{Kind: s.Kind, Namespace: namespace, Name: s.Name})}
		if r := w.record; r != nil {
			source.Recorded = &judge.Recorded{Same: r.contents[i] == s.union(&s.states[s.known]), At: r.at, Proven: r.proven, For: r.forHash}
		}
		f.Sources = append(f.Sources, source)
	}
	j := judge.New(f)
	for _, p := range w.pods {
		for i := range p.Containers {
			c := &p.Containers[i]
			j.Container(&p.Pod, c, func(v judge.SourceVerdict) {
				what := fmt.Sprint(v.State, " ", v.Reason)
				if v.Doubt {
					what += ", doubt"
				}
				seen[what]++
				why := w.mistake(&f, p, c, p.reads[i][reading{v.Index, v.File}], &v)
				if why == "" {
					return
				}
				if excuse := w.excuse(&f, p, c, p.reads[i][reading{v.Index, v.File}], &v); excuse != "" {
					excused["excused: "+excuse]++
					return
				}
				w.note("%s of %s, %s, file %v: %s: %s", c.Name, p.Name, v.Name, v.File, what, why)
				for _, period := range v.Periods {
					var keys any
					if period.Source != nil {
						keys = len(period.Keys)
					}
					w.note("keys %v unknown %v written %v after %v before %v", keys, period.Unknown, period.Written.Format(time.TimeOnly), period.After.Format(time.TimeOnly), period.Before.Format(time.TimeOnly))
				}
				if v.Recorded != nil {
					w.note("recorded %+v", *v.Recorded)
				}
				wrong = "wrong verdict"
			})
		}
	}
	return wrong
}

// mistake says what is wrong with a verdict; empty: nothing.
func (w *world) mistake(f *judge.Facts, p *pod, c *dependency.PodContainer, was read, v *judge.SourceVerdict) string {
	s := w.sources[v.Index]
	if was.state > s.known { // the server has yet to see what it read
		return ""
	}
	uses := s.uses(c.Name, v.File)
	current := s.stateAt(uses, s.known, w.now)
	if current < 0 {
		if v.State != judge.Unknown {
			return "there is nothing to compare with"
		}
		return ""
	}
	same := was.content == content(uses, s.states[current].data)
	switch {
	case v.State == judge.Current && !same:
		return fmt.Sprintf("it read %q, which is not current", was.content)
	case v.State == judge.Stale && same:
		return fmt.Sprintf("it read %q, which is current", was.content)
	case v.State == judge.Unknown && !w.isDoubtful(f, p, c, was, v):
		return fmt.Sprintf("it read %q at %v: why is that unknown?", was.content, was.at)
	}
	return ""
}

// isDoubtful reports whether there is any reason why a verdict may be Unknown.
func (w *world) isDoubtful(f *judge.Facts, p *pod, c *dependency.PodContainer, was read, v *judge.SourceVerdict) bool {
	s := w.sources[v.Index]
	margin := judge.ClockMargin
	if v.File {
		margin = judge.VolumeMargin
	}
	margin += 10 * time.Second
	from, to := was.at.Add(-margin), was.at.Add(margin)
	if next := was.state + 1; next < len(s.states) && s.states[next].at.Before(was.at) { // the volume could not be refreshed since then
		from = s.states[next].at.Add(-margin)
	}
	switch {
	case p.broken, c.Started.IsZero(), v.Reason == judge.ReasonSourceMissing, v.Reason == judge.ReasonFilesChanged, len(v.Periods) >= 12:
		return true
	case from.Before(w.started) && s.states[s.first].changed.After(from): // it was written before the server started, and perhaps after it was read
		return true
	}
	if from.Before(w.started) && v.Recorded != nil && !v.Recorded.Same && v.Recorded.At.Before(f.Complete) { // a key may have been removed meanwhile
		return true
	}
	if slices.ContainsFunc(w.gaps, func(g gap) bool { return to.After(g.from) && from.Before(g.to) }) {
		return true
	}
	return slices.ContainsFunc(s.states, func(s state) bool { return s.at.After(from) && s.at.Before(to) })
}

// removes reports whether the write of a state only removed keys, so that it left no time.
func (w *world) removes(s *source, state int) bool {
	before, now := &s.states[state-1], &s.states[state]
	return before.uid == now.uid && before.changed.Equal(now.changed) && !maps.Equal(before.data, now.data)
}

// excuse names the known limit because of which a verdict is wrong; empty: there is none.
func (w *world) excuse(f *judge.Facts, p *pod, c *dependency.PodContainer, was read, v *judge.SourceVerdict) string {
	s := w.sources[v.Index]
	uses := s.uses(c.Name, v.File)
	detected := c.Started.Add(judge.ClockMargin).Before(p.Created) || c.Started.After(f.Now.Add(judge.ClockMargin))
	if p.broken && (!detected || c.Started.IsZero() && c.Restarts == 0) { // of the latter, another container tells
		return "the clock of the node is wrong, but not beyond detection"
	}
	if release := p.Created; c.Restarts == 0 && release.Equal(w.written) && s.states[s.known].changed.Equal(release) && c.Started.After(release) {
		return "content and template were written in the same second"
	}
	for _, g := range w.gaps {
		known := g.known[v.Index]
		for i := max(was.state, known) + 1; i <= s.known && s.states[i].at.Before(g.to); i++ {
			if w.removes(s, i) && isPart(s.states[known].data, s.states[i].data, false) {
				return "a key was added and removed while the watch was broken"
			}
		}
	}
	if was.state < s.first { // it was read before the server started
		if s.states[s.first].data == nil {
			return "the source was deleted while no server ran"
		}
		for i := was.state + 1; i <= s.first; i++ {
			if w.removes(s, i) && content(uses, s.states[i-1].data) != content(uses, s.states[i].data) {
				return "a key was removed while no server ran"
			}
		}
		if claimed := p.Hash != "" && p.Hash == f.Hash || v.Recorded != nil && v.Recorded.Same; claimed && was.content != content(uses, s.states[s.first].data) {
			return "there and back while no server ran"
		}
	}
	return ""
}
