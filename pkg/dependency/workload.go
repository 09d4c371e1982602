// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"cmp"
	"encoding/json"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// WorkloadKind is the kind of an object that creates pods, or of a pod without a
// controller.
type WorkloadKind string

// WorkloadKey names a workload in the cluster.
type WorkloadKey struct {
	Kind      WorkloadKind
	Namespace string
	Name      string
}

// ViewName is the name under which the workload is shown: its kind and name in lower
// case, as in deployment.web. The names of workloads are in lower case already.
func (k WorkloadKey) ViewName() string { return strings.ToLower(string(k.Kind)) + "." + k.Name }

// Workload is the part of a workload that is kept.
type Workload struct {
	WorkloadKey
	UID             types.UID
	ResourceVersion string
	Created         metav1.Time
	// CreatedAt is when this process saw the creation of the workload, or a version after which it was made. Zero: it is not
	// known.
	CreatedAt Moment
	Labels    map[string]string
	// Annotations are the annotations by which users declare how the workload is
	// restarted, and TemplateAnnotations are those of its pod template.
	Annotations, TemplateAnnotations map[string]string
	// Foreign are the marks of other tools on the pod template; nil: there are none.
	Foreign *Foreign
	// Containers are the names of the first containers that are no init containers.
	Containers []string
	Marks      Marks
	Traits
	Status
	InPlace
	References []Reference
	Fields     Fields
	// Owner is the workload of a custom resource that this one belongs to; nil: there is none.
	Owner *Owner
	// Borrows: its pods have the pod template of another object. TemplateOf is that object; nil: it is none that is read. The
	// references then are those of its template.
	Borrows    bool
	TemplateOf *WorkloadKey
	// Truncated: the pod template names more than References contains; see MaxSources and MaxUses.
	Truncated bool
	// Terminating: the workload is being deleted.
	Terminating bool
	// OptedIn: the annotations say that the workload is restarted automatically, or try to.
	OptedIn bool
	// PausedByRestart: an annotation says that a restart has paused the workload, which has to be resumed whether or not it is
	// restarted automatically by now.
	PausedByRestart bool
	// StartUnsure: pods of the current template may be older than StartVersion. Its rollout began
	// before that of the last template was complete, and it may be one from before, whose pods
	// were never replaced: this process has not seen all templates since one was complete, or this
	// one was among them.
	StartUnsure bool
	// CameBack: this process has seen that: the template came back by an event.
	CameBack bool
	// TemplatePending: a Deployment is paused, and its pods are of another template.
	TemplatePending bool
	// RecordedWithTemplate: another pod template came in the same write as the record.
	RecordedWithTemplate bool
	// RecordedFirst: this process saw, by an event, that the first record was written, without a restart. It says which
	// content its writer had read, and not which content the pods had.
	RecordedFirst bool
	completed     bool // the rollout of the template that is applied, and no other has pods
	// writtenByUs: templateBy is configdep, and no other manager has written the template in that second.
	writtenByUs bool
	guessed     bool // the status was too old to tell which template is applied
	// templateBy is the field manager that wrote the template last.
	templateBy FieldManager

	// OptedAt is when OptedIn last changed. Zero: it has not since the workload was first read.
	OptedAt Moment
	// OptedOver is what the annotation of the workload itself said of that before.
	OptedOver string
	// Scope identifies the annotations that say which sources count, and ScopedAt is when they first changed after the
	// last record, or last before it, from ScopedFrom. Zero: they have not changed.
	Scope, ScopedFrom Text
	ScopedAt          Moment
	// ListedAt is when this process began to read the workload, if the first list of its kind came after the first lists of the
	// others: what changed before that is not a change for it. Zero: it is as for all others, Graph.Since.
	ListedAt Moment
	// noted is the place, in the order of reading, of the last Opt; 0: there was none.
	noted uint64

	// StartVersion is a lower bound of when the first pods of the current template were
	// created, as a resourceVersion; 0: it is not known. That is when the template changed,
	// when a paused Deployment was resumed, or when the workload was scaled up from zero.
	// Containers may start later: see Graph.Started.
	StartVersion uint64
	// StartedBy is an upper bound of the same.
	StartedBy uint64
	// PodsAfter is a lower bound of when the oldest pods of the current template were created, also if
	// StartUnsure: at that moment all pods were of another one. Zero: it is not known.
	PodsAfter Moment
	// RevisionBefore is what Revision was when the template last changed.
	RevisionBefore string
	// since are the templates that have been applied since one was complete, with that, the latest
	// last: no other has pods. Nil: the one that is applied is complete, or they are not known.
	since []uint64
	// complete is the template whose rollout was complete last, and completeAt is when that was seen.
	complete   uint64
	completeAt Moment
	stages     []stage
	// stageNumbers are those of stages by their containers; nil: they are few.
	stageNumbers map[string]int
	gates        []gate // nil: no container of the template had to wait for anything
	// heard is how many arrivals it has been updated with; see arrival.
	heard uint64

	// RecordedAt is an upper bound of when the record was last written. Zero: it has not
	// been written since the workload was first read.
	RecordedAt Moment
	// RecordedAgain is an upper bound of when the record was last written unchanged, after another client had removed
	// it; 0: it was not.
	RecordedAgain uint64
	// restart is the template of a restart of ours that wrote the record; 0: the record is another one.
	restart uint64
	dropped *record
	// left are the templates that were replaced since a rollout was complete; see keepLeft, also for undone.
	left   []leftTemplate
	undone *undone
	// recordBefore is what was recorded of the pods before a restart whose template waits until the workload is resumed; nil: there is
	// none.
	recordBefore *remembered

	// TemplateWritten is an upper bound of when the template changed, to the second: when a
	// client that sets it last wrote the object.
	TemplateWritten time.Time
	// TemplateSeen is when this process saw the template change. Zero: it has not. TemplateOrder is when it
	// read the template of the pods; see Moment.
	TemplateSeen  time.Time
	TemplateOrder uint64
	// TemplateBy are the field managers that own fields of the template, at most maxManagers.
	TemplateBy []FieldManager
	reloaded   time.Time // the latest of the restarts that the template or the record has told of
	template   uint64    // the fingerprint of the pod template, in this process
	applied    uint64    // that of the template of the pods; 0: it is not known
}

