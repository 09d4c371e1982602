// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/judge"
)

// oracle compares what each container has read with what servers say and do.
type oracle struct {
	world     *world
	violation string // the first one
	patches   int    // by servers without a user's request
	tally     tally

	adopted   map[adoptedBy][]content // that count as read
	adoptedAt map[adoptedIn]time.Time
	undone    map[int]bool      // the last restart was undone by kubectl rollout undo, by the UIDs of workloads
	none      map[int]time.Time // when a server saw no pod of a custom resource, by the UIDs of workloads
	lagged    map[int]bool      // the last restart was begun by a server whose stream of pods lagged, by the UIDs of workloads
	recorded  map[int]recorded  // what servers wrote last, by the UIDs of workloads
	doubts    map[cause]int     // twice the number of restarts in doubt
	restarted map[int]int       // how often servers restarted them, by the UIDs of workloads
	approved  map[approvedHash][sourceCount]source
}

// tally counts events.
type tally map[string]int

// adoptedBy is a container, since it was started, and a source.
type adoptedBy struct {
	pod, container, source int
	started                uint64
}

// adoptedIn is a source of a workload, by its UID.
type adoptedIn struct{ workload, source int }

// recorded is a record of a workload, and why it is as it is.
type recorded struct {
	hash, sources    string
	recreating, last string // the pods of a restart that is under way, and what describes it
	rules            rules
	restarted        time.Time
	by               *server
	behind           bool // it was written by a server whose stream of sources lagged
}

// cause is a change of a source that may be a reason to restart a workload.
type cause struct {
	workload, source int
	since            uint64
	rules            rules
	unsure           bool
}

// reason is why a workload may be restarted.
type reason struct {
	stale  bool    // a container has not read the current content
	again  bool    // a pod of the current template is a reason
	doubts []cause // a container may not have
	what   string
	// since is when the first change was made that was not read, and changed when the last was seen.
	since, changed time.Time
}

func newOracle(w *world) *oracle {
	return &oracle{world: w, tally: tally{}, adopted: map[adoptedBy][]content{}, adoptedAt: map[adoptedIn]time.Time{}, lagged: map[int]bool{}, undone: map[int]bool{}, none: map[int]time.Time{}, recorded: map[int]recorded{}, doubts: map[cause]int{}, restarted: map[int]int{}, approved: map[approvedHash][sourceCount]source{}}
}

func (o *oracle) fail(format string, args ...any) {
	if o.violation == "" {
		o.violation = fmt.Sprintf(format, args...)
		o.world.logf("    VIOLATION: %s", o.violation)
	}
}

// arrived notes for which workloads there is a reason to restart them, by what a server has read.
func (o *oracle) arrived(s *server) {
	if !s.alive || !s.leads || !s.view.synced {
		return
	}
	o.knows(s)
	for slot := range o.world.workloads {
		m := s.view.workloads[slot]
		if m == nil {
			delete(s.why, slot)
			continue
		}
		if s.seesNone(m) {
			o.none[m.uid] = time.Now()
		}
		var why reason
		s.eachReads(m, func(r *reads) {
			r.keys = r.judged
			switch {
			case !r.scope.triggers && !r.scope.goes, r.isReplaced(), r.isAdopted() && !r.doubtful():
			case r.stale() && !r.isAdopted():
				why.add(r)
				why.again = why.again || r.hasTemplate()
			case r.doubtful():
				why.again = why.again || r.hasTemplate()
				if c := (cause{m.uid, r.source, r.now().changed, *r.rules, r.unsure()}); !slices.Contains(why.doubts, c) {
					why.doubts = append(why.doubts, c)
				}
			}
		})
		before := s.why[slot]
		if why.stale || !before.stale && len(why.doubts) > 0 || !s.asleep && !s.network.waits(s, slot) {
			s.why[slot] = why
		} else { // the answer to a request may come with what is a reason now
			before.again = before.again || why.again
			s.why[slot] = before
		}
	}
}

// add adds that a container has not read the current content.
func (why *reason) add(r *reads) {
	changed := r.view.changed[r.source]
	if why.stale, why.what = true, r.String(); changed.After(why.changed) && !r.missing() {
		why.changed = changed
	}
	from, _ := r.margins()
	for _, ch := range r.changes() {
		if (ch.from == r.read.since || ch.at.After(from)) && (why.since.IsZero() || ch.at.Before(why.since)) {
			why.since = ch.at
		}
	}
}

