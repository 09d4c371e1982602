// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
)

// State says how the content that a container was started with relates to the current content.
type State string

// The states, from the best to the worst.
const (
	Current    State = "Current"
	NotStarted State = "NotStarted"
	Unknown    State = "Unknown"
	Stale      State = "Stale"
)

// The reasons of verdicts. For NotStarted, the reason comes from the kubelet.
const (
	ReasonNothingRead  = "NothingRead"  // Current: it reads no source that counts
	ReasonStartedAfter = "StartedAfter" // Current: it started after the content was last written
	ReasonSameContent  = "SameContent"  // Current: content has changed since it started, and is the same again
	ReasonCreatedFor   = "CreatedFor"   // Current: its pod was created for the current content
	ReasonRecorded     = "Recorded"     // Current: according to the record of the workload

	ReasonStartedBefore = "StartedBefore" // Stale: it started before the content changed
	ReasonRecordDiffers = "RecordDiffers" // Stale: it runs with the recorded content, which differs

	ReasonClockMargin       = "ClockMargin"       // Unknown: it started at about the time of the change
	ReasonWrittenSinceStart = "WrittenSinceStart" // Unknown: the source was written after the start, before configdep began to read it
	ReasonFilesChanged      = "FilesChanged"      // Unknown: mounted files have changed, which the application may have read again
	ReasonNodeClock         = "NodeClock"         // Unknown: the clock of its node is wrong
	ReasonSourceMissing     = "SourceMissing"     // Unknown: the source does not exist, or lacks a key that the container needs
	ReasonOlderTemplate     = "OlderTemplate"     // Unknown: its pod has an older pod template, of which it is not known what the container reads
)

const (
	// ClockMargin allows for the difference between the clocks of a node, the API server and configdep, which are assumed to be synchronized; for
	// the delay of a watch of configdep or the kubelet; and for the time between reading an environment and starting the process. Each is far below
	// a second in a healthy cluster.
	ClockMargin = 5 * time.Second
	// VolumeMargin replaces ClockMargin for files of a volume that may have been mounted before the container started: the kubelet refreshes volumes once
	// a minute by default, with a jitter of half a minute.
	VolumeMargin = 2 * time.Minute
	// second is the precision of the times of API objects.
	second = time.Second
)

// Verdict is a verdict on a container, or on one source that it reads.
type Verdict struct {
	State  State
	Reason string
	// Doubt: the container may have been started with other content, of a time that configdep has seen.
	Doubt bool
	// Since is when the first change was made that the container has not read, as far as that is known; zero: there is none.
	Since time.Time
	// Local: a process that began to read the source at another time may judge otherwise.
	Local bool
}

// Source is what is known about a source that counts for a workload.
type Source struct {
	// Reference has the uses that count.
	dependency.Reference

	// Periods are those of the source, in order.
	Periods []dependency.Period
	// Mounted tells what a pod has mounted, if the source is a SecretProviderClass.
	Mounted func(*dependency.Pod) dependency.Mounted
	// Recorded is what the record of the workload says about the source; nil: nothing that can be compared.
	Recorded *Recorded
	// Unhashed: its content is not part of Facts.Hash.
	Unhashed bool
}

// Recorded is what a record says about a source.
type Recorded struct {
	// Same: the recorded content is the current one.
	Same bool
	// At is when it was recorded, by configdep's clock.
	At time.Time
	// Proven: all pods ran with it then. Otherwise, only those do that were started later.
	Proven bool
	// For is the hash on the pods that the record is about; empty: it is about all pods.
	For string
}

// Facts are what is known about a workload, besides its pods, at one time.
type Facts struct {
	Now time.Time
	// Complete is since when configdep has read everything, by its clock.
	Complete time.Time
	// Hash is the hash of the current content.
	Hash string
	// Revision is the label of pods with the current template; empty: it is not known.
	Revision string
	// Released is an upper bound of when the pod template was written, by the API server's clock and by a client that may have written content with it;
	// zero: by configdep.
	Released time.Time
	Sources  []Source
	// Containers are the names of the containers of the current template; nil: they are not known.
	Containers []string
	// LiveFiles: a container need not be restarted to read mounted files, unless it mounts a part of the volume (subPath).
	LiveFiles bool
	// SeenFiles: its owner has not said whether a container has to be restarted to read mounted files.
	SeenFiles bool
}

