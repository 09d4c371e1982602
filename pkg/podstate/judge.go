// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"bytes"
	"fmt"
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
	ReasonNothingRead     = "NothingRead"     // Current: it reads no source that counts
	ReasonStartedAfter    = "StartedAfter"    // Current: it started after the content was last written
	ReasonRecorded        = "Recorded"        // Current: its pod was created for the current content
	ReasonSameContent     = "SameContent"     // Current: content has changed since it started, and has changed back
	ReasonStartedBefore   = "StartedBefore"   // Stale: it started before the content changed
	ReasonRecordDiffers   = "RecordDiffers"   // Stale: it started before a write, and the content differs from the record
	ReasonClockMargin     = "ClockMargin"     // Unknown: it started at about the time of the write
	ReasonNothingRecorded = "NothingRecorded" // Unknown: it started before a write, and there is no record to compare with
	ReasonRecordedLater   = "RecordedLater"   // Unknown: it started before a write, and the record may be newer than the container
	ReasonOtherKeys       = "OtherKeys"       // Unknown: the known change was to keys that it does not read
	ReasonChangedBack     = "ChangedBack"     // Unknown: content has changed since it started, and may have changed back
	ReasonSourceMissing   = "SourceMissing"   // Unknown: the source does not exist
	ReasonKeyMissing      = "KeyMissing"      // Unknown: a key that it read does not exist
)

// The minimum difference between the times of a start and a write to tell which came first.
const (
	// ClockMargin allows for the difference between the clocks of a node, the API server and
	// configdep, which are assumed to be synchronized; for the delay of a watch of configdep
	// or the kubelet; and for the time between reading an environment and starting the
	// process. Each is far below a second in a healthy cluster.
	ClockMargin = 5 * time.Second
	// VolumeMargin replaces ClockMargin for a container that started after a write and reads
	// a volume that was mounted before: the kubelet refreshes volumes once a minute by
	// default, with a jitter of half a minute.
	VolumeMargin = 2 * time.Minute
)

// second is the precision of the times of API objects.
const second = time.Second

// Verdict is a verdict on a container, or on one source that it reads.
type Verdict struct {
	State   State
	Reason  string
	Message string
}

// SourceVerdict is the verdict on a source that a container reads.
type SourceVerdict struct {
	Verdict
	Kind dependency.SourceKind
	Name string
	// Changed is when its content last changed or, if that is not known, was last written.
	Changed time.Time
}

// ContainerVerdict is the verdict on a container: the worst of its sources.
type ContainerVerdict struct {
	Verdict
	// Sources are those whose state is not Current, in the order of kind and name, and More is how many of them are
	// left out.
	Sources []SourceVerdict
	More    int
}

// PodVerdict is the verdict on a pod: the worst of its containers.
type PodVerdict struct {
	Verdict
	// Containers are in the same order as in the pod.
	Containers []ContainerVerdict
	// Stale names the sources, as KIND/NAME and sorted, for which a container is stale.
	Stale []string
}

// Judge judges a pod. A pod may have thousands of containers, each of which reads thousands of sources, so list
// reports whether a verdict on a source is listed; nil: all are.
func (k *Knowledge) Judge(p *Pod, list func(*SourceVerdict) bool) PodVerdict {
	out := PodVerdict{
		Verdict:    Verdict{State: Current, Reason: ReasonNothingRead, Message: nothingRead},
		Containers: make([]ContainerVerdict, len(p.Containers)),
	}
	stale := make([]bool, len(k.sources))
	for i := range p.Containers {
		out.Containers[i] = k.container(p, &p.Containers[i], stale, list)
		out.worsen(out.Containers[i].Verdict)
	}
	for i, is := range stale {
		if is {
			out.Stale = append(out.Stale, string(k.sources[i].Kind)+"/"+k.sources[i].Name)
		}
	}
	slices.Sort(out.Stale)
	return out
}

const nothingRead = "It reads no ConfigMap or Secret whose changes count."

// ranks orders states. The verdict with the highest rank is reported.
var ranks = map[State]int{Current: 1, NotStarted: 4, Unknown: 5, Stale: 6}

func (v *Verdict) rank() int {
	switch {
	case v.State == Current && v.Reason == ReasonNothingRead:
		return 0
	case v.Reason == ReasonSameContent:
		return ranks[Current] + 1
	case v.Reason == ReasonRecorded:
		return ranks[Current] + 2
	default:
		return ranks[v.State]
	}
}

func (v *Verdict) worsen(other Verdict) {
	if other.rank() > v.rank() {
		*v = other
	}
}

