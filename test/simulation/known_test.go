// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"maps"
	"strings"
	"time"
)

// What a server can know. The questions are only asked about containers that run with old content: could a server
// have known?

// seenTemplate is what has reached a server of a workload, and the arrival number of the current template.
type seenTemplate struct {
	uid      int
	identity string
	arrival  int
	byList   bool
	remade   bool // a list shows that the workload was created again, but no more
	// guessed: a list showed a paused Deployment whose status need not show whether its pods are of the template.
	guessed bool
	// revision is the revision of the workload when the template was first seen. written is the time of the last
	// write of the template in managedFields, and startedBy the revision of a list that showed another write of
	// it: another template may have been set in between.
	revision  uint64
	written   time.Time
	startedBy uint64
	// annotations are the annotations of the workload when it was last seen, and removed is the hash of a previous
	// record that another client has removed: the server remembers that record while the pods stay the same.
	annotations map[string]string
	removed     string
	// declared are the annotations that say how the workload is restarted; see manifest.declares.
	declared map[string]string
	// evicting: the removed record also named pods that are still to be evicted.
	evicting bool
	// again: the removed record was written again unchanged.
	again bool
	// optedIn is the arrival number at which the server saw the workload opt in; 0: never. ruled is the arrival
	// number at which it saw that the rules made another source count, and ruledByList whether a list showed that,
	// which does not show when it happened.
	optedIn, ruled int
	ruledByList    bool
	rules          rules
}

// lookAtWorkload records a workload that reaches the server.
func (v *view) lookAtWorkload(m *manifest, byList, deleted bool) {
	if v.templates == nil {
		v.templates = map[int]seenTemplate{}
	}
	if v.records == nil {
		v.records = map[int]string{}
	}
	t, found := v.templates[m.slot]
	identity := m.template.identity()
	switch record := t.annotations[hashAnnotation]; {
	case deleted:
		delete(v.templates, m.slot)
	case found && t.uid == m.uid && (t.identity == identity || m.paused):
		// The pods of a paused Deployment are those of the template with which it was paused.
		switch {
		case m.annotations[hashAnnotation] != "":
			t.again = m.annotations[hashAnnotation] == t.removed || t.again && m.annotations[hashAnnotation] == record
			t.removed = ""
		case record != "" && (ofKey(record, v.key) || record == v.kept[m.slot]):
			t.removed, t.evicting = record, t.annotations[recreatingAnnotation] != ""
		}
		t.declared = m.declares()
		if t.annotations = m.annotations; byList && !m.templateWritten().Equal(t.written) {
			t.startedBy = m.revision
		}
		t.written = m.templateWritten()
		v.templates[m.slot] = t
	default:
		// With the pods, the server forgets a removed record with the previous key.
		if kept := v.kept[m.slot]; m.annotations[hashAnnotation] != kept && (record == kept || t.removed == kept) {
			delete(v.kept, m.slot)
		}
		next := seenTemplate{uid: m.uid, identity: identity, arrival: v.arrivals, byList: byList, revision: m.revision,
			remade: byList && found && t.uid != m.uid, annotations: m.annotations, declared: m.declares(), written: m.templateWritten(), guessed: byList && m.paused}
		if t.uid == m.uid {
			next.optedIn, next.ruled, next.ruledByList, next.rules = t.optedIn, t.ruled, t.ruledByList, t.rules
		}
		v.templates[m.slot] = next
	}
	if v.records[m.slot] = m.hash(); deleted || m.hash() != v.kept[m.slot] {
		delete(v.kept, m.slot)
	}
}

// removed returns the hash of a record that a server remembers after another client has removed it; empty: none.
func (v *view) removed(m *manifest) string {
	if t := v.templates[m.slot]; t.uid == m.uid && m.annotations[hashAnnotation] == "" {
		return t.removed
	}
	return ""
}

// evicting reports whether pods are still to be evicted, by the workload or by a record that was removed.
func (v *view) evicting(m *manifest) bool {
	return m.annotations[recreatingAnnotation] != "" || v.removed(m) != "" && v.templates[m.slot].evicting
}

// ofKey reports whether a hash has a key.
func ofKey(hash string, key int) bool { return strings.HasPrefix(hash, "v1."+keyID(key)+".") }

// lookAtOptIns records which workloads have opted in. A server forgets the removed record of a workload that has
// opted out.
func (v *view) lookAtOptIns(base defaults, byList bool) {
	for slot, t := range v.templates {
		now := rulesOf(t.declared, v.annotations, base)
		switch {
		case !now.opted():
			t.optedIn, t.removed = 0, ""
		case t.optedIn == 0:
			t.optedIn = v.arrivals
		}
		now.recreate, now.inPlace, now.agent, now.settle, now.minInterval = false, false, false, 0, 0 // these do not determine what counts
		if t.rules != now {
			t.rules, t.ruled, t.ruledByList = now, v.arrivals, byList
		}
		v.templates[slot] = t
	}
}

