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
	"k8s.io/utils/ptr"
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
	case r.seen.terminating && o.world.terminating: // if not, the UID of the workload shows that the namespace is another one
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
		case *value == d.truth.evicting && ptr.Deref(body.Metadata.Annotations[lastReloadAnnotation], "") == d.truth.reloaded: // both were removed
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

// judgePace judges when a restart is made: once changes have settled, and not too soon after
// the last one.
func (o *oracle) judgePace(r *request, d *workload, rules rules, marks [sourceCount]mark, reasons reasons) {
	name := workloadName(d.slot)
	scopes := rules.scopes(d.template.variant, &marks)
	rec, bare := o.remembered(&r.seen, &d.manifest)
	var arrived time.Time
	for _, s := range reasons.sources {
		if rec != nil && !bare && (!rec.scopes[s].same(scopes[s]) || rules.glob && rec.scopes != scopes || !o.recordDiffers(rec, &scopes, s, &r.seen)) {
			continue
		}
		if seen := &r.seen.sources[s]; rules.glob && scopes[s].annotted && !seen.present && seen.goneIgnored {
			continue // the glob had lost it before, when it was ignored
		}
		if t := r.seen.templates[d.slot]; scopes[s].annotted && t.uid == d.uid && t.ruled > slices.Max(r.seen.sources[s].arrivals[:]) {
			continue // it counts only since then
		}
		if at := r.seen.sources[s].arrived; at.After(arrived) {
			arrived = at
		}
	}
	settled := arrived.Add(rules.settle)
	if since, found := r.server.staleSince[d.slot]; found && since.Add(10*rules.settle).Before(settled) {
		settled = since.Add(10 * rules.settle)
	}
	// Where revisions cannot be compared, and the owner reverts each restart, it is thought to be
	// stale all the time, so that the limit has passed.
	fights, evicting := d.holder.fights() && o.world.severalCounters(), d.annotations[recreatingAnnotation] != ""
	if !fights && !arrived.IsZero() && r.sent.Before(settled) && !r.seen.unseen(d.truth.rolled) && !evicting {
		o.fail("%s is restarted %v after a change, before that has settled (%v)", name, r.sent.Sub(arrived), rules.settle)
	}
	if evicting && !rules.recreate {
		return // it ends in another way a restart that has begun
	}
	last := r.server.restarted[d.slot]
	if d.annotations[lastReloadAnnotation] == last.text && last.uid == d.uid && r.sent.Before(last.at.Add(rules.minInterval)) {
		o.fail("%s is restarted %v after the last time, and min-interval is %v", name, r.sent.Sub(last.at), rules.minInterval)
	}
}

// restarted is what a server has made of a workload.
type restarted struct {
	uid  int
	at   time.Time
	text string // of the annotation that tells of it
}

// recordDiffers reports whether a record has other content of a source than a server sees.
func (o *oracle) recordDiffers(rec *recorded, scopes *[sourceCount]scope, s int, v *view) bool {
	for k, value := range v.sources[s].content {
		if scopes[s].keys.has(k) && scopes[s].seen(s, k, rec.contents[s][k]) != scopes[s].seen(s, k, value) {
			return true
		}
	}
	return false
}

