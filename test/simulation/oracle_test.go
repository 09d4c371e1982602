// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// oracle knows the truth and judges what servers do.
type oracle struct {
	world     *world
	violation string // the first
	hashes    map[string]*recorded
	writes    map[writer][]time.Time
	patches   int // that servers have asked for by themselves
	tally     tally
}

// tally counts what has happened.
type tally struct {
	Restarts, Baselines, Conflicts, Reads, Failures int
	Evictions, Reloads, Admitted                    int
	// Ambiguous are restarts that nothing shows to be needed, where the documentation allows
	// one because neither versions nor times tell what came first; Optional are restarts
	// that could as well have been left out, and Unknowable are changes that no server can
	// have noticed, which is proved for each.
	Ambiguous, Optional, Unknowable int
	// Fights are those of two servers that lead.
	Fights int
}

// truth is what the oracle remembers of a workload.
type truth struct {
	// mixed: a server has looked at the pods, and recorded that it cannot tell what some of
	// them have read.
	mixed   bool
	managed bool
	// opted: automatic restarts are on, or would be but for a mistake in an annotation.
	opted  bool
	scopes [sourceCount]scope
	// scoped is the revision at which the scope of each source last changed.
	scoped [sourceCount]uint64
	// rules are what was in force when it was last looked at, since the revision ruled.
	rules rules
	ruled uint64
	// since is the revision since which the workload is managed and carries no record that
	// can be compared; 0: it carries one. cause says how that came about.
	since uint64
	cause cause
	// adopted is the revision of the last opt-in without a record: what was there then is
	// taken as known.
	adopted uint64
	// first is the revision of the last record that was made where there was none, and firstBy made it.
	first   uint64
	firstBy *server
	// optedAt is the revision of the last opt-in, with a record or without one.
	optedAt uint64
	// templated is the revision of the template, and rolled that at which the present pods
	// were made from it.
	templated, rolled uint64
	// exposed is the identity of the template that a Deployment had when it was last not
	// paused: for all that servers see, its pods were made from it then.
	exposed string
	// recreated is the revision at which the last eviction of all pods was begun, and evicting
	// the annotation that names them.
	recreated uint64
	evicting  string
	reloaded  string // the annotation that told of the last restart
	// broughtBack is what the annotations of an earlier eviction and restart said when another client put them back.
	broughtBack eviction
	seen        bool
	variant     int  // for which the scopes are
	recorded    bool // there was a record
}

type cause string

const (
	created cause = "created"
	optedIn cause = "opted in"
	lost    cause = "lost its record"
	rekeyed cause = "key replaced"
)

// recorded is what a hash stands for.
type recorded struct {
	contents contents
	scopes   [sourceCount]scope
	other    bool // a source that is never there counts as well
	glob     bool // a glob named what only annotations do
}

func (o *oracle) fail(format string, args ...any) {
	if o.violation == "" {
		o.violation = fmt.Sprintf(format, args...)
		o.world.logf("    VIOLATION: %s", o.violation)
	}
}

// record returns what a workload remembers, if it can be compared, and whether it is no
// more than the hash on the template.
func (o *oracle) record(m *manifest) (r *recorded, bare bool) {
	hash := m.annotations[hashAnnotation]
	if hash == "" {
		hash, bare = m.template.annotations[hashAnnotation], true
	}
	if !ofKey(hash, o.world.key) && !saysLeft(hash) {
		return nil, false
	}
	return o.hashes[hash], bare
}

// hash returns the hash of the record, or that on the template where it is all that is left.
func (m *manifest) hash() string {
	return cmp.Or(m.annotations[hashAnnotation], m.template.annotations[hashAnnotation])
}