// knew reports whether a server knows that a key has changed to its current value after a container was started:
// either the server has seen the change after its first lists, and knew the template by then, or revisions show
// that the template was older.
func (o *oracle) knew(v *view, d *workload, c *container, source, key int) bool {
	seen := &v.sources[source]
	changed, arrival := seen.witnessed[key], seen.arrivals[key]
	if !d.truth.scopes[source].files.has(key) {
		changed, arrival = seen.inData.witnessed[key], seen.inData.arrivals[key]
	}
	if seen.cameBack[key] && c.started < seen.goneAt { // the container has this content, from its start or from before
		changed = seen.prior[key]
	}
	if scope := &d.truth.scopes[source]; scope.ignores {
		if changed, arrival = seen.otherLife(source, key, scope); changed <= d.truth.absent[source] {
			return false // by the record, the pods have read none of the contents before that
		}
	}
	if !v.synced || changed <= max(v.since, v.joined[workloadStream(d.kind)], c.started, d.truth.adopted, d.truth.scoped[source]) {
		return false
	}
	if o.world.severalCounters() && changed <= d.truth.first && v != &d.truth.firstBy.view {
		return false // it is not known whether the writer of the first record had seen the change
	}
	if d.truth.cause == lost && changed <= d.truth.optedAt { // as if there had never been a record
		return false
	}
	if v.unseen(d.truth.scoped[source]) && d.truth.scoped[source] > 0 && !v.orderly(d.truth.scoped[source], changed) {
		return false
	}
	t, found := v.templates[d.slot]
	if !found || t.uid != d.uid || t.identity != d.template.identity() {
		return false
	}
	// If revisions cannot be compared, the order of reading shows whether the workload had opted in, and whether
	// the source counted.
	if o.world.severalCounters() && (t.optedIn > arrival || d.truth.scoped[source] > 0 && t.ruled > arrival) {
		return false
	}
	if t.ruledByList && (t.ruled > arrival || seen.byList) && d.truth.scoped[source] > 0 {
		return false
	}
	if seen.listed == arrival { // the source may not have counted yet when it changed
		marks := v.marks()
		marks[source] = seen.markBefore
		scopes := rulesOf(t.declared, v.annotations, o.world.defaults).scopes(d.template.variant, &marks)
		if !scopes[source].counts() {
			return false
		}
	}
	if changed <= t.startedBy && !o.world.skews.right() {
		return false // times show whether the pods came before the change
	}
	// A record that was written before all rules had arrived omits sources that did not count by the known rules.
	disordered := v.disordered > changed
	if rec := o.hashes[v.records[d.slot]]; rec != nil && !rec.scopes[source].counts() && t.ruled > arrival && (disordered || o.world.severalCounters()) {
		return false
	}
	if t.optedIn > arrival && !maps.Equal(v.annotations, o.world.annotations) { // the namespace opted in before, unseen
		return false
	}
	if t.optedIn > arrival && disordered { // the server saw an opt-out in between that never happened
		return false
	}
	if t.arrival < arrival {
		// A change that arrives after a list with the template may have happened before the template.
		return !t.byList || changed > v.listed[workloadStream(d.kind)]
	}
	return !o.world.severalCounters() && !t.byList && !seen.byList
}

// orderly reports whether nothing was listed or arrived out of order between two revisions.
func (v *view) orderly(from, to uint64) bool {
	if v.disordered >= from && v.disordered <= to {
		return false
	}
	for _, listed := range v.listed {
		if listed >= from && listed <= to {
			return false
		}
	}
	return true
}

// misled reports whether only times could show a server that a container runs with old content of a key, and they
// show the opposite: clocks are wrong. A server that has seen the content change after the template needs no
// times, as long as their revisions can be compared; otherwise the order of reading alone does not prove which
// came first. Nor does it prove anything about the pods of a template that was restored after the change: for the
// leader, they may have been restored with it.
func (o *oracle) misled(v *view, d *workload, p *pod, c *container, source, key int) bool {
	back := c.started < d.truth.templated && v.sources[source].witnessed[key] < d.truth.templated
	if o.world.skews.right() || !o.world.severalCounters() && !back && o.knew(v, d, c, source, key) {
		return false
	}
	written := o.world.sources[source].lastChanged()
	if at := d.templateWritten(); back && at.Before(written) {
		written = at
	}
	return !c.at.Before(written) || !p.created.Before(written) || d.newest() != nil && !d.newest().created.Before(written)
}

// comparable reports whether a record has an entry for a source that can be compared: with the same keys and, if
// it is or was an entry for all sources of a glob, with the same sources.
func (o *oracle) comparable(rec *recorded, d *workload, source int) bool {
	scopes := &d.truth.scopes
	annotted := scopes[source].annotted || rec.scopes[source].annotted
	glob := o.rules(d).glob
	return rec.scopes[source].same(scopes[source]) && (!annotted || !glob && !rec.glob || glob == rec.glob && rec.scopes == *scopes)
}

// knowable returns how a server could know that a container runs with content other than the current; empty: no
// server could.
func (o *oracle) knowable(d *workload, p *pod, c *container, source, key int) string {
	for _, s := range o.world.servers {
		if !s.alive || o.misled(&s.view, d, p, c, source, key) {
			continue
		}
		if o.knew(&s.view, d, c, source, key) {
			return fmt.Sprintf("server %d has seen %s.%s change", s.id, sourceNames[source], keyNames[key])
		}
		if why := o.told(s, d, p, source, key); why != "" {
			return why
		}
	}
	return ""
}

// told returns how a record shows a server that a pod runs with content other than the current; empty: no record
// does.
func (o *oracle) told(s *server, d *workload, p *pod, source, key int) string {
	scope, present := d.truth.scopes[source], o.world.sources[source].content[key]
	tells := func(rec *recorded) bool {
		return rec != nil && o.comparable(rec, d, source) && (!scope.ignores || !rec.absentIn(source, &scope)) && scope.seen(source, key, rec.contents[source][key]) != scope.seen(source, key, present)
	}
	if p.left && saysLeft(d.annotations[hashAnnotation]) {
		return "the record says that pods are left which were to be evicted"
	}
	if rec, _ := o.record(&d.manifest); tells(rec) {
		return fmt.Sprintf("the record has another %s.%s", sourceNames[source], keyNames[key])
	}
	if rec, _ := o.remembered(&s.view, &d.manifest); tells(rec) {
		return fmt.Sprintf("server %d had read that the record has another %s.%s when the key was replaced", s.id, sourceNames[source], keyNames[key])
	}
	return ""
}
