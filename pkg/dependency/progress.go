// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import "time"

// Progress tells how much of the cluster a graph has seen, in revisions: the
// resourceVersions of the resources that are read.
type Progress struct {
	// Watermark is the revision up to which everything has been applied. A resource on
	// which nothing is written holds it back until its next bookmark.
	Watermark uint64
	// Latest is the highest revision that has been applied.
	Latest uint64
	// Floor is the revision before which something may have come and gone unseen: the
	// highest at which a resource was listed.
	Floor uint64
	// Current is what the API server last said is the current revision, and Asked is when it was
	// asked. Nothing that any client had seen by then is newer.
	Current uint64
	Asked   time.Time
	// OneCounter reports whether all resources are known to have revisions of one counter, as
	// those of one etcd do, so that a watermark means the same on every replica.
	OneCounter bool
	// SeveralCounters reports whether they are known not to, which does not change again. Until
	// either is known, both are false.
	SeveralCounters bool
	// Restored counts how often etcd was found to be restored from a backup. Revisions from
	// before that are no longer valid.
	Restored int
}

// Delta is what one or more inputs have changed.
type Delta struct {
	// Workloads are workloads in the graph, or just deleted from it. A workload is named whenever something that it
	// depends on was written, even if the workload has not changed.
	Workloads []WorkloadKey
}
