// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/judge"
)

// oracle compares what each container has read with what servers say and do.
type oracle struct {
	world     *world
	violation string // the first one
	patches   int    // by servers without a user's request
	tally     tally

	adopted   map[adoptedBy][]content // that count as read
	adoptedAt map[int]time.Time       // by the UIDs of workloads
	lagged    map[int]bool            // the last restart was begun by a server whose stream of pods lagged, by the UIDs of workloads
	recorded  map[int]recorded        // what servers wrote last, by the UIDs of workloads
	doubts    map[cause]bool          // restarts in doubt
	restarted map[int]int             // how often servers restarted them, by the UIDs of workloads
}

// tally counts events.
type tally map[string]int

// adoptedBy is a container, since it was started, and a source.
type adoptedBy struct {
	pod, container, source int
	started                uint64
}

// recorded is a record of a workload, and why it is as it is.
type recorded struct {
	hash, sources    string
	recreating, last string // the pods of a restart that is under way, and what describes it
	rules            rules
	restarted        time.Time
	by               *server
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
	there  bool    // of a source that exists
	again  bool    // a pod of the current template is a reason
	doubts []cause // a container may not have
	what   string
	// since is when the first change was made that was not read, and changed when the last was seen.
	since, changed time.Time
}

func newOracle(w *world) *oracle {
	return &oracle{world: w, tally: tally{}, adopted: map[adoptedBy][]content{}, adoptedAt: map[int]time.Time{}, lagged: map[int]bool{}, recorded: map[int]recorded{}, doubts: map[cause]bool{}, restarted: map[int]int{}}
}

func (o *oracle) fail(format string, args ...any) {
	if o.violation == "" {
		o.violation = fmt.Sprintf(format, args...)
		o.world.logf("    VIOLATION: %s", o.violation)
	}
}

// use is what a container reads of a source, as far as it counts for its workload.
type reads struct {
	*server
	m         *manifest
	rules     *rules
	pod       *pod
	container int
	source    int
	files     bool
	scope     scope
	keys      keySet
	judged    keySet // of the current template, by which servers judge pods of an older one
	read      reading
}

func (r *reads) String() string {
	return fmt.Sprintf("server %d: container %d of pod %d of %s read %s %v of revision %d, which is %v now", r.id, r.container, r.pod.uid, workloadName(r.m.slot),
		sourceNames[r.source], r.read.content, r.read.since, r.now().content)
}

// rules returns the rules of a workload as a server has read it.
func (s *server) rules(m *manifest) rules {
	return rulesOf(m.annotations, s.view.annotations, s.world.defaults)
}

// eachReads calls f for what running containers of a workload read, as far as a server knows of it. What pods of an older template read counts if the current
// template has the same.
func (s *server) eachReads(m *manifest, f func(*reads)) {
	rules := s.rules(m)
	for _, p := range s.podsOf(m.slot) {
		if p.terminating {
			continue
		}
		for i := range p.containers {
			role := variants[p.template.variant][i].role
			if p.containers[i].started == 0 || p.template.image == crashing && role != initContainer {
				continue
			}
			for source := range sourceNames {
				if source == class && (p.mount == nil || !m.mounts) {
					continue
				}
				scope := rules.scope(m.template.variant, source, s.now(source, p).mark)
				for _, files := range []bool{false, true} {
					keys := scope.keys(m.template.variant, i, source, files)
					r := reads{s, m, &rules, p, i, source, files, scope, keys, keys, p.containers[i].read[asFiles(files)][source]}
					if scope.whole && (files || p.template.variant != m.template.variant) {
						continue
					}
					if p.template.variant != m.template.variant && !scope.whole {
						own := scope.keys(p.template.variant, i, source, files)
						if r.keys &= own; own|scope.keys(p.template.variant, i, source, !files) == 0 {
							continue
						}
					}
					if keys != 0 {
						f(&r)
					}
				}
			}
		}
	}
}

// asFiles is an index of container.read.
func asFiles(files bool) int {
	if files {
		return 1
	}
	return 0
}

