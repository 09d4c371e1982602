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

// arrived takes notice of what has reached a server.
func (o *oracle) arrived(s *server) {
	for slot, d := range o.world.workloads {
		// Where containers were found to be started with different content, that is a reason until
		// the next restart.
		if d == nil || !s.leads || !d.truth.mixed && len(o.reasons(d, &s.view).sources) == 0 && !o.unordered(d, &s.view) {
			lags := d != nil && len(s.streams[workloadStream(d.kind)].queue) > 0
			if !s.asleep && !lags && !s.network.waits(s, slot) { // otherwise it does not take notice
				delete(s.staleSince, slot)
			}
		} else if _, found := s.staleSince[slot]; !found {
			s.staleSince[slot] = time.Now()
		}
	}
}

// lostAfter is when a server may take a write for lost that has not come back.
const lostAfter = 5 * time.Minute

// sent takes notice of a request.
func (o *oracle) sent(r *request) {
	r.written = r.server.written
	var body patchBody
	if p := r.patch(); p == nil {
		o.tally.Reads++
	} else {
		o.count(r)
		if json.Unmarshal(p.GetPatch(), &body) == nil && r.reload == nil {
			v, _ := strconv.ParseUint(body.Metadata.ResourceVersion, 10, 64)
			if last := r.server.written[r.slot]; v < last.version && r.sent.Before(last.at.Add(lostAfter)) {
				o.fail("%s is patched before the last write, of version %d, has come back", workloadName(r.slot), last.version)
			}
		}
	}
}