// remembered returns what a server knows that a workload remembers: also in a record that another
// client has removed, and in one made with another key of the hash, if the server had read it when
// the key was replaced.
func (o *oracle) remembered(v *view, m *manifest) (r *recorded, bare bool) {
	if hash := v.removed(m); hash != "" {
		return o.hashes[hash], false
	}
	if hash := m.hash(); hash == "" || !ofKey(hash, v.key) && v.kept[m.slot] != hash && !saysLeft(hash) {
		return nil, false
	}
	return o.hashes[m.hash()], m.annotations[hashAnnotation] == ""
}

// rekeyed reports whether a record is expressed by another key, and a server remembers what it says.
func (o *oracle) rekeyed(m *manifest) bool {
	if rec, _ := o.record(m); rec != nil {
		return false
	}
	return slices.ContainsFunc(o.world.servers, func(s *server) bool {
		rec, _ := o.remembered(&s.view, m)
		return s.alive && rec != nil
	})
}

// says reports whether a record says the content of what counts, as a server sees it.
func (o *oracle) says(slot int, hash string, v *view) bool {
	rec, d := o.hashes[hash], o.world.workloads[slot]
	if rec == nil || d == nil || saysLeft(hash) {
		return false
	}
	marks := v.marks()
	rules := rulesOf(v.templates[slot].annotations, v.annotations, o.world.defaultMode)
	scopes := rules.counting().scopes(d.template.variant, &marks)
	for s := range scopes {
		if rules.mode == "matched" && !v.sources[s].present {
			return false // an absent source does not say whether it matches: the record may have it, by other keys
		}
		if rec.scopes[s].counts() && (!rec.scopes[s].same(scopes[s]) || o.recordDiffers(rec, &rec.scopes, s, v)) {
			return false
		}
	}
	return true
}

// learn notes what a hash stands for, which is checked by an independent reading.
func (o *oracle) learn(hash string, key int, rules rules, variant int, present contents, marks [sourceCount]mark) {
	if !ofKey(hash, key) || o.hashes[hash] != nil || strings.Contains(hash, ".mixed") {
		return
	}
	if o.hashes == nil {
		o.hashes = map[string]*recorded{}
	}
	if saysLeft(hash) {
		o.hashes[hash] = &recorded{}
		return
	}
	scopes := rules.scopes(variant, &marks)
	if len(hash) != len("v1.")+8+len(".")+32 {
		return // it stands for no content
	}
	if want, can := expectedHash(key, rules, variant, &marks, present); can && want != hash {
		o.fail("the hash of %v is %s and not %s", present, want, hash)
	}
	o.hashes[hash] = &recorded{present, scopes, rules.other, rules.glob}
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
	first, was, before, variant, recorded := !t.seen, t.opted, t.scopes, t.variant, t.recorded
	t.seen, t.variant, t.opted = true, d.template.variant, r.opted()
	t.managed, t.scopes = r.managed(), r.scopes(d.template.variant, &marks)
	rec, _ := o.record(&d.manifest)
	t.recorded = rec != nil
	if t.rules != r {
		t.rules, t.ruled = r, o.world.revision
	}
	contents := o.world.contents()
	for s := range contents {
		if variant != t.variant && t.scopes[s].annotted { // it may count since the rules changed while there was another template
			t.scoped[s] = max(t.scoped[s], t.ruled)
		}
		// What begins to count because of the policy is adopted as it is at that moment, and not
		// what comes later. Pods of another template are started with what is there.
		if !t.scopes[s].same(before[s]) && !first && variant == t.variant {
			t.scoped[s] = o.world.revision
			if t.scopes[s].counts() {
				d.allow(s, contents[s])
			}
		}
	}
	if t.opted && !was && !first {
		t.optedAt = o.world.revision
	}
	if t.opted && !was && !first && rec != nil {
		for s := range contents {
			if t.scopes[s].counts() && !rec.scopes[s].same(t.scopes[s]) { // the record of before says nothing of it
				t.scoped[s] = o.world.revision
				o.adoptSource(d, s)
			}
		}
	}
	if t.opted && !was && !first && !recorded && (rec != nil || !t.managed) { // the webhook has written one, or there is a mistake
		o.optedIn(d)
	}
	switch {
	case !t.managed, rec != nil:
		t.since = 0
	case t.since == 0:
		t.since = o.world.revision
		switch {
		case first:
			t.cause = created
		case !was:
			o.optedIn(d)
		case d.annotations[hashAnnotation] != "" || d.template.annotations[hashAnnotation] != "":
			t.cause = rekeyed
		default:
			t.cause = lost
		}
		o.world.logf("    %s: managed without a record: %s", workloadName(d.slot), t.cause)
	}
}

