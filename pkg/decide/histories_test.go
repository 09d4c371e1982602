// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/judge"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/seeds"
)

// In random histories of one workload, no state is false, no change is lost, and no restart is needless. The histories know what each container has
// really read.
func TestHistories_AreToldAndHandledRightly(t *testing.T) {
	total, histories := map[string]int{}, 0
	seeds.Each(t, 400, func(t *testing.T, seed uint64) {
		histories++
		h := newHistory(t, seed)
		h.counts = total
		for range 30 {
			if h.step(); len(h.wrong) > 0 {
				t.Fatalf("%s\n%s", strings.Join(h.wrong, "\n"), strings.Join(h.trace, "\n"))
			}
		}
	})
	for _, what := range slices.Sorted(maps.Keys(total)) {
		t.Logf("%8.1f in 1000 histories: %s", float64(total[what])*1000/float64(histories), what)
	}
}

// The sources of the histories. The pod template never names the last one; annotations may.
const (
	settings = iota
	database
	extra
	named
)

// history is a history so far. Its time is that of the API server.
type history struct {
	*rand.Rand
	*ingesttest.Cluster

	now    time.Time
	queue  []happening
	trace  []string
	wrong  []string
	counts map[string]int
	calm   bool // pods take long enough to start that none is in doubt

	sources    [4]*historySource
	owned      historyWorkload
	revisions  []*historyRevision
	current    *historyRevision // of the controller
	stable     *historyRevision // of the last complete rollout
	pods       []*historyPod
	status     historyStatus
	due        bool // the controller is about to look
	adoptions  []historyAdoption
	records    [4]historyRecord
	mayAdopt   bool
	last       int
	restarts   int // by configdep
	templateAt time.Time
	releases   map[int64]bool // the seconds in which another client than configdep wrote the template

	// configdep
	defaults policy.Defaults
	skew     time.Duration
	running  bool
	watching bool // and its watches are intact
	lagging  bool
	watch    int
	dirty    bool
	gaps     []historyGap
}

// happening is something that happens at a time.
type happening struct {
	at time.Time
	do func()
}

// historyGap is a time in which configdep reads nothing.
type historyGap struct {
	from, to time.Time // without an end, it is going on
	down     bool      // it does not run
}

type historySource struct {
	kind   dependency.SourceKind
	name   string
	states []historyState
}

// historyState is a state of a source after a write.
type historyState struct {
	at       time.Time
	data     map[string]string // nil: it is absent
	moved    bool              // the write has left its time
	recorded bool              // the record said with which content all pods ran
}

func (s *historySource) latest() *historyState { return &s.states[len(s.states)-1] }

// at returns the index of the state at a time; -1: there was none yet.
func (s *historySource) at(at time.Time) int {
	for i, state := range slices.Backward(s.states) {
		if !state.at.After(at) {
			return i
		}
	}
	return -1
}

// historyUse is how a container reads a source.
type historyUse struct {
	source    int
	container string
	file      bool
	key       string // empty: all
	optional  bool
}

// historyTemplate is a pod template.
type historyTemplate struct {
	image       int
	uses        []historyUse
	annotations map[string]string
}

func (t *historyTemplate) key() string {
	var out strings.Builder
	fmt.Fprint(&out, t.image, t.uses)
	for _, k := range slices.Sorted(maps.Keys(t.annotations)) {
		fmt.Fprint(&out, k, "=", t.annotations[k], " ")
	}
	return out.String()
}

func (t *historyTemplate) clone() historyTemplate {
	return historyTemplate{t.image, slices.Clone(t.uses), maps.Clone(t.annotations)}
}

// historyWorkload is what its owner and configdep write.
type historyWorkload struct {
	kind        dependency.WorkloadKind
	onDelete    bool
	partition   int32
	annotations map[string]string
	template    historyTemplate
	replicas    int32
	paused      bool
	generation  int64
	broken      map[int]bool // images that do not start
}

// historyStatus is what the controller writes.
type historyStatus struct {
	observed         int64
	revision, number int // of the revision; number is that of templates of a DaemonSet
	pods             int32
	updated, ready   int32
	failed           bool
	deadline         time.Time
}

// historyRevision is a revision of the pod template.
type historyRevision struct {
	historyTemplate
	label  string
	number int
}

// historyPod is a pod with what its containers have really read.
type historyPod struct {
	*historyRevision
	name       string
	generation int // of a DaemonSet
	created    time.Time
	mounted    time.Time // zero: its volumes are not mounted
	refresh    time.Duration
	skew       time.Duration
	deleted    time.Time
	gone       bool
	containers []*historyContainer
}

type historyContainer struct {
	name     string
	waiting  string // empty: it runs
	started  time.Time
	restarts int32
	read     [4][2]int // the indexes of states by source, as environment and as files; -1: none
}

// historyAdoption is a source that was adopted with content.
type historyAdoption struct {
	source int
	data   map[string]string
	at     time.Time
}

// historyRecord is the content of a source that was recorded.
type historyRecord struct {
	known bool
	data  map[string]string
}

// historyGroup is a way in which a container reads a source.
type historyGroup struct {
	source int
	file   bool
}

var historyContainers = []string{"app", "side"}

func newHistory(t *testing.T, seed uint64) *history {
	t.Helper()
	h := &history{Rand: rand.New(rand.NewPCG(seed, 7)), now: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC), counts: map[string]int{}}
	h.Cluster = ingesttest.New(t, historyClock{h, 0})
	h.now = h.now.Add(h.upTo(time.Second))
	h.skew = h.difference()
	h.defaults = policy.Defaults{Mode: policy.Off, Settle: []time.Duration{0, time.Second, time.Second, 10 * time.Second}[h.IntN(4)]}
	if h.one(2) {
		h.defaults.MinInterval = 10 * time.Second
	}
	if h.one(2) {
		h.defaults.ReleaseSettle = 20 * time.Second
	}
	for i, name := range []string{"settings", "db", "extra", "named"} {
		of := dependency.ConfigMap
		if i == database {
			of = dependency.Secret
		}
		h.sources[i] = &historySource{of, name, []historyState{{at: h.now}}}
		if i < extra || h.one(2) {
			h.write(i, h.content())
		}
	}
	w := &h.owned
	w.kind, w.replicas, w.annotations = kind.Deployment, int32(1+h.IntN(3)), map[string]string{}
	switch h.IntN(6) {
	case 0:
		w.kind, w.onDelete = kind.StatefulSet, h.one(2)
	case 1:
		w.kind, w.onDelete = kind.DaemonSet, h.one(3)
	}
	if w.kind == kind.StatefulSet && !w.onDelete && h.one(2) {
		w.partition = int32(h.IntN(int(w.replicas) + 1))
	}
	w.broken = map[int]bool{}
	w.template = historyTemplate{uses: h.uses(), annotations: map[string]string{}}
	h.note("%s, on delete %v, partition %d, %d replicas, settle %v, interval %v, release %v, skew %v, reads %+v", w.kind, w.onDelete, w.partition, w.replicas,
		h.defaults.Settle, h.defaults.MinInterval, h.defaults.ReleaseSettle, h.skew, w.template.uses)
	h.advance(h.upTo(time.Hour))
	if h.one(2) {
		w.annotations[policy.ReloadAnnotation] = "auto"
		h.mayAdopt = true
	}
	started := h.one(2)
	if started {
		h.start()
	}
	w.generation, h.status.number = 1, 1
	h.templateAt, h.releases = h.now, map[int64]bool{h.now.Unix(): true}
	h.push()
	h.look()
	h.advance(h.upTo(10 * time.Minute))
	if !started {
		h.start()
	}
	return h
}

