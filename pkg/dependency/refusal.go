// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import "time"

// Refusal says that the API server keeps refusing what this process, as the leader, has to write to a workload. There is nowhere to write it to, so
// other replicas do not know.
type Refusal struct {
	// Hash is that of the content for which it is to be written.
	Hash string
	// Why says what refuses it, and what users can do.
	Why string
	// Until is when it is no longer known: it is tried again before.
	Until time.Time
}

// maxRefusals limits the workloads whose refusals are remembered.
const maxRefusals = 4096

// SetRefusal notes the refusal of a write to a workload. It may be called on a snapshot, as all share what is noted.
func (g *Graph) SetRefusal(key WorkloadKey, r *Refusal) { g.refusals.Add(key, r) }

// Refusal returns the refusal of a write to a workload, for some content and at a time; nil: none is known.
func (g *Graph) Refusal(key WorkloadKey, hash string, now time.Time) *Refusal {
	found, _ := g.refusals.Get(key)
	if r, _ := found.(*Refusal); r != nil && r.Hash == hash && now.Before(r.Until) {
		return r
	}
	return nil
}
