package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

const (
	hashAnnotation       = "configdep.io/config-hash"
	appliedAnnotation    = "configdep.io/applied-sources"
	reloadAnnotation     = "configdep.io/reload"
	lastReloadAnnotation = "configdep.io/last-reload"
	recreatingAnnotation = "configdep.io/recreating"
)

// writtenAnnotations are what the server writes.
var writtenAnnotations = []string{hashAnnotation, appliedAnnotation, lastReloadAnnotation, recreatingAnnotation,
	"configdep.io/reloaded-at", "configdep.io/verified-at"}

// writeLimit is how often the server may write to a workload in a phase that nothing disturbs,
// whatever owners do.
const writeLimit = 25

// oracle knows with which content pods were started, and judges each restart. The journal
// guards it.
type oracle struct {
	cells map[string]*cell // by namespace
	// undisturbed: since the last calm a leader has seen everything, in order.
	undisturbed bool
	violations  []string
	tally       tally
	// hashes holds what a hash was found to stand for, and the other way round.
	hashes map[string]string
	// formerKey is what hashes began with that were made with a key that has been replaced.
	formerKey string
}

// tally counts what has happened.
type tally struct{ changes, rollouts, templates, baselines int }

func (o *oracle) each(f func(*workload)) {
	for _, namespace := range slices.Sorted(maps.Keys(o.cells)) {
		c := o.cells[namespace]
		for _, name := range slices.Sorted(maps.Keys(c.workloads)) {
			f(c.workloads[name])
		}
	}
}

// cell is a namespace.
type cell struct {
	oracle    *oracle
	namespace string
	revision  int64     // of the last event
	at        time.Time // when it came
	reload    string    // the annotation of the namespace
	changes   int       // since the last calm, of any key of any source
	sources   map[string]content
	versions  map[string]int64 // of the sources; 0: not there
	workloads map[string]*workload
}

func (c *cell) setSource(name string, now content) {
	vanished := false
	for key := range c.sources[name] {
		_, still := now[key]
		vanished = vanished || !still
	}
	if !maps.Equal(c.sources[name], now) {
		c.changes++
	}
	c.sources[name] = now
	if c.versions[name] = c.revision; now == nil {
		c.versions[name] = 0
	}
	for _, w := range c.workloads {
		if w.state != nil {
			w.vanished = w.vanished || vanished && w.rules().counts(w.variant, name)
			w.look()
		}
		for _, p := range w.pods {
			p.start(c)
		}
	}
}

// setReload takes notice of the annotation of the namespace.
func (c *cell) setReload(now string) {
	was := c.reload
	c.reload = now
	for _, w := range c.workloads {
		if w.state != nil && now != was {
			w.log("reload %q on the namespace", now)
			w.ruled(rulesOf(w.state.annotations, was))
		}
	}
}

func (c *cell) setPod(name string, now *corev1.Pod) {
	if now == nil {
		for _, w := range c.workloads {
			delete(w.pods, name)
		}
		return
	}
	w := c.workloads[now.Labels["app"]]
	if w == nil {
		return
	}
	p := w.pods[name]
	if p == nil || p.uid != string(now.UID) {
		p = &pod{uid: string(now.UID), born: c.revision, variant: variantOf(now.Annotations), waiting: true}
		w.pods[name] = p
		p.start(c)
	}
	p.identity = identity(now.Annotations, &now.Spec)
	p.phase = string(now.Status.Phase)
	if now.DeletionTimestamp != nil {
		p.phase = "on its way out"
	}
	p.ready = p.phase == string(corev1.PodRunning)
}

// pod is what is known of one.
type pod struct {
	uid      string
	identity string // of its template
	variant  int
	born     int64   // at which revision
	waiting  bool    // for a source or a key
	read     reading // what it was started with
	phase    string
	ready    bool
}

// start lets a pod read the present content, as soon as nothing that it requires is missing.
func (p *pod) start(c *cell) {
	if p.waiting {
		read, starts := consume(p.variant, c.sources)
		p.read, p.waiting = read, !starts
	}
}

func variantOf(annotations map[string]string) int {
	n, err := strconv.Atoi(annotations[variantAnnotation])
	if err != nil {
		panic(err) // all templates have it
	}
	return n
}

