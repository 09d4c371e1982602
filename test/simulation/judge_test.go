package simulation

import (
	"fmt"
	"strings"
	"time"
)

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
func (o *oracle) afterPatch(r *request, d *workload, before *manifest, restarts, wrote bool) {
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
			switch {
			case !rec.scopes[s].keys.has(k):
			case d.pods.known[s][k].has(v), d.pods.waiting:
				d.pods.known[s][k] = only(v)
			default:
				o.judgeBaseline(r, d, before, s, k)
				d.pods.known[s][k] |= only(v) // from now on every server takes it for read
			}
		}
	}
	o.lookAt(d)
}

// judgeBaseline judges a record of content that the pods have not read: the server that
// has written it must not have been able to know that.
func (o *oracle) judgeBaseline(r *request, d *workload, before *manifest, source, key int) {
	if r.seen.sources[source].keys[key] <= d.pods.started {
		return // the server lags, and will see that the pods have read something newer
	}
	name, what := workloadName(d.slot), sourceNames[source]+"."+keyNames[key]
	if r.seen.witnessed(d, source, key) {
		o.fail("%s: server %d records %s, which its pods, of revision %d, have not read, and has seen it change (%s)",
			name, r.server.id, what, d.pods.started, describeKnown(d))
		return
	}
	was := *d
	was.manifest = *before
	rec, bare := o.record(&was)
	if rec == nil || bare || !rec.scopes[source].keys.has(key) || rec.scopes[source] != d.truth.scopes[source] ||
		rec.contents[source][key] == r.seen.sources[source].content[key] {
		return
	}
	if written := r.seen.sources[source].lastChanged; !seconds(d.newest().created).After(written) {
		o.fail("%s: server %d records %s, which its pods, of revision %d, have not read: the record had another, and times do not tell that they are younger",
			name, r.server.id, what, d.pods.started)
	}
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
