package watchcache

import (
	"fmt"
	"strconv"
)

// version orders what a replica publishes: by the watermark, then by a counter, then by
// the tag of the replica. It fits into the 63 bits that continue tokens have.
type version uint64

const (
	tagBits     = 10
	counterBits = 13
	// maxCounter is where the counter stops until the watermark moves. Versions are then
	// equal for a while, and are taken as those of another replica are: by the watermark.
	maxCounter = 1<<counterBits - 2
	topCounter = 1<<counterBits - 1
	// maxWatermark is 2^39 - 1. An etcd with 10,000 writes a second gets there in a year and
	// a half.
	maxWatermark = 1<<(62-counterBits-tagBits) - 1
)

func newVersion(watermark, counter uint64, tag uint16) version {
	return version(watermark<<(counterBits+tagBits) | min(counter, maxCounter)<<tagBits | uint64(tag)&(1<<tagBits-1))
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
	noReplica = 1<<tagBits - 1
	straying  = noReplica - 1
)

// stray returns a higher version, of the same watermark, for a client that has been shown
// something older than that: it is not known what it has to be sent if it goes on elsewhere.
func (v version) stray() version {
	return newVersion(v.watermark(), 0, 0) | version(min(v.counter()+1, topCounter)<<tagBits) | straying
}

// strays reports whether no client can go on with the version. Above all counters there is no
// other.
func (v version) strays() bool { return v.tag() == straying || v.counter() == topCounter }

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