func identityOf(s *state) string { return identity(s.template.Annotations, &s.template.Spec) }

func identity(annotations map[string]string, spec *corev1.PodSpec) string {
	return fmt.Sprint(annotations, spec.Containers[0].Image)
}

// workload is what is known of one, and of what has happened since the last calm.
type workload struct {
	cell       *cell
	name, kind string
	state      *state // nil: it is not there
	variant    int
	pods       map[string]*pod

	read   reading // what pods that start read, when they last could
	starts bool    // whether they can now

	// adopting: it has opted in while something disturbed the server and remembers nothing
	// yet, so that what is there when it is recorded counts as what its pods were started with.
	adopting bool
	lost     bool // the owner has removed what it remembered, since the last calm
	// recorded has the scopes of the sources that counted when the record was written that is
	// there, and remembered the content.
	recorded   map[string]string
	remembered reading
	hash       string // of the last rollout, until the owner changes the template
	pausedWith string // the identity of the template with which it was paused

	owed     int // restarts that were due at the last calm and could not be made
	changes  int // of the content that it reads
	before   int // of these, how many there were before those that belong together
	rollouts int
	requests int // for a restart that have not been carried out
	writes   int // of the server
	since    int // changes since the template changed, including what is owed
	down     *absence
	vanished bool // a key or a source that it reads, since nobody has been looking
	changed  time.Time
	trace    []string
	wrong    bool // the oracle has found something
	late     bool // it was not calm when it was last looked at
}

// absence is how it was when the last server was killed.
type absence struct {
	read     reading
	changes  int
	absorbed bool
}

func (w *workload) rules() rules { return rulesOf(w.state.annotations, w.cell.reload) }

func (w *workload) managed() bool { return w.rules().managed() }

// differ reports whether two readings differ in what counts.
func (w *workload) differ(a, b reading) bool {
	return slices.ContainsFunc(w.rules().counted(w.variant), func(name string) bool { return a[name] != b[name] })
}

// knows reports whether what was last recorded says anything of a source.
func (w *workload) knows(name string) bool {
	scope, found := w.recorded[name]
	return found && scope == scopeOf(w.variant, name)
}

// ruled takes notice that annotations have changed. Of the sources that begin to count, what is
// there counts as what the pods were started with, unless the record knows better. A server
// that watches undisturbed sees what came before that and what after.
func (w *workload) ruled(before rules) {
	now := w.rules()
	if !now.managed() {
		w.adopting = false
		return
	}
	for _, name := range now.counted(w.variant) {
		switch {
		case before.managed() && before.counts(w.variant, name), w.knows(name):
		case w.cell.oracle.undisturbed:
			for _, p := range w.pods {
				if !p.waiting && p.variant == w.variant {
					p.read[name] = w.read[name]
				}
			}
		default:
			w.adopting = true
		}
	}
}

func (w *workload) log(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%s r%d: ", w.cell.at.Format("15:04:05.000"), w.cell.revision)+fmt.Sprintf(format, args...))
}

func (w *workload) violation(format string, args ...any) {
	w.wrong = true
	w.log("VIOLATION: "+format, args...)
	w.cell.oracle.violations = append(w.cell.oracle.violations, fmt.Sprintf("%s/%s: ", w.cell.namespace, w.name)+fmt.Sprintf(format, args...))
}

// look takes notice of the present content.
func (w *workload) look() {
	read, starts := consume(w.variant, w.cell.sources)
	if starts != w.starts {
		w.log("pods start: %t", starts)
	}
	w.starts = starts
	if !starts {
		return
	}
	before := w.read
	w.read = read
	if !w.differ(before, read) {
		return
	}
	w.log("content %v", read)
	w.changed = w.cell.at
	w.changes++
	w.since++
	if w.down != nil {
		w.down.absorbed = false
	}
	w.cell.oracle.tally.changes++
}

// set takes notice of the present state of the workload itself.
func (w *workload) set(now *state) {
	before := w.state
	w.state = now
	switch {
	case now == nil:
		w.log("deleted")
		w.hash, w.adopting = "", false
	case before == nil:
		w.log("created, %s, replicas %d", w.rules().mode, now.pods)
		w.noteTemplate()
		w.podsStart()
		if w.recorded = nil; record(now) != "" {
			w.noteRecord()
		}
	default:
		w.compare(before)
	}
}