// container judges a container, and notes which sources it is stale for.
func (k *Knowledge) container(p *Pod, c *Container, stale []bool, list func(*SourceVerdict) bool) ContainerVerdict {
	out := ContainerVerdict{Verdict: Verdict{State: Current, Reason: ReasonNothingRead, Message: nothingRead}}
	if c.Waiting != "" {
		out.Verdict = Verdict{NotStarted, c.Waiting, "It is not running; it will read the current content when it starts."}
		return out
	}
	for i := range k.sources {
		s := &k.sources[i]
		reads := k.readsOf(c, s)
		if reads == nil {
			continue
		}
		v := k.source(p, c, s, reads)
		out.worsen(v)
		stale[i] = stale[i] || v.State == Stale
		if v.State == Current {
			continue
		}
		verdict := SourceVerdict{Verdict: v, Kind: s.Kind, Name: s.Name, Changed: s.changed()}
		if list != nil && !list(&verdict) {
			out.More++
			continue
		}
		out.Sources = append(out.Sources, verdict)
	}
	return out
}

// readsOf returns what a container reads of a source, or nil. A source that an annotation
// names may be read by any container that keeps running.
func (k *Knowledge) readsOf(c *Container, s *known) *dependency.Reference {
	if s.byName {
		if c.Role != Regular && c.Role != Sidecar {
			return nil
		}
		r := *s.Reference
		keys, _ := r.Keys() // of a field; an annotation names all of them
		r.Uses = []dependency.Use{{Type: dependency.Annotation, Keys: keys, Optional: true}}
		return &r
	}
	for i := range c.Reads {
		if r := &c.Reads[i]; r.Kind == s.Kind && r.Name == s.Name {
			narrowed := *r
			if narrowed.Uses = k.counting(r.Uses); len(narrowed.Uses) == 0 {
				return nil
			}
			return &narrowed
		}
	}
	return nil
}

// source judges what a container has read of a source, by the first rule that applies.
func (k *Knowledge) source(p *Pod, c *Container, s *known, reads *dependency.Reference) Verdict {
	name := string(s.Kind) + " " + s.Name
	switch {
	case s.source == nil && slices.ContainsFunc(reads.Uses, required):
		return Verdict{Unknown, ReasonSourceMissing, name + " is missing, so there is nothing to compare with."}
	case lacks(reads, s):
		return Verdict{Unknown, ReasonKeyMissing, name + " lacks a key that the container was started with, so there is nothing to compare with."}
	case s.source == nil && s.change.Seen.IsZero():
		// It is optional, and was never seen to exist.
		return Verdict{Current, ReasonStartedAfter, name + " is absent, and has been absent since the container started, as far as is known."}
	case k.startedAfter(p, c, s, reads):
		return Verdict{Current, ReasonStartedAfter, "It started after the content that it reads was last written."}
	}
	if v, known := k.inThePast(p, c, s, reads, name); known {
		return v
	}
	switch {
	case k.startedBefore(p, c, s):
		return k.before(p, c, s, reads, name)
	case k.createdFor(p, c, s, reads):
		return Verdict{Current, ReasonRecorded, recorded}
	case !s.change.Seen.IsZero() && !touched(s, reads):
		return otherKeys(name)
	default:
		return Verdict{Unknown, ReasonClockMargin, fmt.Sprintf("It started at about the time when %s was last written; times within %v of each other are not compared.", name, margin(reads))}
	}
}

const recorded = "Its pod was created for the current content."

// before judges a container that started before a source was last seen to change or, if no
// change was seen, last written.
func (k *Knowledge) before(p *Pod, c *Container, s *known, reads *dependency.Reference, name string) Verdict {
	if k.createdFor(p, c, s, reads) {
		return Verdict{Current, ReasonRecorded, recorded}
	}
	if s.change.Exact && !s.change.Seen.IsZero() {
		switch {
		case !touched(s, reads):
			return otherKeys(name)
		case s.record == equal && !k.recordedAfter(s), wasSame(s, reads):
			return Verdict{Unknown, ReasonChangedBack, name + " has changed since the container started and changed back, so it is not known with which content it was started."}
		case s.record == equal && k.inForce(p):
			return Verdict{Unknown, ReasonRecordedLater, recordedLater(name)}
		default:
			return Verdict{Stale, ReasonStartedBefore, name + " has changed since the container started."}
		}
	}
	// This replica did not see the write, which may have changed only metadata, or content
	// that had already changed before the container started.
	switch {
	case k.createdForOther(p, c), s.record == different && sameKeys(reads, s.Reference):
		return Verdict{Stale, ReasonRecordDiffers, name + " was written after the container started, and its content differs from the content recorded for the pod."}
	case s.record == different:
		return otherKeys(name)
	case s.record == equal:
		return Verdict{Unknown, ReasonRecordedLater, recordedLater(name)}
	default:
		return Verdict{Unknown, ReasonNothingRecorded, name + " was written after the container started, and it is not known whether its content changed."}
	}
}

