// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package soak tries the server in random histories against a real control plane: all that
// owners of workloads and of their sources do, while requests fail, answers are lost or come
// late, watches break, replicas are killed, halted or cut off so that they lose their lease,
// the key of the hash is lost or replaced, and the API server restarts.
//
// A history is drawn from a seed. In each of its cells, which are namespaces, an owner has
// some workloads that share some sources. Workloads differ in kind, mode, patterns, strategy
// and least interval. Owners change, delete and recreate sources, and change content back;
// they release, scale to zero and back, pause and resume, undo rollouts, release what never
// becomes ready, delete in the foreground, and rewrite what they own; some run an operator
// that takes away whatever the server writes. Phases follow one another, and after each there
// is a calm: faults end, and the test waits until every replica shows every workload as it
// ought to be. The seed fixes what is done and when; how the processes interleave is theirs.
//
// Each history can be played with the webhook and without it. Nothing else depends on that.
//
// The oracle beside it knows of each pod with which content it was started. The journal tells
// it, which watches etcd itself: all resources in one order, and no gap while the API server
// is away. At each calm, the pods of every workload that has opted in must have started with
// the present content, as far as its rules make that count; and of restarts there must have
// been as few as can be:
//
//   - none, when what the workload reads has not changed, or has changed while no server ran
//     and is again what it was; never one when it has not opted in, while it is paused, or
//     while it has no replicas;
//   - never more than there were changes, at any moment; one for changes that belong together,
//     and for all that were made while no server ran;
//   - never two for the same content;
//   - never two within the least interval;
//   - when nothing disturbs the servers: none but for a change since the template last
//     changed. What came before it was read by the pods that it made. An eviction leaves the
//     template as it is, so that this is not known of a change that is made at the same time.
//
// That there is at least one restart where one is needed follows from the pods. Besides, the
// server never writes to a workload that is being deleted, and when nothing disturbs it, it
// does not write more than writeLimit times in a phase, whatever an operator does.
//
// Opting in adopts what is there at that moment, and not what is there when that is recorded.
// Content that changed and changed back must not leave a pod that started in between. Nor must a
// rollback of a rollout that has not finished, after which pods of the old template run on.
//
// A stale pod is forgiven only if the history proves that the leader could not know. The oracle
// keeps what the content of each source has been, by revision, and since when the process of each
// replica has watched, with gaps in which a watch was broken and may have begun again with a
// list. From that follows what is forgiven:
//
//   - A record that is made where nothing was remembered adopts the content of the moment at
//     which the source began to count, or at which the process that writes the record began to
//     watch, whichever is later; but not what changed after that. A record that an owner has
//     removed is remembered by each process that saw it.
//   - The leader cannot know that a pod is older than the rollout of its template if it began to
//     watch after that.
//
// In quiet phases, and in noisy ones in which no watch breaks, both replicas have watched all
// the time, and nothing is forgiven.
//
// A restart in doubt needs a reason too. Before it, the server records that pods may differ in a
// source. Then the source must have had other content since the record before, or the rollout of
// the template began before the last one was complete, and the source has changed since it began
// to count. For a Deployment, the template must have been there before too: a ReplicaSet tells
// whether it is new, a ControllerRevision does not.
//
// What the oracle assumes:
//
//   - A pod reads what is there when it is created. It may be something newer, but that
//     is not certain. It has one container, which never restarts.
//   - A pod that requires a source or a key that is not there reads once it is there. The
//     kubelet would let it wait; the simulated one does not, so that the pods of the old
//     template are gone already, which makes no difference once all is calm.
//   - A process that starts has read everything when the test finds it ready, and one that gets
//     another key of the hash at the next calm, where gaps end too.
//   - When an owner removes what is remembered, and a disturbance hides whether the template
//     changed before or after the sources that it uses, the server may restart in doubt.
//   - When an owner removes that pods are being evicted, the server may begin again. So it may
//     when a record is removed that pods have been evicted for, and something is disturbed: no
//     template tells when they started.
//   - Content that comes back while something is disturbed comes back only where no pod of a
//     reader starts in between that would not have to wait. Only quiet phases undo rollouts:
//     they bring back records of long ago.
//   - Sources in mode matched are required where they are read. One that is optional comes into
//     being without a workload having known of it.
//   - All revisions are of one etcd, and all clocks are the same.
//
// SOAK_SEED=n plays the history of a seed, and SOAK_DURATION=30m those that follow too, by
// default from any. SOAK_WEBHOOK says whether the webhook is there: true, false, or both, which
// plays each history twice; by default the seed does. With none of them, one history is played
// in both ways.
package soak