// saysLeft reports whether a record says no more than that pods are left which were to be evicted.
func saysLeft(hash string) bool { return strings.HasSuffix(hash, ".abandoned") }

// allow accepts the content of a source for the containers of a workload, except those of which the
// record says that they run with other content.
func (d *workload) allow(source int, c content) {
	for _, p := range d.pods {
		if p.left && saysLeft(d.hash()) {
			continue
		}
		for i := range p.containers {
			p.containers[i].known.allow(source, c)
		}
	}
}

func (o *oracle) optedIn(d *workload) {
	d.truth.cause, d.truth.adopted = optedIn, o.world.revision
	o.adopt(d)
}

// adopt takes the content that is there when a workload opts in as known. A server that
// lags may take what it sees. One that remembers what a record with another key says need not
// adopt anything.
func (o *oracle) adopt(d *workload) {
	before := d.maybe
	d.maybe = startedWith(o.world.contents())
	if o.rekeyed(&d.manifest) {
		for s := range before {
			for k, maybe := range before[s] {
				d.maybe[s][k] |= maybe
			}
		}
	}
	for s := range o.world.sources {
		o.adoptSource(d, s)
	}
}

func (o *oracle) adoptSource(d *workload, s int) {
	d.allow(s, o.world.sources[s].content)
	for _, server := range o.world.servers {
		if server.alive && server.leads {
			d.allow(s, server.view.sources[s].content)
			d.maybe.allow(s, server.view.sources[s].content)
		}
	}
}

// doomed reports whether a pod is to be evicted because of a restart.
func (d *workload) doomed(p *pod) bool {
	return d.annotations[recreatingAnnotation] != "" && p.born < d.truth.recreated
}

// stale calls f for each key of which a container of the present template runs with other
// content than the given one.
func (d *workload) stale(scopes *[sourceCount]scope, present *contents, f func(p *pod, c *container, source, key int)) {
	identity := d.template.identity()
	for _, p := range d.pods {
		if p.identity != identity || p.terminating || d.doomed(p) {
			continue
		}
		for i := range p.containers {
			c := &p.containers[i]
			if c.started == 0 {
				continue
			}
			for s := range scopes {
				keys := keySet(0)
				if scopes[s].counts() {
					keys = scopes[s].of(p.template.variant, i, s)
				}
				for k := range present[s] {
					if keys.has(k) && !scopes[s].allows(s, k, c.known[s][k], present[s][k]) {
						f(p, c, s, k)
					}
				}
			}
		}
	}
}

// isStale reports whether any container runs with other content.
func (d *workload) isStale(scopes *[sourceCount]scope, present *contents) (stale bool) {
	d.stale(scopes, present, func(*pod, *container, int, int) { stale = true })
	return stale
}

// describe says with what a container runs.
func describe(p *pod, c *container, source, key int) string {
	return fmt.Sprintf("pod %d, of revision %d, runs with %s.%s=%v since revision %d",
		p.uid, p.born, sourceNames[source], keyNames[key], c.known[source][key], c.started)
}

// unseen reports whether the server does not know in which order things have happened since
// a revision: a list told of them, or one watch later than another.
func (v *view) unseen(revision uint64) bool {
	return v.disordered >= revision || slices.ContainsFunc(v.listed[:], func(listed uint64) bool { return listed >= revision })
}