func recordedLater(name string) string {
	return name + " was written after the container started; the recorded content need not be the content it was started with."
}

func otherKeys(name string) Verdict {
	return Verdict{Unknown, ReasonOtherKeys, "Other keys of " + name + " have changed since the container started; it is not known when the keys that it reads last changed."}
}

// inThePast judges a container that certainly started while a source had an earlier content that
// this process has seen, and so has read that content.
func (k *Knowledge) inThePast(p *Pod, c *Container, s *known, reads *dependency.Reference, name string) (v Verdict, found bool) {
	for i := range s.past {
		was := &s.past[i]
		then := known{Reference: s.Reference, source: was.Source, change: was.Change}
		if !k.startedAfter(p, c, &then, reads) || !k.startedBeforeChange(p, c, &was.Until) {
			continue
		}
		if same(reads, was.Source, s.source) {
			return Verdict{Current, ReasonSameContent, "What it reads of " + name + " is the same as when it started."}, true
		}
		return Verdict{Stale, ReasonStartedBefore, name + " has changed since the container started."}, true
	}
	return Verdict{}, false
}

// startedAfter reports whether a container certainly started after what it reads last
// changed.
func (k *Knowledge) startedAfter(p *Pod, c *Container, s *known, reads *dependency.Reference) bool {
	// Order: the template was written later, and the pod was created after it. After a
	// rollback, pods can be older than the template that they have again.
	if k.Ordered && k.Revision != "" && p.Revision == k.Revision && k.startVersion > lastWritten(s, reads) &&
		!p.Created.Before(k.templateWritten.Truncate(second)) {
		return true
	}
	if written, known := s.written(); known {
		if p.Created.Truncate(second).After(written) { // both by the API server's clock
			return true
		}
		if c.Started.After(written.Add(second).Add(margin(reads))) {
			return true
		}
	}
	seen := s.change.Seen
	return !seen.IsZero() && (p.Created.After(seen.Add(ClockMargin)) || c.Started.After(seen.Add(margin(reads))))
}

// startedBefore reports whether a container certainly started before a source was last
// seen to change or, if no change was seen, last written.
func (k *Knowledge) startedBefore(p *Pod, c *Container, s *known) bool {
	if k.startedBeforeChange(p, c, &s.change) {
		return true
	}
	at := s.change.Seen
	if s.source != nil && (at.IsZero() || s.source.LastChanged.Time.Before(at)) {
		at = s.source.LastChanged.Time
	}
	return startedBeforeTime(c, at)
}

// startedBeforeChange reports whether a container certainly started before a change that was seen.
func (k *Knowledge) startedBeforeChange(p *Pod, c *Container, change *dependency.Change) bool {
	if !change.Exact || change.Seen.IsZero() {
		return false
	}
	// Order: a running container started before the last write of its pod.
	return k.Ordered && p.Version != 0 && p.Version < change.Version || startedBeforeTime(c, change.Seen)
}

// startedBeforeTime reports whether a container certainly started before a time.
func startedBeforeTime(c *Container, at time.Time) bool {
	return !c.Started.IsZero() && c.Started.Add(second).Add(ClockMargin).Before(at)
}

// same reports whether two states of a source have the same content in what is read. Either may be nil.
func same(reads *dependency.Reference, was, now *dependency.Source) bool {
	return bytes.Equal(dependency.AppendContent(nil, reads, was), dependency.AppendContent(nil, reads, now))
}

// wasSame reports whether the current content of what is read was seen before: it changed, and
// changed back.
func wasSame(s *known, reads *dependency.Reference) bool {
	return slices.ContainsFunc(s.past, func(was dependency.Past) bool { return same(reads, was.Source, s.source) })
}

// inForce reports whether a pod has the current template.
func (k *Knowledge) inForce(p *Pod) bool { return k.Revision != "" && p.Revision == k.Revision }

// createdFor reports whether the pod of a container was created for the current content of a
// source: the pod has the current template, with the hash of the content, and the container
// started before any change was seen. The other cases are not certain. Content may have changed
// and changed back, and a container that was restarted in place may have read the content in
// between. A pod with an older template may have been created later, with other content, below a
// partition or when the workload was scaled up.
func (k *Knowledge) createdFor(p *Pod, c *Container, s *known, reads *dependency.Reference) bool {
	stamped := p.Hash != "" && (p.Hash == k.Hash || p.Hash == k.recordHash && s.record == equal)
	if !stamped || !k.inForce(p) || c.Restarts > 0 {
		return false
	}
	if s.change.Seen.IsZero() {
		return true
	}
	if len(s.past) == 0 || !s.past[0].Change.Seen.IsZero() || !same(reads, s.past[0].Source, s.source) {
		return false
	}
	return k.startedBeforeChange(p, c, &s.past[0].Until)
}