// missing reports whether a container of the current template, or of that of its pod, could not be started with what the server, or the container, has read of the source, so that this
// is no content for it.
func (r *reads) missing() bool {
	now := r.now()
	uses := slices.Concat(usesOf(r.m.template.variant), usesOf(r.pod.template.variant))
	return !r.scope.whole && slices.ContainsFunc(uses, func(u use) bool {
		return u.source == r.source && (!u.starts(now.present, now.content) || !u.starts(r.read.content != content{}, r.read.content))
	})
}

// stale reports whether the container has read other content than the server has read last.
func (r *reads) stale() bool {
	if r.source == class { // the server may have yet to read what the container has
		return r.now().content[0] > r.read.content[0]
	}
	return r.scope.differ(r.source, r.keys, r.files || r.scope.whole, r.read.content, r.now().content)
}

// behind reports whether the server has yet to read what the container has read.
func (r *reads) behind() bool {
	st := &r.streams[sourceStream(r.source)]
	return st.relist || !st.listed || slices.ContainsFunc(st.queue, func(e event) bool { return e.slot == r.source && e.revision <= r.pod.containers[r.container].started })
}

// isAdopted reports whether the current content was adopted by the container.
func (r *reads) isAdopted() bool {
	return slices.ContainsFunc(r.world.oracle.adopted[r.by()], func(c content) bool {
		return !r.scope.differ(r.source, r.keys, r.files || r.scope.whole, c, r.now().content)
	})
}

func (r *reads) by() adoptedBy {
	return adoptedBy{r.pod.uid, r.container, r.source, r.pod.containers[r.container].started}
}

// doubtful reports whether the source changed at about the time when the container started or it was adopted, or unseen, or the kubelet has forgotten the start.
func (r *reads) doubtful() bool {
	return r.isNear() || r.isUnseen() || r.updatedAround(r.world.oracle.adoptedAt[r.m.uid]) || r.pod.containers[r.container].at.IsZero()
}

// slack is what two clocks that differ by a second each, in whole seconds, add to the margins of the judge.
const slack = 4 * time.Second

// margin is by how much the times of a change and a start may differ, with clocks and delays of streams.
func (r *reads) margin() time.Duration {
	if r.files || r.source == class {
		return judge.VolumeMargin + slack
	}
	return judge.ClockMargin + slack
}

// margins returns when the container may have read the source at the earliest, and when it certainly had.
func (r *reads) margins() (from, to time.Time) {
	c := &r.pod.containers[r.container]
	last := c.real
	if c.at.IsZero() { // it started at any time before the others did
		last = r.pod.firstStart()
	}
	return c.real.Add(-r.margin()), last.Add(judge.ClockMargin + slack)
}

// isNear reports whether the source changed at about the time when the container started.
func (r *reads) isNear() bool {
	from, to := r.margins()
	return slices.ContainsFunc(r.changes(), func(ch rewriting) bool {
		near := ch.at.After(from) && ch.at.Before(to)
		if at, read := r.view.readAt[r.source][ch.to]; read && !ch.dated { // nothing else tells when it was made
			if r.pod.created.After(from) {
				from = r.pod.created.Add(-judge.ClockMargin - slack)
			}
			near = near || at.After(from) && r.view.heard[r.source][ch.to].Before(to.Add(judge.ClockMargin+time.Second))
		}
		return near
	})
}

// isUnseen reports whether no event told a change that the container may not have read.
func (r *reads) isUnseen() bool {
	from, _ := r.margins()
	return slices.ContainsFunc(r.changes(), func(ch rewriting) bool {
		return !r.view.read[r.source][ch.to] && (!ch.dated || ch.at.After(from))
	})
}

// unseen reports whether the server has not read the state of the source that the container has read: it did not run, or read it in a list later.
func (r *reads) unseen() bool {
	_, seen := r.view.read[r.source][r.read.since]
	return !seen && r.source != class // the last state tells of those before
}

// wasBefore reports whether the source had the current content before the container read other content.
func (r *reads) wasBefore() bool {
	return slices.ContainsFunc(r.changes(), func(ch rewriting) bool {
		return ch.from < r.read.since && !r.scope.differ(r.source, r.keys, r.files || r.scope.whole, ch.was, r.now().content)
	})
}

