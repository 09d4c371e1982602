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
	// that could as well have been left out, and unknowable are changes that no server can
	// have noticed, which is proved for each.
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
				o.adopt(d)
			case d.annotations[hashAnnotation] != "" || d.template.annotations[hashAnnotation] != "":
				t.cause = rekeyed
			default:
				t.cause = lost
			}
			o.world.logf("    %s: managed without a record: %s", workloadName(d.slot), t.cause)
		}
		// What begins to count is adopted as it is at that moment, and not what comes later.
		for s := range contents {
			if t.scopes[s] != before[s] {
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

// adopt takes the content that is there when a workload opts in as known. A server that
// lags may take what it sees.
func (o *oracle) adopt(d *workload) {
	present := o.world.contents()
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

// unseen tells whether the server does not know in which order things have happened since
// a revision: a list told of them, or one watch later than another.
func (v *view) unseen(revision uint64) bool {
	return v.disordered >= revision || slices.ContainsFunc(v.listed[:], func(listed uint64) bool { return listed >= revision })
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
			if why := o.knowable(d, contents); why != "" {
				o.fail("%s was never restarted: its pods, of revision %d, run with %s, and %s", workloadName(d.slot), d.pods.started, describeKnown(d), why)
			}
			o.tally.unknowable++
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

// knowable tells how it could be known that pods run with other content than the present;
// empty: the change has left no trace. Then what is recorded, if anything can be compared,
// is the present content, and no server that leads has seen the change happen.
func (o *oracle) knowable(d *workload, present contents) string {
	rec, _ := o.record(d)
	for s := range present {
		for k, v := range present[s] {
			if !d.truth.scopes[s].keys.has(k) || d.pods.known[s][k].has(v) {
				continue
			}
			if rec != nil && rec.contents[s][k] != v {
				return fmt.Sprintf("the record has another %s.%s", sourceNames[s], keyNames[k])
			}
			for _, server := range o.world.servers {
				if server.leads && server.view.witnessed(d, s, k) {
					return fmt.Sprintf("server %d has seen %s.%s change", server.id, sourceNames[s], keyNames[k])
				}
			}
		}
	}
	return ""
}

// witnessed tells whether a server knows that a key has changed after the pods had started:
// it knew their template by then, and has seen the change happen.
func (v *view) witnessed(d *workload, source, key int) bool {
	changed := v.sources[source].witnessed[key]
	return v.synced && changed > max(d.pods.started, d.truth.adopted) && !v.unseen(d.truth.templated)
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
	case d.paused && stale && o.knowable(d, o.world.contents()) == "":
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
