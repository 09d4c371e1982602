// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Annotations of other tools, as documented in docs/annotations.md.
const (
	reloaderAuto     = "reloader.stakater.com/auto"
	reloaderSearch   = "reloader.stakater.com/search"
	reloaderIgnore   = "reloader.stakater.com/ignore" // on sources
	reloaderMatch    = "reloader.stakater.com/match"  // the same
	lastReloadedFrom = "reloader.stakater.com/last-reloaded-from"
	pausePeriod      = "deployment.reloader.stakater.com/pause-period"
	pausedAt         = "deployment.reloader.stakater.com/paused-at"

	podReloaderConfigMaps = "pod-reloader.cs.sap.com/configmaps"
	podReloaderSecrets    = "pod-reloader.cs.sap.com/secrets"

	waveRestart = "wave.pusher.com/update-on-config-change"
	waveSecrets = "wave.pusher.com/extra-secrets"
)

// typed are the annotations of Reloader for ConfigMaps, and for Secrets.
type typed struct{ auto, list, exclude string }

var reloaderKinds = [2]typed{
	{"configmap.reloader.stakater.com/auto", "configmap.reloader.stakater.com/reload", "configmaps.exclude.reloader.stakater.com/reload"},
	{"secret.reloader.stakater.com/auto", "secret.reloader.stakater.com/reload", "secrets.exclude.reloader.stakater.com/reload"},
}

// namesOf contains every list of names that the simulation sets, by kind of source.
var namesOf = [2]map[string]meaning{
	{"c0": {sources: 0b0001}, "c1": {sources: 0b0010}, "c1, c0": {sources: 0b0011}, "c.*": {sources: 0b0011, glob: true}},
	{"s0": {sources: 0b0100}, "s1": {sources: 0b1000}, "s1,s0": {sources: 0b1100}, "s.*": {sources: 0b1100, glob: true}},
}

var pausePeriods = map[string]time.Duration{"5s": 5 * time.Second, "1m": time.Minute}

func kindNumber(source int) int {
	if isSecret(source) {
		return 1
	}
	return 0
}

func either(slot int, even, odd string) string {
	if slot%2 == 0 {
		return even
	}
	return odd
}

// ofTemplate precedes the key of an annotation that is on the pod template.
const ofTemplate = "template "

// declares returns the annotations that say how a workload is restarted, with those of its pod template.
func (m *manifest) declares() map[string]string {
	out := m.annotations
	for key, value := range m.template.annotations {
		if strings.Contains(key, "reloader.stakater.com/") && key != lastReloadedFrom {
			out = with(out, ofTemplate+key, value)
		}
	}
	return out
}

// isForeign reports whether any annotation of another tool says something.
func isForeign(annotations map[string]string) bool {
	for key := range annotations {
		if !strings.HasPrefix(key, "configdep.io/") {
			return true
		}
	}
	return false
}

// foreign is what annotations of other tools say besides modes.
type foreign struct {
	names   meaning
	exclude sourceSet
	pause   time.Duration
}

// breadth orders modes: if annotations declare several for a kind of sources, the broadest counts.
var breadth = map[string]int{"off": 1, "listed": 2, "matched": 3, "auto": 4}

