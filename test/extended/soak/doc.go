// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package soak tests the server in random histories against a real control plane with simulated nodes: owners do everything that owners of
// workloads and sources do, while requests fail, responses are lost or late, watches break, replicas are killed, paused or disconnected so that
// they lose their lease, the key of the config hash is replaced, and the API server restarts.
//
// A history is drawn from a seed, which determines the operations and their times, but not the scheduling of the processes. It has cells, which are
// namespaces, and in each an owner has some workloads that share some sources. After each phase there is a calm: faults end, and the test waits until
// every replica shows every workload correctly.
//
// The oracle learns what pods have read from the journal, which watches etcd itself: all resources in one order, without a gap while the API server is
// down. A pod has read one of the contents that a source had from the pod's creation until it ran. With that,
//
//   - each list of each replica, at any time, is compared with the pods, if nothing has happened in the namespace beyond the watermark of its version:
//     a workload with a pod that has read old content is never InSync, such a pod is never counted as current, and no pod is stale that has read the
//     current content;
//   - at each calm, workloads that have opted in are InSync, or Blocked if something is missing. Only those that opted in with old content, or
//     do not restart for all of their sources, may be Stale or Unknown, and those that have not opted in; and if a source is as it was at some time
//     before, times alone tell whether pods have read what was there in between, so that it may be Unknown;
//   - a pod that has read content from before a change after the record has been restarted by then;
//   - each restart has a reason: never more restarts than changes, one for changes that belong together or were made while no server ran, never two for
//     the same content or within min-interval, none while the workload has not opted in, is paused, is being deleted, or has no replicas;
//   - if nothing disturbs the server, it writes to a workload at most writeLimit times in a phase, whatever an operator does.
//
// The oracle excuses what docs/correctness.md accepts: something was removed, which leaves no trace, and there was no record; new pods were created by the
// owner within two seconds of a change, so that one restart may be in doubt. Simulated pods start even if something that they require is missing; of these
// nothing is known. In disturbed phases, content only recurs while no pod starts. All revisions are from one etcd, and all clocks are the same.
//
// SOAK_SEED=n runs the history of a seed. SOAK_DURATION=30m also runs the following ones, by default starting with a random seed.
package soak
