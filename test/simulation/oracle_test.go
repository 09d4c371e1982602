package simulation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// oracle knows the truth and judges what servers do.
type oracle struct {
	world     *world
	violation string // the first
	hashes    map[string]*recorded
	tally     tally
}

// tally counts what has happened.
type tally struct {
	restarts, baselines, conflicts, reads, failures int
	// ambiguous are restarts that nothing shows to be needed, where the documentation allows
	// one because neither versions nor times tell what came first; optional are restarts
	// that could as well have been left out, and unknowable are changes that nobody can
	// have noticed.
	ambiguous, optional, unknowable int
	// rollbacks are those to pods that were still there.
	rollbacks int
	// fights are those of two servers that lead.
	fights int
}

// truth is what the oracle remembers of a workload.
type truth struct {
	managed bool
	scopes  [sourceCount]scope
	// since is the revision since which the workload is managed and carries no record that
	// can be compared; 0: it carries one. cause tells how that came about.
	since uint64
	cause cause
	// adopted is the revision of the last opt-in without a record: what was there then is
	// taken as known.
	adopted uint64
	// templated is the revision of the template, and rolled that at which the present pods
	// were made from it.
	templated, rolled uint64
	seen              bool
}

type cause string

const (
	created cause = "created"
	optedIn cause = "opted in"
	lost    cause = "lost its record"
	rekeyed cause = "key replaced"
)

// recorded is what a hash stands for: what a server had seen when it wrote it.
type recorded struct {
	contents contents
	scopes   [sourceCount]scope
}

func (o *oracle) fail(format string, args ...any) {
	if o.violation == "" {
		o.violation = fmt.Sprintf(format, args...)
		o.world.logf("    VIOLATION: %s", o.violation)
	}
}

// record returns what a workload remembers, if it can be compared, and whether it is no
// more than the hash on the template.
func (o *oracle) record(d *workload) (r *recorded, bare bool) {
	hash := d.annotations[hashAnnotation]
	if hash == "" {
		hash, bare = d.template.annotations[hashAnnotation], true
	}
	if !strings.HasPrefix(hash, "v1."+digesterOf(o.world.key).KeyID()+".") {
		return nil, false
	}
	return o.hashes[hash], bare
}

func (o *oracle) rules(d *workload) rules {
	return rulesOf(d.annotations, o.world.annotations, o.world.defaultMode)
}

// look takes notice of a change of the world.
func (o *oracle) look() {
	for _, d := range o.world.workloads {
		if d != nil {
			o.lookAt(d)
		}
	}
}

func (o *oracle) lookAt(d *workload) {
	t := &d.truth
	r := o.rules(d)
	marks := o.world.marks()
	first, was, before := !t.seen, t.managed, t.scopes
	t.seen = true
	t.managed, t.scopes = r.managed(), r.scopes(d.template.variant, &marks)
	rec, bare := o.record(d)
	contents := o.world.contents()
	switch {
	case !t.managed:
		t.since = 0
	case rec == nil:
		if t.since == 0 {
			t.since = o.world.revision
			switch {
			case first:
				t.cause = created
			case !was:
				t.cause, t.adopted = optedIn, o.world.revision
				o.adopt(d, contents)
			case d.annotations[hashAnnotation] != "" || d.template.annotations[hashAnnotation] != "":
				t.cause = rekeyed
			default:
				t.cause = lost
			}
			o.world.logf("    %s: managed without a record: %s", workloadName(d.slot), t.cause)
		}
		anew := t.cause == optedIn || t.cause == rekeyed || o.unwitnessed(d)
		for s := range contents {
			if anew || t.scopes[s] != before[s] {
				d.pods.known.allow(s, contents[s])
			}
		}
	default:
		t.since = 0
		for s := range contents {
			if t.scopes[s].counts() && !bare && (rec.scopes[s] != t.scopes[s] || r.glob && t.scopes[s].annotted && rec.scopes != t.scopes) {
				d.pods.known.allow(s, contents[s])
			}
		}
	}
}

// adopt takes the present content as known. A server that lags may take what it sees.
func (o *oracle) adopt(d *workload, present contents) {
	before := d.pods.known
	d.pods.known = startedWith(present)
	for _, server := range o.world.servers {
		if !server.alive {
			continue
		}
		for s := range present {
			if seen := server.view.sources[s].content; seen != present[s] {
				d.pods.known.allow(s, seen)
				for k := range before[s] {
					d.pods.known[s][k] |= before[s][k]
				}
			}
		}
	}
}