// undated reports whether a change since then left no time.
func (r *reads) undated() bool {
	return slices.ContainsFunc(r.changes(), func(ch rewriting) bool { return ch.from >= r.read.since && !ch.dated })
}

// unsure reports whether only the clock of the server tells when the last change was made, and it differs from that of the API server, by which pods are created.
func (r *reads) unsure() bool {
	changes, skews := r.changes(), &r.world.skews
	return len(changes) > 0 && !changes[len(changes)-1].dated && skews.Servers[r.id] != skews.API
}

// lateUndated reports whether the server has read a change late that left no time, since the container started.
func (r *reads) lateUndated() bool {
	return slices.ContainsFunc(r.changes(), func(ch rewriting) bool {
		at, read := r.view.readAt[r.source][ch.to]
		return read && !ch.dated && at.Sub(ch.at) > judge.ClockMargin/2
	})
}

// isTold reports whether the clocks of the API server and the servers are right, and that of the node is so, too, or so wrong that servers must see it.
func (r *reads) isTold() bool {
	skews := r.world.skews
	c, node := &r.pod.containers[r.container], r.pod.node()
	wrong := skews.wrong(node)
	skews.Nodes = [3]time.Duration{}
	started := seconds(c.at)
	return skews.small() && (!wrong || !c.at.IsZero() && (started.Add(judge.ClockMargin).Before(seconds(r.pod.created)) ||
		started.After(time.Now().Add(skews.Servers[r.id]+judge.ClockMargin))))
}

// cause returns why it is not known what the container has read; empty: there is no reason.
func (r *reads) cause(v *judge.SourceVerdict) string {
	c := &r.pod.containers[r.container]
	from, _ := r.margins()
	switch {
	case v.Reason == judge.ReasonNodeClock && !r.world.skews.small():
		return "the clock is wrong"
	case c.at.IsZero():
		return "its kubelet has forgotten the start"
	case v.Reason == judge.ReasonNodeClock:
		return ""
	case !r.isTold():
		return "the clock is wrong"
	case v.Reason == judge.ReasonSourceMissing:
		return "the source or a key is missing"
	case v.Reason == judge.ReasonFilesChanged && r.files && r.stale():
		return "files changed"
	case v.Reason == judge.ReasonFilesChanged && r.lateUndated():
		return "late watch"
	case r.isNear():
		return "a change at about the time of the start"
	case r.source == class && (r.lags(podStatuses) || !r.now().present):
		return "it is not known yet what the pod has mounted"
	case r.isUnseen():
		return "a change was not seen, or a list showed it"
	case r.view.first[r.source].written.After(from):
		return "written before the server began to read it"
	case v.Recorded != nil && !v.Recorded.Same && from.Before(r.view.began):
		return "the record is about other content, and a key may have been removed unseen"
	case r.stuck():
		return "a volume could not be refreshed"
	case r.pod.template.variant != r.m.template.variant:
		return "an older template"
	case len(v.Periods) >= dependency.MaxPeriods:
		return "too many changes"
	case r.view.unnamed[r.source]:
		return "deleted while no template named it"
	default:
		return ""
	}
}

// stuck reports whether a volume kept its files because it could not be refreshed.
func (r *reads) stuck() bool {
	return r.files && slices.ContainsFunc(r.changes(), func(ch rewriting) bool {
		return ch.to > r.pod.born && slices.ContainsFunc(usesOf(r.m.template.variant), func(u use) bool { return u.source == r.source && u.mounted() && !u.startsWith(reading{ch.is, ch.to}) })
	})
}

// flashed reports whether there was content that a volume had no time to show, because it could not be refreshed soon after.
func (r *reads) flashed() bool {
	changes := r.changes()
	for i := range changes[:max(0, len(changes)-1)] {
		ch, next := &changes[i], &changes[i+1]
		starts := func(c content, since uint64) bool {
			return !slices.ContainsFunc(usesOf(r.m.template.variant), func(u use) bool { return u.source == r.source && u.mounted() && !u.startsWith(reading{c, since}) })
		}
		if r.files && next.at.Sub(ch.at) < r.world.kubelets.Refresh && starts(ch.is, ch.to) && !starts(next.is, next.to) {
			return true
		}
	}
	return false
}

