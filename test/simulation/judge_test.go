// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

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

// arrived records what has reached a server.
func (o *oracle) arrived(s *server) {
	for slot, d := range o.world.workloads {
		// If containers were found to have started with different content, that remains a reason until the next
		// restart.
		if d == nil || !s.leads || !d.truth.mixed && len(o.reasons(d, &s.view).sources) == 0 && !o.unordered(d, &s.view) {
			lags := d != nil && len(s.streams[workloadStream(d.kind)].queue) > 0
			if !s.asleep && !lags && !s.network.waits(s, slot) { // otherwise the server does not notice
				delete(s.staleSince, slot)
			}
		} else if _, found := s.staleSince[slot]; !found {
			s.staleSince[slot] = time.Now()
		}
	}
}

// lostAfter is when a server may assume that a write is lost if it has not been read.
const lostAfter = 5 * time.Minute

// sent records a request.
func (o *oracle) sent(r *request) {
	r.written = r.server.written
	var body patchBody
	if p := r.patch(); p == nil {
		o.tally.Reads++
	} else {
		o.count(r)
		if r.ofPod() {
			return
		}
		if json.Unmarshal(p.GetPatch(), &body) == nil && r.reload == nil {
			v, _ := strconv.ParseUint(body.Metadata.ResourceVersion, 10, 64)
			if last := r.server.written[r.slot]; v < last.version && r.sent.Before(last.at.Add(lostAfter)) {
				o.fail("%s is patched before the last write, of version %d, was read", workloadName(r.slot), last.version)
			}
		}
	}
}

// unordered reports whether a server must consider a workload stale because its record has other content, or there
// is none, and revisions do not show that the pods are younger.
func (o *oracle) unordered(d *workload, v *view) bool {
	if !o.world.severalCounters() {
		return false
	}
	marks := v.marks()
	scopes := rulesOf(d.declares(), v.annotations, o.world.defaults).scopes(d.template.variant, &marks)
	rec, bare := o.remembered(v, &d.manifest)
	for s := range scopes {
		switch {
		case !scopes[s].counts():
		case rec == nil || bare || !rec.scopes[s].same(scopes[s]):
			if !v.sources[s].arrived.IsZero() {
				return true
			}
		case o.recordDiffers(rec, &scopes, s, v):
			return true
		}
	}
	return false
}

// answered records an answer.
func (o *oracle) answered(r *request) {
	switch {
	case apierrors.IsConflict(r.done.err):
		o.tally.Conflicts++
	case r.done.err != nil:
		o.tally.Failures++
	case r.patch() != nil && r.reload == nil && !r.ofPod():
		m, err := meta.Accessor(r.done.object)
		if err != nil {
			panic(err)
		}
		v, _ := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
		r.written[r.slot] = confirmed{v, time.Now()}
	}
}

// reasons are the sources for which a server that has seen this much may restart a workload.
type reasons struct {
	sources []int
	must    bool // a container is known to run with other content, rather than possibly
}

// reasons returns them: of the sources that count, the ones with content that a container of the current template
// has not read; and those that it may not have read, because servers see no pods.
func (o *oracle) reasons(d *workload, v *view) (r reasons) {
	marks := v.marks()
	scopes := rulesOf(d.declares(), v.annotations, o.world.defaults).counting().scopes(d.template.variant, &marks)
	contents := v.contents()
	var is [sourceCount]bool
	d.stale(&scopes, &contents, func(_ *pod, _ *container, s, _ int) { is[s], r.must = true, true })
	for s := range scopes {
		if scopes[s].ignores && !v.sources[s].present {
			continue
		}
		for k, maybe := range d.maybe[s] {
			if scopes[s].keys.has(k) && scopes[s].differs(s, k, maybe, contents[s][k]) {
				is[s] = true
			}
		}
		if is[s] {
			r.sources = append(r.sources, s)
		}
	}
	return r
}