// patched judges a patch of a workload that is about to be carried out.
func (o *oracle) patched(r *request, d *workload, body *patchBody) {
	s, m := r.server, r.server.view.workloads[d.slot]
	set := body.Metadata.Annotations
	last := o.recorded[d.uid]
	rules := s.rules(&d.manifest)
	if r.ghost {
		if text := set[appliedAnnotation]; text != nil {
			o.adopts(r, d, rules, *text, ptr.Deref(set[hashAnnotation], last.hash))
		}
		return
	}
	names := ptr.Deref(set[recreatingAnnotation], "") // others restore what was removed
	restarts := len(body.Spec.Template.Metadata.Annotations) > 0 || body.Spec.RestartAt != nil || set[lastReloadAnnotation] != nil && names != "" &&
		(names != last.recreating || *set[lastReloadAnnotation] != last.last || ptr.Deref(set[hashAnnotation], last.hash) != last.hash)
	if restarts && r.reload != nil && (rules.inPlace || customKinds[d.kind] != nil || d.mounts) {
		o.adoptsAll(d)
	}
	switch {
	case r.reload != nil, m == nil, !s.alive, r.late && !rules.managed(): // the namespace did otherwise when it was sent
	case restarts:
		// A template that is borrowed has the hash of its lender.
		if hash := set[hashAnnotation]; r.reload == nil && hash != nil && *hash == d.template.annotations[hashAnnotation] && last.recreating == "" && names == "" &&
			!m.borrows && !r.orphaned && s.why[d.slot].stale && !s.why[d.slot].again && o.world.leaders() == 1 {
			o.fail("%s is restarted again for content for which its template was written, and no pod of it needs that", workloadName(d.slot))
		}
		undone := o.undone[d.uid] // with the list of pods, as it was while an earlier restart was carried out
		o.restarts(r, d, m, rules, last)
		if hash := set[hashAnnotation]; !undone && names != "" && last.recreating != "" && d.annotations[recreatingAnnotation] != "" && last.rules == rules && hash != nil && *hash == last.hash && last.by == s && last.sources == d.annotations[appliedAnnotation] && !o.world.onWrongClock(d) && !o.world.changedAfter(d, last.restarted) {
			o.fail("%s is restarted again while it is being restarted for the same content", workloadName(d.slot))
		}
	case set[appliedAnnotation] != nil:
		o.adopts(r, d, rules, *set[appliedAnnotation], ptr.Deref(set[hashAnnotation], last.hash))
	}
	if restarts && r.reload == nil {
		o.restarted[d.uid]++
		if last.restarted, last.by = time.Now(), s; r.late {
			last.by = nil // it was made earlier
		}
	}
	if v, found := set[appliedAnnotation]; found && ptr.Deref(v, "") != last.sources { // else it was removed, and is restored
		last.sources, last.rules, last.behind = ptr.Deref(v, ""), rules, r.behind
	}
	if v, found := set[hashAnnotation]; found {
		last.hash = ptr.Deref(v, "")
	}
	if v := set[lastReloadAnnotation]; v != nil {
		last.last = *v
	}
	if _, found := set[recreatingAnnotation]; found {
		last.recreating = names
	}
	o.recorded[d.uid] = last
}

// onWrongClock reports whether a pod is on a node with a wrong clock.
func (w *world) onWrongClock(d *workload) bool {
	return slices.ContainsFunc(d.pods, func(p *pod) bool { return w.skews.wrong(p.node()) })
}

// changedAfter reports whether content has changed at or after a time, also what a pod of the workload has mounted.
func (w *world) changedAfter(d *workload, at time.Time) bool {
	after := func(of []rewriting) bool { return len(of) > 0 && !of[len(of)-1].at.Before(at) }
	return slices.ContainsFunc(w.changes[:], after) || slices.ContainsFunc(d.pods, func(p *pod) bool { return p.mount != nil && p.mount.updated(at.Add(-statusMargin)) })
}

// changedAt reports whether the content of a source has changed at a time.
func (w *world) changedAt(source int, at time.Time) bool {
	return source < len(w.changes) && slices.ContainsFunc(w.changes[source], func(c rewriting) bool { return c.at.Equal(at) })
}

