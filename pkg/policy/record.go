// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/configdep/configdep/pkg/dependency"
)

// The annotations that cause a restart and record it.
const (
	// ConfigHashAnnotation is the hash of the content with which the pods were started: on
	// the workload, and on the pod template, where it causes the rollout.
	ConfigHashAnnotation = Prefix + "config-hash"
	// AppliedSourcesAnnotation, on the workload, records the same content source by source. So
	// a change can be attributed to a source, and distinguished from a change of the policy.
	AppliedSourcesAnnotation = Prefix + "applied-sources"
	// ReloadedAtAnnotation, on the pod template, makes the template differ when the hash
	// does not: it is the time of a restart on request.
	ReloadedAtAnnotation = Prefix + "reloaded-at"
	// LastReloadAnnotation, on the workload, describes the last restart (a LastReload).
	LastReloadAnnotation = Prefix + "last-reload"
	// RecreatingAnnotation is on the workload while its pods are evicted or restarted in place, and names
	// these pods; see PodsToEvict and PodsInPlace.
	RecreatingAnnotation = Prefix + "recreating"
	// AppliedFieldsAnnotation is on a workload whose fields are set from sources, and says to which values (an AppliedFields).
	AppliedFieldsAnnotation = Prefix + "applied-fields"
)

// MarksOf returns the annotations of a workload that are ours to write.
func MarksOf(annotations map[string]string) dependency.Marks {
	return dependency.Marks{
		Hash:       annotations[ConfigHashAnnotation],
		Sources:    annotations[AppliedSourcesAnnotation],
		LastReload: annotations[LastReloadAnnotation],
		Recreating: annotations[RecreatingAnnotation],
		Fields:     annotations[AppliedFieldsAnnotation],
	}
}

// FieldManager is the name under which workloads are patched. It must not begin with
// "kubectl": Flux takes the fields of such managers for drift, and reverts them.
const FieldManager = dependency.OwnFieldManager

// Triggers of restarts besides the names of sources.
const (
	TriggerRequest = "Request" // a user requested it
	TriggerUnknown = "Unknown" // content has changed, and the record does not tell of which source
)

// Record is what a workload remembers of the content of its sources. It is evidence about containers that are older than what the servers have seen,
// and it marks what was adopted when the workload opted in.
type Record struct {
	// Hash is the hash of all of the content; empty: there is no record.
	Hash string
	// At is when it was made, by the clock of a server.
	At time.Time
	// For is the hash on the pods that it is about: those of the template that was written with it; empty: it is about all pods.
	For string
	// Scope identifies the declarations that say which sources count.
	Scope string
	// Sources has an entry for each source, by its ID. Nil: another client has removed them, or has written something else.
	Sources map[string]Entry
}

// Entry is what is recorded of one source.
type Entry struct {
	// Content is SCOPE.DIGEST: which keys count and how containers see them, and a digest of their content.
	Content string
	// Adopted is when the content was adopted, as it was not known that the pods run with it; zero: they do, as far as the record is about them.
	Adopted time.Time
}

// record is the JSON of a Record, but for its hash. An entry is CONTENT, or CONTENT@SECONDS if it was adopted.
type record struct {
	At      time.Time         `json:"at,omitzero"`
	For     string            `json:"for,omitempty"`
	Scope   string            `json:"scope,omitempty"`
	Sources map[string]string `json:"sources"`
}

// RecordOf returns the record of a workload.
func RecordOf(w *dependency.Workload) Record {
	hash, sources := w.Record()
	return recordFrom(hash, sources)
}

const (
	// MaxHash is longer than any hash that is recorded. Other clients can write longer ones, and hashes are shown.
	MaxHash = 128
	// invalidHash takes the place of a longer hash. As one of another key, it can be compared with none.
	invalidHash = "invalid"
)

func recordFrom(hash, sources string) Record {
	r := Record{Hash: hash}
	if len(hash) > MaxHash {
		r.Hash = invalidHash
	}
	var read record
	if json.Unmarshal([]byte(sources), &read) != nil || read.Sources == nil || len(read.For) > MaxHash || len(read.Scope) > MaxHash {
		return r
	}
	if read.At = read.At.UTC(); read.At.Year() < 0 || read.At.Year() > 9999 { // it could not be written
		return r
	}
	r.At, r.For, r.Scope, r.Sources = read.At, read.For, read.Scope, make(map[string]Entry, len(read.Sources))
	for id, text := range read.Sources {
		content, adopted, is := strings.Cut(text, "@")
		e := Entry{Content: content}
		if seconds, err := strconv.ParseInt(adopted, 10, 64); is && err == nil {
			e.Adopted = time.Unix(seconds, 0)
		}
		r.Sources[id] = e
	}
	return r
}