// Moment is when something happened, as far as this process knows.
type Moment struct {
	// Version is a resourceVersion.
	Version uint64
	// Order is the place in the order in which this process has read things. It stands in
	// for Version where resources have several revision counters.
	Order uint64
}

// Arrival is how an object was read.
type Arrival struct {
	// Live: it came as an event, so that nothing can have been missed.
	Live bool
	// Seen is when it was read; zero until everything has been read once.
	Seen time.Time
	// Order is its place among all that was read; see Moment.
	Order uint64
	// Rekeyed: what was known before was read with another key of the hash, so that digests
	// cannot be compared.
	Rekeyed bool
	// After is the revision up to which everything had been read before a list; 0: it is not known.
	After uint64
	// Listed is when the first list of a kind that this process began to read late was made; zero: it is another input.
	Listed Moment
}

// After completes a workload with what was known before about the workload of that name, or
// nil.
func (w *Workload) After(previous *Workload, at Arrival) {
	before := previous // the same object; nil: none, or it was deleted and created again
	if previous != nil && previous.UID != w.UID {
		before = nil
	}
	w.dateObject(before, at)
	w.findApplied(before, at)
	samePods := before != nil && before.applied == w.applied
	w.dateStart(previous, samePods, at)
	w.compareRollout(before, samePods, at)
	// A record that another client has removed is kept only for the pods that it is about. One that
	// stands on the workload, made with a key that was replaced, is kept as long as it stands there.
	rekeyed := before != nil && before.RecordRekeyed() && w.Marks.Hash == before.Marks.Hash
	if samePods || rekeyed {
		w.keepRecord(before)
	}
	written := w.dateRecord(previous, before, at)
	if before != nil {
		w.keepLeft(before, samePods, written, at)
	}
}

// written returns when the object was last written, which is an upper bound of when any part of it
// changed.
func (w *Workload) written(at Arrival) Moment {
	return Moment{ParseVersion(w.ResourceVersion), at.Order}
}

// dateObject finds out when the object was created, and when its template changed, as this process
// saw it.
func (w *Workload) dateObject(before *Workload, at Arrival) {
	switch {
	case before != nil:
		w.CreatedAt, w.ListedAt = before.CreatedAt, before.ListedAt
	case at.Live:
		w.CreatedAt = w.written(at)
	default:
		w.ListedAt = at.Listed
	}
	if w.TemplateSeen = at.Seen; before != nil && before.template == w.template {
		w.TemplateSeen = before.TemplateSeen
	}
}