// historyClock is a clock that differs from that of the API server.
type historyClock struct {
	*history
	skew time.Duration
}

func (c historyClock) Now() time.Time                  { return c.now.Add(c.skew) }
func (c historyClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (h *history) note(format string, args ...any) {
	h.trace = append(h.trace, h.now.Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (h *history) fail(format string, args ...any) {
	h.note("WRONG: "+format, args...)
	h.wrong = append(h.wrong, fmt.Sprintf(format, args...))
}

func (h *history) count(format string, args ...any) { h.counts[fmt.Sprintf(format, args...)]++ }

func (h *history) one(n int) bool { return h.IntN(n) == 0 }

func (h *history) upTo(d time.Duration) time.Duration { return time.Duration(h.Int64N(int64(d))) }

func (h *history) between(a, b time.Duration) time.Duration { return a + h.upTo(b-a) }

func (h *history) difference() time.Duration {
	return time.Duration(h.IntN(2001)-1000) * time.Millisecond
}

func (h *history) number() int {
	h.last++
	return h.last
}

// after calls do after a time.
func (h *history) after(d time.Duration, do func()) {
	at := h.now.Add(d)
	i := len(h.queue)
	for i > 0 && h.queue[i-1].at.After(at) {
		i--
	}
	h.queue = slices.Insert(h.queue, i, happening{at, do})
}

// advance lets time pass.
func (h *history) advance(d time.Duration) {
	end := h.now.Add(d)
	for h.next(end) {
	}
	h.now = end
}

// next lets happen what happens next, until a time.
func (h *history) next(end time.Time) bool {
	h.reconcile()
	if len(h.queue) == 0 || h.queue[0].at.After(end) || len(h.wrong) > 0 {
		return false
	}
	next := h.queue[0]
	h.queue = h.queue[1:]
	h.now = next.at
	next.do()
	return true
}

func (h *history) step() {
	switch h.IntN(8) {
	case 0, 1:
		h.advance(h.upTo(400 * time.Millisecond))
	case 2, 3, 4:
		h.advance(h.upTo(5 * time.Second))
	case 5, 6:
		h.advance(h.upTo(40 * time.Second))
	default:
		h.advance(h.upTo(10 * time.Minute))
	}
	w := &h.owned
	switch h.IntN(36) {
	case 0, 1, 2, 3:
		h.change(h.IntN(4))
	case 4, 5:
		h.thereAndBack(h.IntN(3))
	case 6:
		h.removeKey(h.IntN(3))
	case 7:
		h.deleteSource(h.IntN(3))
	case 8:
		h.relabel(h.IntN(4))
	case 9, 10, 11, 12:
		h.crash()
	case 13:
		if p := h.anyPod(); p != nil {
			h.deletePod(p)
		}
	case 14, 15:
		h.note("the owner changes the template")
		w.template.image++
		h.writeTemplate()
	case 16:
		h.undo()
	case 17:
		h.release(h.IntN(2))
	case 18:
		h.refer()
	case 19, 20:
		h.opt()
	case 21, 22:
		h.scope()
	case 23:
		h.removeAnnotations()
	case 24:
		h.scale()
	case 25:
		h.stick()
	case 26:
		h.pause()
	case 27, 28:
		h.stop()
	case 29:
		h.lag()
	case 30:
		h.breakWatch()
	case 31:
		h.free()
	case 32, 33:
		h.rest()
	case 34:
		h.releaseAlone()
	case 35:
		h.optInAlone()
	}
}

// The sources.

func (h *history) content() map[string]string {
	data := map[string]string{}
	for _, key := range []string{"a", "b"} {
		if !h.one(8) {
			data[key] = fmt.Sprint(h.IntN(3))
		}
	}
	return data
}

// write writes content to a source, or deletes or creates it.
func (h *history) write(i int, data map[string]string) {
	s := h.sources[i]
	before := s.latest().data
	if data == nil && before == nil || data != nil && before != nil && maps.Equal(data, before) {
		return
	}
	now := historyState{at: h.now, data: data, recorded: h.recorded(i)}
	if data != nil {
		now.moved = before == nil || slices.ContainsFunc(slices.Collect(maps.Keys(data)), func(k string) bool { was, had := before[k]; return !had || was != data[k] })
	}
	if data == nil {
		h.note("%s is deleted", s.name)
	} else {
		h.note("%s is %v", s.name, data)
	}
	s.states = append(s.states, now)
	var pairs []string
	for k, v := range data {
		pairs = append(pairs, k, v)
	}
	var o ingesttest.Object = ingesttest.ConfigMap(s.name, pairs...)
	if s.kind == dependency.Secret {
		o = ingesttest.Secret(s.name, pairs...)
	}
	h.dirty = true
	if data == nil {
		h.Delete(o)
		return
	}
	h.Set(o)
}

func (h *history) change(i int) { h.write(i, h.content()) }

func (h *history) thereAndBack(i int) {
	before := h.sources[i].latest().data
	h.change(i)
	h.advance(h.upTo(time.Duration(1+h.IntN(40)) * time.Second))
	h.write(i, before)
}

func (h *history) removeKey(i int) {
	data := maps.Clone(h.sources[i].latest().data)
	delete(data, []string{"a", "b"}[h.IntN(2)])
	h.write(i, data)
}

// deleteSource deletes a source, and may create it again.
func (h *history) deleteSource(i int) {
	before := h.sources[i].latest().data
	if before == nil {
		h.change(i)
		return
	}
	h.write(i, nil)
	switch h.IntN(4) {
	case 0:
		h.advance(h.upTo(10 * time.Second))
		h.write(i, before)
	case 1:
		h.advance(h.upTo(5 * time.Minute))
		h.change(i)
	case 2:
		h.change(i)
	}
}

func (h *history) relabel(i int) {
	s := h.sources[i]
	if s.latest().data == nil {
		return
	}
	h.note("%s gets another label", s.name)
	var o ingesttest.Object = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	if s.kind == dependency.Secret {
		o = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	}
	next := h.Stored(o).DeepCopyObject().(ingesttest.Object)
	next.SetLabels(map[string]string{"label": fmt.Sprint(h.number())})
	h.dirty = true
	h.Set(next)
}

func (u *historyUse) readable(data map[string]string) bool {
	_, found := data[u.key]
	return u.optional || data != nil && (u.key == "" || found)
}

// shown returns what uses show of data.
func shown(uses []historyUse, data map[string]string) string {
	var out []string
	for _, u := range uses {
		for key, value := range data {
			if u.key == "" || u.key == key {
				out = append(out, key+"="+value)
			}
		}
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), " ")
}

// readableBy returns the index of the last state with which a container can be started that uses it so, by a time.
func (s *historySource) readableBy(uses []historyUse, at time.Time) int {
	for i, state := range slices.Backward(s.states) {
		if !state.at.After(at) && !slices.ContainsFunc(uses, func(u historyUse) bool { return !u.readable(state.data) }) {
			return i
		}
	}
	return -1
}

// The workload.

func (h *history) uses() []historyUse {
	var uses []historyUse
	key := func() string { return []string{"", "a", "b"}[h.IntN(3)] }
	for _, source := range []int{settings, database} {
		volumeKey, volumeOptional := key(), h.one(3)
		for _, c := range historyContainers {
			if c == "app" && source == settings || h.one(3) {
				uses = append(uses, historyUse{source, c, false, key(), h.one(3)})
			}
			if c == "app" && source == database || h.one(4) {
				uses = append(uses, historyUse{source, c, true, volumeKey, volumeOptional})
			}
		}
	}
	if h.one(3) {
		uses = append(uses, historyUse{extra, "app", false, "", true})
	}
	return uses
}

// refer adds or removes a reference of the template.
func (h *history) refer() {
	t := &h.owned.template
	if i := slices.IndexFunc(t.uses, func(u historyUse) bool { return u.source == extra }); i >= 0 {
		t.uses = slices.Delete(slices.Clone(t.uses), i, i+1)
		h.note("the template does not name extra any longer")
	} else {
		t.uses = append(slices.Clip(t.uses), historyUse{extra, "app", false, "", true})
		h.note("the template names extra")
	}
	h.mayAdopt = true
	h.writeTemplate()
}

func (h *history) writeTemplate() {
	h.owned.generation++
	h.status.number++
	if h.templateAt = h.now; h.Manager != record.FieldManager {
		h.releases[h.now.Unix()] = true
	}
	h.push()
	h.look()
}

// undo is kubectl rollout undo.
func (h *history) undo() {
	if len(h.revisions) < 2 || h.owned.paused {
		return
	}
	others := slices.DeleteFunc(slices.Clone(h.revisions), func(r *historyRevision) bool { return r == h.current })
	if len(others) == 0 {
		return
	}
	r := slices.MaxFunc(others, func(a, b *historyRevision) int { return a.number - b.number })
	h.note("the owner goes back to the template %s", r.label)
	h.mayAdopt = h.mayAdopt || !slices.Equal(h.owned.template.uses, r.uses)
	h.owned.template = r.clone()
	h.writeTemplate()
}

// release writes content and template at once.
func (h *history) release(i int) {
	h.note("release")
	h.Manager = "helm"
	h.write(i, map[string]string{"a": fmt.Sprint("release ", h.number()), "b": fmt.Sprint(h.IntN(3))}) // a mere removal would leave no time
	h.now = h.now.Add(h.upTo(300 * time.Millisecond))
	h.owned.template.image++
	h.writeTemplate()
	h.Manager = "owner"
}

func (h *history) optedIn() bool {
	mode := h.owned.annotations[policy.ReloadAnnotation]
	return mode != "" && mode != "off"
}

// The scopes: what annotations say about which sources count.
var historyScopes = []map[string]string{
	{policy.ReloadAnnotation: "auto"},
	{policy.ReloadAnnotation: "auto", policy.ExcludeAnnotation: "secret/db"},
	{policy.ReloadAnnotation: "listed", policy.SourcesAnnotation: "configmap/settings"},
	{policy.ReloadAnnotation: "auto", policy.LiveVolumesAnnotation: "true"},
	{policy.ReloadAnnotation: "auto", policy.SourcesAnnotation: "configmap/named"},
	{policy.ReloadAnnotation: "auto", policy.SourcesAnnotation: "configmap/nam*"},
}

// scope edits the scope.
func (h *history) scope() {
	if !h.optedIn() {
		return
	}
	h.setScope(historyScopes[h.IntN(len(historyScopes))])
}

func (h *history) setScope(annotations map[string]string) {
	h.note("the owner sets %v", annotations)
	for _, key := range []string{policy.ReloadAnnotation, policy.ExcludeAnnotation, policy.SourcesAnnotation, policy.LiveVolumesAnnotation} {
		delete(h.owned.annotations, key)
	}
	maps.Copy(h.owned.annotations, annotations)
	h.mayAdopt = true
	h.push()
}

func (h *history) opt() {
	if h.optedIn() && h.one(2) {
		h.note("the owner opts out")
		h.owned.annotations[policy.ReloadAnnotation] = "off"
		h.push()
		return
	}
	h.setScope(historyScopes[0])
}

// removeAnnotations removes what configdep has written.
func (h *history) removeAnnotations() {
	for _, key := range record.WorkloadMarks() {
		delete(h.owned.annotations, key)
	}
	h.mayAdopt = h.mayAdopt || !h.watching || h.lagging
	if h.one(2) || len(h.owned.template.annotations) == 0 {
		h.note("the owner removes configdep's annotations of the workload")
		h.push()
		return
	}
	h.note("the owner removes all of configdep's annotations")
	h.owned.template.annotations = map[string]string{}
	h.writeTemplate()
}

func (h *history) scale() {
	w := &h.owned
	if w.replicas > 0 && h.one(2) {
		w.replicas = 0
	} else {
		w.replicas = int32(1 + h.IntN(3))
	}
	h.note("%d replicas", w.replicas)
	w.generation++
	h.push()
	h.look()
}

// stick makes a rollout stick, because the image does not start, for a while.
func (h *history) stick() {
	w := &h.owned
	w.template.image++
	image := w.template.image
	w.broken[image] = true
	h.note("the owner writes a broken template, image %d", image)
	h.writeTemplate()
	h.after(h.upTo(5*time.Minute), func() { w.broken[image] = false })
}

func (h *history) pause() {
	w := &h.owned
	if w.kind != kind.Deployment {
		return
	}
	w.paused = !w.paused
	h.note("paused: %v", w.paused)
	w.generation++
	h.push()
	h.look()
}

// free does what frees a rollout that waits for a user.
func (h *history) free() {
	w := &h.owned
	switch {
	case w.partition > 0:
		w.partition--
		h.note("the partition is %d", w.partition)
		w.generation++
		h.push()
		h.look()
	case w.onDelete:
		for _, p := range slices.Clone(h.pods) {
			h.deletePod(p)
		}
	}
}

// push writes the workload.
func (h *history) push() {
	w, s := &h.owned, &h.status
	meta := metav1.ObjectMeta{Name: "web", UID: "web-1", Generation: w.generation, Annotations: maps.Clone(w.annotations)}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: maps.Clone(w.template.annotations)}, Spec: w.template.spec(h.sources)}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	var o ingesttest.Object
	switch w.kind {
	case kind.Deployment:
		if s.revision > 0 {
			meta.Annotations[kind.RevisionAnnotation] = fmt.Sprint(s.revision)
		}
		d := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &w.replicas, Selector: selector, Template: template, Paused: w.paused}}
		d.Spec.Replicas = new(w.replicas)
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: s.observed, Replicas: s.pods, UpdatedReplicas: s.updated, ReadyReplicas: s.ready, AvailableReplicas: s.ready}
		if s.failed {
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"}}
		}
		o = d
	case kind.StatefulSet:
		d := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: new(w.replicas), Selector: selector, Template: template}}
		d.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{
			Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(w.partition)},
		}
		if w.onDelete {
			d.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		}
		d.Status = appsv1.StatefulSetStatus{ObservedGeneration: s.observed, Replicas: s.pods, UpdatedReplicas: s.updated, ReadyReplicas: s.ready}
		if h.current != nil {
			d.Status.UpdateRevision = "web-" + h.current.label
		}
		o = d
	case kind.DaemonSet:
		meta.Annotations[appsv1.DeprecatedTemplateGeneration] = fmt.Sprint(s.number)
		d := &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}
		d.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
		if w.onDelete {
			d.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		}
		d.Status = appsv1.DaemonSetStatus{ObservedGeneration: s.observed, DesiredNumberScheduled: w.replicas, CurrentNumberScheduled: s.pods, UpdatedNumberScheduled: s.updated, NumberAvailable: s.ready}
		o = d
	}
	h.dirty = true
	h.Set(o)
}

