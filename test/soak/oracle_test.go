package soak

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

const (
	hashAnnotation       = "configdep.io/config-hash"
	appliedAnnotation    = "configdep.io/applied-sources"
	reloadAnnotation     = "configdep.io/reload"
	reloadedAtAnnotation = "configdep.io/reloaded-at"
)

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
		if w.state != nil && reads(variants[w.variant], name) {
			w.vanished = w.vanished || vanished
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
			w.opted(managed(w.state, was))
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
	born     int64  // at which revision
	waiting  bool   // for a source or a key
	read     string // what it was started with
	phase    string
	ready    bool
}

// start lets a pod read the present content, as soon as nothing that it requires is missing.
func (p *pod) start(c *cell) {
	if p.waiting {
		read, starts := consume(variants[p.variant], c.sources)
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

	read   string // what pods that start read, when they last could
	starts bool   // whether they can now

	// adopting: it has opted in and remembers nothing yet, so that what is there when it
	// is recorded counts as what its pods were started with.
	adopting bool
	lost     bool // the owner has removed what it remembered, since the last calm
	// recorded is the variant, and remembered the content, when one was last recorded.
	recorded   int
	remembered string
	hash       string // of the last rollout, until the owner changes the template

	owed     int // restarts that were due at the last calm and could not be made
	changes  int // of the content that it reads
	rollouts int
	requests int // for a restart that have not been carried out
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
	read     string
	changes  int
	absorbed bool
}

func (w *workload) managed() bool { return managed(w.state, w.cell.reload) }

// managed tells whether a workload has opted in, by itself or by its namespace.
func managed(s *state, namespace string) bool {
	own, found := s.annotations[reloadAnnotation]
	if !found {
		own = namespace
	}
	return own == "auto"
}

// opted takes notice of how a workload came to opt in, or not.
func (w *workload) opted(was bool) {
	switch {
	case w.managed() == was:
	case was:
		w.adopting = false
	case record(w.state) == "":
		w.adopting = true
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
	read, starts := consume(variants[w.variant], w.cell.sources)
	if starts != w.starts {
		w.log("pods start: %t", starts)
	}
	w.starts = starts
	if !starts || read == w.read {
		return
	}
	w.log("content %s", read)
	w.read, w.changed = read, w.cell.at
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
		w.log("created, managed: %t", w.managed())
		w.ownTemplate()
	default:
		w.compare(before)
	}
}

func (w *workload) compare(before *state) {
	now := w.state
	owner := before.annotations[writeAnnotation] != now.annotations[writeAnnotation]
	template := !equality.Semantic.DeepEqual(before.template, now.template)
	remembered := record(before) != ""
	switch {
	case owner:
		w.log("the owner has written it, managed: %t", w.managed())
		if record(now) == "" && remembered {
			w.log("the owner has removed the record")
			w.lost = true
		}
		w.opted(managed(before, w.cell.reload))
		if template {
			w.ownTemplate()
		}
	case template:
		w.rolledOut(before)
	case before.annotations[appliedAnnotation] != now.annotations[appliedAnnotation]:
		w.baseline(remembered)
	}
}

// record returns what a workload remembers, if anything.
func record(s *state) string {
	if hash := s.annotations[hashAnnotation]; hash != "" {
		return hash
	}
	return s.template.Annotations[hashAnnotation]
}

// ownTemplate takes notice of a template that the owner has written. The pods that it
// makes read what is there then.
func (w *workload) ownTemplate() {
	w.variant = variantOf(w.state.template.Annotations)
	w.read, w.starts = consume(variants[w.variant], w.cell.sources)
	w.log("the owner has written the template: %s", identity(w.state.template.Annotations, &w.state.template.Spec))
	w.hash, w.since = "", 0
	w.cell.oracle.tally.templates++
	for _, p := range w.pods {
		if p.identity == identity(w.state.template.Annotations, &w.state.template.Spec) {
			p.read = w.read // a rollback has come before it was replaced
		}
	}
	if w.down != nil {
		// Times are told by the second.
		w.down.absorbed = !w.vanished && w.cell.at.Sub(w.changed) > 2*time.Second
	}
}

// rolledOut takes notice of a restart by the server.
func (w *workload) rolledOut(before *state) {
	w.cell.oracle.tally.rollouts++
	hash := w.state.template.Annotations[hashAnnotation]
	requested := w.requests > 0 && w.state.template.Annotations[reloadedAtAnnotation] != before.template.Annotations[reloadedAtAnnotation]
	if requested {
		w.requests--
		w.hash = ""
	} else {
		w.rollouts++
	}
	w.log("restarted by the server, on request: %t: %s", requested, hash)
	switch {
	case hash == "" || hash != w.state.annotations[hashAnnotation]:
		w.violation("restarted with the hash %q, and %q is remembered", hash, w.state.annotations[hashAnnotation])
	case requested:
	// A patch is bound to the version of the workload, not to that of the namespace.
	case !w.managed() && (w.cell.oracle.undisturbed || w.state.annotations[reloadAnnotation] != ""):
		w.violation("restarted though it has not opted in")
	case hash == w.hash:
		w.violation("restarted twice for the same content")
	case w.rollouts > w.allowed():
		w.violation("restarted %d times for %d changes of what it reads, and %d that were due before", w.rollouts, w.changes, w.owed)
	case w.cell.oracle.undisturbed && w.since == 0:
		w.violation("restarted though nothing that it reads has changed since its template did")
	}
	w.hash, w.since = hash, 0
	w.adopting, w.recorded, w.remembered = false, w.variant, w.read
}

// allowed returns how many restarts there is a reason for. When nothing is remembered, and
// a disturbance has hidden what came first, changes of keys that it does not read count too.
func (w *workload) allowed() int {
	if (w.lost || w.adopting) && !w.cell.oracle.undisturbed {
		return w.owed + max(w.changes, w.cell.changes)
	}
	return w.owed + w.changes
}

// baseline takes notice of a record without a restart.
func (w *workload) baseline(remembered bool) {
	o := w.cell.oracle
	o.tally.baselines++
	w.log("the server has recorded what is there: %s", record(w.state))
	for _, p := range w.pods {
		switch {
		case !w.starts || p.waiting || p.variant != w.variant:
		case !remembered && (w.adopting || !o.undisturbed):
			p.read = w.read
		case remembered && !o.undisturbed:
			p.read = adopt(p.read, w.read, variants[w.variant], variants[w.recorded])
		}
	}
	w.adopting, w.recorded, w.remembered = false, w.variant, w.read
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
		if w.read != w.down.read && !w.down.absorbed {
			seen = 1
		}
		w.changes = min(w.changes, w.down.changes+seen)
		w.down = nil
		w.log("servers run again")
	})
}