// beforePatch judges a patch that is about to be applied, and reports whether it restarts.
func (o *oracle) beforePatch(r *request, d *workload, body *patchBody) (restarts bool) {
	marks := r.seen.marks()
	rules := rulesOf(d.declares(), r.seen.annotations, o.world.defaults)
	if hash := body.Metadata.Annotations[hashAnnotation]; hash != nil {
		d.truth.mixed = d.truth.mixed || strings.Contains(*hash, ".mixed")
		o.learn(*hash, r.seen.key, rules.counting(), d.template.variant, r.seen.contents(), marks)
	}
	abandons := body.Metadata.Annotations[hashAnnotation] != nil && saysLeft(*body.Metadata.Annotations[hashAnnotation])
	if abandons && d.annotations[recreatingAnnotation] == "" {
		o.fail("a record of %s says that pods are left which were to be evicted, but there were none", workloadName(d.slot))
	}
	removes := len(body.Spec.Template.Metadata.Annotations) == 0
	for _, value := range body.Metadata.Annotations {
		removes = removes && value == nil
	}
	name := workloadName(d.slot)
	switch {
	case d.deleting:
		o.fail("%s is patched while it is being deleted", name)
	case r.seen.terminating && o.world.terminating && !removes:
		// Otherwise, the UID of the workload shows that the namespace is another one. The end of an eviction may
		// be noticed while the namespace begins to be deleted.
		o.fail("%s is patched while its namespace is being deleted", name)
	case !rules.managed() && !removes && !abandons && r.reload == nil:
		o.fail("%s is patched although it is not managed (%+v)", name, rules)
	}
	for key, value := range body.Spec.Template.Metadata.Annotations {
		if value == nil || d.template.annotations[key] != *value {
			restarts = true
		}
	}
	if !restarts && len(body.Spec.Template.Metadata.Annotations) > 0 && r.reload == nil { // two Reloads at the same time are one
		o.fail("a rollout of %s restarts nothing", name)
	}
	if value := body.Metadata.Annotations[recreatingAnnotation]; value != nil {
		switch {
		case restores(d, body):
		case body.progresses():
			o.judgeProgress(r, d, *value)
			d.truth.evicting = *value
		case body.Metadata.Annotations[lastReloadAnnotation] != nil:
			restarts, d.truth.evicting = true, *value
		case *value != d.truth.evicting:
			o.fail("a record of %s names pods to evict that no restart has named", name)
		}
	}
	o.judgePause(r, d, &rules, body)
	o.judgeWay(r, d, rules, body, restarts)
	if restarts {
		o.judge(r, d, rules, marks)
		d.truth.mixed = false
	}
	if sources := body.Metadata.Annotations[appliedAnnotation]; sources != nil {
		o.learnEntries(*sources, &r.seen)
	}
	return restarts
}

// judge checks that a restart is allowed.
func (o *oracle) judge(r *request, d *workload, rules rules, marks [sourceCount]mark) {
	name := workloadName(d.slot)
	o.tally.Restarts++
	if d.kind == boat {
		o.tally.CustomRestarts++
		if joined := r.seen.joined[boats]; joined > 0 && d.truth.templated <= joined && r.reload == nil {
			o.tally.LateRestarts++
		}
	}
	if r.reload != nil && r.reload.mode == "Always" {
		return
	}
	switch {
	case rules.agent && r.reload == nil && !r.seen.evicting(&d.manifest):
		o.fail("%s is restarted, although agents apply what changes", name)
	case d.paused && !rules.recreate:
		o.fail("%s is restarted while it is paused", name)
	case d.wanted() == 0 && r.reload == nil:
		o.fail("%s is restarted although it has no pods", name)
	case missing(d.template.variant, marks, r.seen.contents()) && r.reload == nil && !o.missingSince(r, d):
		o.fail("%s is restarted while a source is missing", name)
	}
	reasons := o.reasons(d, &r.seen)
	if r.reload == nil && o.onlyBeforeList(r, d, rules, marks) {
		o.fail("%s is restarted by server %d for what changed before this could list it, and nothing is recorded of that: it sees %s",
			name, r.server.id, describeSeen(&r.seen))
		return
	}
	if len(reasons.sources) == 0 {
		if why := o.ambiguity(r, d, rules, marks); why != "" {
			o.tally.Ambiguous++
			o.world.logf("    an ambiguous restart: %s", why)
			return
		}
		o.fail("%s is restarted without a reason: server %d sees %s, and the pods of revision %d are %s", name, r.server.id, describeSeen(&r.seen),
			d.truth.templated, o.describePods(d))
		return
	}
	if !reasons.must {
		o.tally.Optional++
	}
	if r.reload == nil {
		o.judgePace(r, d, rules, marks, reasons)
	}
}

