// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// pace limits how fast a workload is written. Events of the workload, its sources and its
// namespace, which all put the workload into the queue, do not make writes faster.
//
// Two things slow writes down. A failed request is retried with a delay that doubles with
// each failure. If the same content has to be written again, another client must have
// removed it: after some such rounds, the next write waits for a delay that doubles with
// each round.
//
// A write of new content is not such a round and causes no delay, but it has to wait for a
// delay that is under way, up to longestDelay. Otherwise it is made at once; the policy
// limits how often content may restart a workload.
type pace struct {
	failures int
	// rounds counts the writes that repeat an earlier one, and last is the time of the
	// last.
	rounds int
	last   time.Time
	// written are the last writes, each by a checksum of what it said.
	written []uint64
	// notBefore is the earliest time of the next request. After a conflict, hastened applies
	// instead as soon as the workload has another version than conflict, the one that was
	// patched.
	notBefore, hastened time.Time
	conflict            string
}

const (
	// longestDelay limits both kinds of delay.
	longestDelay = 5 * time.Minute
	// firstRetry is the delay after a request that failed.
	firstRetry = 5 * time.Millisecond
	// After freeConflicts conflicts in a row, requests are at least nextConflict apart, even
	// if the workload has changed.
	freeConflicts = 5
	nextConflict  = time.Second

	// freeRounds is how many rounds cause no delay; after one more, the next write waits.
	freeRounds = 3
	// firstRound is the first delay after that.
	firstRound = time.Second

	// remembered is how many writes are remembered.
	remembered = 16
)

// wait returns how long to wait for the next request about a version of the workload.
func (p *pace) wait(now time.Time, version string) time.Duration {
	until := p.notBefore
	if p.conflict != "" && p.conflict != version {
		until = p.hastened
	}
	return max(0, until.Sub(now))
}

// failed records that a request about a version has failed, and returns how long to wait.
func (p *pace) failed(now time.Time, version string, err error) time.Duration {
	delay := double(firstRetry, p.failures)
	p.failures++
	if p.conflict = ""; apierrors.IsConflict(err) {
		if p.conflict, p.hastened = version, now; p.failures > freeConflicts {
			p.hastened = now.Add(nextConflict)
		}
	}
	if seconds, asked := apierrors.SuggestsClientDelay(err); asked {
		delay = max(delay, min(time.Duration(seconds)*time.Second, longestDelay))
	}
	p.notBefore = now.Add(delay)
	return delay
}

// wrote records that a request has succeeded, and what it wrote. It reports whether two
// clients are fighting; then the next round waits.
func (p *pace) wrote(now time.Time, what uint64) (fight bool) {
	p.failures, p.notBefore, p.conflict = 0, time.Time{}, ""
	if !slices.Contains(p.written, what) {
		if len(p.written) == remembered {
			p.written = p.written[1:]
		}
		p.written = append(p.written, what)
		return false
	}
	// A fight is over after a pause of twice our delay.
	if now.Sub(p.last) > 2*double(firstRound, max(0, p.rounds-freeRounds))+time.Minute {
		p.rounds = 0
	}
	p.rounds++
	p.last = now
	if p.rounds <= freeRounds {
		return false
	}
	p.notBefore = now.Add(double(firstRound, p.rounds-freeRounds-1))
	return true
}

// double returns a delay, doubled n times, but at most the longest.
func double(first time.Duration, n int) time.Duration {
	delay := first
	for range n {
		if delay >= longestDelay {
			return longestDelay
		}
		delay *= 2
	}
	return min(delay, longestDelay)
}