// together is told that what has just been changed in a cell belongs together: the changes
// have been made within a fraction of the settle time.
func (c *cell) together() {
	for _, w := range c.workloads {
		w.changes = min(w.changes, 1)
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
	want := identity(w.state.template.Annotations, &w.state.template.Spec)
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
			if p.waiting || p.read == w.read {
				continue
			}
			stale = true
			if w.managed() && w.starts {
				w.violation("pod %s, of r%d, was started with %q, and the present content is %q", name, p.born, p.read, w.read)
				p.read = w.read // told once
			}
		}
		// Whether the pods have read what was not recorded may be told by times alone.
		doubt := w.remembered != w.read && (!o.undisturbed || w.owed > 0)
		held := w.managed() && !w.starts || !w.managed() && record(w.state) != ""
		if w.owed = 0; held && (stale || doubt) {
			w.owed = 1
		}
		if w.managed() && w.starts {
			w.checkHash()
		}
		w.changes, w.rollouts, w.since, w.lost = 0, 0, w.owed, false
		w.log("calm")
	})
}

// checkHash wants a hash to stand for one content of one namespace, and that to have one hash.
func (w *workload) checkHash() {
	hash, read := w.state.annotations[hashAnnotation], fmt.Sprintf("%s, %d: %s", w.cell.namespace, w.variant, w.read)
	hashes := w.cell.oracle.hashes
	if other, found := hashes[hash]; found && other != read {
		w.violation("the hash %s stands for %q, and for %q", hash, read, other)
	}
	if other, found := hashes[read]; found && other != hash {
		w.violation("%q has the hash %s, and %s", read, hash, other)
	}
	hashes[hash], hashes[read] = read, hash
}