// Judge judges the pods of one workload.
type Judge struct {
	Facts

	reads map[string][]reading // by container
	any   []reading            // of sources that the template does not name, which any container may read
}

// reading is what a container reads of a source, in one way.
type reading struct {
	source    int // its index in Facts
	reference dependency.Reference
	file      bool
	whole     bool // it reads all that the record of the source is about
	periods   []content
	current   int // the index of the last period with which the container can have started; -1: none
}

// content is a period, and whether the container reads the same in it as in the current one.
type content struct {
	dependency.Period

	same, startable bool
	text            []byte // what the container reads
}

// New returns a Judge.
func New(f Facts) *Judge {
	j := &Judge{Facts: f, reads: map[string][]reading{}}
	for i := range f.Sources {
		j.add(i)
	}
	return j
}

// add adds what the containers read of a source.
func (j *Judge) add(source int) {
	s := &j.Sources[source]
	byContainer := map[string][2][]dependency.Use{} // by whether they are files that are updated
	var order []string
	unused := unusedKeys(&s.Reference)
	for _, u := range s.Uses {
		file := isFile(&u) && !u.SubPath
		if !u.Reads() || file && j.LiveFiles {
			continue
		}
		uses, known := byContainer[u.Container]
		if !known {
			order = append(order, u.Container)
		}
		if isFile(&u) {
			uses[1] = append(uses[1], u)
		} else {
			uses[0] = append(uses[0], u)
		}
		byContainer[u.Container] = uses
	}
	for _, name := range order {
		for file, uses := range byContainer[name] {
			if len(uses) == 0 {
				continue
			}
			r := reading{source: source, reference: s.Reference, file: file == 1}
			r.reference.Uses, r.reference.RequiredKeys = uses, required(&s.Reference, uses, unused)
			r.whole = sameKeys(&s.Reference, &r.reference) && (r.file || !s.Mountable())
			r.compare(s.Periods)
			if name == "" {
				j.any = append(j.any, r)
			} else {
				j.reads[name] = append(j.reads[name], r)
			}
		}
	}
}

// required returns the keys without which a container cannot be started with some of the uses of a source, or its volumes not be refreshed. What other
// containers require does not keep it from that, but what no container uses does, as an item of a volume.
func required(r *dependency.Reference, uses []dependency.Use, unused []string) []string {
	keys := requiredBy(uses)
	keys = slices.DeleteFunc(keys, func(key string) bool {
		_, is := slices.BinarySearch(r.RequiredKeys, key)
		return !is
	})
	if isFile(&uses[0]) {
		keys = append(keys, unused...)
		slices.Sort(keys)
	}
	return keys
}

