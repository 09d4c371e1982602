// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import "time"

// seen tells up to which revision a stream has been applied, and when it last moved.
type seen struct {
	revision uint64
	at       time.Time
}

// seenStreams are all streams that have received something. With a stream for each resource of each
// namespace there may be many, and each event needs the lowest of their revisions. Most events are of other streams
// than the one that has it.
type seenStreams struct {
	byName map[string]*seen
	least  *seen // nil: there are no streams
}

func newSeenStreams() seenStreams { return seenStreams{byName: map[string]*seen{}} }

// of returns what is known about a stream.
func (s *seenStreams) of(name string) seen {
	if known := s.byName[name]; known != nil {
		return *known
	}
	return seen{}
}

// observe notes that a stream has moved to a revision, if that is higher than before.
func (s *seenStreams) observe(name string, revision uint64, at time.Time) {
	known := s.byName[name]
	if known == nil {
		known = &seen{revision: revision}
		s.byName[name] = known
		if s.least == nil || revision < s.least.revision {
			s.least = known
		}
	}
	known.at = at
	if revision > known.revision {
		known.revision = revision
		s.moved(known)
	}
}

// forget removes a stream that is not read any longer.
func (s *seenStreams) forget(name string) {
	if known := s.byName[name]; known != nil {
		delete(s.byName, name)
		s.moved(known)
	}
}

// moved looks for the lowest revision again, if a stream had it that has moved or is gone.
func (s *seenStreams) moved(stream *seen) {
	if stream != s.least {
		return
	}
	s.least = nil
	for _, other := range s.byName {
		if s.least == nil || other.revision < s.least.revision {
			s.least = other
		}
	}
}

// watermark returns the lowest revision of all streams; false: there are none.
func (s *seenStreams) watermark() (uint64, bool) {
	if s.least == nil {
		return 0, false
	}
	return s.least.revision, true
}