func (r *Record) sources() string {
	out := record{r.At.UTC(), r.For, r.Scope, make(map[string]string, len(r.Sources))}
	for id, e := range r.Sources {
		text := e.Content
		if !e.Adopted.IsZero() {
			text += "@" + strconv.FormatInt(e.Adopted.Unix(), 10)
		}
		out.Sources[id] = text
	}
	return mustJSON(out)
}

// LastReload describes a restart. Its JSON is the value of LastReloadAnnotation.
type LastReload struct {
	Time        metav1.MicroTime `json:"time"`
	Trigger     string           `json:"trigger,omitempty"`
	RequestedBy string           `json:"requestedBy,omitempty"`
	Reason      string           `json:"reason,omitempty"`
	// Automatic is the time of the last automatic restart, and Streak is how many of
	// these followed each other closely, which makes the next one wait longer.
	Automatic *metav1.MicroTime `json:"automatic,omitempty"`
	Streak    int               `json:"streak,omitempty"`
	// Evicted: the pods were evicted or restarted in place, and the template was not changed.
	Evicted bool `json:"evicted,omitempty"`
}

// LastReloadOf returns the workload's record of its last restart, or nil. An invalid value,
// which another client may have written, counts as none.
func LastReloadOf(w *dependency.Workload) *LastReload { return lastReloadFrom(w.LastReload()) }

// Texts of a LastReload are shown, logged and kept, so they are bounded however long another client has made them. The
// longest that are written are within these bounds.
const (
	maxLastReload     = 8 << 10 // of the whole, in bytes
	maxLastReloadText = 256     // of the name of a user and of a reason, in characters
	// maxTrigger is for the kind and the name, or glob, of a source, in bytes.
	maxTrigger = len(dependency.SecretProviderClass) + 1 + validation.DNS1123SubdomainMaxLength
)

func lastReloadFrom(value string) *LastReload {
	var last LastReload
	if len(value) > maxLastReload || json.Unmarshal([]byte(value), &last) != nil || last.Time.IsZero() {
		return nil
	}
	if len(last.Trigger) > maxTrigger {
		last.Trigger = TriggerUnknown
	}
	last.RequestedBy, last.Reason = cut(last.RequestedBy), cut(last.Reason)
	return &last
}

// cut returns the first characters of a text, as many as a LastReload may have.
func cut(text string) string {
	if utf8.RuneCountInString(text) <= maxLastReloadText {
		return text
	}
	return string([]rune(text)[:maxLastReloadText-1]) + "…"
}

// NewRequestedReload returns the record of a restart on request.
func NewRequestedReload(previous *LastReload, now time.Time, user, reason string) LastReload {
	last := LastReload{Time: metav1.NewMicroTime(now), Trigger: TriggerRequest, RequestedBy: cut(user), Reason: cut(reason)}
	if previous != nil {
		last.Automatic, last.Streak = previous.Automatic, previous.Streak
	}
	return last
}

// NewAutomaticReload returns the record of an automatic restart.
func NewAutomaticReload(previous *LastReload, now time.Time, minInterval time.Duration, trigger string) LastReload {
	at := metav1.NewMicroTime(now)
	last := LastReload{Time: at, Trigger: trigger, Automatic: &at, Streak: 1}
	if before, known := previous.automatic(now); known && now.Before(before.Add(2*interval(minInterval, previous.Streak))) {
		last.Streak = previous.Streak + 1
	}
	return last
}

// automatic returns the time of the last automatic restart, if it is known. Clocks
// differ, but a time in the far future is invalid.
func (l *LastReload) automatic(now time.Time) (at time.Time, known bool) {
	if l == nil || l.Automatic == nil || l.Automatic.After(now.Add(maxInterval)) {
		return time.Time{}, false
	}
	return l.Automatic.Time, true
}

// maxInterval bounds the back-off, unless the policy asks for more.
const maxInterval = time.Hour