// missingSince reports whether a source has been missing only since the server began to list the pods to evict, in
// order to switch to another way of restarting.
func (o *oracle) missingSince(r *request, d *workload) bool {
	before := r.server.looked[r.slot]
	return d.annotations[recreatingAnnotation] != "" && !missing(d.template.variant, before.marks(), before.contents())
}

// afterPatch records a patch that was applied.
func (o *oracle) afterPatch(r *request, d *workload, before *manifest, restarts, wrote bool) {
	if !wrote && r.reload != nil {
		return
	}
	if !wrote {
		o.fail("a patch of %s changes nothing", workloadName(d.slot))
		return
	}
	present := o.world.contents()
	if rec, _ := o.record(&d.manifest); restarts && rec != nil {
		for s := range rec.contents {
			if rec.absentIn(s, &d.truth.scopes[s]) {
				d.truth.absent[s] = o.world.revision
			}
		}
	}
	if restarts {
		d.truth.reloaded = d.annotations[lastReloadAnnotation]
		if d.annotations[recreatingAnnotation] != "" {
			d.truth.recreated = o.world.revision
			d.maybe = startedWith(present)
			for s := range present {
				d.maybe.allow(s, r.seen.sources[s].content)
			}
		}
		if r.reload == nil {
			r.server.restarted[d.slot] = restarted{d.uid, r.sent, d.annotations[lastReloadAnnotation]}
		}
		o.lookAt(d)
		return
	}
	if d.template.identity() != before.template.identity() {
		o.fail("a baseline record of %s changes its template", workloadName(d.slot))
	}
	if saysLeft(d.annotations[hashAnnotation]) {
		for _, p := range d.pods {
			p.left = p.left || p.born < d.truth.recreated && !p.renewed(before.annotations[recreatingAnnotation])
		}
		return
	}
	ended := before.annotations[recreatingAnnotation] != "" && d.annotations[recreatingAnnotation] == ""
	// If another client has replaced the list of pods, pods of other templates are left to the rollout, and so are
	// all pods that came with a template that was restored since.
	named := before.annotations[recreatingAnnotation] == d.truth.evicting
	ours := func(p *pod) bool {
		return p.identity == d.template.identity() && d.truth.templated <= d.truth.recreated
	}
	if ended && slices.ContainsFunc(d.pods, func(p *pod) bool {
		return !p.terminating && p.born < d.truth.recreated && (named || ours(p)) && !p.renewed(before.annotations[recreatingAnnotation])
	}) {
		o.fail("the eviction of %s is ended, but pods are left, and the record does not say so", workloadName(d.slot))
	}
	rec, _ := o.record(&d.manifest)
	if rec == nil { // the eviction was ended
		return
	}
	for s := range rec.contents {
		if rec.absentIn(s, &d.truth.scopes[s]) {
			d.truth.absent[s] = o.world.revision
		}
	}
	o.tally.Baselines++
	if known, _ := o.remembered(&r.seen, before); known == nil {
		d.truth.first, d.truth.firstBy = o.world.revision, r.server
	}
	if ended {
		if isInPlace(before.annotations[recreatingAnnotation]) {
			o.tally.DoneInPlace++
		}
		return // the last pod was evicted
	}
	scopes := d.truth.scopes
	for s := range scopes {
		if !rec.scopes[s].same(scopes[s]) { // what counts has changed since the decision
			scopes[s] = scope{}
		}
	}
	seen := r.seen.contents()
	d.stale(&scopes, &seen, func(p *pod, c *container, s, k int) {
		if scopes[s].seen(s, k, rec.contents[s][k]) == scopes[s].seen(s, k, seen[s][k]) { // otherwise the record has the earlier content
			o.judgeBaseline(r, d, p, c, before, s, k)
		}
	})
	for s := range rec.contents {
		if !scopes[s].counts() {
			continue
		}
		for k := range rec.contents[s] {
			if scopes[s].keys.has(k) {
				d.maybe[s][k] = present[s].at(k) | seen[s].at(k)
			}
		}
	}
	o.lookAt(d)
}