// spec returns the specification of a pod.
func (t *historyTemplate) spec(sources [4]*historySource) corev1.PodSpec {
	var out corev1.PodSpec
	mounted := map[int]bool{}
	for _, name := range historyContainers {
		c := corev1.Container{Name: name, Image: fmt.Sprint("image:", t.image)}
		for i, u := range t.uses {
			if u.container != name {
				continue
			}
			s := sources[u.source]
			ref, optional := corev1.LocalObjectReference{Name: s.name}, new(u.optional)
			switch {
			case u.file:
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: s.name, MountPath: "/etc/" + s.name})
				if mounted[u.source] {
					continue
				}
				mounted[u.source] = true
				var items []corev1.KeyToPath
				if u.key != "" {
					items = []corev1.KeyToPath{{Key: u.key, Path: u.key}}
				}
				v := corev1.Volume{Name: s.name}
				if s.kind == dependency.Secret {
					v.Secret = &corev1.SecretVolumeSource{SecretName: s.name, Items: items, Optional: optional}
				} else {
					v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: ref, Items: items, Optional: optional}
				}
				out.Volumes = append(out.Volumes, v)
			case u.key == "" && s.kind == dependency.Secret:
				c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref, Optional: optional}})
			case u.key == "":
				c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref, Optional: optional}})
			case s.kind == dependency.Secret:
				c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("V", i), ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref, Key: u.key, Optional: optional}}})
			default:
				c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("V", i), ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref, Key: u.key, Optional: optional}}})
			}
		}
		out.Containers = append(out.Containers, c)
	}
	return out
}

