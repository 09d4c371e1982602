// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import "time"

// view is what has reached a server.
type view struct {
	begun  uint64 // the revision of the world at which the server started to read
	synced bool
	since  uint64 // the latest revision of the first lists
	// rekeying: the key of the hash was replaced, and not everything has been read with the new one.
	rekeying    bool
	annotations map[string]string // of the namespace
	terminating bool              // the namespace
	sources     [sourceCount]seenSource
	listed      [streamCount]uint64
	// absent are the streams that could not be read, and joined is when one was listed that could not be read before.
	absent     [streamCount]bool
	joined     [streamCount]uint64
	latest     uint64 // the latest revision that has arrived
	disordered uint64 // the latest revision that arrived before something older
	key        int
	arrivals   int                  // the number of arrivals
	templates  map[int]seenTemplate // of the workloads, by slot
	// records are the hashes of the workloads, by slot, and kept the ones that the server had read when the key
	// was replaced: it knows whether they match the content at that time.
	records, kept map[int]string
	// strange are the workloads whose record did not match the content when the key was replaced, or contained
	// sources that did not count: the record counts as one of other content from then on.
	strange map[int]bool
}

// seenSource is what has reached a server of a source.
type seenSource struct {
	mark
	content content
	version uint64
	// doubted is when a version other than the one before the key was replaced was read, before everything was
	// read again.
	doubted uint64
	// changed is the revision of the content; arrived is the time of its arrival, zero for the first list; byList
	// reports that it came with a list, which only has the version of the object.
	changed     uint64
	arrived     time.Time
	byList      bool
	lastChanged time.Time
	// keys are the revisions of the last change of each key, and witnessed those of the last change of each key
	// that the server has seen, by an event or by the difference between two lists; 0: none since its first sync.
	keys, witnessed [keyCount]uint64
	arrivals        [keyCount]int // the arrival numbers of these changes
	// inData is the same for changes that variables can see: they do not see binaryData.
	inData struct {
		witnessed [keyCount]uint64
		arrivals  [keyCount]int
	}
	// listed is the arrival number of the last list that showed annotations other than markBefore.
	listed     int
	markBefore mark
	// gone is the content with which the source was last deleted, goneAt the revision of that, prior the changes
	// witnessed before, and goneIgnored whether the source was ignored then. A key came back if it has the same
	// content again.
	gone        content
	goneAt      uint64
	goneIgnored bool
	prior       [keyCount]uint64
	cameBack    [keyCount]bool
	// undated are the keys that were removed after lastChanged, or may have been, which is written nowhere.
	undated keySet
	// lives are the contents that the server has seen end, the last ones.
	lives []life
}

func (v *view) marks() (m [sourceCount]mark) {
	for i := range v.sources {
		m[i] = v.sources[i].mark
	}
	return m
}

func (v *view) contents() (c contents) {
	for i := range v.sources {
		c[i] = v.sources[i].content
	}
	return c
}

// look records what reaches the server.
func (s *server) look(e *event, byList bool) {
	s.view.arrivals++
	defer s.view.lookAtOptIns(s.world.defaults, byList)
	if e.workload != nil {
		s.view.lookAtWorkload(e.workload, byList, e.deleted)
	}
	if e.source == nil {
		if e.workload == nil && e.pod == nil {
			s.view.annotations, s.view.terminating = e.namespace.Annotations, e.namespace.DeletionTimestamp != nil
		}
		return
	}
	seen := &s.view.sources[e.slot]
	if seen.present && !e.source.present {
		seen.gone, seen.goneAt, seen.goneIgnored = seen.content, e.source.changed, seen.ignored
		for k := range seen.witnessed {
			if !seen.cameBack[k] { // otherwise it has not changed since before the deletion
				seen.prior[k] = seen.witnessed[k]
			}
		}
	}
	if seen.present && (seen.content != e.source.content || !e.source.present) {
		seen.lives = append(seen.lives[max(0, len(seen.lives)-16):len(seen.lives):len(seen.lives)], life{seen.content, e.source.changed, s.view.arrivals, !e.source.present})
	}
	for k, v := range e.source.content {
		if s.view.synced && v != seen.content[k] {
			seen.witnessed[k], seen.arrivals[k] = e.source.keys[k], s.view.arrivals
			seen.cameBack[k] = !seen.present && v == seen.gone[k]
			if (scope{}).seen(e.slot, k, v) != (scope{}).seen(e.slot, k, seen.content[k]) {
				seen.inData.witnessed[k], seen.inData.arrivals[k] = e.source.keys[k], s.view.arrivals
			}
		}
	}
	if s.view.rekeying && seen.version != e.source.version {
		seen.doubted = s.world.revision
	}
	seen.version = e.source.version
	if seen.changed == 0 || seen.content != e.source.content || seen.present != e.source.present {
		seen.changed, seen.arrived, seen.byList = e.source.changed, time.Time{}, byList
		if s.view.synced {
			seen.arrived = time.Now()
		}
	}
	dated, removed := !seen.lastChanged.Equal(e.source.lastChanged()), keySet(0)
	for k, v := range e.source.content {
		dated = dated || v != 0 && v != seen.content[k]
		if v == 0 && seen.content[k] != 0 {
			removed |= 1 << k
		}
	}
	if dated {
		seen.undated = 0
	}
	if !dated || byList { // a list may show a change with a date and a later removal
		seen.undated |= removed
	}
	if byList && seen.present && e.source.present && seen.mark != e.source.mark {
		seen.listed, seen.markBefore = s.view.arrivals, seen.mark
	}
	seen.keys = e.source.keys
	seen.mark, seen.content, seen.lastChanged = e.source.mark, e.source.content, e.source.lastChanged()
}
