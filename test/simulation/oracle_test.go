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

// oracle knows the actual state and judges the actions of servers.
type oracle struct {
	world     *world
	violation string // the first one
	hashes    map[string]*recorded
	entries   map[sourceEntry]content
	writes    map[writer][]time.Time
	patches   int // by servers without a user's request
	// begun are the revisions at which restarts in place began, by their IDs.
	begun map[string]uint64
	tally tally
}

// tally counts events.
type tally struct {
	Restarts, Baselines, Conflicts, Reads, Failures int
	Evictions, Reloads, Admitted                    int
	// Ambiguous are restarts that are not known to be needed, but that the documentation allows because neither
	// versions nor times show what came first; Optional are restarts that could have been omitted; Unknowable are
	// changes that no server can have noticed, which is proved for each.
	Ambiguous, Optional, Unknowable int
	// Fights are fights between two leaders.
	Fights int
	// Pauses of Deployments that were restarted, and their ends.
	Pauses, Resumes int
	// Of custom resources: how often the definition went and came, changed its version, and could not be read; how often a server
	// listed them later than the rest; and how often it restarted them, also right after such a list.
	Withdrawals, Definitions, Versions, Denials int
	// Reports of config agents, and how often the states of workloads with agents were checked: in sync, and not.
	Reports, AgentsInSync, AgentsNot int
	// Restarts in place: how many began, and ended; how often pods were told, and told again; how many halted; and how many were
	// rollouts, because the template or a pod had no restarter.
	InPlace, DoneInPlace, Told, ToldAgain, Halted, NotInPlace int
	LateLists, CustomRestarts, LateRestarts                   int
}

// truth is what the oracle remembers about a workload.
type truth struct {
	// mixed: a server has verified the pods, and recorded that it cannot determine what some of them have read.
	mixed   bool
	managed bool
	// opted: automatic restarts are on, or would be without an invalid annotation.
	opted  bool
	scopes [sourceCount]scope
	// scoped is the revision at which the scope of each source last changed.
	scoped [sourceCount]uint64
	// rules are the rules at the last look, in effect since the revision ruled.
	rules rules
	ruled uint64
	// since is the revision since which the workload is managed without a record that can be compared; 0: it has
	// one. cause is the reason.
	since uint64
	cause cause
	// adopted is the revision of the last opt-in without a record: the content at that time counts as known.
	adopted uint64
	// first is the revision of the last record that was written when there was none, and firstBy its writer.
	first   uint64
	firstBy *server
	// absent is the revision of the last record that says that a source was absent.
	absent [sourceCount]uint64
	// optedAt is the revision of the last opt-in, with or without a record.
	optedAt uint64
	// templated is the revision of the template, and rolled the revision at which the current pods were created
	// from it.
	templated, rolled uint64
	// shown is the revision of the pod template. Of a Boat that only names something else itself, servers do not see that its
	// controller replaces the pods.
	shown uint64
	// exposed is the identity of the template of a Deployment when it was last not paused: as far as servers can
	// see, its pods were created from that template.
	exposed string
	// recreated is the revision at which the last eviction of all pods began, and evicting the annotation that
	// names them.
	recreated uint64
	evicting  string
	reloaded  string // the annotation of the last restart
	// broughtBack contains the annotations of an earlier eviction and restart that another client has restored.
	broughtBack eviction
	seen        bool
	variant     int  // of the scopes
	recorded    bool // whether there was a record
}

type cause string

const (
	created cause = "created"
	optedIn cause = "opted in"
	lost    cause = "lost its record"
	rekeyed cause = "key replaced"
)

// recorded is the meaning of a hash.
type recorded struct {
	contents contents
	scopes   [sourceCount]scope
	other    bool // a source that never exists counts as well
	glob     bool // a glob matched sources that only annotations name
	ignores  bool // it may have entries of sources that were absent
}

func (o *oracle) fail(format string, args ...any) {
	if o.violation == "" {
		o.violation = fmt.Sprintf(format, args...)
		o.world.logf("    VIOLATION: %s", o.violation)
	}
}

// record returns the record of a workload if it can be compared, and whether only the hash on the template is left
// of it.
func (o *oracle) record(m *manifest) (r *recorded, bare bool) {
	hash := m.annotations[hashAnnotation]
	if hash == "" {
		hash, bare = m.template.annotations[hashAnnotation], true
	}
	if !ofKey(hash, o.world.key) && !saysLeft(hash) {
		return nil, false
	}
	return o.withKept(o.hashes[hash], m.annotations[appliedAnnotation]), bare
}