// interval returns how long to wait after the last of a streak of automatic restarts: the
// minimum, doubled for each that followed closely.
func interval(minimum time.Duration, streak int) time.Duration {
	wait := minimum
	// Any client can write the annotation, so the streak may be any number.
	for i := 1; i < streak && 0 < wait && wait < maxInterval; i++ {
		wait *= 2
	}
	return max(minimum, min(wait, maxInterval))
}

// notBefore returns the earliest time of the next automatic restart.
func notBefore(last *LastReload, minimum time.Duration, now time.Time) time.Time {
	at, known := last.automatic(now)
	if !known {
		return time.Time{}
	}
	return at.Add(interval(minimum, last.Streak))
}

type object map[string]any

// Restart is what a restart depends on.
type Restart struct {
	// Present is the record of the content that the pods are restarted with.
	Present Record
	Last    LastReload
	// Changed are the sources that have changed, the trigger first; none: it is a restart on request.
	Changed []Changed
	// Always makes the template differ even when the hash does not.
	Always bool
	// Pods are all existing pods, for a strategy that names them.
	Pods []types.UID
	// Unfit says in a clause why one of them does not allow that strategy, so that it is a rollout; empty: all do.
	Unfit string
	// Fields is what has been set of the fields; nil: the workload has none. FieldsOnly: nothing else is to be done.
	Fields     *AppliedFields
	FieldsOnly bool
}

// RestartPatch returns the patch that restarts the pods of a workload according to
// the policy, and records with which content: a JSON merge patch, or a strategic one (see Strategic). It names only our
// annotations and those of other tools that do the same, and the API server
// refuses it with a conflict if the workload has another UID or version.
func (p *Policy) RestartPatch(w *dependency.Workload, r *Restart) ([]byte, error) {
	s := p.StrategyOf(w, r)
	out := restartPatch{last: r.Last, fields: object{}, workload: object{}}
	if p.Mode != Off { // else it would be adopted when the workload opts in
		present := r.Present
		if present.At = r.Last.Time.Time; s.MarksTemplate() {
			present.For = present.Hash
		} else {
			present = present.adopted(present.At)
		}
		out.workload[ConfigHashAnnotation], out.workload[AppliedSourcesAnnotation] = present.Hash, present.sources()
	}
	end(w, out.workload) // of one that is under way
	if r.Fields != nil {
		out.workload[AppliedFieldsAnnotation] = r.Fields.json()
	}
	if !r.FieldsOnly {
		s.begin(w, r, &out)
	}
	out.workload[LastReloadAnnotation] = out.last.json()
	if out.template != nil {
		p.Pause.begin(w, r.Last.Time.Time, &out)
		out.replaceForeign(w)
		if p.ReportsSource && len(r.Changed) > 0 {
			out.template[lastReloadedFrom] = r.Changed[0].reloadedFrom(w, r.Last.Time.Time)
		}
		out.set(w.TemplatePath(), out.templatePatch(w))
	}
	return patch(w, out.workload, out.fields)
}

// set adds a field to the patch.
func (out *restartPatch) set(path []string, value any) {
	at, last := out.fields, len(path)-1
	for _, name := range path[:last] {
		inner, found := at[name].(object)
		if !found {
			inner = object{}
			at[name] = inner
		}
		at = inner
	}
	at[path[last]] = value
}

// replaceForeign removes the marks of other tools, except variables that the restart sets.
func (out *restartPatch) replaceForeign(w *dependency.Workload) {
	if w.Foreign == nil {
		return
	}
	for _, key := range w.Foreign.Annotations {
		out.template[key] = nil
	}
	if w.Custom { // its variables can be changed by no patch that leaves the other ones alone
		return
	}
	for _, v := range w.Foreign.Variables {
		if !slices.ContainsFunc(out.variables, func(set variable) bool { return set.Variable == v }) {
			out.variables = append(out.variables, variable{Variable: v})
		}
	}
}

