// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"fmt"
	"strconv"
)

// version orders what a replica publishes: by the watermark, then by a counter, then by
// the tag of the replica. It fits into the 63 bits that continue tokens have.
type version uint64

const (
	tagBits     = 6
	counterBits = 17
	topCounter  = 1<<counterBits - 1
	// maxWatermark is 2^39 - 1. An etcd with 10,000 writes a second gets there in a year and
	// a half.
	maxWatermark = 1<<(62-counterBits-tagBits) - 1
)

// newVersion returns a version. The counter must be lower than topCounter.
func newVersion(watermark, counter uint64, tag uint16) version {
	return version(watermark<<(counterBits+tagBits) | counter<<tagBits | uint64(tag)&(1<<tagBits-1))
}

func (v version) watermark() uint64 { return uint64(v) >> (counterBits + tagBits) }
func (v version) counter() uint64   { return uint64(v) >> tagBits & topCounter }
func (v version) tag() uint16       { return uint16(v & (1<<tagBits - 1)) }

// local reports whether the version says nothing to other replicas (see Cache.SetLocal). It
// is higher than all that do.
func (v version) local() bool    { return v.watermark() > maxWatermark }
func (v version) String() string { return strconv.FormatUint(uint64(v), 10) }

// The tags that no replica has: of versions that belong to none, and of those with which
// no client can go on.
const (
	noReplica      = 1<<tagBits - 1
	unresumableTag = noReplica - 1
)

// unresumable returns a higher version, of the same watermark, for a client that has been shown
// something older than that: it is not known what it has to be sent if it goes on elsewhere.
// At the top of the counter the version stays as it is, with which no client can go on either.
func (v version) unresumable() version {
	if v.counter() == topCounter {
		return v
	}
	return newVersion(v.watermark(), v.counter()+1, unresumableTag)
}

// next returns the next version of the same watermark that belongs to no replica, or with which
// no client can go on if that is so of this one. It returns false at the top of the counter.
func (v version) next() (version, bool) {
	if v.counter() == topCounter {
		return v, false
	}
	tag := uint16(noReplica)
	if v.tag() == unresumableTag {
		tag = unresumableTag
	}
	return newVersion(v.watermark(), v.counter()+1, tag), true
}

// isUnresumable reports whether no client can go on with the version. Above all counters there is no
// other.
func (v version) isUnresumable() bool { return v.tag() == unresumableTag || v.counter() == topCounter }

// shared returns a version that is not lower and belongs to no replica. A replica may
// know exactly what came after a version of its own, but not what a client has seen who
// got a part of it elsewhere.
func (v version) shared() version { return v | noReplica }

// parseVersion parses a resourceVersion; "" and "0" are 0.
func parseVersion(s string) (version, error) {
	if s == "" {
		return 0, nil
	}
	v, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("invalid resource version %q: it is not a version that this server gave out", s)
	}
	return version(v), nil
}