// judgeBaseline judges a record of content that a container has not read: the server that wrote the record must
// not have been able to know that.
func (o *oracle) judgeBaseline(r *request, d *workload, p *pod, c *container, before *manifest, source, key int) {
	if seen := &r.seen.sources[source]; seen.keys[key] <= c.started && (seen.present || r.seen.listed[sourceStream(source)] <= c.started) {
		// The server is behind, and will see that the container has read newer content. Another leader does not
		// see that, and must trust the record: the lease prevents two leaders, except for moments.
		if slices.ContainsFunc(o.world.servers, func(s *server) bool { return s != r.server && s.leads }) {
			c.known[source][key] |= r.seen.sources[source].content.at(key)
		}
		return
	}
	name, what := workloadName(d.slot), sourceNames[source]+"."+keyNames[key]
	rec, _ := o.remembered(&r.seen, before) // or the one of a hash alone
	vouched := rec == nil || d.truth.scopes[source].ignores && rec.absentIn(source, &d.truth.scopes[source]) || !o.comparable(rec, d, source) ||
		d.truth.scopes[source].seen(source, key, rec.contents[source][key]) == d.truth.scopes[source].seen(source, key, r.seen.sources[source].content[key])
	// The webhook may have recorded even older content, if the server that answered was behind.
	vouched = vouched || d.truth.cause == optedIn && r.seen.sources[source].keys[key] <= d.truth.adopted
	switch {
	case o.unsure(&d.truth.scopes[source], source):
	case o.misled(&r.seen, d, p, c, source, key):
	case o.knew(&r.seen, d, c, source, key):
		o.fail("%s: server %d records the current %s, which pods have not read, and has seen the change: %s", name, r.server.id, what, describe(p, c, source, key))
	case !vouched:
		o.fail("%s: server %d records the current %s, which pods have not read: the record had another value, and times do not show that the pods are younger: %s",
			name, r.server.id, what, describe(p, c, source, key))
	}
	c.known[source][key] |= r.seen.sources[source].content.at(key) // from now on every server assumes that it was read
}

// evicted judges an eviction: only pods that existed when the restart began may be evicted. Neither a client that
// removes the annotation nor a restore of etcd reverts the decision.
func (o *oracle) evicted(r *request, d *workload, p *pod) {
	o.tally.Evictions++
	if p.born >= d.truth.recreated && r.server.looked[r.slot].begun >= o.world.restored {
		o.fail("%s: pod %d is evicted, but was created after the restart", workloadName(d.slot), p.uid)
	}
}

func (o *oracle) describePods(d *workload) string {
	var parts []string
	for _, p := range d.pods {
		for i := range p.containers {
			parts = append(parts, fmt.Sprintf("pod %d container %d of revision %d: %s", p.uid, i, p.containers[i].started, d.describe(&p.containers[i].known)))
		}
	}
	return strings.Join(append(parts, "maybe "+d.describe(&d.maybe)), "; ")
}

func (d *workload) describe(known *knowledge) string {
	var parts []string
	for s := range known {
		for k := range known[s] {
			if d.truth.scopes[s].keys.has(k) {
				parts = append(parts, fmt.Sprintf("%s.%s=%v", sourceNames[s], keyNames[k], known[s][k]))
			}
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

// writer is a server that writes a workload.
type writer struct{ server, slot int }

// mostInAMinute is how many writes of one object a server may request in a minute.
const mostInAMinute = 40

// count counts a write, whether or not it succeeds.
func (o *oracle) count(r *request) {
	if r.reload != nil {
		return
	}
	if o.writes == nil {
		o.writes = map[writer][]time.Time{}
	}
	o.patches++
	key := writer{r.server.id, r.slot}
	recent := slices.DeleteFunc(o.writes[key], func(t time.Time) bool { return r.sent.Sub(t) > time.Minute })
	o.writes[key] = append(recent, r.sent)
	if n := len(o.writes[key]); n > mostInAMinute {
		o.fail("server %d has requested %d writes of %s in a minute", r.server.id, n, workloadName(r.slot))
	}
}