// restarts judges an automatic restart.
func (o *oracle) restarts(r *request, d *workload, m *manifest, rules rules, last recorded) {
	s := r.server
	name, why := workloadName(d.slot), s.why[d.slot]
	settle, most := rules.settle, 10*rules.settle // a release, whose client has changed several objects, may wait for longer
	older := slices.ContainsFunc(s.podsOf(d.slot), func(p *pod) bool { return p.template.variant != m.template.variant })
	o.tally["restarts"]++
	if customKinds[d.kind] != nil {
		o.tally["restarts of custom resources"]++
	}
	if o.lagged[d.uid], o.undone[d.uid] = r.lagged, false; rules.inPlace {
		o.adoptsAll(d)
	}
	if last.recreating == "" && d.annotations[recreatingAnnotation] == "" { // else it ends what another strategy has begun
		o.checkWindows(r, &rules, name)
	}
	switch {
	case !rules.managed() && !r.managed:
		o.fail("%s is restarted, although it has not opted in", name)
	case d.deleting || r.terminating && s.view.terminating:
		o.fail("%s is restarted, although it is being deleted", name)
	case d.paused:
		o.fail("%s is restarted, although it is paused", name)
	case m.wanted() == 0:
		o.fail("%s is restarted, although it has no pods", name)
	case rules.agent && last.recreating == "" && d.annotations[recreatingAnnotation] == "": // else it ends what another strategy has begun
		o.fail("%s is restarted, although its agents apply what changes", name)
	case (last.recreating != "" || d.annotations[recreatingAnnotation] != "") && (!why.stale || o.world.hasImmutable()): // it ends what has begun
		o.tally["restarts of which the strategy was changed"]++
		return
	case last.by == s && last.rules == rules && d.annotations[lastReloadAnnotation] == last.last && strings.Contains(last.last, `"automatic"`) && time.Since(last.restarted) < rules.minInterval-time.Millisecond: // the annotation has microseconds
		o.fail("%s is restarted %v after the last restart", name, time.Since(last.restarted))
	case o.world.skews.small() && !r.late && !r.kept && !r.lagged && last.rules == rules && time.Since(why.changed) < settle && time.Since(why.since) < most-2*time.Second && len(why.doubts) == 0 && !older && last.recreating == "":
		o.fail("%s is restarted %v after a change, before the settle time (%v)", name, time.Since(why.changed), settle)
	case why.stale:
		o.tally["restarts for content that was not read"]++
		return
	case len(why.doubts) == 0 && r.kept:
		o.tally["restarts that give back the template of pods"]++
		return
	case len(why.doubts) == 0 && time.Since(o.none[d.uid]) < time.Second:
		o.tally["restarts of custom resources of which no pod is seen"]++
		return
	case len(why.doubts) == 0 && m.bare:
		o.tally["restarts for what an annotation names, without a template"]++
		return
	case len(why.doubts) == 0 && r.hidden:
		o.tally["restarts in doubt because of a record of other content"]++
		return
	case len(why.doubts) == 0 && d.borrows && (d.newest().identity != d.template.identity() || s.lags(deployments)):
		o.tally["restarts while the template that is borrowed changes, which the Rollout does not tell"]++
		return
	case len(why.doubts) == 0 && last.sources != d.annotations[appliedAnnotation]: // by kubectl rollout undo, which brings back annotations
		o.tally["restarts by a record of before, which another client brought back"]++
		return
	case len(why.doubts) == 0 && last.behind:
		o.tally["restarts by a record of a server whose watch of sources lagged"]++
		return
	case len(why.doubts) == 0 && older:
		o.tally["restarts of pods of an older template, judged as if they had the current one"]++
		return
	case len(why.doubts) == 0 && (!o.world.skews.small() || m.kind == "Deployment" && s.lags(replicaSets)):
		o.tally["restarts with wrong clocks, or while revisions are not known"]++
		return
	case len(why.doubts) == 0:
		o.fail("%s is restarted by server %d, although its containers have read the current content", name, s.id)
		return
	}
	o.tally["restarts in doubt"]++
	// Else the last restart has been reverted.
	known := o.world.leaders() == 1 && d.template.annotations[hashAnnotation] == last.hash && d.annotations[lastReloadAnnotation] == last.last
	for _, c := range why.doubts {
		known = known && o.doubts[c] >= 2 && !c.unsure
		if o.world.leaders() == 1 {
			o.doubts[c]++
			if c.source == class || len(o.world.changes[c.source]) == 0 || time.Since(o.world.changes[c.source][len(o.world.changes[c.source])-1].at) > judge.ClockMargin+slack { // else new pods are in doubt
				o.doubts[c]++
			}
		}
	}
	replaced := rules.inPlace || slices.ContainsFunc(d.pods, func(p *pod) bool { return p.identity == d.template.identity() })
	if known && replaced && !older {
		o.fail("%s is restarted again because of the same doubts: %v", name, why.doubts)
	}
	s.why[d.slot] = reason{}
}