// sameSecond reports whether the source was written in the second in which the pod was created, and the clock of its node is another one, or the volumes of the
// pod had been set up.
func (r *reads) sameSecond() bool {
	skews := &r.world.skews
	return slices.ContainsFunc(r.changes(), func(ch rewriting) bool {
		return (skews.Nodes[r.pod.node()] != skews.API || r.files && r.pod.setUp.Before(ch.at)) && seconds(ch.at.Add(skews.API)).Equal(seconds(r.pod.created))
	})
}

// lagged reports whether the source was written so shortly before the container started that its kubelet may not have seen that.
func (r *reads) lagged() bool {
	started := r.pod.containers[r.container].real
	return !r.files && slices.ContainsFunc(r.changes(), func(ch rewriting) bool { return !ch.at.After(started) && started.Sub(ch.at) <= r.world.kubelets.Lag })
}

// gone reports whether the pod has been deleted, which the server has yet to read.
func (r *reads) gone() bool {
	d := r.world.workloads[r.m.slot]
	return d == nil || !slices.ContainsFunc(d.pods, func(p *pod) bool { return p.uid == r.pod.uid })
}

// excuse returns the documented limit because of which a verdict may be wrong; empty: there is none.
func (r *reads) excuse(v *judge.SourceVerdict) string {
	switch {
	case !r.world.skews.small() && !r.isTold():
		return "clocks"
	case r.unseen() && r.undated():
		return "deleted or removed unseen"
	case r.view.unnamed[r.source]:
		return "deleted while no template named it"
	case r.lateUndated():
		return "late watch"
	case r.unseen() && (v.State == judge.Stale || v.Reason != judge.ReasonStartedAfter && r.wasBefore()):
		return "there and back unseen"
	case r.sameSecond():
		return "same second"
	case r.source == class && !r.now().present:
		return "what another pod of the name has mounted"
	case r.gone():
		return "the pod is gone, and another server has recorded that"
	case v.State == judge.Current && r.lagged():
		return "the kubelet lags"
	case r.flashed():
		return "content that went before a volume was refreshed"
	default:
		return ""
	}
}

// arrived notes for which workloads there is a reason to restart them, by what a server has read.
func (o *oracle) arrived(s *server) {
	if !s.alive || !s.leads || !s.view.synced {
		return
	}
	for slot := range o.world.workloads {
		m := s.view.workloads[slot]
		if m == nil {
			delete(s.why, slot)
			continue
		}
		var why reason
		s.eachReads(m, func(r *reads) {
			r.keys = r.judged
			switch {
			case !r.scope.triggers && !r.scope.goes, r.isReplaced(), r.isAdopted() && !r.doubtful():
			case r.stale() && !r.isAdopted():
				why.add(r)
				why.again = why.again || r.pod.identity == m.template.identity()
			case r.doubtful():
				why.again = why.again || r.pod.identity == m.template.identity()
				why.doubts = append(why.doubts, cause{m.uid, r.source, r.now().changed, *r.rules, r.unsure()})
			}
		})
		if before := s.why[slot]; why.stale || !before.stale && len(why.doubts) > 0 || !s.asleep && !s.network.waits(s, slot) {
			s.why[slot] = why
		}
	}
}

// add adds that a container has not read the current content.
func (why *reason) add(r *reads) {
	changed := r.view.changed[r.source]
	if why.stale, why.what = true, r.String(); changed.After(why.changed) {
		why.changed = changed
	}
	why.there = why.there || r.now().present && r.source != class // which no release writes
	from, _ := r.margins()
	for _, ch := range r.changes() {
		if (ch.from == r.read.since || ch.at.After(from)) && (why.since.IsZero() || ch.at.Before(why.since)) {
			why.since = ch.at
		}
	}
}

// isReplaced reports whether the pod has an older template, and a running rollout replaces it. Of a DaemonSet, only the hash on the template tells that.
func (r *reads) isReplaced() bool {
	if hash := r.m.template.annotations[hashAnnotation]; r.m.kind == "DaemonSet" && (hash == "" || hash == r.pod.template.annotations[hashAnnotation]) {
		return false
	}
	held := r.m.onDelete || r.m.partition > 0 || r.m.paused
	return !held && r.pod.identity != r.m.template.identity() && r.m.unfinished() && !r.m.progress.failed && !r.lags(pods) && !r.lags(replicaSets)
}