// The controller of the workload.

// look lets the controller look at the workload soon.
func (h *history) look() {
	if h.due {
		return
	}
	h.due = true
	h.after(h.between(20*time.Millisecond, 500*time.Millisecond), func() {
		h.due = false
		h.control()
	})
}

// revise finds or creates the revision of the current template.
func (h *history) revise() {
	w, s := &h.owned, &h.status
	s.observed = w.generation
	if w.paused && h.current != nil {
		return
	}
	key := w.template.key()
	if h.current != nil && h.current.key() == key {
		return
	}
	i := slices.IndexFunc(h.revisions, func(r *historyRevision) bool { return r.key() == key })
	if i < 0 {
		i = len(h.revisions)
		h.revisions = append(h.revisions, &historyRevision{historyTemplate: w.template.clone(), label: fmt.Sprint("r", h.number())})
	}
	h.current = h.revisions[i]
	for _, r := range h.revisions {
		h.current.number = max(h.current.number, r.number+1)
	}
	if h.stable == nil {
		h.stable = h.current
	}
	h.note("the controller begins with the template %s, number %d, hash %s", h.current.label, h.current.number, h.current.annotations[record.ConfigHashAnnotation])
	s.revision, s.failed = h.current.number, false
	h.progress()
	if w.kind != kind.Deployment {
		return
	}
	h.dirty = true
	h.Set(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "web-" + h.current.label, Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: h.current.label},
		Annotations:     map[string]string{kind.RevisionAnnotation: fmt.Sprint(h.current.number)},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "web-1", Controller: new(true)}},
	}})
}

// progress notes that a rollout progresses.
func (h *history) progress() {
	if h.owned.kind != kind.Deployment {
		return
	}
	h.status.deadline = h.now.Add(2 * time.Minute)
	h.after(2*time.Minute+time.Millisecond, h.look)
}

func (h *history) live() []*historyPod {
	return slices.DeleteFunc(slices.Clone(h.pods), func(p *historyPod) bool { return !p.deleted.IsZero() })
}

func (p *historyPod) ready() bool {
	return !slices.ContainsFunc(p.containers, func(c *historyContainer) bool { return c.waiting != "" })
}