// record is what counts of the annotation applied-sources.
type record struct {
	At      time.Time         `json:"at"` // by the clock of a server
	Scope   string            `json:"scope"`
	Sources map[string]string `json:"sources"`
}

// adopts judges a record that restarts nothing: it may adopt content that containers have not read if the workload has just opted in, or the record was lost.
func (o *oracle) adopts(r *request, d *workload, rules rules, text, hash string) {
	var was, written, now record
	if json.Unmarshal([]byte(text), &now) != nil {
		o.fail("an invalid record: %s", text)
	}
	_ = json.Unmarshal([]byte(d.annotations[appliedAnnotation]), &was) // empty, or not ours
	o.tally["records"]++
	last, known := o.recorded[d.uid]
	_ = json.Unmarshal([]byte(last.sources), &written)
	may := r.ghost || !known || last.rules != rules || keyID(last.hash) != keyID(hash) || last.sources != d.annotations[appliedAnnotation] || last.hash != d.annotations[hashAnnotation]
	for source := range sourceNames {
		id := sourceID(source)
		content, seconds, adopts := strings.Cut(now.Sources[id], "@")
		if at, err := strconv.ParseInt(seconds, 10, 64); err == nil && now.At.Unix()-at > 1 { // it was adopted earlier, as an older record says
			continue
		}
		if !adopts && content != "" {
			o.forget(append(r.server.podsOf(d.slot), d.pods...), source)
		}
		before, _, _ := strings.Cut(was.Sources[id], "@")
		if !adopts || written.Sources[id] == now.Sources[id] || before == content && keyID(last.hash) == keyID(hash) {
			continue
		}
		if begins := was.Scope != now.Scope; !may && !begins { // as after an older record was restored
			o.fail("%s: a record adopts %s without a cause", workloadName(d.slot), id)
		}
		o.adopt(r, d, source, now.At)
	}
}

// keyID identifies the key of a hash.
func keyID(hash string) string { return hash[:min(len(hash), len("v1.12345678"))] }

// adoptsAll notes that a restart has begun with which all content counts as read.
func (o *oracle) adoptsAll(d *workload) {
	for source := range sourceNames {
		o.adoptedAt[adoptedIn{d.uid, source}] = time.Now()
	}
}

// adopt notes that the containers of a workload count as having read the content of a source, since a server decided that.
func (o *oracle) adopt(r *request, d *workload, source int, at time.Time) {
	s := r.server
	o.tally["sources that were adopted"]++
	o.adoptedAt[adoptedIn{d.uid, source}] = at.Add(-s.world.skews.Servers[s.id])
	for _, of := range [][]*pod{d.pods, s.podsOf(d.slot)} {
		for _, p := range of {
			for i := range p.containers {
				by := adoptedBy{p.uid, i, source, p.containers[i].started}
				switch {
				case source != class:
					o.adopted[by] = append(o.adopted[by], r.sources[source].content)
				case p.mount != nil: // as it is told by its time
					o.adopted[by] = append(o.adopted[by], p.mount.content)
					fallthrough
				default:
					o.adopted[by] = append(o.adopted[by], s.now(source, p).content)
				}
			}
		}
	}
}

// forget notes that the containers of a workload have read what is recorded of a source, so that what was adopted earlier is a change if it comes back.
func (o *oracle) forget(pods []*pod, source int) {
	for by := range o.adopted {
		if by.source == source && slices.ContainsFunc(pods, func(p *pod) bool { return p.uid == by.pod }) {
			delete(o.adopted, by)
		}
	}
}

func (s *server) podsOf(slot int) (out []*pod) {
	for _, p := range s.view.pods {
		if p.slot == slot {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *pod) int { return cmp.Compare(a.uid, b.uid) })
	return out
}