// readForeign reads the annotations of all tools, if there are any of other tools, or the servers have a flag of another tool.
func (r *rules) readForeign(workload, namespace map[string]string, server defaults) (f foreign) {
	base, byFlag := server.Mode, server.AutoReloadAll
	if text, found := namespace[reloadAnnotation]; found {
		byFlag = false
		if m, valid := vocabulary[reloadAnnotation][text]; valid {
			base = m.mode
		}
	}
	pause, said := workload[pausePeriod]
	f.pause = pausePeriods[pause]
	defer func() {
		if said && f.pause == 0 && r.mode != "off" {
			r.invalid = true
		}
	}()
	var own [2]string
	var instead [2]bool
	var in, ignores, counts bool
	declare := func(kind int, mode string) {
		if in = true; breadth[mode] > breadth[own[kind]] {
			own[kind] = mode
		}
	}
	if text, found := workload[reloadAnnotation]; found {
		m, valid := vocabulary[reloadAnnotation][text]
		switch {
		case !valid:
			m.mode = server.Mode
		case m.mode == "off":
			return f // whatever others say
		}
		declare(0, m.mode)
		declare(1, m.mode)
		base, instead, counts = server.Mode, [2]bool{true, true}, true
	}
	for kind, k := range reloaderKinds {
		from := ofTemplate
		for _, key := range []string{k.list, reloaderSearch, reloaderAuto, k.auto} {
			if _, found := workload[key]; found {
				from = ""
			}
		}
		if text := workload[from+k.list]; text != "" {
			names, valid := namesOf[kind][text]
			f.names.sources, f.names.glob = f.names.sources|names.sources, f.names.glob || names.glob
			in, ignores, r.invalid = true, true, r.invalid || !valid
		}
		if workload[from+reloaderSearch] == "true" {
			declare(kind, "matched")
			ignores = true
		}
		for _, key := range []string{reloaderAuto, k.auto} {
			switch workload[from+key] {
			case "true":
				declare(kind, "auto")
				instead[kind], ignores = true, true
			case "false":
				instead[kind] = true
			case "":
			default:
				instead[kind], r.invalid = true, true
			}
		}
		f.exclude |= namesOf[kind][workload[k.exclude]].sources
	}
	if workload[waveRestart] == "true" {
		declare(0, "auto")
		declare(1, "auto")
		f.names.sources |= namesOf[1][workload[waveSecrets]].sources
		counts = true
	}
	for kind, key := range []string{podReloaderConfigMaps, podReloaderSecrets} {
		if names, found := namesOf[kind][workload[key]]; found {
			f.names.sources |= names.sources
			in, counts = true, true
		}
	}
	if !in && instead == [2]bool{} {
		r.ignores = byFlag && !server.ReloadOnChange
		return f
	}
	r.byKind, r.mode = true, "off"
	if in {
		r.mode = "listed"
	}
	for kind := range r.modes {
		r.modes[kind] = own[kind]
		if !instead[kind] && breadth[base] > breadth[own[kind]] {
			r.modes[kind] = base
			ignores, counts = ignores || byFlag, counts || !byFlag && base != "off"
		}
		if breadth[r.modes[kind]] > breadth[r.mode] {
			r.mode = r.modes[kind]
		}
	}
	r.ignores = ignores && !counts && !server.ReloadOnChange
	return f
}

// modeOf returns the mode for a source.
func (r rules) modeOf(source int) string {
	if r.byKind {
		return r.modes[kindNumber(source)]
	}
	return r.mode
}

// matches reports whether sources of any kind count by their annotations.
func (r rules) matches() bool {
	return r.mode == "matched" || r.byKind && (r.modes[0] == "matched" || r.modes[1] == "matched")
}

// declarations are sets of annotations by which workloads opt in.
var declarations = []map[string]string{
	{reloaderAuto: "true"},
	{reloaderAuto: "true"},
	{ofTemplate + reloaderAuto: "true"},
	{ofTemplate + reloaderKinds[1].auto: "true"},
	{reloaderKinds[0].auto: "true"},
	{reloaderKinds[1].auto: "true", reloaderKinds[0].list: "c1"},
	{reloaderKinds[0].list: "c1, c0"},
	{reloaderKinds[1].list: "s.*"},
	{reloaderKinds[0].list: "c.*", reloaderKinds[1].list: "s0"},
	{reloaderAuto: "true", reloaderKinds[1].exclude: "s0"},
	{reloaderAuto: "true", reloaderKinds[1].list: "s1"},
	{reloaderSearch: "true"},
	{waveRestart: "true"},
	{waveRestart: "true", waveSecrets: "s1"},
	{waveRestart: "true", reloaderKinds[0].list: "c1"},
	{reloaderAuto: "true", reloadAnnotation: "auto"},
	{reloaderKinds[1].list: "s1,s0", reloadAnnotation: "listed"},
	{reloaderAuto: "false"},
	{reloaderKinds[0].auto: "false"},
	{reloaderAuto: "yes"},
	{reloaderKinds[0].auto: "true", reloaderKinds[1].list: "s["},
	{podReloaderConfigMaps: "c1, c0"},
	{podReloaderSecrets: "s1", reloaderKinds[0].auto: "true"},
	{podReloaderConfigMaps: "c0", podReloaderSecrets: "s1,s0", waveRestart: "true"},
}