// servedOn takes notice of a rollback to a template whose pods are still there, because
// those of the next one never got ready. Servers take them for new, which have to wait for
// what is missing.
func (o *oracle) servedOn(d *workload) {
	contents := o.world.contents()
	for s, c := range contents {
		d.pods.known.allow(s, c)
	}
	d.pods.thoughtWaiting = missing(d.template.variant, o.world.marks(), contents)
}

// unwitnessed tells whether a server leads that did not see how the record was lost.
func (o *oracle) unwitnessed(d *workload) bool {
	for _, server := range o.world.servers {
		if server.leads && (!server.view.synced || server.view.unseen(d.truth.since)) {
			return true
		}
	}
	return false
}

// unseen tells whether the server does not know in which order things have happened since
// a revision: a list told of them, or one watch later than another.
func (v *view) unseen(revision uint64) bool {
	return v.disordered >= revision || slices.ContainsFunc(v.listed[:], func(listed uint64) bool { return listed >= revision })
}

// reasons returns the sources because of which a server that has seen so much may restart
// a workload: of those that count, the ones with content that its pods have not read.
func (o *oracle) reasons(d *workload, v *view) (sources []int) {
	marks := v.marks()
	scopes := rulesOf(d.annotations, v.annotations, o.world.defaultMode).scopes(d.template.variant, &marks)
	for s := range scopes {
		seen := &v.sources[s]
		if d.pods.waiting { // the server may not know, and take them for started
			if scopes[s].counts() && seen.changed > d.truth.rolled {
				sources = append(sources, s)
			}
			continue
		}
		if seen.changed <= max(d.pods.started, d.truth.adopted) {
			continue
		}
		for k, known := range d.pods.known[s] {
			if scopes[s].keys.has(k) && known&^only(seen.content[k]) != 0 {
				sources = append(sources, s)
				break
			}
		}
	}
	return sources
}

// missing tells whether pods of the present template would not start.
func missing(variant int, marks [sourceCount]mark, c contents) bool {
	for _, u := range variants[variant] {
		if !u.starts(marks[u.source].present, c[u.source]) {
			return true
		}
	}
	return false
}

// arrived takes notice of what has reached a server.
func (o *oracle) arrived(s *server) {
	for slot, d := range o.world.workloads {
		if d == nil || !s.leads || len(o.reasons(d, &s.view)) == 0 {
			lags := d != nil && len(s.streams[workloadStream(d.kind)].queue) > 0
			if !s.asleep && !lags && !s.network.waits(s, slot) { // otherwise it does not take notice
				delete(s.staleSince, slot)
			}
		} else if _, found := s.staleSince[slot]; !found {
			s.staleSince[slot] = time.Now()
		}
	}
}

// beforePatch judges a patch that is about to be applied, and tells whether it restarts.
func (o *oracle) beforePatch(r *request, d *workload, body *patchBody) (restarts bool) {
	if o.hashes == nil {
		o.hashes = map[string]*recorded{}
	}
	marks := r.seen.marks()
	rules := rulesOf(d.annotations, r.seen.annotations, o.world.defaultMode)
	if hash := body.Metadata.Annotations[hashAnnotation]; hash != nil {
		o.hashes[*hash] = &recorded{r.seen.contents(), rules.scopes(d.template.variant, &marks)}
	}
	if !rules.managed() {
		o.fail("%s is patched though it is not managed (%+v)", workloadName(d.slot), rules)
	}
	for key, value := range body.Spec.Template.Metadata.Annotations {
		if value == nil || d.template.annotations[key] != *value {
			restarts = true
		}
	}
	if restarts {
		o.judge(r, d, rules, marks)
	} else if len(body.Spec.Template.Metadata.Annotations) > 0 {
		o.fail("a rollout of %s restarts nothing", workloadName(d.slot))
	}
	return restarts
}