// findApplied finds out which template is that of the pods: for a Deployment that is paused, the one
// with which it was paused.
func (w *Workload) findApplied(before *Workload, at Arrival) {
	w.applied = w.template
	if !w.Paused {
		return
	}
	// A list does not tell whether the template came before the pause or after it. The status does.
	unseen := before != nil && !at.Live && before.ResourceVersion != w.ResourceVersion
	stayed := before != nil && before.Paused && before.template == w.template && w.Updated == UpdatedNone
	switch {
	case before != nil && before.guessed && before.applied == w.template && w.Updated == UpdatedNone:
		w.applied = 0 // it was the wrong guess; of another template the status says nothing
	case before != nil && (!unseen || stayed):
		w.applied, w.guessed = before.applied, before.guessed
	case at.Live, w.Updated == UpdatedNone:
		w.applied = 0 // it was created like that, or no pod is of this template
	default:
		w.guessed = w.Updated == UpdatedUnknown
	}
	w.TemplatePending = w.applied != w.template
}

// dateStart finds out between which versions the pods of the applied template started. Previous may
// be another object.
func (w *Workload) dateStart(previous *Workload, samePods bool, at Arrival) {
	if w.TemplateOrder = at.Order; samePods {
		w.TemplateOrder = previous.TemplateOrder
	}
	scaledUp := samePods && previous.Idle && !w.Idle
	started := !samePods || scaledUp
	switch {
	case !started:
		w.StartVersion, w.StartedBy, w.gates, w.heard = previous.StartVersion, previous.StartedBy, previous.gates, previous.heard
		w.StartUnsure, w.CameBack = previous.StartUnsure, previous.CameBack
		w.PodsAfter, w.RevisionBefore = previous.PodsAfter, previous.RevisionBefore
	case at.Live:
		w.StartVersion = ParseVersion(w.ResourceVersion)
	case previous != nil: // at any time since that was read, and so was all that came before the list
		w.StartVersion = max(ParseVersion(previous.ResourceVersion), at.After) + 1
	case at.After != 0: // it was not there then
		w.StartVersion = at.After + 1
	}
	if started && w.CreatedAt == (Moment{}) && (previous == nil || previous.UID != w.UID) { // with its first pods
		w.CreatedAt.Version = w.StartVersion
	}
	if w.TemplatePending { // the pods wait for what another one reads
		w.gates = nil
	}
	// Another template may have come and gone unseen, unless the controller has counted no rollout since.
	if started || !at.Live && !w.TemplateWritten.Equal(previous.TemplateWritten) && !w.sameRevision(previous) {
		w.StartedBy = ParseVersion(w.ResourceVersion)
	}
}

// sameRevision reports whether the controller of a Deployment has counted no rollout since another state,
// or only the first.
func (w *Workload) sameRevision(other *Workload) bool {
	return w.Revision != "" && w.Revision == cmp.Or(other.Revision, "1")
}

// RevisionIsNew reports whether the controller of a Deployment has counted a rollout since the template
// changed. A lower number than before is that of an earlier ReplicaSet: its controller may not have read yet
// that it created another one in between.
func (w *Workload) RevisionIsNew() bool {
	before := ParseVersion(w.RevisionBefore)
	return before > 0 && ParseVersion(w.Revision) > before
}

// ClockMargin is by how much the clocks of nodes, of the API server and of this server may differ without a
// comparison of their times being wrong.
const ClockMargin = 2 * time.Minute

// compareRollout finds out how the rollout of the applied template stands, and, when it has just
// begun, whether it may have found pods from before.
func (w *Workload) compareRollout(before *Workload, samePods bool, at Arrival) {
	last := w.lastReload()
	if before != nil && !samePods {
		restart := w.reloaded
		// One without a time in the template was made when no rollout was under way.
		if hash := w.Marks.Hash; hash != "" && hash == w.Marks.TemplateHash {
			restart = latest(restart, last)
		}
		// A restart is later than all before. An earlier one is that of a template that came back. If none
		// is known, it is later than the template before.
		earlier := before.reloaded
		if earlier.IsZero() && !before.TemplateWritten.IsZero() {
			earlier = before.TemplateWritten.Add(ClockMargin)
		}
		w.StartUnsure = !before.completed && !before.neverHad(w.applied) && !restart.After(earlier) && !w.restarted(before)
		w.CameBack = w.StartUnsure && at.Live && before.since != nil
		w.RevisionBefore = before.Revision
		if before.complete != 0 && before.complete != w.applied {
			w.PodsAfter = before.completeAt
		}
	}
	if w.completed = w.Rollout.Phase == RolloutComplete && !w.Surplus; w.TemplatePending { // it is about another template
		w.completed = samePods && before.completed
	}
	w.keepTemplates(before, samePods, at)
	w.reloaded = latest(w.reloaded, last)
	if before != nil {
		w.reloaded = latest(w.reloaded, before.reloaded)
	}
}