// addForeign lets some workloads of a third of the histories opt in by annotations of other tools, and lets sources
// disappear and come back.
func (h *history) addForeign(begin int) {
	m := maker{rand.New(rand.NewPCG(h.Seed, 1)), h}
	if m.IntN(3) > 0 {
		return
	}
	switch m.IntN(8) {
	case 0, 1:
		h.defaults = defaults{Mode: "auto", AutoReloadAll: true}
	case 2:
		h.ReloadOnChange = true
	case 3:
		h.defaults = defaults{Mode: "auto", AutoReloadAll: true, ReloadOnChange: true}
	}
	for i := range h.Workloads {
		s := &h.Workloads[i]
		if m.IntN(4) == 0 {
			continue
		}
		delete(s.Annotations, reloadAnnotation)
		for key, value := range pick(m, declarations...) {
			if at, found := strings.CutPrefix(key, ofTemplate); found {
				s.Template = with(s.Template, at, value)
			} else {
				s.Annotations[key] = value
			}
		}
		if s.Kind == "Deployment" && m.IntN(3) == 0 {
			s.Annotations[pausePeriod] = pick(m, "1m", "5s", "1m", "5s", "1m", "5s", "soon")
		}
	}
	insert := func(at int, operations ...operation) int {
		h.Operations = slices.Insert(h.Operations, at, operations...)
		return at + len(operations)
	}
	for range 2 + m.IntN(2) {
		slot := m.source()
		at := begin + m.IntN(len(h.Operations)-begin+1)
		if m.IntN(2) == 0 {
			at = insert(at, operation{Do: "calm"})
		}
		at = insert(at, operation{Do: "delete source", A: slot})
		switch m.IntN(6) {
		case 0:
			at = insert(at, operation{Do: "kill", A: m.server()})
		case 1:
			id := m.server()
			at = insert(at, operation{Do: "kill", A: id}, operation{Do: "birth", A: id}, operation{Do: "lead", A: id})
		case 2:
			at = insert(at, operation{Do: "hand over", A: m.server()})
		case 3:
			at = insert(at, operation{Do: "calm"})
		}
		at = min(at+m.IntN(4), len(h.Operations))
		switch m.IntN(3) {
		case 0:
			insert(at, operation{Do: "create source", A: slot, Content: m.content()})
		default:
			insert(at, operation{Do: "return source", A: slot})
		}
	}
	if m.IntN(4) == 0 {
		o := operation{Do: "opt otherwise", A: m.workload()}
		switch m.IntN(4) {
		case 0:
			o.Annotation, o.Text = reloaderAuto, pick(m, "true", "false", "", "yes")
		case 1:
			o.Annotation, o.Text = reloaderKinds[1].list, pick(m, "s0", "s.*", "", "s[")
		case 2:
			o.Annotation, o.Text = waveRestart, pick(m, "true", "")
		default:
			o.Annotation, o.Text = pausePeriod, pick(m, "5s", "", "soon")
		}
		insert(begin+m.IntN(len(h.Operations)-begin+1), o)
	}
}

// life is the content of a source that a server has seen, and until when it had seen it.
type life struct {
	content content
	until   uint64 // the revision of the change that ended it
	arrival int    // of that change
	gone    bool   // the source was deleted
}

// otherLife returns when a server last saw a source with another value of a key end, while the source was present.
func (s *seenSource) otherLife(source, key int, scope *scope) (until uint64, arrival int) {
	for _, l := range s.lives {
		if l.gone && looksAbsent(&l.content, source, scope) {
			continue
		}
		if scope.seen(source, key, l.content[key]) != scope.seen(source, key, s.content[key]) && l.until >= until {
			until, arrival = l.until, l.arrival
		}
	}
	return until, arrival
}

// sourceEntry is an entry of a record, which stands for one source.
type sourceEntry struct {
	source int
	text   string
}

// entriesOf returns the entries of a record by source; an empty text: there is none.
func entriesOf(record string) (texts [sourceCount]string) {
	var entries map[string]string
	if json.Unmarshal([]byte(record), &entries) != nil {
		return texts
	}
	for s := range texts {
		texts[s] = entries[kindOf(s)+"/"+sourceNames[s]]
	}
	return texts
}