// templatePatch returns the part of the patch for the pod template. It names containers in their order, because a strategic
// merge patch would otherwise reorder them.
func (out *restartPatch) templatePatch(w *dependency.Workload) object {
	template := object{"metadata": object{"annotations": out.template}}
	if len(out.variables) == 0 {
		return template
	}
	var containers []object
	position := func(v variable) int {
		if i := slices.Index(w.Containers, v.Container); i >= 0 {
			return i
		}
		return len(w.Containers)
	}
	slices.SortStableFunc(out.variables, func(a, b variable) int { return cmp.Compare(position(a), position(b)) })
	for _, v := range out.variables {
		i := slices.IndexFunc(containers, func(c object) bool { return c["name"] == v.Container })
		if i < 0 {
			i, containers = len(containers), append(containers, object{"name": v.Container, "env": []object(nil)})
		}
		env := object{"name": v.Name, "value": v.value}
		if v.value == "" {
			env = object{"name": v.Name, "$patch": "delete"}
		}
		containers[i]["env"] = append(containers[i]["env"].([]object), env)
	}
	template["spec"] = object{"containers": containers}
	return template
}

// Strategic reports whether a patch is a strategic merge patch, because it names entries of lists, and no JSON merge
// patch. In texts, quotes are escaped.
func Strategic(patch []byte) bool { return bytes.Contains(patch, []byte(`"containers":[`)) }

// RecordPatch returns the JSON merge patch that writes a record to a workload, and restarts nothing.
func RecordPatch(w *dependency.Workload, r Record) ([]byte, error) {
	annotations := object{
		ConfigHashAnnotation:     r.Hash,
		AppliedSourcesAnnotation: r.sources(),
	}
	if Rerun.UnderWay(w) && w.Marks.Recreating != "" { // it is not to be replaced any longer
		annotations[RecreatingAnnotation] = nil
	}
	restore(annotations, w)
	return patch(w, annotations, nil)
}

// adoptedBy returns an upper bound of when an entry was adopted, which is recorded in seconds.
func (r *Record) adoptedBy(e *Entry) time.Time {
	if r.At.Truncate(time.Second).Equal(e.Adopted) {
		return r.At
	}
	return e.Adopted.Add(time.Second)
}

// adopted returns the record with each entry adopted at a time: it is not known which pods run with the content.
func (r Record) adopted(at time.Time) Record {
	sources := make(map[string]Entry, len(r.Sources))
	for id, e := range r.Sources {
		sources[id] = Entry{e.Content, at}
	}
	r.Sources = sources
	return r
}

// restore adds annotations that belong to the record and that another client removed with it: the pods to evict,
// and the last restart, on which the back-off depends.
func restore(annotations object, w *dependency.Workload) {
	put := func(key, value, carried string) {
		if _, said := annotations[key]; !said && value != "" && carried == "" {
			annotations[key] = value
		}
	}
	put(RecreatingAnnotation, w.Recreating(), w.Marks.Recreating)
	put(LastReloadAnnotation, w.LastReload(), w.Marks.LastReload)
}

// ForgetPatch returns the JSON merge patch that removes the record from a workload that has opted out, and ends a restart that is under way.
func ForgetPatch(w *dependency.Workload) ([]byte, error) {
	annotations := object{}
	for key, value := range map[string]string{
		ConfigHashAnnotation: w.Marks.Hash, AppliedSourcesAnnotation: w.Marks.Sources, RecreatingAnnotation: w.Marks.Recreating,
	} {
		if value != "" {
			annotations[key] = nil
		}
	}
	return patch(w, annotations, nil)
}

// EndPatch returns the JSON merge patch that ends a completed restart. It also writes the record again if another
// client removed it: as long as this process remembers that record, it also remembers that the restart is under
// way.
func EndPatch(w *dependency.Workload) ([]byte, error) {
	annotations := object{RecreatingAnnotation: nil}
	if hash, sources := w.Record(); w.RecordDropped() {
		annotations[ConfigHashAnnotation] = hash
		if sources != "" {
			annotations[AppliedSourcesAnnotation] = sources
		}
		restore(annotations, w)
	}
	return patch(w, annotations, nil)
}

// patch returns a patch of annotations of a workload and of other fields than its metadata.
func patch(w *dependency.Workload, annotations, fields object) ([]byte, error) {
	out := object{}
	maps.Copy(out, fields)
	out["metadata"] = object{
		"uid":             w.UID,
		"resourceVersion": w.ResourceVersion,
		"annotations":     annotations,
	}
	return json.Marshal(out)
}

func (l *LastReload) json() string { return mustJSON(l) }

// mustJSON encodes values of types whose encoding cannot fail.
func mustJSON(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(out)
}