// ambiguity says why a restart may be made that was not needed: the server has not seen the pods
// start, the record differs from the content, and times do not show that the pods came last.
func (o *oracle) ambiguity(r *request, d *workload, rules rules, marks [sourceCount]mark) string {
	rec, bare := o.remembered(&r.seen, &d.manifest)
	unseen := r.seen.unseen(d.truth.templated) || o.world.severalCounters()
	scopes := rules.scopes(d.template.variant, &marks)
	if saysLeft(d.annotations[hashAnnotation]) {
		return "the record says that pods are left which were to be evicted"
	}
	if d.truth.mixed {
		return "the pods were looked at, and times do not tell what they were started with"
	}
	if strings.Contains(d.annotations[hashAnnotation], ".mixed") && unseen {
		return "the record tells that pods differ, and the server has not seen the template come back with it, or revisions cannot be compared"
	}
	if r.seen.begun < o.world.restored {
		return "etcd has been restored, and the server has not read everything again: revisions cannot be compared until then"
	}
	if o.world.severalCounters() && !o.world.skews.right() {
		return "neither revisions nor times can be compared"
	}
	if o.world.severalCounters() && d.newest() != nil {
		for s := range scopes {
			switch {
			case !scopes[s].counts() || r.seen.sources[s].arrived.IsZero():
			case rec != nil && !rec.scopes[s].counts() && !r.seen.sources[s].present:
				return "revisions cannot be compared, and of what went while nothing used it no more is known than that it did"
			case r.reload != nil:
				return "revisions cannot be compared, and a Reload looks no times up"
			case !seconds(d.newest().created).After(r.seen.sources[s].lastChanged):
				return "revisions cannot be compared, and the template is not younger than the content"
			}
		}
	}
	for s := range scopes {
		doubted := r.seen.sources[s].doubted
		if scopes[s].counts() && doubted > 0 && (doubted >= max(d.truth.templated, d.truth.recreated) || o.world.severalCounters()) {
			return "a source was written while everything was read again because of another key"
		}
	}
	if t := r.seen.templates[d.slot]; t.remade && t.uid == d.uid && rec != nil && t.identity == d.template.identity() {
		return "the workload was deleted and created again while the server did not watch, and how old its record is cannot be told"
	}
	if t := r.seen.templates[d.slot]; t.guessed && t.uid == d.uid && t.identity == d.template.identity() {
		return "a Deployment was paused when it was listed, and whether its pods are of its template is not known"
	}
	if r.seen.strange[d.slot] && r.seen.kept[d.slot] == d.hash() {
		return "the record did not say the content when its key was replaced"
	}
	if r.reload != nil {
		if r.seen.key != o.world.key {
			return "a user has asked for it, and the server has not read the key that replaced its own"
		}
		if len(r.server.streams[workloadStream(d.kind)].queue)+len(r.server.streams[namespaces].queue) > 0 {
			return "a user has asked for it, and the server has not seen the workload or its namespace as it is"
		}
	}
	// Without a valid mode it is that of the defaults: in mode off, no pod is evicted.
	if d.annotations[recreatingAnnotation] != "" && (!rules.recreate || rules.mode == "off") {
		return "pods were still to be evicted when the strategy was changed"
	}
	for _, rec := range []*recorded{rec, o.hashes[d.hash()]} { // whatever its key
		for s := range scopes {
			if rec != nil && rules.mode == "matched" && rec.scopes[s].counts() && !r.seen.sources[s].present {
				return "a source that is absent does not say whether it matches"
			}
		}
	}
	if rec == nil {
		for s := range scopes {
			switch changed := r.seen.sources[s].changed; {
			case !scopes[s].counts():
			case changed > max(d.truth.templated, d.truth.adopted):
				return "nothing is recorded, and a source has changed, if not in what counts"
			case changed > d.truth.templated && r.seen.unseen(d.truth.adopted):
				return "nothing is recorded, and it was not seen whether the workload had opted in before a source changed"
			case unseen && !r.seen.sources[s].arrived.IsZero() && (d.truth.cause != optedIn || changed > d.truth.adopted || r.seen.unseen(d.truth.adopted)):
				return "nothing is recorded, and it was not seen what came first"
			}
		}
		return ""
	}
	for s, now := range o.world.marks() {
		if scopes[s].counts() && !rec.scopes[s].counts() && now != marks[s] && o.writtenByAnother(r) {
			return "the record of another server does not know a source, whose mark this one has not seen"
		}
	}
	var lastChanged time.Time
	gone, differs, again := bare && (rules.glob || rules.other), false, false
	for s := range scopes {
		seen := &r.seen.sources[s]
		// Without revisions that can be compared, it is not seen what came first either where a
		// template or a policy has just made a source count.
		differ := bare || o.world.severalCounters() && !rec.scopes[s].same(scopes[s])
		for k := range seen.content {
			if scopes[s].keys.has(k) && rec.contents[s][k] != seen.content[k] {
				differ, gone = true, gone || scopes[s].seen(s, k, seen.content[k]) == 0
			}
		}
		gone = gone || scopes[s].counts() && (bare && mayHaveLostKeys(s, scopes[s], seen.content) || scopes[s].annotted && rules.glob)
		gone = gone || differ && scopes[s].counts() && scopes[s].keys&seen.undated != 0
		back := scopes[s].counts() && !differ && unseen && slices.Max(seen.witnessed[:]) > d.truth.adopted
		if back && (d.newest() == nil || !seconds(d.newest().created).After(seen.lastChanged)) {
			return "content has changed and changed back, and nothing tells whether the template came after that"
		}
		// The webhook may have adopted older content than there was, and with several counters nothing tells that
		// it did.
		adopted := seen.changed <= d.truth.adopted && !o.world.severalCounters() && !r.seen.unseen(d.truth.adopted)
		if !scopes[s].counts() || !differ || adopted {
			continue
		}
		differs = true
		again = again || seen.changed > max(d.truth.templated, d.truth.adopted)
		if seen.lastChanged.After(lastChanged) {
			lastChanged = seen.lastChanged
		}
	}
	switch {
	case differs && again:
		return "a source has changed before the pods started, and again after that, if not in what counts"
	case !differs && (!bare || rec.scopes == scopes && rec.other == rules.other), !unseen:
		return ""
	case gone:
		return "when a source or a key was removed is written nowhere"
	case r.reload != nil:
		return "the server has not seen what came first, and a Reload looks no times up"
	case d.newest() == nil, !seconds(d.newest().created).After(lastChanged):
		return "the template is not younger than the content, by its revision"
	case !d.templateWritten().After(lastChanged):
		return "the template is not younger than the content, by its managed fields"
	}
	return ""
}

// mayHaveLostKeys reports whether containers read all keys of a source, or one that they do not see.
func mayHaveLostKeys(source int, reads scope, c content) bool {
	for k, v := range c {
		if reads.keys == allKeys || reads.keys.has(k) && reads.seen(source, k, v) == 0 {
			return true
		}
	}
	return false
}

// writtenByAnother reports whether a server besides the one that asks has written a workload.
func (o *oracle) writtenByAnother(r *request) bool {
	return slices.ContainsFunc(o.world.servers, func(s *server) bool { return s != r.server && s.written[r.slot] != confirmed{} })
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
		d.truth.first = o.world.revision
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