// requiredBy returns the keys that uses require, in order.
func requiredBy(uses []dependency.Use) (keys []string) {
	for i := range uses {
		if !uses[i].Optional {
			keys = append(keys, uses[i].Keys...)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// unusedKeys returns the keys that a source must have although no use requires them.
func unusedKeys(r *dependency.Reference) []string {
	used := requiredBy(r.Uses)
	return slices.DeleteFunc(slices.Clone(r.RequiredKeys), func(key string) bool {
		_, is := slices.BinarySearch(used, key)
		return is
	})
}

func sameKeys(a, b *dependency.Reference) bool {
	keys, all := a.Keys()
	others, allOthers := b.Keys()
	return all == allOthers && slices.Equal(keys, others)
}

// isFile reports whether a use shows content as files.
func isFile(u *dependency.Use) bool {
	return u.Type == dependency.Volume || u.Type == dependency.Projected || u.Type == dependency.CSI
}

// compare compares the content of each period with the current one: the last with which the container can have been started. The absence of what a
// container requires is no content: none can have read it.
func (r *reading) compare(periods []dependency.Period) {
	r.periods, r.current = make([]content, len(periods)), -1
	for i := range periods {
		p := &periods[i]
		r.periods[i] = content{Period: *p, startable: p.Unknown || !dependency.Resolve(&r.reference, p.Source).Missing}
		switch {
		case p.Unknown: // it may have ended with other content than before
			r.current = -1
		case r.periods[i].startable:
			r.current = i
		}
	}
	if r.current < 0 {
		return
	}
	r.periods[r.current].same = true
	if len(periods) == 1 {
		return
	}
	for i := range r.periods {
		if p := &r.periods[i]; p.startable && !p.Unknown {
			p.text = dependency.AppendContent(nil, &r.reference, p.Source)
		}
	}
	for i := range r.periods {
		if p := &r.periods[i]; p.startable && !p.Unknown {
			p.same = bytes.Equal(p.text, r.periods[r.current].text)
		}
	}
}

// SourceVerdict is the verdict on a source that a container reads.
type SourceVerdict struct {
	Verdict

	*Source

	// Index is the index of the source in Facts.
	Index int
	// File: it is about files of a volume.
	File bool
}

// Container judges a container, and calls f, which may be nil, with the verdicts on each source that it reads.
func (j *Judge) Container(p *dependency.Pod, c *dependency.PodContainer, f func(SourceVerdict)) Verdict {
	out := Verdict{State: Current, Reason: ReasonNothingRead}
	if c.Waiting != "" {
		return Verdict{State: NotStarted, Reason: c.Waiting}
	}
	named := j.reads[c.Name]
	all := named
	if len(j.any) > 0 && c.Role != dependency.InitContainer {
		all = append(slices.Clip(named), j.any...)
	}
	if j.Containers != nil && c.Role == dependency.RegularContainer && j.IsOlder(p) && !slices.Contains(j.Containers, c.Name) {
		out = Verdict{State: Unknown, Reason: ReasonOlderTemplate}
	}
	for i := range all {
		r := &all[i]
		v := j.judge(p, c, r)
		out.worsen(v)
		if f != nil {
			f(SourceVerdict{v, &j.Sources[r.source], r.source, r.file})
		}
	}
	return out
}

// IsOlder reports whether a pod has an older template than the current one, as far as that is known.
func (j *Judge) IsOlder(p *dependency.Pod) bool {
	return j.Revision != "" && p.Revision != "" && p.Revision != j.Revision
}

// Pod judges a pod: as the worst of its containers. It calls f, which may be nil, with the verdicts on each source that each of these reads.
func (j *Judge) Pod(p *dependency.Pod, f func(*dependency.PodContainer, SourceVerdict)) Verdict {
	out := Verdict{State: Current, Reason: ReasonNothingRead}
	for i := range p.Containers {
		c := &p.Containers[i]
		var each func(SourceVerdict)
		if f != nil {
			each = func(s SourceVerdict) { f(c, s) }
		}
		out.worsen(j.Container(p, c, each))
	}
	return out
}

// ranks orders states. The verdict with the highest rank is reported.
var ranks = map[State]int{Current: 1, NotStarted: 5, Unknown: 6, Stale: 8}

func (v *Verdict) rank() int {
	switch {
	case v.State == Current && v.Reason == ReasonNothingRead:
		return 0
	case v.State == Current && v.Reason != ReasonStartedAfter:
		return ranks[Current] + 1
	case v.State == Unknown && v.Doubt:
		return ranks[Unknown] + 1
	default:
		return ranks[v.State]
	}
}

// Compare orders verdicts from the best to the worst, which is reported.
func (v *Verdict) Compare(other *Verdict) int { return cmp.Compare(v.rank(), other.rank()) }

func (v *Verdict) worsen(other Verdict) {
	since, local := v.Since, v.Local || other.Local
	defer func() { v.Local = local }()
	if other.Compare(v) > 0 {
		*v = other
	}
	if v.State == Stale && !since.IsZero() && (v.Since.IsZero() || since.Before(v.Since)) {
		v.Since = since
	}
	if v.State == Stale && other.State == Stale && !other.Since.IsZero() && (v.Since.IsZero() || other.Since.Before(v.Since)) {
		v.Since = other.Since
	}
}

// judge judges what a container has read.
func (j *Judge) judge(p *dependency.Pod, c *dependency.PodContainer, r *reading) Verdict {
	s := &j.Sources[r.source]
	v := Verdict{State: Unknown, Reason: ReasonSourceMissing}
	switch {
	case s.Mounted != nil:
		v = mounted(c, s.Mounted(p))
	case r.current >= 0:
		w := j.window(p, c, r.file)
		v = j.compare(p, c, r, &w)
		v.Local = r.isLocal(v.Reason) || !j.isComplete(&w)
	}
	if r.file && j.SeenFiles && (v.State == Stale || v.Doubt) && !onlyParts(r.reference.Uses) {
		return Verdict{State: Unknown, Reason: ReasonFilesChanged, Since: v.Since, Local: v.Local}
	}
	return v
}

// isLocal reports whether a verdict with the reason rests on what was seen since this process began to read.
func (r *reading) isLocal(reason string) bool {
	current := &r.periods[r.current]
	switch {
	case reason == ReasonCreatedFor, reason == ReasonRecorded:
		return false
	case current.Source != nil && !current.Written.Equal(current.LastChanged.Time): // it has been written since, with the same content
		return true
	default:
		return len(r.periods) > 1 && (reason != ReasonStartedAfter || current.Written.IsZero())
	}
}

// onlyParts reports whether all uses are of parts of volumes, which are not updated in a running container.
func onlyParts(uses []dependency.Use) bool {
	return !slices.ContainsFunc(uses, func(u dependency.Use) bool { return !u.SubPath })
}

// mounted judges a container by what its pod has mounted of a SecretProviderClass.
func mounted(c *dependency.PodContainer, m dependency.Mounted) Verdict {
	switch {
	case !m.Updated, !c.Started.IsZero() && c.Started.After(m.Written.Add(VolumeMargin)):
		return Verdict{State: Current, Reason: ReasonStartedAfter}
	case c.Started.Add(second + ClockMargin).Before(m.Written):
		return Verdict{State: Stale, Reason: ReasonStartedBefore, Since: m.Written}
	default:
		return Verdict{State: Unknown, Reason: ReasonClockMargin, Doubt: true, Since: m.Written}
	}
}

// compare judges a container by the contents that a source had in the window in which it can have read.
func (j *Judge) compare(p *dependency.Pod, c *dependency.PodContainer, r *reading, w *window) Verdict {
	recorded := j.Sources[r.source].Recorded
	if r.current < len(r.periods)-1 {
		recorded = nil // it is about the absence of what the container requires
	}
	createdFor := j.createdFor(p, c, r, recorded)
	before := createdFor // the template was written
	// lost: configdep has missed or forgotten content of a time since it began to read the source.
	var same, other, unknown, lost, onlyLast bool
	var since time.Time
	onlyLast = true
	first := &r.periods[0]
	begin := first // of what it can have read
	if !first.startable {
		begin = r.next(0)
	}
	hidden := j.hidden(r, w, recorded)
	oldest := w.oldest(r)
	seen := oldest >= 0 || first.After.IsZero() && j.isComplete(w) && (first.startable || !r.file || w.created) // all that it can have read
	// Before the first period, there may have been anything, unless the source was absent in it since before it was read.
	if !createdFor && (hidden || !seen && (first.Source != nil || first.Unknown || !first.After.IsZero()) && !r.isFirst(first, w)) {
		unknown, lost = true, !first.After.IsZero()
		other = !lost && first.startable && !first.same && !first.Unknown // it may have begun long before it was written
	}
	for i := range r.periods {
		period := &r.periods[i]
		begins := before && period.same // it was there when the template was written, even if it has been written since
		if before = before && !period.same; before || !period.startable || !begins && w.isBefore(period) {
			continue
		}
		if i < oldest {
			continue
		}
		switch {
		case period.Unknown:
			unknown, lost = true, true
		case period.same:
			same = !hidden || !w.to.Before(recorded.At)
		default:
			other = true
			if changed := r.changed(i); changed != nil {
				since = earlier(since, began(changed))
			}
		}
		onlyLast = onlyLast && i == r.current
	}
	unknown = unknown || !same && !other // it started when nothing could be read, as far as is known
	if lost {
		since = time.Time{}
	}
	switch {
	case w.broken && (other || unknown): // no doubt, since a restart on this node would be as uncertain
		return Verdict{State: Unknown, Reason: ReasonNodeClock, Since: since}
	case unknown:
		if since.IsZero() && !lost { // nothing that was seen to change
			since = began(begin)
		}
		return w.byRecord(p, r, recorded, same, other, lost, since)
	case same && other:
		return Verdict{State: Unknown, Reason: ReasonClockMargin, Doubt: true, Since: since}
	case other:
		return Verdict{State: Stale, Reason: ReasonStartedBefore, Since: since}
	case onlyLast && createdFor && !w.isAfterBegin(&r.periods[r.current]):
		return Verdict{State: Current, Reason: ReasonCreatedFor}
	case onlyLast:
		return Verdict{State: Current, Reason: ReasonStartedAfter}
	default:
		return Verdict{State: Current, Reason: ReasonSameContent}
	}
}

// hidden reports whether a container may have started before the source was changed by the removal of a key or of itself, which leaves no time, and before
// configdep began to read it. The record tells.
func (j *Judge) hidden(r *reading, w *window, recorded *Recorded) bool {
	return recorded != nil && !recorded.Same && len(r.periods) == 1 && !r.periods[0].Written.After(recorded.At) && j.Complete.After(recorded.At) && !j.isComplete(w)
}

// isComplete reports whether a window begins after everything had been read.
func (j *Judge) isComplete(w *window) bool {
	return w.isAfterBegin(&content{Period: dependency.Period{Before: j.Complete}})
}

// isFirst reports whether a container that cannot be started without a source started no earlier than in the second in which that was created, and it has
// not been written since: then there was nothing else to read, as far as the source was not deleted and created again within that second.
func (r *reading) isFirst(first *content, w *window) bool {
	s := first.Source
	return s != nil && !s.Created.IsZero() && first.Written.Equal(s.Created.Time) && !w.from.Before(s.Created.Truncate(second)) &&
		dependency.Resolve(&r.reference, nil).Missing
}

// createdFor reports whether the template of a pod was written for the current content, or a container was restarted in place for it, so that it cannot
// have read what was there before: unless it is older than this content, and that was done when there had been the same before.
func (j *Judge) createdFor(p *dependency.Pod, c *dependency.PodContainer, r *reading, recorded *Recorded) bool {
	hash, at := p.StartedFor(c)
	if j.Sources[r.source].Unhashed || r.current < len(r.periods)-1 || hash == "" || hash != j.Hash && (recorded == nil || !recorded.Same || recorded.For != hash) {
		return false
	}
	i := slices.IndexFunc(r.periods, func(p content) bool { return p.same })
	for i > 0 && r.periods[i-1].Unknown {
		i-- // it may have begun then
	}
	created := window{to: at}
	return i == 0 && r.periods[0].After.IsZero() || !created.isBefore(&r.periods[i])
}

// next returns the period that ends one, or nil. Volumes that were mounted keep their files until there is a period with which the container can be started.
func (r *reading) next(i int) *content {
	for k := i + 1; k < len(r.periods); k++ {
		if r.periods[k].startable || !r.file {
			return &r.periods[k]
		}
	}
	return nil
}

// changed returns the first period after one in which the container reads something else, or nil.
func (r *reading) changed(i int) *content {
	for k := i + 1; k < len(r.periods); k++ {
		if p := &r.periods[k]; p.startable && (p.Unknown || !bytes.Equal(p.text, r.periods[i].text)) {
			return p
		}
	}
	return nil
}

// began returns when a period began, as it is shown; zero: that is not known.
func began(p *content) time.Time {
	if !p.Written.IsZero() {
		return p.Written
	}
	return p.Before.Truncate(second)
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// window is when a container may have read content.
type window struct {
	// from and to are the bounds, by any of the clocks.
	from, to time.Time
	// created: from is when the pod was created, by the API server's clock.
	created bool
	// release is the second of a release in which template and pod were written, if the container started for the first time and later; zero: it is none.
	release time.Time
	started time.Time
	// complete is Facts.Complete.
	complete time.Time
	// broken: the clock of the node is wrong, so that nothing but the creation of the pod counts.
	broken bool
}

// window returns when a container may have read content, as files or not.
func (j *Judge) window(p *dependency.Pod, c *dependency.PodContainer, file bool) window {
	w, last := window{started: c.Started, complete: j.Complete}, c.Started
	if c.Started.IsZero() && c.Restarts == 0 { // its kubelet does not know any longer
		w.started, last = p.Created, j.lastStart(p, c)
	}
	if last.IsZero() || last.Add(ClockMargin).Before(p.Created) || last.After(j.Now.Add(ClockMargin)) {
		return window{from: p.Created, to: j.Now.Add(math.MaxInt64), created: true, broken: true, started: p.Created}
	}
	margin := ClockMargin
	if file {
		margin = VolumeMargin
	}
	w.from, w.to = w.started.Add(-margin), last.Add(second+ClockMargin)
	if !p.Created.Before(w.from) {
		w.from, w.created = p.Created, true
		if c.Restarts == 0 && p.Created.Truncate(second).Equal(j.Released.Truncate(second)) && !j.IsOlder(p) &&
			w.started.Truncate(second).After(p.Created.Truncate(second)) {
			w.release = p.Created.Truncate(second)
		}
	}
	return w
}

// lastStart returns an upper bound of when a container started that has not been restarted: init containers and sidecars started before the others.
func (j *Judge) lastStart(p *dependency.Pod, c *dependency.PodContainer) time.Time {
	last := j.Now
	for i := range p.Containers {
		other := &p.Containers[i]
		if c.Role != dependency.RegularContainer && other.Role == dependency.RegularContainer && !other.Started.IsZero() && other.Started.Before(last) {
			last = other.Started
		}
	}
	return last
}

// isAfterBegin reports whether the window is after the beginning of a period, so that nothing was read of what was there before.
func (w *window) isAfterBegin(p *content) bool {
	if !p.Written.IsZero() {
		written := p.Written.Truncate(second)
		return !w.from.Before(written.Add(second)) || !w.release.IsZero() && !w.release.Before(written)
	}
	before := p.Before
	if w.created {
		before = before.Add(ClockMargin)
	}
	return !p.Before.IsZero() && w.from.After(before)
}

// oldest returns the index of the oldest period of which a container can have read; -1: that, or one before the first.
func (w *window) oldest(r *reading) int {
	for i := len(r.periods) - 1; i >= 0; i-- {
		if p := &r.periods[i]; (p.startable || !r.file && i > 0) && w.isAfterBegin(p) {
			return i
		}
	}
	return -1
}

// isBefore reports whether the window is before a period. When it was read says that only if nothing tells when it was written: a watch may be late.
func (w *window) isBefore(p *content) bool {
	if !p.Written.IsZero() {
		return w.to.Before(p.Written.Truncate(second))
	}
	return !p.After.IsZero() && w.to.Before(p.After.Add(-ClockMargin))
}

// byRecord judges a container that may have read content of which configdep knows nothing, by the record of the workload.
func (w *window) byRecord(p *dependency.Pod, of *reading, r *Recorded, same, other, lost bool, since time.Time) Verdict {
	v := Verdict{State: Unknown, Reason: ReasonWrittenSinceStart, Doubt: other, Since: since}
	if r == nil {
		return v
	}
	later := w.from.After(r.At.Add(second)) && w.started.After(r.At.Add(second+ClockMargin))
	earlier := w.to.Before(r.At)
	covered := r.Proven && (r.For == "" || r.For == p.Hash && !earlier) // an earlier template may have had the same hash
	switch {
	case r.Same && !other && (covered && earlier || !lost && (covered || later)): // if nothing was lost, content has not changed since then, except there and back unseen
		return Verdict{State: Current, Reason: ReasonRecorded}
	case !r.Same && covered && of.whole && earlier && !same:
		return Verdict{State: Stale, Reason: ReasonRecordDiffers, Since: since}
	case !r.Same, w.complete.After(r.At) && r.For != "" && !covered && !later: // the rollout with which it was recorded has not replaced the pod
		v.Doubt = true
	}
	return v
}