// patched judges a patch of a workload that is about to be carried out.
func (o *oracle) patched(r *request, d *workload, body *patchBody) {
	if r.ghost {
		return
	}
	s, m := r.server, r.server.view.workloads[d.slot]
	set := body.Metadata.Annotations
	last := o.recorded[d.uid]
	rules := s.rules(&d.manifest)
	names := ptr.Deref(set[recreatingAnnotation], "") // others restore what was removed
	restarts := len(body.Spec.Template.Metadata.Annotations) > 0 || set[lastReloadAnnotation] != nil && names != "" &&
		(names != last.recreating || *set[lastReloadAnnotation] != last.last)
	switch {
	case r.reload != nil, m == nil, !s.alive, r.late && !rules.managed(): // the namespace did otherwise when it was sent
	case restarts:
		if hash := set[hashAnnotation]; r.reload == nil && hash != nil && *hash == d.template.annotations[hashAnnotation] && last.recreating == "" && names == "" &&
			s.why[d.slot].stale && !s.why[d.slot].again && o.world.leaders() == 1 {
			o.fail("%s is restarted again for content for which its template was written, and no pod of it needs that", workloadName(d.slot))
		}
		o.restarts(s, d, m, rules, last, r.terminating && s.view.terminating)
		if hash := set[hashAnnotation]; names != "" && last.recreating != "" && d.annotations[recreatingAnnotation] != "" && last.rules == rules && hash != nil && *hash == last.hash && !o.world.onWrongClock(d) && !o.world.changedAfter(d, last.restarted) {
			o.fail("%s is restarted again while it is being restarted for the same content", workloadName(d.slot))
		}
	case set[appliedAnnotation] != nil:
		o.adopts(s, d, rules, *set[appliedAnnotation], ptr.Deref(set[hashAnnotation], last.hash))
	}
	if restarts && r.reload == nil {
		o.restarted[d.uid]++
		if last.restarted, last.by = time.Now(), s; r.late {
			last.by = nil // it was made earlier
		}
	}
	if v, found := set[appliedAnnotation]; found && ptr.Deref(v, "") != last.sources { // else it was removed, and is restored
		last.sources, last.rules = ptr.Deref(v, ""), rules
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

// restarts judges an automatic restart. Terminating: the server knew that the namespace is being deleted.
func (o *oracle) restarts(s *server, d *workload, m *manifest, rules rules, last recorded, terminating bool) {
	name, why := workloadName(d.slot), s.why[d.slot]
	settle, most := rules.settle, 10*rules.settle
	if release := rules.release; release > 0 && why.there { // owners write content and templates
		settle, most = release, 4*release
	}
	older := slices.ContainsFunc(s.podsOf(d.slot), func(p *pod) bool { return p.template.variant != m.template.variant })
	o.tally["restarts"]++
	if o.lagged[d.uid] = s.lags(pods); rules.inPlace {
		o.adoptedAt[d.uid] = time.Now()
	}
	switch {
	case !rules.managed():
		o.fail("%s is restarted, although it has not opted in", name)
	case d.deleting || terminating:
		o.fail("%s is restarted, although it is being deleted", name)
	case d.paused:
		o.fail("%s is restarted, although it is paused", name)
	case m.wanted() == 0:
		o.fail("%s is restarted, although it has no pods", name)
	case rules.agent && last.recreating == "" && d.annotations[recreatingAnnotation] == "": // else it ends what another strategy has begun
		o.fail("%s is restarted, although its agents apply what changes", name)
	case (last.recreating != "" || d.annotations[recreatingAnnotation] != "") && !why.stale: // it ends what has begun
		o.tally["restarts of which the strategy was changed"]++
		return
	case last.by == s && last.rules == rules && d.annotations[lastReloadAnnotation] == last.last && time.Since(last.restarted) < rules.minInterval-time.Millisecond: // the annotation has microseconds
		o.fail("%s is restarted %v after the last restart", name, time.Since(last.restarted))
	case o.world.skews.small() && last.rules == rules && time.Since(why.changed) < settle && time.Since(why.since) < most && len(why.doubts) == 0 && !older && last.recreating == "":
		o.fail("%s is restarted %v after a change, before the settle time (%v)", name, time.Since(why.changed), settle)
	case why.stale:
		o.tally["restarts for content that was not read"]++
		return
	case len(why.doubts) == 0 && s.show(m).kept:
		o.tally["restarts that give back the template of pods"]++
		return
	case len(why.doubts) == 0 && older:
		o.tally["restarts of pods of an older template, judged as if they had the current one"]++
		return
	case len(why.doubts) == 0 && (!o.world.skews.small() || s.lags(pods) || m.kind == "Deployment" && s.lags(replicaSets)):
		o.tally["restarts with wrong clocks, or while pods or revisions are not known"]++
		return
	case len(why.doubts) == 0:
		o.fail("%s is restarted by server %d, although its containers have read the current content", name, s.id)
		return
	}
	o.tally["restarts in doubt"]++
	// Else the last restart has been reverted.
	known := o.world.leaders() == 1 && d.template.annotations[hashAnnotation] == last.hash && d.annotations[lastReloadAnnotation] == last.last
	for _, c := range why.doubts {
		known = known && o.doubts[c] && !c.unsure
		o.doubts[c] = o.doubts[c] || o.world.leaders() == 1
	}
	if known {
		o.fail("%s is restarted again because of the same doubts", name)
	}
	s.why[d.slot] = reason{}
}

// record is what counts of the annotation applied-sources.
type record struct {
	Sources map[string]string `json:"sources"`
}

// adopts judges a record that restarts nothing: it may adopt content that containers have not read if the workload has just opted in, or the record was lost.
func (o *oracle) adopts(s *server, d *workload, rules rules, text, hash string) {
	var was, now record
	if json.Unmarshal([]byte(text), &now) != nil {
		o.fail("an invalid record: %s", text)
	}
	_ = json.Unmarshal([]byte(d.annotations[appliedAnnotation]), &was) // empty, or not ours
	o.tally["records"]++
	last, known := o.recorded[d.uid]
	may := !known || last.rules != rules || keyID(last.hash) != keyID(hash) || last.sources != d.annotations[appliedAnnotation] || last.hash != d.annotations[hashAnnotation]
	for source := range sourceNames {
		id := kindNames[sourceStream(source)] + "/" + sourceNames[source]
		content, _, adopts := strings.Cut(now.Sources[id], "@")
		if before, _, _ := strings.Cut(was.Sources[id], "@"); !adopts || before == content && keyID(last.hash) == keyID(hash) {
			continue
		}
		if !may {
			o.fail("%s: a record adopts %s without a cause", workloadName(d.slot), id)
		}
		o.adopt(s, d, source)
	}
}

// admitted notes what the webhook adopts.
func (o *oracle) admitted(s *server, d *workload) {
	var was, now record
	_ = json.Unmarshal([]byte(o.recorded[d.uid].sources), &was) // empty, if there was none
	_ = json.Unmarshal([]byte(d.annotations[appliedAnnotation]), &now)
	for source := range sourceNames {
		id := kindNames[sourceStream(source)] + "/" + sourceNames[source]
		content, _, adopts := strings.Cut(now.Sources[id], "@")
		if before, _, _ := strings.Cut(was.Sources[id], "@"); adopts && before != content {
			o.adopt(s, d, source)
		}
	}
}

// keyID identifies the key of a hash.
func keyID(hash string) string { return hash[:min(len(hash), len("v1.12345678"))] }

// adopt notes that the containers of a workload count as having read the content of a source.
func (o *oracle) adopt(s *server, d *workload, source int) {
	o.tally["sources that were adopted"]++
	o.adoptedAt[d.uid] = time.Now()
	for _, of := range [][]*pod{d.pods, s.podsOf(d.slot)} {
		for _, p := range of {
			for i := range p.containers {
				by := adoptedBy{p.uid, i, source, p.containers[i].started}
				o.adopted[by] = append(o.adopted[by], s.now(source, p).content)
			}
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

// shown is what a server shows of a workload.
type shown struct {
	decide.Decision

	verdicts map[verdictOf]judge.SourceVerdict
	rules    rules
	// kept: the hash of the content is that of pods which a rollout is about to replace, and of which none of its pods has started: it gives back their template.
	kept bool
}

// verdictOf identifies a verdict.
type verdictOf struct {
	pod, container, source int
	files                  bool
}

// show returns what a server shows of a workload; nil: it does not know it.
func (s *server) show(m *manifest) (out *shown) {
	s.index.Read(func(known decide.Evaluator) {
		w := known.Graph.Workload(m.key())
		if w == nil {
			return
		}
		e, now := known.Evaluate(w), s.controller.Clock.Now()
		out = &shown{e.Decide(now), map[verdictOf]judge.SourceVerdict{}, s.rules(m), false}
		begun := w.Marks.TemplateHash != "" && w.Marks.TemplateHash != e.Hash
		j := e.Judge(now)
		known.Graph.PodsOf(w, func(p *dependency.Pod) bool {
			of := s.view.pods[p.Name]
			out.kept = out.kept || p.Hash == e.Hash && p.Deleted.IsZero()
			begun = begun && (p.Hash != w.Marks.TemplateHash || slices.ContainsFunc(p.Containers, func(c dependency.PodContainer) bool { return c.Waiting != "" }))
			for i := range p.Containers {
				var n int
				_, _ = fmt.Sscanf(p.Containers[i].Name, "container-%d", &n)
				j.Container(p, &p.Containers[i], func(v judge.SourceVerdict) {
					if of != nil && p.Deleted.IsZero() {
						out.verdicts[verdictOf{of.uid, n, slices.Index(sourceNames[:], v.Name), v.File}] = v
					}
				})
			}
			return true
		})
		out.kept = out.kept && begun
	})
	return out
}

// check checks what servers show. Calm: nothing is due any longer.
func (o *oracle) check(calm bool) {
	for _, s := range o.world.servers {
		if !s.alive || !s.view.synced {
			continue
		}
		for slot := range o.world.workloads {
			if m := s.view.workloads[slot]; m != nil {
				o.checkShown(s, m, calm)
			}
		}
	}
}

func (o *oracle) checkShown(s *server, m *manifest, calm bool) {
	got := s.show(m)
	if got == nil {
		return
	}
	o.tally["states"]++
	stale := false // as servers see it, or in doubt
	for _, v := range got.verdicts {
		stale = stale || v.State == judge.Stale || v.Doubt || v.Reason == judge.ReasonNodeClock // of which the record tells
		if got.State == decide.InSync && got.Reason != decide.ReasonTerminating && !got.rules.agent && (v.State == judge.Stale || v.State == judge.Unknown) {
			o.fail("%s: server %d shows InSync (%s), although a container is %s (%s)", workloadName(m.slot), s.id, got.Message, v.State, v.Reason)
		}
	}
	if due := got.State == decide.Stale || got.State == decide.Settling || got.State == decide.Pending && got.Reason == decide.ReasonSourceChanged; due && !stale && !got.kept {
		o.fail("%s: server %d shows %s (%s: %s), although no container is stale", workloadName(m.slot), s.id, got.State, got.Reason, got.Message)
	}
	o.checkAgents(s, m, got)
	s.eachReads(m, func(r *reads) {
		v, judged := got.verdicts[verdictOf{r.pod.uid, r.container, r.source, r.files}]
		if !judged || r.keys == 0 || r.missing() || r.behind() {
			return
		}
		// What a container of an older template has read is judged as if it had the current one.
		wrong := v.State == judge.Current && r.stale() || v.State == judge.Stale && !r.stale() && r.pod.template.variant == m.template.variant
		if excuse := r.excuse(&v); wrong && excuse != "" {
			o.tally["false "+string(v.State)+", excused: "+excuse]++
		} else if wrong {
			o.fail("%v, and the verdict is %s (%s)", r, v.State, v.Reason)
		}
		if v.State == judge.Unknown {
			cause := r.cause(&v)
			if cause == "" {
				o.fail("%v, and without a cause, the verdict is %s (%s)", r, v.State, v.Reason)
			}
			what := "Unknown"
			if v.Doubt {
				what = "doubt"
			}
			o.tally[fmt.Sprintf("%s (%s): %s", what, v.Reason, cause)]++
		}
		if calm && s.leads {
			o.checkApplied(s, r, &v, got)
		}
	})
	if calm && s.leads {
		o.checkRest(s, m, got)
	}
}

// checkApplied checks, when nothing is due any longer, that a container of a workload that is restarted automatically has read the current content.
func (o *oracle) checkApplied(s *server, r *reads, v *judge.SourceVerdict, got *shown) {
	d := o.world.workloads[r.m.slot]
	if d == nil || !r.rules.managed() || r.rules.agent || !r.scope.triggers || !r.stale() || r.isAdopted() || d.exempt(s) || r.pod.identity != d.template.identity() {
		return
	}
	switch {
	case got.State == decide.Blocked || got.State == decide.Failed || got.State == decide.RollingOut:
		o.tally["not applied: "+string(got.State)+" "+got.Reason]++
	case r.updatedAround(o.adoptedAt[d.uid]):
		o.tally["not applied, updated as content was adopted"]++
	case v.State == judge.Unknown && o.adoptedAt[d.uid].Sub(r.pod.containers[r.container].real).Abs() < r.margin():
		o.tally["not applied, started as content was adopted, or at a restart in place: "+v.Reason]++
	case r.rules.inPlace && o.lagged[d.uid]: // a restart in place is about the pods that are known when it begins
		o.tally["not applied, restarted before the pod was known: "+v.Reason]++
	case v.Reason == judge.ReasonNodeClock && (o.world.skews.wrong(r.pod.node()) || r.pod.containers[r.container].at.IsZero()):
		o.tally["not applied, wrong clock of a node"]++
	case v.State == judge.Current, v.State == judge.Unknown && r.unseen():
		o.tally["not applied, unseen: "+v.Reason]++
	default:
		o.fail("%v, and nothing will apply it: %s (%s), %s (%s)", r, v.State, v.Reason, got.State, got.Message)
	}
}

// exempt reports whether a workload is not restarted, whatever has changed, or its owner reverts that.
func (d *workload) exempt(s *server) bool {
	return d.deleting || s.view.terminating || d.paused || d.runs() || d.holder.fights() || d.stuck() || d.pdb
}

// checkRest checks that nothing seems to be due when nothing will happen.
func (o *oracle) checkRest(s *server, m *manifest, got *shown) {
	d := o.world.workloads[m.slot]
	if d == nil || d.exempt(s) || got.rules.agent {
		return
	}
	if got.State == decide.Settling || got.State == decide.Pending {
		o.fail("%s: server %d shows %s (%s: %s) at rest", workloadName(m.slot), s.id, got.State, got.Reason, got.Message)
	}
	o.tally["at rest: "+string(got.State)]++
}

// checkAgents checks that no workload is shown as in sync of which an agent has not applied content that the server has read.
func (o *oracle) checkAgents(s *server, m *manifest, got *shown) {
	d := o.world.workloads[m.slot]
	if d == nil || d.uid != m.uid || !got.rules.agent || got.State != decide.InSync || got.Reason == decide.ReasonTerminating {
		return
	}
	if got.Reason == decide.ReasonNoPods {
		if i := slices.IndexFunc(s.podsOf(m.slot), func(p *pod) bool { return !p.terminating && !p.created.Before(m.created) }); i >= 0 {
			o.fail("%s: server %d shows InSync (%s), but there is pod %d", workloadName(m.slot), s.id, got.Message, s.podsOf(m.slot)[i].uid)
		}
		return
	}
	o.tally["workloads that agents keep in sync"]++
	for _, p := range s.podsOf(m.slot) {
		for source := range sourceCount {
			seen, applied := &s.view.sources[source], &p.agent.applied[source]
			same := applied.present == seen.present && applied.content == seen.content || applied.changed > seen.changed
			former := p.created.Before(m.created) // of a workload of the same name, whose end is not yet known
			if p.agent.sources.has(source) && !p.terminating && !former && (!p.agent.has || !same) {
				o.fail("%s: server %d shows InSync (%s), but the agent of pod %d has not applied %s", workloadName(m.slot), s.id, got.Message, p.uid, sourceNames[source])
			}
		}
	}
}