// control does what the controller of the workload does.
func (h *history) control() {
	before := h.status
	h.revise()
	w, s := &h.owned, &h.status
	live := h.live()
	updated := func(p *historyPod) bool { return p.historyRevision == h.current }
	surge := 0
	if w.kind == kind.Deployment && !w.paused {
		surge = 1
	}
	var old, ready, newest []*historyPod
	for _, p := range live {
		if updated(p) {
			newest = append(newest, p)
		} else {
			old = append(old, p)
		}
		if p.ready() {
			ready = append(ready, p)
		}
	}
	replicas := int(w.replicas)
	switch {
	case w.kind == kind.StatefulSet || w.kind == kind.DaemonSet:
		h.controlOrdered(live)
	case len(live) > replicas+surge:
		h.deletePod(append(old, newest...)[0])
	case len(live) < replicas, !w.paused && len(newest) < replicas && len(live) < replicas+surge:
		h.createPod(fmt.Sprint("web-", h.current.label, "-", h.number()), h.current)
	case w.paused:
		if len(live) > replicas {
			h.deletePod(append(old, newest...)[0])
		}
	case len(old) > 0 && slices.ContainsFunc(old, func(p *historyPod) bool { return !p.ready() }):
		h.deletePod(old[slices.IndexFunc(old, func(p *historyPod) bool { return !p.ready() })])
	case len(old) > 0 && len(ready) > replicas:
		h.deletePod(old[0])
	case len(live) > replicas:
		if len(old) == 0 {
			h.deletePod(newest[0])
		}
	}
	s.pods, s.updated, s.ready = 0, 0, 0
	for _, p := range h.live() {
		s.pods++
		if updated(p) {
			s.updated++
		}
		if p.ready() {
			s.ready++
		}
	}
	if s.updated == w.replicas && s.pods == s.updated {
		if s.ready == w.replicas {
			h.stable, s.failed = h.current, false
			s.deadline = time.Time{}
		}
	} else if s.deadline.IsZero() {
		h.progress()
	}
	if w.kind == kind.Deployment && !s.deadline.IsZero() && !h.now.Before(s.deadline) && !w.paused {
		if !s.failed {
			h.note("the rollout fails")
		}
		s.failed = true
	}
	if before.updated != s.updated || before.ready < s.ready {
		h.progress()
	}
	if before.deadline = s.deadline; before != *s {
		h.push()
		h.look()
	}
}

func (h *history) object() ingesttest.Object {
	meta := metav1.ObjectMeta{Name: "web"}
	switch h.owned.kind {
	case kind.StatefulSet:
		return &appsv1.StatefulSet{ObjectMeta: meta}
	case kind.DaemonSet:
		return &appsv1.DaemonSet{ObjectMeta: meta}
	default:
		return &appsv1.Deployment{ObjectMeta: meta}
	}
}

// controlOrdered does what the controllers of StatefulSets and DaemonSets do: pods have places.
func (h *history) controlOrdered(live []*historyPod) {
	w := &h.owned
	at := map[int]*historyPod{}
	for _, p := range h.pods {
		at[p.place()] = p
	}
	for _, p := range live {
		if p.place() >= int(w.replicas) {
			h.deletePod(p)
			return
		}
	}
	for i := range int(w.replicas) {
		if at[i] == nil {
			of := h.current
			if w.kind == kind.StatefulSet && !w.onDelete && i < int(w.partition) {
				of = h.stable
			}
			h.createPod(fmt.Sprint("web-", i), of)
			return
		}
	}
	if w.onDelete {
		return
	}
	for _, broken := range []bool{true, false} { // those that do not run first
		for i := int(w.replicas) - 1; i >= 0; i-- {
			p := at[i]
			if p.deleted.IsZero() && p.historyRevision != h.current && (w.kind != kind.StatefulSet || i >= int(w.partition)) && (broken && !p.ready() || !broken && h.allReady()) {
				h.deletePod(p)
				return
			}
		}
	}
}

func (h *history) allReady() bool {
	return !slices.ContainsFunc(h.pods, func(p *historyPod) bool { return !p.deleted.IsZero() || !p.ready() })
}

func (p *historyPod) place() (i int) {
	_, _ = fmt.Sscanf(p.name, "web-%d", &i)
	return i
}

// The pods.

func (h *history) createPod(name string, of *historyRevision) {
	p := &historyPod{
		historyRevision: of, name: name, generation: h.status.number, created: h.now, skew: h.difference(), refresh: h.between(60*time.Second, 90*time.Second),
	}
	for _, c := range historyContainers {
		p.containers = append(p.containers, &historyContainer{name: c, waiting: "ContainerCreating"})
	}
	h.pods = append(h.pods, p)
	h.note("%s is created", name)
	h.show(p)
	delay := h.between(300*time.Millisecond, 4*time.Second)
	if h.calm {
		delay = h.between(2200*time.Millisecond, 5*time.Second)
	}
	h.after(delay, func() { h.mount(p) })
}

func (h *history) mount(p *historyPod) {
	if p.gone {
		return
	}
	missing := slices.ContainsFunc(p.uses, func(u historyUse) bool { return u.file && !u.readable(h.sources[u.source].latest().data) })
	if h.owned.broken[p.image] || missing {
		h.after(h.between(5*time.Second, 10*time.Second), func() { h.mount(p) })
		return
	}
	p.mounted = h.now
	for _, c := range p.containers {
		h.after(h.upTo(800*time.Millisecond), func() { h.startContainer(p, c) })
	}
}

func (h *history) startContainer(p *historyPod, c *historyContainer) {
	if p.gone {
		return
	}
	for _, u := range p.uses {
		if u.container == c.name && !u.file && !u.readable(h.sources[u.source].latest().data) {
			h.after(h.between(5*time.Second, 10*time.Second), func() { h.startContainer(p, c) })
			return
		}
	}
	refreshed := p.mounted.Add(h.now.Sub(p.mounted).Truncate(p.refresh))
	for i, s := range h.sources {
		c.read[i] = [2]int{len(s.states) - 1, s.readableBy(p.of(c.name, historyGroup{i, true}), refreshed)}
	}
	c.waiting, c.started = "", h.now
	h.note("%s of %s starts", c.name, p.name)
	h.show(p)
	h.look()
}

func (t *historyTemplate) of(container string, g historyGroup) (uses []historyUse) {
	for _, u := range t.uses {
		if u.container == container && u.source == g.source && u.file == g.file {
			uses = append(uses, u)
		}
	}
	return uses
}

func (h *history) anyPod() *historyPod {
	if live := h.live(); len(live) > 0 {
		return live[h.IntN(len(live))]
	}
	return nil
}

func (h *history) crash() {
	p := h.anyPod()
	if p == nil {
		return
	}
	c := p.containers[h.IntN(len(p.containers))]
	if c.waiting != "" {
		return
	}
	h.note("%s of %s crashes", c.name, p.name)
	c.waiting = "CrashLoopBackOff"
	c.restarts++
	h.show(p)
	h.look()
	h.after(h.between(100*time.Millisecond, 20*time.Second), func() { h.startContainer(p, c) })
}

func (h *history) deletePod(p *historyPod) {
	if !p.deleted.IsZero() {
		return
	}
	h.note("%s is deleted", p.name)
	p.deleted = h.now
	h.show(p)
	h.look()
	h.after(h.between(300*time.Millisecond, 6*time.Second), func() {
		p.gone = true
		h.pods = slices.DeleteFunc(h.pods, func(other *historyPod) bool { return other == p })
		h.dirty = true
		h.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.name}})
		h.look()
	})
}