// OthersLeft reports whether there may be pods of other templates although the rollout is complete, because the
// rollout does not count them.
func (w *Workload) OthersLeft() bool { return w.Surplus }

// restarted reports whether the template is that of a restart of ours. It carries a time that no other has; or it was made
// when no rollout was under way, so that pods of no other were left (those of a kind whose rollouts do not count all may have
// some).
func (w *Workload) restarted(before *Workload) bool {
	is := func(value, before string) bool { return value != "" && value != before }
	return w.writtenByUs && (is(w.Marks.ReloadedAt, before.Marks.ReloadedAt) || w.CountsAll && is(w.Marks.TemplateHash, before.Marks.TemplateHash))
}

// maxTemplates limits the templates that are remembered for a workload whose rollouts are
// never complete.
const maxTemplates = 8

// keepTemplates remembers which templates may have pods.
func (w *Workload) keepTemplates(before *Workload, samePods bool, at Arrival) {
	switch {
	case w.completed:
		w.complete, w.completeAt = w.applied, w.written(at)
	case before != nil:
		w.complete, w.completeAt = before.complete, before.completeAt
	}
	missed := !at.Live && (before == nil || before.ResourceVersion != w.ResourceVersion)
	switch {
	case w.completed, missed, w.applied == 0: // nothing to remember, or not known
	case before == nil: // it has just been created
		w.since = []uint64{w.applied}
	case samePods && before.completed:
		w.since = []uint64{w.applied}
	case samePods:
		w.since = before.since
	case before.completed:
		w.since = []uint64{before.applied, w.applied}
	case before.since != nil && len(before.since) < maxTemplates:
		w.since = append(slices.Clip(before.since), w.applied)
	}
}

// neverHad reports whether it is known that a workload has had no pods of a template since the last
// rollout that was complete.
func (w *Workload) neverHad(template uint64) bool {
	return w.since != nil && template != 0 && !slices.Contains(w.since, template)
}

// lastReload returns the time of the last restart according to the workload's annotation;
// zero: there is none.
func (w *Workload) lastReload() time.Time {
	text := w.Marks.LastReload
	var last struct{ Time time.Time }
	if text == "" || json.Unmarshal([]byte(text), &last) != nil {
		return time.Time{}
	}
	return last.Time
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Opting is what the annotations of a workload and its namespace say.
type Opting struct {
	// In: the workload is restarted automatically.
	In bool
	// Scope stands for which sources count.
	Scope Text
	// Over is what the workload itself said of In before.
	Over string
}

// Opt sets what the annotations of the workload and its namespace say, the last of which came with
// a version. Previous is what was known about the workload before, or nil. A workload that has
// opted out keeps no record that another client has removed.
func (w *Workload) Opt(o Opting, previous *Workload, version string, at Arrival) {
	in, scope := o.In, o.Scope
	w.OptedIn, w.Scope, w.noted = in, scope, at.Order
	if !in && w.RecordDropped() {
		w.dropped = nil
	}
	if previous == nil {
		return
	}
	now := Moment{ParseVersion(version), at.Order}
	if w.OptedAt, w.OptedOver = previous.OptedAt, previous.OptedOver; previous.OptedIn != in {
		w.OptedAt, w.OptedOver = now, o.Over
	}
	w.ScopedAt, w.ScopedFrom = previous.ScopedAt, previous.ScopedFrom
	if previous.Scope != scope && (w.ScopedAt == (Moment{}) || w.RecordedSinceScoped()) {
		w.ScopedAt, w.ScopedFrom = now, previous.Scope
	}
}

// OptedAfter reports whether what the annotations say came to be after a version: that of a namespace, which is read
// on a stream of its own and may come later than what was written after it.
func (w *Workload) OptedAfter(version string) bool { return ParseVersion(version) < w.OptedAt.Version }

// OptBefore notes that a namespace had opted the workload in, with a version before OptedAt.
func (w *Workload) OptBefore(version string) { w.OptedAt.Version = ParseVersion(version) }

// RecordedSinceScoped reports whether the record was written after the annotations that say which sources
// count last changed, or with them.
func (w *Workload) RecordedSinceScoped() bool { return w.RecordedAt.Order >= w.ScopedAt.Order }

// ParseVersion parses a resourceVersion, or the revision of a Deployment. Those of kube-apiserver are revisions
// of etcd; one that is not a number is as good as unknown, which is 0.
func ParseVersion(version string) uint64 {
	v, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0 // not the highest number, which comes with the error of one that is too high
	}
	return v
}

// seed makes fingerprints cheap: they are compared in one process only.
var seed = maphash.MakeSeed()