// createdForOther reports whether the pod of a container was created for other content: it
// has an older template, with another hash.
func (k *Knowledge) createdForOther(p *Pod, c *Container) bool {
	return p.Hash != "" && p.Hash != k.Hash && p.Hash != k.recordHash && dependency.KeyOf(p.Hash) == dependency.KeyOf(k.Hash) &&
		k.Revision != "" && p.Revision != k.Revision && c.Restarts == 0
}

// recordedAfter reports whether the record is newer than the last change of a source.
func (k *Knowledge) recordedAfter(s *known) bool {
	return k.Ordered && k.recordVersion > s.change.Version
}

// written returns an upper bound on the time of the last change of the content, in whole
// seconds, by the API server's clock. The time is not known if the last change that was seen
// left none in managedFields, because it removed keys or the source, or if that may be so.
func (s *known) written() (at time.Time, known bool) {
	if s.source == nil {
		return time.Time{}, false
	}
	at = s.source.LastChanged.Truncate(second)
	if s.change.Seen.IsZero() {
		return at, true
	}
	// If a client removed managedFields, the time is too early.
	dropped := at.Add(second).Add(ClockMargin).Before(s.change.Seen)
	return at, !dropped && s.change.Exact && slices.ContainsFunc(s.source.Keys, s.changedLast)
}

// changedLast reports whether the last change set a key.
func (s *known) changedLast(k dependency.KeyDigest) bool {
	return max(k.Version, k.Readded) == s.change.Version
}

func required(u dependency.Use) bool { return !u.Optional }

// changed returns the time of the last change of the content, as it is shown.
func (s *known) changed() time.Time {
	if at, known := s.written(); known && (s.change.Seen.IsZero() || at.Before(s.change.Seen)) {
		return at
	}
	return s.change.Seen.Truncate(second)
}

// margin returns how much later than a write a container must have started to have certainly
// read what was written.
func margin(reads *dependency.Reference) time.Duration {
	if slices.ContainsFunc(reads.Uses, func(u dependency.Use) bool { return fromVolume(&u) }) {
		return VolumeMargin
	}
	return ClockMargin
}

// lastWritten returns an upper bound on the revision at which what is read of a source last
// changed.
func lastWritten(s *known, reads *dependency.Reference) (version uint64) {
	keys, all := reads.Keys()
	if all || s.source == nil {
		return s.change.Version
	}
	for _, key := range keys {
		k := find(s.source, key)
		if k == nil {
			return s.change.Version // the last change may have removed it
		}
		version = max(version, k.Version)
		if !slices.ContainsFunc(reads.Uses, required) { // it may have started while the source did not exist
			version = max(version, k.Returned)
		}
		if !slices.ContainsFunc(reads.Uses, func(u dependency.Use) bool { return requiresKey(&u, key) }) { // or while the key did not
			version = max(version, k.Readded)
		}
	}
	return version
}

// requiresKey reports whether a container cannot start without a key. A subPath does not require
// its file.
func requiresKey(u *dependency.Use, key string) bool {
	return required(*u) && !u.SubPath && slices.Contains(u.Keys, key)
}

// touched reports whether the last change that was seen certainly affected what is read of a
// source.
func touched(s *known, reads *dependency.Reference) bool {
	if s.source == nil {
		return true
	}
	keys, all := reads.Keys()
	changed := false
	for i := range s.source.Keys {
		k := &s.source.Keys[i]
		if !s.changedLast(*k) {
			continue
		}
		changed = true
		if (all || slices.Contains(keys, k.Key)) && (!k.Binary || slices.ContainsFunc(reads.Uses, readsBinary)) {
			return true
		}
	}
	return all && !changed // a key was removed
}

// readsBinary reports whether a use reads keys of binaryData. Environment variables do not.
func readsBinary(u dependency.Use) bool {
	return u.Type != dependency.Env && u.Type != dependency.EnvFrom
}

// lacks reports whether an existing source lacks a key without which the container cannot have
// started.
func lacks(reads *dependency.Reference, s *known) bool {
	return slices.ContainsFunc(reads.Uses, func(u dependency.Use) bool {
		return !u.Optional && slices.ContainsFunc(u.Keys, func(key string) bool { return slices.Contains(s.missingKeys, key) })
	})
}

// sameKeys reports whether two references read the same keys of their source.
func sameKeys(a, b *dependency.Reference) bool {
	keysA, allA := a.Keys()
	keysB, allB := b.Keys()
	return allA == allB && slices.Equal(keysA, keysB)
}

func find(s *dependency.Source, key string) *dependency.KeyDigest {
	i := slices.IndexFunc(s.Keys, func(k dependency.KeyDigest) bool { return k.Key == key })
	if i < 0 {
		return nil
	}
	return &s.Keys[i]
}