// show writes a pod.
func (h *history) show(p *historyPod) {
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: string(h.owned.kind), Name: "web", UID: "web-1", Controller: new(true)}
	labels := map[string]string{appsv1.ControllerRevisionHashLabelKey: "web-" + p.label}
	switch h.owned.kind {
	case kind.Deployment:
		owner.Kind, owner.Name, owner.UID = "ReplicaSet", "web-"+p.label, types.UID("set-"+p.label)
		labels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: p.label}
	case kind.DaemonSet:
		labels["pod-template-generation"] = fmt.Sprint(p.generation)
	}
	o := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.name, UID: types.UID(p.name + p.created.String()), CreationTimestamp: metav1.NewTime(p.created.Truncate(time.Second)), Labels: labels,
			Annotations: maps.Clone(p.annotations), OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec: corev1.PodSpec{NodeName: "node"},
	}
	if !p.deleted.IsZero() {
		o.DeletionTimestamp = &metav1.Time{Time: p.deleted.Truncate(time.Second)}
	}
	for _, c := range p.containers {
		o.Spec.Containers = append(o.Spec.Containers, corev1.Container{Name: c.name})
		status := corev1.ContainerStatus{Name: c.name, RestartCount: c.restarts, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: c.waiting}}}
		if c.waiting == "" {
			status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.started.Add(p.skew).Truncate(time.Second))}}
		}
		o.Status.ContainerStatuses = append(o.Status.ContainerStatuses, status)
	}
	h.dirty = true
	h.Set(o)
}

// configdep.

func (h *history) start() {
	h.note("configdep starts")
	x := ingest.NewIndex(historyClock{h, h.skew})
	x.SetDefaults(h.defaults)
	h.Start(x, ingest.Scope{}, 0)
	h.List()
	h.read()
	h.running = true
}

// read is called when everything has been read.
func (h *history) read() {
	if n := len(h.gaps); n > 0 && h.gaps[n-1].to.IsZero() {
		h.gaps[n-1].to = h.now
	} else {
		h.gaps = append(h.gaps, historyGap{time.Time{}, h.now, true})
	}
	h.watching, h.lagging, h.dirty = true, false, true
	h.watch++
}

func (h *history) stop() {
	if !h.running || !h.watching {
		return
	}
	h.note("configdep stops")
	h.catchUp()
	h.running, h.watching = false, false
	h.gaps = append(h.gaps, historyGap{from: h.now, down: true})
	h.mayAdopt = h.mayAdopt || h.owned.annotations[record.AppliedSourcesAnnotation] == ""
	h.Hold()
	h.after(h.upTo(5*time.Minute), h.start)
}

// breakWatch breaks the watches of configdep, which makes lists later.
func (h *history) breakWatch() {
	if !h.running || !h.watching {
		return
	}
	h.note("the watches break")
	h.catchUp()
	h.watching = false
	h.gaps = append(h.gaps, historyGap{from: h.now})
	h.Hold()
	h.after(h.upTo(2*time.Minute), func() {
		h.note("configdep makes lists")
		h.List()
		h.read()
	})
}

// lag delays the events that configdep reads.
func (h *history) lag() {
	if !h.running || !h.watching || h.lagging {
		return
	}
	h.note("events are late")
	h.lagging = true
	h.Hold()
	watch := h.watch
	h.after(h.upTo(2500*time.Millisecond), func() {
		if h.watch == watch {
			h.catchUp()
		}
	})
}

// catchUp lets configdep read all events.
func (h *history) catchUp() {
	if h.lagging {
		h.lagging, h.dirty = false, true
		h.Release()
		h.reconcile()
		h.watch++
	}
}

// knows reports whether configdep has read everything.
func (h *history) knows() bool { return h.running && h.watching && !h.lagging }

// reconcile lets configdep do what it does when something has happened.
func (h *history) reconcile() {
	for i := 0; h.dirty && h.running && len(h.wrong) == 0; i++ {
		if i == 5 {
			h.fail("configdep does not come to rest")
			return
		}
		h.dirty = false
		h.Read(h.decide)
	}
}

// workload returns the workload, as configdep knows it.
func (h *history) workload(known decide.Evaluator) *dependency.Workload {
	return known.Graph.Workload(dependency.WorkloadKey{Kind: h.owned.kind, Namespace: ingesttest.Namespace, Name: "web"})
}

func (h *history) decide(known decide.Evaluator) {
	w := h.workload(known)
	if w == nil {
		return
	}
	now := h.now.Add(h.skew)
	e := known.Evaluate(w)
	d := e.Decide(now)
	if h.knows() {
		h.check(&d)
	}
	if !d.RecheckAt.IsZero() {
		h.after(max(time.Millisecond, d.RecheckAt.Sub(now)), func() { h.dirty = true })
	}
	if w.ResourceVersion != h.Stored(h.object()).GetResourceVersion() {
		return // the request would be refused
	}
	var patch []byte
	var err error
	switch d.Action {
	case decide.None:
		return
	case decide.WriteRecord:
		h.adopt(e, &d)
		patch, err = record.RecordPatch(w, d.Record)
	case decide.Forget:
		patch, err = record.ForgetPatch(w)
	case decide.RollOut:
		h.checkRestart(e, &d)
		h.restarts, h.adoptions = h.restarts+1, nil
		for _, s := range h.sources { // it is about the new pods alone
			for i := range s.states {
				s.states[i].recorded = false
			}
		}
		last := record.NewAutomaticReload(record.LastReloadOf(w), now, e.Policy.MinInterval, d.Trigger)
		patch, err = e.Policy.RestartPatch(w, &record.Restart{
			Present: e.Present(), Last: last, Changed: e.Changed(&d), Always: w.Marks.TemplateHash == e.Present().Hash,
		})
	default:
		h.fail("action %s", d.Action)
	}
	if d.Action == decide.RollOut || d.Action == decide.WriteRecord && !d.Record.At.Equal(e.Record.At) {
		for i, s := range h.sources {
			h.records[i] = historyRecord{true, s.latest().data}
		}
	}
	h.note("configdep: %s (%s/%s, trigger %s)", d.Action, d.State, d.Reason, d.Trigger)
	if err != nil {
		h.fail("%v", err)
	}
	h.apply(patch)
}