// hash returns the hash of the record, or the one on the template if only that is left.
func (m *manifest) hash() string {
	return cmp.Or(m.annotations[hashAnnotation], m.template.annotations[hashAnnotation])
}

// remembered returns the record that a server knows of a workload: also a record that another client has removed,
// and one with another key of the hash, if the server had read that record when the key was replaced.
func (o *oracle) remembered(v *view, m *manifest) (r *recorded, bare bool) {
	if hash := v.removed(m); hash != "" {
		return o.hashes[hash], false
	}
	if hash := m.hash(); hash == "" || !ofKey(hash, v.key) && v.kept[m.slot] != hash && !saysLeft(hash) {
		return nil, false
	}
	return o.withKept(o.hashes[m.hash()], m.annotations[appliedAnnotation]), m.annotations[hashAnnotation] == ""
}

// rekeyed reports whether a record has another key, and a server remembers its content.
func (o *oracle) rekeyed(m *manifest) bool {
	if rec, _ := o.record(m); rec != nil {
		return false
	}
	return slices.ContainsFunc(o.world.servers, func(s *server) bool {
		rec, _ := o.remembered(&s.view, m)
		return s.alive && rec != nil
	})
}

// says reports whether a record has the content of the sources that count, as a server sees them.
func (o *oracle) says(slot int, hash string, v *view) bool {
	rec, d := o.hashes[hash], o.world.workloads[slot]
	if rec == nil || d == nil || saysLeft(hash) {
		return false
	}
	marks := v.marks()
	rules := rulesOf(v.templates[slot].declared, v.annotations, o.world.defaults)
	scopes := rules.counting().scopes(d.template.variant, &marks)
	for s := range scopes {
		if rules.matches() && !v.sources[s].present {
			return false // it is not known whether an absent source matches: the record may have it with other keys
		}
		if rec.scopes[s].counts() && (!rec.scopes[s].same(scopes[s]) || o.recordDiffers(rec, &rec.scopes, s, v)) {
			return false
		}
	}
	return true
}

// learn records the meaning of a hash, which is computed independently.
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
		return // the hash stands for no content
	}
	if want, can := expectedHash(key, rules, variant, &marks, present); can && want != hash {
		o.fail("the hash of %v is %s, want %s", present, want, hash)
	}
	o.hashes[hash] = &recorded{present, scopes, rules.other, rules.glob, rules.ignores}
}

func (o *oracle) rules(d *workload) rules {
	return rulesOf(d.declares(), o.world.annotations, o.world.defaults)
}

// look records a change of the world.
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
		if variant != t.variant && t.scopes[s].annotted { // it may count since the rules changed, with another template
			t.scoped[s] = max(t.scoped[s], t.ruled)
		}
		// A source that begins to count because of the policy is adopted with its content at that time, not with
		// later content. Pods of another template are started with the current content.
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
			if t.scopes[s].counts() && !rec.scopes[s].same(t.scopes[s]) { // the previous record does not contain it
				t.scoped[s] = o.world.revision
				o.adoptSource(d, s)
			}
		}
	}
	if t.opted && !was && !first && !recorded && (rec != nil || !t.managed) { // the webhook has written a record, or an annotation is invalid
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

// saysLeft reports whether a record only says that pods are left which were to be evicted.
func saysLeft(hash string) bool { return strings.HasSuffix(hash, ".abandoned") }

// allow accepts the content of a source for the containers of a workload, except for containers that run with
// other content according to the record.
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

// adopt accepts the current content as known when a workload opts in. A server that is behind may adopt what it
// sees. A server that remembers a record with another key need not adopt anything.
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

// doomed reports whether a pod is to be evicted, or restarted in place, because of a restart.
func (d *workload) doomed(p *pod) bool {
	return d.annotations[recreatingAnnotation] != "" && p.born < d.truth.recreated && !p.renewed(d.annotations[recreatingAnnotation])
}

// stale calls f for each key of which a container of the current template runs with other content than present.
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
				if scopes[s].counts() && (!scopes[s].ignores || present[s] != content{}) {
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

// describe returns with which content a container runs.
func describe(p *pod, c *container, source, key int) string {
	return fmt.Sprintf("pod %d, of revision %d, runs with %s.%s=%v since revision %d",
		p.uid, p.born, sourceNames[source], keyNames[key], c.known[source][key], c.started)
}

// unseen reports whether the server does not know the order of events since a revision, because it read them in a
// list or from several watches.
func (v *view) unseen(revision uint64) bool {
	return v.disordered >= revision || slices.ContainsFunc(v.listed[:], func(listed uint64) bool { return listed >= revision })
}