// learnEntries records which content the entries of a record stand for, and which sources they say were absent.
func (o *oracle) learnEntries(record string, v *view) {
	for s, text := range entriesOf(record) {
		seen := &v.sources[s]
		if text == "" || !seen.present || strings.Contains(text, "mixed") {
			continue
		}
		if o.entries == nil {
			o.entries = map[sourceEntry]content{}
		}
		if _, known := o.entries[sourceEntry{s, text}]; !known {
			o.entries[sourceEntry{s, text}] = seen.content
		}
	}
}

// withKept returns what a record says if it still has the entries of sources that were absent when it was made.
func (o *oracle) withKept(rec *recorded, record string) *recorded {
	if rec == nil || !rec.ignores || record == "" {
		return rec
	}
	out := *rec
	for s, text := range entriesOf(record) {
		if c, known := o.entries[sourceEntry{s, text}]; known && rec.contents[s] == (content{}) {
			out.contents[s] = c
		}
	}
	return &out
}

// absentIn reports whether a record says that a source was absent, or had none of the keys that count, which looks the
// same.
func (rec *recorded) absentIn(source int, scope *scope) bool {
	return looksAbsent(&rec.contents[source], source, scope)
}

// looksAbsent reports whether content has none of the keys that count.
func looksAbsent(c *content, source int, scope *scope) bool {
	for k, v := range c {
		if scope.keys.has(k) && scope.seen(source, k, v) != 0 {
			return false
		}
	}
	return true
}

// judgePause judges whether a patch pauses or resumes a Deployment, which only a restart and the end of its pause may do.
func (o *oracle) judgePause(r *request, d *workload, rules *rules, body *patchBody) {
	name := workloadName(d.slot)
	mark, marks := body.Metadata.Annotations[pausedAt]
	pauses := body.Spec.Paused != nil && *body.Spec.Paused
	rolls := len(body.Spec.Template.Metadata.Annotations) > 0
	wanted := rolls && rules.pause > 0 && d.kind == "Deployment" && !d.paused
	switch {
	case pauses != wanted:
		o.fail("a patch of %s pauses it: %v, want %v (%+v)", name, pauses, wanted, *rules)
	case pauses:
		o.tally.Pauses++
		if !marks || mark == nil {
			o.fail("%s is paused, but nothing says since when", name)
		}
		return
	case body.Spec.Paused != nil && (!d.paused || d.annotations[pausedAt] == ""):
		o.fail("%s is resumed, but was not paused by a restart", name)
	}
	if !marks && body.Spec.Paused == nil {
		return
	}
	o.tally.Resumes++
	now := r.sent.Add(o.world.skews.Servers[r.server.id])
	since, err := time.Parse(time.RFC3339, d.annotations[pausedAt])
	switch {
	case mark != nil || !marks:
		o.fail("a patch of %s neither pauses it nor ends a pause", name)
	case d.paused != (body.Spec.Paused != nil):
		o.fail("the end of a pause of %s leaves it paused", name)
	case d.paused && err == nil && !since.After(now) && now.Before(since.Add(rules.pause)):
		o.fail("%s is resumed %v after it was paused, want %v", name, now.Sub(since), rules.pause)
	}
}

// resumes reports whether a patch only ends a pause.
func (b *patchBody) resumes() bool {
	mark, marks := b.Metadata.Annotations[pausedAt]
	return marks && mark == nil
}

// checkPauses checks that no Deployment is still paused that was paused by a restart, after more time than any pause.
func (o *oracle) checkPauses() {
	for _, d := range o.world.workloads {
		if d != nil && d.annotations[pausedAt] != "" && !d.deleting && !o.world.terminating && !d.holder.fights() {
			o.fail("%s was never resumed: paused since %s", workloadName(d.slot), d.annotations[pausedAt])
		}
	}
}

// unsure reports whether a workload ignores that a source appears and disappears, and what a server remembers of that
// may be of another history, or cannot be compared: another key, several counters, a restore, or wrong clocks.
func (o *oracle) unsure(scope *scope, source int) bool {
	w := o.world
	return scope.ignores && (w.sources[source].gone != content{} || !w.sources[source].present) &&
		(w.severalCounters() || w.keys > 0 || w.restored > 0 || !w.skews.right())
}