// unordered reports whether a server has to take a workload for stale because its record says
// other content, or there is none, and revisions do not tell that the pods are younger.
func (o *oracle) unordered(d *workload, v *view) bool {
	if !o.world.severalCounters() {
		return false
	}
	marks := v.marks()
	scopes := rulesOf(d.annotations, v.annotations, o.world.defaultMode).scopes(d.template.variant, &marks)
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

// answered takes notice of an answer.
func (o *oracle) answered(r *request) {
	switch {
	case apierrors.IsConflict(r.done.err):
		o.tally.Conflicts++
	case r.done.err != nil:
		o.tally.Failures++
	case r.patch() != nil && r.reload == nil:
		m, err := meta.Accessor(r.done.object)
		if err != nil {
			panic(err)
		}
		v, _ := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
		r.written[r.slot] = confirmed{v, time.Now()}
	}
}

// reasons are the sources because of which a server that has seen so much may restart a
// workload.
type reasons struct {
	sources []int
	must    bool // a container runs with something else, and not only may, for all that can be seen
}

// reasons returns them: of those that count, the ones with content that a container of the
// present template has not read; and those that it may not have read, as servers see no pods.
func (o *oracle) reasons(d *workload, v *view) (r reasons) {
	marks := v.marks()
	scopes := rulesOf(d.annotations, v.annotations, o.world.defaultMode).counting().scopes(d.template.variant, &marks)
	contents := v.contents()
	var is [sourceCount]bool
	d.stale(&scopes, &contents, func(_ *pod, _ *container, s, _ int) { is[s], r.must = true, true })
	for s := range scopes {
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
	rules := rulesOf(d.annotations, r.seen.annotations, o.world.defaultMode)
	if hash := body.Metadata.Annotations[hashAnnotation]; hash != nil {
		d.truth.mixed = d.truth.mixed || strings.Contains(*hash, ".mixed")
		o.learn(*hash, r.seen.key, rules.counting(), d.template.variant, r.seen.contents(), marks)
	}
	abandons := body.Metadata.Annotations[hashAnnotation] != nil && saysLeft(*body.Metadata.Annotations[hashAnnotation])
	if abandons && d.annotations[recreatingAnnotation] == "" {
		o.fail("a record of %s says that pods are left which were to be evicted, and there were none", workloadName(d.slot))
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
		// If not, the UID of the workload shows that the namespace is another one. That an eviction is complete may be found
		// out while the namespace begins to be deleted.
		o.fail("%s is patched while its namespace is being deleted", name)
	case !rules.managed() && !removes && !abandons && r.reload == nil:
		o.fail("%s is patched though it is not managed (%+v)", name, rules)
	}
	for key, value := range body.Spec.Template.Metadata.Annotations {
		if value == nil || d.template.annotations[key] != *value {
			restarts = true
		}
	}
	if !restarts && len(body.Spec.Template.Metadata.Annotations) > 0 && r.reload == nil { // two Reloads of the same moment are one
		o.fail("a rollout of %s restarts nothing", name)
	}
	if value := body.Metadata.Annotations[recreatingAnnotation]; value != nil {
		switch {
		case restores(d, body):
		case body.Metadata.Annotations[lastReloadAnnotation] != nil:
			restarts, d.truth.evicting = true, *value
		case *value != d.truth.evicting:
			o.fail("a record of %s names pods to evict that no restart has named", name)
		}
	}
	if restarts {
		o.judge(r, d, rules, marks)
		d.truth.mixed = false
	}
	return restarts
}

// judge looks for what allows a restart.
func (o *oracle) judge(r *request, d *workload, rules rules, marks [sourceCount]mark) {
	name := workloadName(d.slot)
	o.tally.Restarts++
	if r.reload != nil && r.reload.mode == "Always" {
		return
	}
	switch {
	case d.paused && !rules.recreate:
		o.fail("%s is restarted while it is paused", name)
	case d.wanted() == 0 && r.reload == nil:
		o.fail("%s is restarted, and has no pods", name)
	case missing(d.template.variant, marks, r.seen.contents()) && r.reload == nil && !o.missingSince(r, d):
		o.fail("%s is restarted while a source is missing", name)
	}
	reasons := o.reasons(d, &r.seen)
	if len(reasons.sources) == 0 {
		if why := o.ambiguity(r, d, rules, marks); why != "" {
			o.tally.Ambiguous++
			o.world.logf("    an ambiguous restart: %s", why)
			return
		}
		o.fail("%s is restarted for nothing: server %d sees %s, and of revision %d are %s", name, r.server.id, describeSeen(&r.seen),
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

// missingSince reports whether a source has gone missing only since the server began to list pods that
// were to be evicted, in order to restart them in another way.
func (o *oracle) missingSince(r *request, d *workload) bool {
	before := r.server.looked[r.slot]
	return d.annotations[recreatingAnnotation] != "" && !missing(d.template.variant, before.marks(), before.contents())
}

// afterPatch takes notice of a patch that was applied.
func (o *oracle) afterPatch(r *request, d *workload, before *manifest, restarts, wrote bool) {
	if !wrote && r.reload != nil {
		return
	}
	if !wrote {
		o.fail("a patch of %s changes nothing", workloadName(d.slot))
		return
	}
	present := o.world.contents()
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
		o.fail("a baseline of %s changes its template", workloadName(d.slot))
	}
	if saysLeft(d.annotations[hashAnnotation]) {
		for _, p := range d.pods {
			p.left = p.left || p.born < d.truth.recreated
		}
		return
	}
	ended := before.annotations[recreatingAnnotation] != "" && d.annotations[recreatingAnnotation] == ""
	// If another client has replaced the list of them, those of other templates are left to the rollout, and all
	// to what came with a template that was brought back since.
	named := before.annotations[recreatingAnnotation] == d.truth.evicting
	ours := func(p *pod) bool {
		return p.identity == d.template.identity() && d.truth.templated <= d.truth.recreated
	}
	if ended && slices.ContainsFunc(d.pods, func(p *pod) bool {
		return !p.terminating && p.born < d.truth.recreated && (named || ours(p))
	}) {
		o.fail("the eviction of %s is ended, pods are left, and the record does not tell of them", workloadName(d.slot))
	}
	rec, _ := o.record(&d.manifest)
	if rec == nil { // it was ended that pods are evicted
		return
	}
	o.tally.Baselines++
	if known, _ := o.remembered(&r.seen, before); known == nil {
		d.truth.first, d.truth.firstBy = o.world.revision, r.server
	}
	if ended {
		return // the last has been evicted
	}
	scopes := d.truth.scopes
	for s := range scopes {
		if !rec.scopes[s].same(scopes[s]) { // what counts has changed since it was decided on
			scopes[s] = scope{}
		}
	}
	seen := r.seen.contents()
	d.stale(&scopes, &seen, func(p *pod, c *container, s, k int) {
		if scopes[s].seen(s, k, rec.contents[s][k]) == scopes[s].seen(s, k, seen[s][k]) { // else it says what there was
			o.judgeBaseline(r, d, p, c, before, s, k)
		}
	})
	for s := range rec.contents {
		if !scopes[s].counts() {
			continue
		}
		for k := range rec.contents[s] {
			if scopes[s].keys.has(k) {
				d.maybe[s][k] = only(present[s][k]) | only(seen[s][k])
			}
		}
	}
	o.lookAt(d)
}

// judgeBaseline judges a record of content that a container has not read: the server that
// has written it must not have been able to know that.
func (o *oracle) judgeBaseline(r *request, d *workload, p *pod, c *container, before *manifest, source, key int) {
	if seen := &r.seen.sources[source]; seen.keys[key] <= c.started && (seen.present || r.seen.listed[sourceStream(source)] <= c.started) {
		// The server lags, and will see that the container has read something newer. Another one
		// that leads too does not see that, and has to believe the record: the lease keeps two
		// from leading, but for moments.
		if slices.ContainsFunc(o.world.servers, func(s *server) bool { return s != r.server && s.leads }) {
			c.known[source][key] |= only(r.seen.sources[source].content[key])
		}
		return
	}
	name, what := workloadName(d.slot), sourceNames[source]+"."+keyNames[key]
	rec, _ := o.remembered(&r.seen, before) // or of a hash alone
	vouched := rec == nil || !o.comparable(rec, d, source) ||
		d.truth.scopes[source].seen(source, key, rec.contents[source][key]) == d.truth.scopes[source].seen(source, key, r.seen.sources[source].content[key])
	// The webhook may have recorded what was there even before, if the server that answered lagged.
	vouched = vouched || d.truth.cause == optedIn && r.seen.sources[source].keys[key] <= d.truth.adopted
	switch {
	case o.misled(&r.seen, d, p, c, source, key):
	case o.knew(&r.seen, d, c, source, key):
		o.fail("%s: server %d records %s as it is now, which is not what pods have read, and has seen it change: %s", name, r.server.id, what, describe(p, c, source, key))
	case !vouched:
		o.fail("%s: server %d records %s as it is now, which is not what pods have read: the record had another, and times do not tell that they are younger: %s",
			name, r.server.id, what, describe(p, c, source, key))
	}
	c.known[source][key] |= only(r.seen.sources[source].content[key]) // from now on every server takes it for read
}

// evicted judges an eviction: of the pods that were there when the restart was begun. Neither a
// client that removes the annotation nor a restore of etcd takes back what was decided before.
func (o *oracle) evicted(r *request, d *workload, p *pod) {
	o.tally.Evictions++
	if p.born >= d.truth.recreated && r.server.looked[r.slot].begun >= o.world.restored {
		o.fail("%s: pod %d is evicted, which has come after the restart", workloadName(d.slot), p.uid)
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

// mostInAMinute is how many writes of one object a server may ask for in a minute.
const mostInAMinute = 40

// count counts a write, whether or not it is granted.
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
		o.fail("server %d has asked for %d writes of %s in a minute", r.server.id, n, workloadName(r.slot))
	}
}