func (w *workload) compare(before *state) {
	now := w.state
	template := !equality.Semantic.DeepEqual(before.template, now.template)
	if before.annotations[writeAnnotation] != now.annotations[writeAnnotation] {
		w.ownerWrote(before, template)
		return
	}
	recreates := now.annotations[recreatingAnnotation] != "" && before.annotations[recreatingAnnotation] != now.annotations[recreatingAnnotation]
	if template || recreates || before.annotations[appliedAnnotation] != now.annotations[appliedAnnotation] {
		w.serverWrote(before)
	}
	switch {
	case template, recreates:
		w.restarted(before)
	case before.annotations[appliedAnnotation] == now.annotations[appliedAnnotation]:
	case record(now) == "":
		w.log("the server has dropped the record")
		w.recorded = nil
	default:
		w.baseline(record(before) != "")
	}
}

// ownerWrote takes notice of a write of the owner, to which the webhook may have added.
func (w *workload) ownerWrote(before *state, template bool) {
	now := w.state
	w.log("the owner has written it: %v, replicas %d, paused %t", w.rules(), now.pods, now.paused)
	evicted, doubt := now.annotations["configdep.io/strategy"] == "recreate", false
	if record(now) == "" && record(before) != "" {
		w.log("the owner has removed the record")
		w.lost, w.recorded = true, nil
		// The template does not tell with what pods run that have been evicted.
		doubt = evicted && !w.cell.oracle.undisturbed
	}
	if before.annotations[recreatingAnnotation] != "" && now.annotations[recreatingAnnotation] == "" {
		// The server was told to no longer evict the pods, and has to begin again.
		w.log("the owner has removed that pods are being evicted")
		doubt = true
	}
	if doubt {
		w.hash, w.changes, w.since = "", w.changes+1, w.since+1
	}
	if template {
		w.noteTemplate()
	}
	w.ruled(rulesOf(before.annotations, w.cell.reload))
	switch was := identityOf(before); {
	case now.paused && !before.paused:
		w.pausedWith = was
	case now.paused:
	case before.paused && identityOf(now) != w.pausedWith, !before.paused && template:
		w.podsStart()
	case before.paused && w.stale(): // edited, and edited back
		w.changes, w.since = max(w.changes, 1), max(w.since, 1)
	}
	if applied := now.annotations[appliedAnnotation]; applied != "" && applied != before.annotations[appliedAnnotation] {
		w.noteRecord()
	}
}

// serverWrote judges that the server has written at all.
func (w *workload) serverWrote(before *state) {
	w.writes++
	switch {
	case before.deleting:
		w.violation("the server has written to it while it was being deleted")
	case w.cell.oracle.undisturbed && w.writes == writeLimit:
		w.violation("the server has written to it %d times", w.writes)
	}
}

// stale reports whether a pod has read something else than what is there.
func (w *workload) stale() bool {
	for _, p := range w.pods {
		if !p.waiting && w.differ(p.read, w.read) {
			return true
		}
	}
	return false
}

// noteRecord takes notice that what is there has been recorded.
func (w *workload) noteRecord() {
	w.adopting, w.recorded, w.remembered = false, map[string]string{}, w.read
	for _, name := range w.rules().counted(w.variant) {
		w.recorded[name] = scopeOf(w.variant, name)
	}
}

// record returns what a workload remembers, if anything.
func record(s *state) string {
	if hash := s.annotations[hashAnnotation]; hash != "" {
		return hash
	}
	return s.template.Annotations[hashAnnotation]
}

// noteTemplate takes notice of a template that the owner has written.
func (w *workload) noteTemplate() {
	w.variant = variantOf(w.state.template.Annotations)
	if read, starts := consume(w.variant, w.cell.sources); starts {
		w.read, w.starts = read, true
	} else {
		w.starts = false
	}
	w.log("the owner has written the template: %s", identityOf(w.state))
	w.cell.oracle.tally.templates++
}

// podsStart takes notice that a template makes pods, which read what is there then.
func (w *workload) podsStart() {
	w.hash, w.since = "", 0
	for _, p := range w.pods {
		if p.identity == identityOf(w.state) && !p.waiting {
			p.read = maps.Clone(w.read) // a rollback has come before it was replaced
		}
	}
	if w.down != nil {
		// Times are told by the second.
		w.down.absorbed = !w.vanished && w.cell.at.Sub(w.changed) > 2*time.Second
	}
}