// judge looks for what allows a restart.
func (o *oracle) judge(r *request, d *workload, rules rules, marks [sourceCount]mark) {
	name := workloadName(d.slot)
	o.tally.restarts++
	switch {
	case d.paused:
		o.fail("%s is restarted while it is paused", name)
	case missing(d.template.variant, marks, r.seen.contents()):
		o.fail("%s is restarted while a source is missing", name)
	}
	reasons := o.reasons(d, &r.seen)
	if len(reasons) == 0 {
		if why := o.ambiguity(r, d, rules, marks); why != "" {
			o.tally.ambiguous++
			o.world.logf("    an ambiguous restart: %s", why)
			return
		}
		o.fail("%s is restarted for nothing: its pods, of revision %d, run with %s, and server %d sees %s",
			name, d.pods.started, describeKnown(d), r.server.id, describeSeen(&r.seen))
		return
	}
	scopes := rules.scopes(d.template.variant, &marks)
	must := false
	rec, bare := o.record(d)
	var arrived time.Time
	for _, s := range reasons {
		for k, known := range d.pods.known[s] {
			must = must || scopes[s].keys.has(k) && !known.has(r.seen.sources[s].content[k])
		}
		adopted := rec != nil && !bare && (rec.scopes[s] != scopes[s] || rules.glob && rec.scopes != scopes)
		if at := r.seen.sources[s].arrived; at.After(arrived) && !adopted {
			arrived = at
		}
	}
	if !must {
		o.tally.optional++
	}
	settled := arrived.Add(rules.settle)
	if since, found := r.server.staleSince[d.slot]; found && since.Add(10*rules.settle).Before(settled) {
		settled = since.Add(10 * rules.settle)
	}
	if !arrived.IsZero() && r.sent.Before(settled) && !r.seen.unseen(d.truth.rolled) {
		o.fail("%s is restarted %v after a change, before that has settled (%v)", name, r.sent.Sub(arrived), rules.settle)
	}
}

// ambiguity tells why a restart may be made though there was no need: the server has not
// seen the pods start, what is recorded differs from what is there, and times do not tell
// that the pods came last.
func (o *oracle) ambiguity(r *request, d *workload, rules rules, marks [sourceCount]mark) string {
	rec, bare := o.record(d)
	unseen := r.seen.unseen(d.truth.templated)
	scopes := rules.scopes(d.template.variant, &marks)
	if rec == nil {
		for s := range scopes {
			switch changed := r.seen.sources[s].changed; {
			case !scopes[s].counts():
			case changed > max(d.pods.started, d.truth.adopted):
				return "nothing is recorded, and a source has changed, if not in what counts"
			case unseen && !r.seen.sources[s].arrived.IsZero():
				return "nothing is recorded, and it was not seen what came first"
			}
		}
		return ""
	}
	var lastChanged time.Time
	gone, differs, again := false, false, false
	for s := range scopes {
		seen := &r.seen.sources[s]
		differ := bare
		for k := range seen.content {
			if scopes[s].keys.has(k) && rec.contents[s][k] != seen.content[k] {
				differ, gone = true, gone || seen.content[k] == 0
			}
		}
		gone = gone || scopes[s].counts() && (bare && !seen.present || scopes[s].annotted && rules.glob)
		if rules.mode == "matched" && rec.scopes[s].counts() && !seen.present {
			return "a source that is absent does not say whether it matches"
		}
		if !scopes[s].counts() || !differ {
			continue
		}
		differs = true
		unseen = unseen || seen.byList
		again = again || seen.changed > d.pods.started
		if seen.lastChanged.After(lastChanged) {
			lastChanged = seen.lastChanged
		}
	}
	switch {
	case differs && again:
		return "a source has changed before the pods started, and again after that, if not in what counts"
	case !differs && (!bare || rec.scopes == scopes), !unseen:
		return ""
	case gone:
		return "when a source or a key was removed is written nowhere"
	case !d.newest().created.Truncate(time.Second).After(lastChanged):
		return "the template is not younger than the content, by its revision"
	case !d.templateWritten().After(lastChanged):
		return "the template is not younger than the content, by its managed fields"
	}
	return ""
}

// afterPatch takes notice of a patch that was applied.
func (o *oracle) afterPatch(d *workload, before *manifest, restarts, wrote bool) {
	if !wrote {
		o.fail("a patch of %s changes nothing", workloadName(d.slot))
		return
	}
	if restarts {
		return
	}
	o.tally.baselines++
	if d.template.identity() != before.template.identity() {
		o.fail("a baseline of %s changes its template", workloadName(d.slot))
	}
	// Where there was a choice, the record has made it.
	rec, _ := o.record(d)
	if rec == nil {
		return
	}
	for s := range rec.contents {
		for k, v := range rec.contents[s] {
			if rec.scopes[s].keys.has(k) && d.pods.known[s][k].has(v) {
				d.pods.known[s][k] = only(v)
			}
		}
	}
	o.lookAt(d)
}

// sent takes notice of a request.
func (o *oracle) sent(r *request) {
	var body patchBody
	if p := r.patch(); p == nil {
		o.tally.reads++
	} else if json.Unmarshal(p.GetPatch(), &body) == nil {
		if v, _ := strconv.ParseUint(body.Metadata.ResourceVersion, 10, 64); v < r.server.written[r.slot] {
			o.fail("%s is patched before the last write, of revision %d, has come back", workloadName(r.slot), r.server.written[r.slot])
		}
	}
}