// apply applies a patch.
func (h *history) apply(data []byte) {
	type meta struct {
		Annotations map[string]*string `json:"annotations"`
	}
	var p struct {
		Metadata meta `json:"metadata"`
		Spec     struct {
			Template struct {
				Metadata meta `json:"metadata"`
			} `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(data, &p); err != nil {
		h.fail("%v", err)
	}
	merge := func(to map[string]string, patch map[string]*string) {
		for k, v := range patch {
			if v == nil {
				delete(to, k)
			} else {
				to[k] = *v
			}
		}
	}
	merge(h.owned.annotations, p.Metadata.Annotations)
	h.note("record %s", h.owned.annotations[record.AppliedSourcesAnnotation])
	manager := h.Manager
	h.Manager = record.FieldManager
	if of := p.Spec.Template.Metadata.Annotations; of != nil {
		merge(h.owned.template.annotations, of)
		h.writeTemplate()
	} else {
		h.push()
	}
	h.Manager = manager
}

// The checks.

// entryOf returns what the record says about a source; known: it says anything.
func (h *history) entryOf(i int) (entry string, known bool) {
	var read struct{ Sources map[string]string }
	_ = json.Unmarshal([]byte(h.owned.annotations[record.AppliedSourcesAnnotation]), &read)
	entry, known = read.Sources[string(h.sources[i].kind)+"/"+h.sources[i].name]
	return entry, known
}

// recorded reports whether it is recorded with which content of a source all pods run.
func (h *history) recorded(i int) bool {
	entry, known := h.entryOf(i)
	return known && !strings.Contains(entry, "@")
}

// adopt notes what a record adopts.
func (h *history) adopt(e *decide.Evaluation, d *decide.Decision) {
	for i, s := range h.sources {
		id := string(s.kind) + "/" + s.name
		entry, known := d.Record.Sources[id]
		if known && entry.Adopted.IsZero() { // pods have read it
			h.adoptions = slices.DeleteFunc(h.adoptions, func(a historyAdoption) bool { return a.source == i })
		}
		if !known || entry.Adopted.IsZero() || e.Record.Sources[id].Content == entry.Content {
			continue
		}
		if h.note("adopts %s", id); !h.mayAdopt {
			h.fail("%s is adopted, although nothing was opted in", id)
		}
		h.adoptions = append(h.adoptions, historyAdoption{i, s.latest().data, h.now})
	}
	if h.knows() {
		h.mayAdopt = false
	}
}

// counted reports whether a source counts for the state, and whether its changes restart the workload.
func (h *history) counted(g historyGroup) (counts, triggers bool) {
	a := h.owned.annotations
	in := h.optedIn()
	switch {
	case g.source == named:
		is := in && strings.Contains(a[policy.SourcesAnnotation], "nam")
		return is, is
	case !in:
		return true, false
	case g.source == database && a[policy.ExcludeAnnotation] != "", g.file && a[policy.LiveVolumesAnnotation] != "":
		return false, false
	default:
		return true, a[policy.ReloadAnnotation] != "listed" || g.source == settings
	}
}

// truth is what is true of what a container has read.
type truth struct {
	stale, unclear, limit, triggers bool
	// adopted: it may have been started before it was adopted; before: it certainly was.
	adopted, before bool
	// what would make it doubtful
	doubt, unknown bool
	// since is when the current content was written.
	since time.Time
}

// eachTruth calls f for all that containers read and that counts.
func (h *history) eachTruth(p *historyPod, f func(*historyContainer, historyGroup, truth)) {
	t := &h.owned.template
	for _, c := range p.containers {
		for i := range h.sources {
			for _, file := range []bool{false, true} {
				g := historyGroup{i, file}
				uses, read := t.of(c.name, g), p.of(c.name, g)
				if i == named && !file {
					uses = []historyUse{{source: named, optional: true}}
					read = uses
				}
				counts, triggers := h.counted(g)
				if !counts || len(uses) == 0 || c.waiting != "" {
					continue
				}
				out := h.truthOf(p, c, g, uses, triggers)
				out.unclear = !slices.Equal(uses, read)
				f(c, g, out)
			}
		}
	}
}

func (h *history) truthOf(p *historyPod, c *historyContainer, g historyGroup, uses []historyUse, triggers bool) (out truth) {
	out.triggers = triggers
	s := h.sources[g.source]
	current, i := s.readableBy(uses, h.now), c.read[g.source][0]
	if g.file {
		i = c.read[g.source][1]
	}
	if current < 0 || i < 0 {
		out.unclear = true
		return out
	}
	now := shown(uses, s.states[current].data)
	out.stale = now != shown(uses, s.states[i].data)
	margin := 2*judge.ClockMargin + 3*time.Second
	if g.file {
		margin = judge.VolumeMargin + 3*time.Second
	}
	for k := current; k >= 0 && shown(uses, s.states[k].data) == now; k-- {
		out.since = s.states[k].at
	}
	for k := range s.states {
		if slices.ContainsFunc(uses, func(u historyUse) bool { return !u.readable(s.states[k].data) }) {
			continue
		}
		end := h.now.Add(time.Hour)
		for l := len(s.states) - 1; l > k; l-- { // volumes keep files
			if !g.file || !slices.ContainsFunc(uses, func(u historyUse) bool { return !u.readable(s.states[l].data) }) {
				end = s.states[l].at
			}
		}
		other := shown(uses, s.states[k].data) != now
		if other && !end.Before(c.started.Add(-margin)) && !s.states[k].at.After(c.started.Add(judge.ClockMargin+3*time.Second)) {
			out.doubt = true
		}
	}
	from := c.started.Add(-margin)
	if g.file { // volumes may keep files for as long as the pod exists
		from = p.created
	}
	out.unknown = h.unseen(s, from) || g.file && slices.ContainsFunc(h.gaps, func(gap historyGap) bool { // with files of before, if it was not readable
		at := s.at(gap.to)
		return gap.to.After(from) && at >= 0 && slices.ContainsFunc(uses, func(u historyUse) bool { return !u.readable(s.states[at].data) })
	})
	// Content, template and pod were written in one second, and the container was started after that: it is assumed that the content was written first.
	sameSecond := i+1 < len(s.states) && c.restarts == 0 && s.states[i+1].at.Unix() == p.created.Unix() && h.releases[p.created.Unix()]
	out.limit = sameSecond || h.limit(s, i, triggers)
	if r := h.records[g.source]; r.known && i+1 < len(s.states) && shown(uses, r.data) == now { // there and back, and the way back was not seen
		out.limit = out.limit || slices.ContainsFunc(h.gaps, func(gap historyGap) bool {
			return gap.down && !gap.from.After(s.states[i+1].at) && (gap.to.IsZero() || gap.to.After(s.states[i+1].at))
		})
	}
	for _, a := range h.adoptions {
		if a.source == g.source && shown(uses, a.data) == now {
			out.adopted = out.adopted || c.started.Before(a.at.Add(margin))
			out.before = out.before || maps.Equal(a.data, s.latest().data) && c.started.Before(a.at.Add(judge.ClockMargin-2*time.Second))
		}
	}
	return out
}

// unseen reports whether configdep has begun to read a source, or missed something of it, since a time, and nothing that is visible proves that
// it had not changed since then.
func (h *history) unseen(s *historySource, from time.Time) bool {
	for _, gap := range h.gaps {
		if gap.to.IsZero() || gap.to.Before(from) {
			continue
		}
		for k, state := range s.states {
			if k > 0 && !state.at.After(gap.to) && (!state.at.Before(from) || !state.moved) {
				return true
			}
		}
	}
	return false
}

// limit reports whether what is known of a source does not tell that it has changed since a state of it: a documented limit.
func (h *history) limit(s *historySource, i int, triggers bool) bool {
	if i+1 == len(s.states) {
		return false
	}
	// It was not seen at all.
	seen := s.states[i].at
	for _, gap := range h.gaps {
		if !gap.from.After(seen) && (gap.to.IsZero() || gap.to.After(seen)) {
			if seen = gap.to; seen.IsZero() {
				return true
			}
		}
	}
	if !seen.Before(s.states[i+1].at) {
		return true
	}
	// A key, or all, was removed, and neither this process has seen it nor a record tells.
	for k := i + 1; k < len(s.states); k++ {
		state := &s.states[k]
		if state.moved || state.recorded && triggers { // other sources are not compared with the record
			continue
		}
		for _, gap := range h.gaps {
			if gap.down && !gap.to.IsZero() && !gap.to.Before(state.at) {
				return true
			}
		}
	}
	return false
}

// check checks what is said of the pods.
func (h *history) check(d *decide.Decision) {
	h.count("state %s/%s", d.State, d.Reason)
	var current, stale, either int
	limit := false
	for _, p := range h.live() {
		var is, unclear, waits bool
		for _, c := range p.containers {
			waits = waits || c.waiting != ""
		}
		h.eachTruth(p, func(_ *historyContainer, _ historyGroup, v truth) {
			is = is || v.stale && !v.unclear && !v.limit
			unclear = unclear || v.unclear || v.limit
			limit = limit || v.limit && v.stale
		})
		switch {
		case unclear || is && waits:
			either++
		case is:
			stale++
		case waits: // neither
		default:
			current++
		}
	}
	if n := d.Pods; n.Current > current+either || n.Stale > stale+either {
		h.fail("%d pods are said to be current and %d stale, but %d are current, %d stale, and %d either: %s/%s %s", n.Current, n.Stale, current, stale, either, d.State, d.Reason, d.Message)
	}
	if d.State == decide.Unknown || d.Pods.Unknown > 0 {
		h.count("pods unknown because of %s, opted in %v", d.Pods.Reason, h.optedIn())
	}
	switch {
	case d.State == decide.InSync && stale > 0:
		h.fail("InSync/%s, but %d pods are stale", d.Reason, stale)
	case d.State == decide.Stale && stale+either == 0:
		h.fail("Stale/%s, but no pod is", d.Reason)
	}
	if limit {
		h.count("limit")
	}
}

// checkRestart checks that a restart is not needless.
func (h *history) checkRestart(e *decide.Evaluation, d *decide.Decision) {
	if !h.knows() {
		h.count("restart while events were late")
		return
	}
	if !h.optedIn() || h.owned.replicas == 0 || h.owned.paused {
		h.fail("RollOut, but it is off, paused or has no replicas")
	}
	best := ""
	better := func(why string) {
		order := []string{"", "unclear", "unknown", "doubt", "stale"}
		if slices.Index(order, why) > slices.Index(order, best) {
			best = why
		}
	}
	for _, p := range h.live() {
		older := p.key() != h.owned.template.key()
		if older && (e.Workload.Rollout.Phase == dependency.RolloutRunning || h.owned.template.annotations[record.ConfigHashAnnotation] == e.Hash) {
			continue
		}
		h.eachTruth(p, func(_ *historyContainer, _ historyGroup, v truth) {
			switch {
			case !v.triggers, v.before:
			case v.unclear:
				better("unclear")
			case v.stale:
				better("stale")
			case v.doubt:
				better("doubt")
			case v.unknown:
				better("unknown")
			}
		})
	}
	if best == "" {
		h.fail("RollOut because %s, but no container is stale or in doubt", d.Because)
		return
	}
	h.count("restart: %s", best)
}

// rest repairs everything and waits until nothing happens any more. Then no change may be lost.
func (h *history) rest() {
	w := &h.owned
	if w.broken = map[int]bool{}; w.paused {
		h.pause()
	}
	for _, u := range w.template.uses {
		if !u.readable(h.sources[u.source].latest().data) {
			h.write(u.source, map[string]string{"a": fmt.Sprint(h.IntN(3)), "b": fmt.Sprint(h.IntN(3))})
		}
	}
	for _, p := range h.pods { // a pod of an older template may need other keys
		for _, u := range p.uses {
			if !u.readable(h.sources[u.source].latest().data) {
				h.write(u.source, map[string]string{"a": fmt.Sprint(h.IntN(3)), "b": fmt.Sprint(h.IntN(3))})
			}
		}
	}
	for i := 0; h.next(h.now.Add(24 * time.Hour)); i++ {
		if i == 2000 {
			h.fail("it does not come to rest")
		}
	}
	if len(h.wrong) > 0 {
		return
	}
	h.note("rest")
	h.Read(h.checkRest)
}

func (h *history) checkRest(known decide.Evaluator) {
	e := known.Evaluate(h.workload(known))
	d := e.Decide(h.now.Add(h.skew))
	h.count("rests in %s/%s", d.State, d.Reason)
	if d.Action != decide.None || slices.Contains([]decide.State{decide.Settling, decide.Pending, decide.Blocked, decide.Failed}, d.State) {
		h.fail("at rest: %s/%s, action %q: %s", d.State, d.Reason, d.Action, d.Message)
	}
	if !h.optedIn() {
		return
	}
	for _, p := range h.live() {
		older := p.key() != h.owned.template.key()
		h.eachTruth(p, func(c *historyContainer, g historyGroup, v truth) {
			switch {
			case older && (!h.templateAt.Before(v.since) || h.owned.template.annotations[record.ConfigHashAnnotation] == e.Hash): // only a user replaces it
			case !v.triggers, !v.stale, v.unclear:
			case v.adopted:
				h.count("stale at rest: adopted")
			case v.limit:
				h.count("stale at rest: limit")
			default:
				h.fail("lost: %s of %s has not read %s: %s/%s %s", c.name, p.name, h.sources[g.source].name, d.State, d.Reason, d.Message)
			}
		})
	}
}

// releaseAlone releases content and template at rest. That is one rollout.
func (h *history) releaseAlone() {
	if h.rest(); !h.optedIn() || h.owned.replicas == 0 || h.owned.onDelete || h.owned.partition > 0 || len(h.wrong) > 0 {
		return
	}
	h.calm = true
	before := h.restarts
	h.release(h.IntN(2))
	h.rest()
	if h.calm = false; h.restarts != before {
		h.fail("a release was %d rollouts", 1+h.restarts-before)
	}
}

// optInAlone opts in at rest. That restarts nothing.
func (h *history) optInAlone() {
	if h.rest(); h.optedIn() || len(h.wrong) > 0 {
		return
	}
	before := h.restarts
	h.setScope(historyScopes[h.IntN(len(historyScopes))])
	if h.rest(); h.restarts != before {
		h.fail("opting in restarted the workload")
	}
}