// lastReload is what the server writes of a restart.
type lastReload struct {
	Trigger   string
	Automatic time.Time
}

func lastReloadOf(s *state) (last lastReload) {
	// A value that is not there, or not understood, is as good as none.
	_ = json.Unmarshal([]byte(s.annotations[lastReloadAnnotation]), &last)
	return last
}

// restarted takes notice of a restart by the server: by a rollout, or by eviction.
func (w *workload) restarted(before *state) {
	w.cell.oracle.tally.rollouts++
	hash, last, earlier := w.state.annotations[hashAnnotation], lastReloadOf(w.state), lastReloadOf(before)
	requested := w.requests > 0 && last.Trigger == "Request" && w.state.annotations[lastReloadAnnotation] != before.annotations[lastReloadAnnotation]
	if requested {
		w.requests--
		w.hash = ""
	} else {
		w.rollouts++
	}
	w.log("restarted by the server because of %s: %s", last.Trigger, hash)
	interval, _ := time.ParseDuration(before.annotations["configdep.io/min-interval"])
	evicted := w.state.annotations["configdep.io/strategy"] == "recreate" && w.managed()
	switch {
	case hash == "" || !evicted && hash != w.state.template.Annotations[hashAnnotation]:
		w.violation("restarted with the hash %q, and %q is remembered", w.state.template.Annotations[hashAnnotation], hash)
	case requested:
	// A patch is bound to the version of the workload, not to that of the namespace.
	case !w.managed() && (w.cell.oracle.undisturbed || w.state.annotations[reloadAnnotation] != ""):
		w.violation("restarted though it has not opted in")
	case before.paused:
		w.violation("restarted though it is paused")
	case before.pods == 0:
		w.violation("restarted though it has no replicas")
	case !earlier.Automatic.IsZero() && last.Automatic.Sub(earlier.Automatic) < interval:
		w.violation("restarted %v after the last time, before %v were over", last.Automatic.Sub(earlier.Automatic), interval)
	case hash == w.hash:
		w.violation("restarted twice for the same content")
	case w.rollouts > w.allowed():
		w.violation("restarted %d times for %d changes of what it reads, and %d that were due before", w.rollouts, w.changes, w.owed)
	case w.cell.oracle.undisturbed && w.since == 0:
		w.violation("restarted though nothing that it reads has changed since its template did")
	}
	w.hash, w.since = hash, 0
	w.noteRecord()
}

// allowed returns how many restarts there is a reason for. When nothing is remembered, and
// a disturbance has hidden what came first, changes of keys that it does not read count too.
func (w *workload) allowed() int {
	if (w.lost || w.adopting) && !w.cell.oracle.undisturbed {
		return w.owed + max(w.changes, w.cell.changes)
	}
	return w.owed + w.changes
}

// baseline takes notice of a record without a restart. When a disturbance may have hidden what
// came first, what nothing was remembered of counts as read. Otherwise it does not: a server
// that watched must have known.
func (w *workload) baseline(remembered bool) {
	o := w.cell.oracle
	o.tally.baselines++
	w.log("the server has recorded what is there: %s", record(w.state))
	if strings.HasSuffix(record(w.state), ".mixed") {
		// It has looked at the pods, and their times do not tell what they have read: in the
		// histories all that happens is closer together than clocks may differ.
		w.hash = ""
		w.changes, w.since = max(w.changes, w.rollouts+1), w.since+1
		return
	}
	for _, p := range w.pods {
		if !w.starts || p.waiting || p.variant != w.variant {
			continue
		}
		for _, name := range sourceNames {
			if (w.adopting || !o.undisturbed) && (!remembered || !w.knows(name)) {
				p.read[name] = w.read[name]
			}
		}
	}
	w.noteRecord()
}

// downBegins is told that no server runs any more.
func (o *oracle) downBegins() {
	o.each(func(w *workload) {
		w.down, w.vanished = &absence{read: w.read, changes: w.changes}, false
		w.log("no server runs")
	})
}