// answered takes notice of an answer.
func (o *oracle) answered(r *request) {
	switch {
	case apierrors.IsConflict(r.done.err):
		o.tally.conflicts++
	case r.done.err != nil:
		o.tally.failures++
	case r.patch() != nil:
		m, err := meta.Accessor(r.done.object)
		if err != nil {
			panic(err)
		}
		r.server.written[r.slot], _ = strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	}
}

// checkCalm checks a world in which nothing happens any more.
func (o *oracle) checkCalm() {
	contents, marks := o.world.contents(), o.world.marks()
	for _, d := range o.world.workloads {
		if d == nil || o.violation != "" {
			continue
		}
		t := &d.truth
		blocked := missing(d.template.variant, marks, contents)
		stale := !d.pods.waiting && o.stale(d, contents)
		want := o.expect(d, blocked, stale)
		for _, server := range o.world.servers {
			if !server.alive {
				continue
			}
			got := server.decide(d)
			if server.leads && got.action != "" {
				o.fail("%s: server %d leads and is still to do %s", workloadName(d.slot), server.id, got.action)
			}
			if want != "" && got.state != want {
				o.fail("%s: server %d says %s (%s: %s), and it is %s; its pods, of revision %d, run with %s",
					workloadName(d.slot), server.id, got.state, got.reason, got.message, want, d.pods.started, describeKnown(d))
			}
		}
		if !t.managed || blocked || d.paused || d.pods.waiting {
			continue
		}
		if stale {
			if o.unknowable(d, contents) {
				o.tally.unknowable++
			} else {
				o.fail("%s was never restarted: its pods, of revision %d, run with %s", workloadName(d.slot), d.pods.started, describeKnown(d))
			}
		}
		for s := range contents {
			for k, v := range contents[s] {
				if t.scopes[s].keys.has(k) {
					d.pods.known[s][k] = only(v)
				}
			}
		}
	}
}

// stale tells whether pods certainly run with content other than the present.
func (o *oracle) stale(d *workload, present contents) bool {
	for s := range present {
		for k, v := range present[s] {
			if d.truth.scopes[s].keys.has(k) && !d.pods.known[s][k].has(v) {
				return true
			}
		}
	}
	return false
}

// unknowable tells whether a change has left no trace: the content is what was recorded,
// and pods have started with something else before that could be.
func (o *oracle) unknowable(d *workload, present contents) bool {
	rec, _ := o.record(d)
	if rec == nil {
		return false
	}
	for s := range present {
		for k, v := range present[s] {
			if d.truth.scopes[s].keys.has(k) && rec.contents[s][k] != v {
				return false
			}
		}
	}
	return true
}

// expect returns the state that servers should show, or nothing where they may choose.
func (o *oracle) expect(d *workload, blocked, stale bool) string {
	r := o.rules(d)
	switch {
	case r.invalid:
		return "Blocked"
	case r.mode == "off":
		return "Unmanaged"
	case blocked:
		return "Blocked"
	case d.paused && stale && o.unknowable(d, o.world.contents()):
		return ""
	case d.paused && stale && o.recordless(d):
		return "" // only a server that has seen the pods start knows
	case d.paused && stale:
		return "Blocked"
	case d.paused: // it may have been spared a restart that another server would ask for
		return ""
	case stale:
		return ""
	case d.unfinished:
		return "RollingOut"
	default:
		return "InSync"
	}
}

func (o *oracle) recordless(d *workload) bool {
	rec, _ := o.record(d)
	return rec == nil
}

func describeKnown(d *workload) string {
	var parts []string
	for s, keys := range d.pods.known {
		if !d.truth.scopes[s].counts() {
			continue
		}
		for k, set := range keys {
			if !d.truth.scopes[s].keys.has(k) {
				continue
			}
			var choice []string
			for v := range value(valueCount + 1) {
				if set.has(v) {
					choice = append(choice, fmt.Sprint(v))
				}
			}
			parts = append(parts, sourceNames[s]+"."+keyNames[k]+"="+strings.Join(choice, "|"))
		}
	}
	return "{" + strings.Join(parts, " ") + "}"
}

func describeSeen(v *view) string {
	var parts []string
	for s := range v.sources {
		parts = append(parts, fmt.Sprintf("%s%v of %d", sourceNames[s], v.sources[s].content, v.sources[s].changed))
	}
	return strings.Join(parts, " ")
}
