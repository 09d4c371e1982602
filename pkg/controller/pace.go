package controller

import (
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// pace is how fast a workload is written. Whatever makes it be looked at again (events of
// the workload, of its sources, of its namespace) does not make it faster.
//
// Two things slow it down. A request that fails is tried again with a delay that doubles
// with each failure. A write of what has been written before means that another client takes
// it away: such a fight is fought with a delay that doubles with each round. What is new is
// written at once; how often content may restart a workload is a matter of its policy.
type pace struct {
	failures int
	// rounds counts the writes of what was written before, and last is when one was made.
	rounds int
	last   time.Time
	// written are the last writes, each by a checksum of what it said.
	written []uint64
	// notBefore is when the next request may be made.
	notBefore time.Time
}

const (
	// The delays after failed requests.
	firstRetry = 5 * time.Millisecond
	lastRetry  = 5 * time.Minute
	// lastConflict is the longest after conflicts: the workload has changed, which is noticed
	// by an event.
	lastConflict = time.Second
	// freeConflicts is after how many an event does not hasten the next request.
	freeConflicts = 5

	// freeRounds is how often something is written again at once.
	freeRounds = 3
	// The delays of a fight after that.
	firstRound = time.Second
	lastRound  = 5 * time.Minute

	// remembered is how many writes are remembered.
	remembered = 16
)

// wait returns how long to wait for the next request.
func (p *pace) wait(now time.Time) time.Duration { return max(0, p.notBefore.Sub(now)) }

// failed notes that a request has failed, and returns how long to wait.
func (p *pace) failed(now time.Time, err error) time.Duration {
	conflict := apierrors.IsConflict(err)
	limit := lastRetry
	if conflict {
		limit = lastConflict
	}
	delay := double(firstRetry, p.failures, limit)
	p.failures++
	if conflict && p.failures <= freeConflicts {
		return delay // but the event that tells of the change may come earlier
	}
	if seconds, asked := apierrors.SuggestsClientDelay(err); asked {
		delay = max(delay, min(time.Duration(seconds)*time.Second, lastRetry))
	}
	p.notBefore = now.Add(delay)
	return delay
}

// wrote notes that a request has succeeded, and what it wrote. It reports whether that is a
// fight, and how long to wait before the next round.
func (p *pace) wrote(now time.Time, what uint64) (fight bool, delay time.Duration) {
	p.failures, p.notBefore = 0, time.Time{}
	if !slices.Contains(p.written, what) {
		if len(p.written) == remembered {
			p.written = p.written[1:]
		}
		p.written = append(p.written, what)
		return false, 0
	}
	// A fight is over when it has paused for twice as long as we did.
	if now.Sub(p.last) > 2*double(firstRound, max(0, p.rounds-freeRounds), lastRound)+time.Minute {
		p.rounds = 0
	}
	p.rounds++
	p.last = now
	if p.rounds <= freeRounds {
		return false, 0
	}
	delay = double(firstRound, p.rounds-freeRounds-1, lastRound)
	p.notBefore = now.Add(delay)
	return true, delay
}

// double returns a delay, doubled n times, and a limit at most.
func double(first time.Duration, n int, limit time.Duration) time.Duration {
	delay := first
	for range n {
		if delay >= limit {
			return limit
		}
		delay *= 2
	}
	return min(delay, limit)
}