// downEnds is told that servers are about to run again: of all that has happened since,
// they see the sum.
func (o *oracle) downEnds() {
	o.each(func(w *workload) {
		seen := 0
		if w.state != nil && w.differ(w.read, w.down.read) && !w.down.absorbed {
			seen = 1
		}
		w.changes = min(w.changes, w.down.changes+seen)
		w.down = nil
		w.log("servers run again")
	})
}

// begin is told that changes which belong together are about to be made in a cell, and together
// that they have been, within a fraction of the settle time.
func (c *cell) begin() {
	for _, w := range c.workloads {
		w.before = w.changes
	}
}

func (c *cell) together() {
	for _, w := range c.workloads {
		w.changes = min(w.changes, w.before+1)
	}
}

// want returns the state that servers should show.
func (w *workload) want() string {
	switch {
	case !w.managed():
		return "Unmanaged"
	case !w.starts:
		return "Blocked"
	default:
		return "InSync"
	}
}

// settled returns an error while pods are being replaced.
func (w *workload) settled() error {
	if w.state == nil {
		return errors.New("it does not exist")
	}
	want := identityOf(w.state)
	for name, p := range w.pods {
		if !p.ready || p.identity != want {
			return fmt.Errorf("pod %s is %s, of the present template: %t", name, p.phase, p.identity == want)
		}
	}
	if !w.state.complete || len(w.pods) != int(w.state.pods) {
		return fmt.Errorf("its status tells of a rollout, and %d of %d pods run", len(w.pods), w.state.pods)
	}
	return nil
}

// calm judges what has come of a phase, and begins the next.
func (o *oracle) calm() {
	for _, c := range o.cells {
		c.changes = 0
	}
	o.each(func(w *workload) {
		if w.requests > 0 {
			w.violation("%d requests for a restart were not carried out", w.requests)
		}
		w.requests = 0
		stale := false
		for name, p := range w.pods {
			if p.waiting || !w.differ(p.read, w.read) {
				continue
			}
			stale = true
			if w.managed() && w.starts {
				w.violation("pod %s, of r%d, was started with %v, and the present content is %v", name, p.born, p.read, w.read)
				p.read = maps.Clone(w.read) // told once
			}
		}
		// Whether the pods have read what was not recorded may be told by times alone.
		doubt := w.differ(w.remembered, w.read) && (!o.undisturbed || w.owed > 0)
		held := w.managed() && !w.starts || !w.managed() && record(w.state) != ""
		if w.owed = 0; held && (stale || doubt) {
			w.owed = 1
		}
		if w.managed() && w.starts {
			w.checkHash()
		}
		if !o.undisturbed && w.managed() && record(w.state) == "" {
			w.adopting = true // what came first is not known any more
		}
		w.changes, w.rollouts, w.since, w.writes, w.lost = 0, 0, w.owed, 0, false
		w.log("calm")
	})
}

// checkHash wants a hash to stand for one content of one namespace, and that to have one hash.
func (w *workload) checkHash() {
	r, hash := w.rules(), w.state.annotations[hashAnnotation]
	read := w.cell.namespace + ":"
	for _, name := range r.counted(w.variant) {
		read += fmt.Sprintf(" %s (%s)%s", name, scopeOf(w.variant, name), w.read[name])
	}
	by := fmt.Sprintf("%s, %d %s", read, w.variant, r.sources) // what a pattern names is not hashed if it is absent
	hashes := w.cell.oracle.hashes
	if other, found := hashes[hash]; found && other != read {
		w.violation("the hash %s stands for %q, and for %q", hash, read, other)
	}
	if other, found := hashes[by]; found && other != hash {
		w.violation("%q has the hash %s, and %s", read, hash, other)
	}
	hashes[hash], hashes[by] = read, hash
}

// rekeyed is told that the key of the hash is about to be replaced. Records cannot be compared
// any more then. What those that cannot be written now stood for is forgotten.
func (o *oracle) rekeyed() {
	o.hashes = map[string]string{}
	o.each(func(w *workload) {
		if hash := record(w.state); hash != "" {
			o.formerKey = hash[:strings.LastIndexByte(hash, '.')+1]
		}
		if !w.starts || !w.managed() {
			w.recorded, w.adopting = nil, w.managed()
		}
	})
}
