// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"cmp"
	"slices"
	"time"
)

// history is what is remembered about earlier states of a source.
type history struct {
	// removed are keys that the source had once, with when they were removed.
	removed []removedKey
	// episodes are the last changes of the content, the latest last.
	episodes []episode
	// changedMore: there were earlier episodes, which have been forgotten.
	changedMore bool
	// past are the contents before the current one, the latest last.
	past []Past
	// first is the content when this process began to watch. Nil: it has not changed since. See
	// unknownKeys.
	first *[]KeyDigest
}

// history returns what is remembered about earlier states of the source. It must not be
// changed.
func (s *Source) history() *history {
	if s.earlier == nil {
		return &noHistory
	}
	return s.earlier
}

var noHistory history

// remember sets what is remembered about earlier states of the source.
func (s *Source) remember(h history) {
	if s.earlier = &h; len(h.removed) == 0 && len(h.episodes) == 0 && len(h.past) == 0 && h.first == nil && !h.changedMore {
		s.earlier = nil
	}
}

type removedKey struct {
	key     string
	binary  bool   // it was in binaryData
	version uint64 // an upper bound
	// digest stands for its content, and written is when that had last changed.
	digest  Digest
	written uint64
}

// episode is a change of the content that was seen.
type episode struct {
	Moment
	at time.Time // by the clock of the API server where that is known, else by this server's
	// listed: a list showed it, so that there may have been others.
	listed bool
}

// Past is a source before its content changed.
type Past struct {
	*Source // its content, and when it became that
	// Until is when the content changed.
	Until Change
}

const (
	// maxRemoved limits the removed keys that are remembered for a source.
	maxRemoved = 32
	// maxEpisodes limits the changes that are remembered for a source.
	maxEpisodes = 16
	// maxPast limits the number of earlier contents, and maxPastKeys the number of keys in all of
	// them.
	maxPast     = 4
	maxPastKeys = 4096
)

// firstAfter returns the content when this process began to watch, given what was known before, or
// nil.
func (s *Source) firstAfter(before *Source, at Arrival) *[]KeyDigest {
	same := func(a, b KeyDigest) bool { return a.Key == b.Key && a.Digest == b.Digest && a.Binary == b.Binary }
	switch {
	case at.Seen.IsZero(): // the first list
		return nil
	case before == nil:
		return &[]KeyDigest{}
	case before.history().first == nil && !slices.EqualFunc(before.Keys, s.Keys, same):
		if len(before.Keys) > maxPastKeys {
			return unknownKeys
		}
		return &before.Keys
	default:
		return before.history().first
	}
}

// addEpisode returns the last episodes. Values in the graph are immutable.
func addEpisode(before []episode, e episode) []episode {
	if len(before) >= maxEpisodes {
		before = before[len(before)-maxEpisodes+1:]
	}
	return append(slices.Clip(before), e)
}

// addPast returns the contents that a source has had when the current one changes.
func addPast(s *Source, until Change) []Past {
	before := s.history().past
	if len(before) >= maxPast {
		before = before[len(before)-maxPast+1:]
	}
	was := &Source{SourceKey: s.SourceKey, Keys: s.Keys, LastChanged: s.LastChanged, Change: s.Change}
	past := append(slices.Clip(before), Past{was, until})
	keys := 0
	for i, p := range slices.Backward(past) {
		if keys += len(p.Keys); keys > maxPastKeys {
			return slices.Clone(past[i+1:])
		}
	}
	return past
}

// goneKeys returns the keys that were removed, and those that moved to binaryData, where
// environments do not see them. Of more than maxRemoved, the earliest share one entry without a
// name.
func (s *Source) goneKeys(before *Source, version uint64) []removedKey {
	went := func(key string, binary bool) bool { return !s.hasData(key) && (!binary || !s.Has(key)) }
	var gone []removedKey
	for _, r := range before.history().removed {
		if k := before.key(r.key); went(r.key, r.binary) && (k == nil || k.Binary != r.binary) { // else it goes again
			gone = append(gone, r)
		}
	}
	for _, k := range before.Keys {
		if went(k.Key, k.Binary) {
			gone = append(gone, removedKey{k.Key, k.Binary, cmp.Or(before.deletedAt, version), k.Digest, k.Version})
		}
	}
	if len(gone) > maxRemoved {
		rest := removedKey{}
		for _, r := range gone[:len(gone)-maxRemoved+1] {
			rest.version = max(rest.version, r.version)
		}
		gone = append([]removedKey{rest}, gone[len(gone)-maxRemoved+1:]...)
	}
	return gone
}

// removedKey returns what is known of a key that was removed, if it had the same content, or nil. What
// it had before it moved to binaryData is not what it was removed with.
func (s *Source) removedKey(k *KeyDigest) *removedKey {
	if s == nil {
		return nil
	}
	removed := s.history().removed
	for i := range slices.Backward(removed) { // the latest
		if r := &removed[i]; r.key == k.Key {
			if r.binary == k.Binary && r.digest == k.Digest {
				return r
			}
			return nil
		}
	}
	return nil
}

// moment returns when a change of a version was read, or an upper bound of that. Its order is zero for
// the content with which the source was first read.
func (s *Source) moment(version uint64) Moment {
	if version >= s.Change.Version {
		return Moment{version, s.Change.Order}
	}
	m := Moment{Version: version}
	h := s.history()
	if len(h.episodes) >= maxEpisodes || len(h.episodes) > 0 && h.changedMore {
		m.Order = h.episodes[0].Order // it may be one that is no longer remembered
	}
	for i := range h.episodes {
		if h.episodes[i].Version == version {
			m.Order = h.episodes[i].Order
		}
	}
	return m
}
