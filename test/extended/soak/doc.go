// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package soak tests the server in random histories against a real control plane: owners do
// everything that owners of workloads and sources do, while requests fail, responses are lost or
// late, watches break, replicas are killed, paused or disconnected so that they lose their lease,
// the key of the config hash is lost or replaced, and the API server restarts.
//
// A history is drawn from a seed. It has cells, which are namespaces, and in each an owner has
// some workloads that share some sources. Workloads differ in kind, mode, patterns, strategy and
// min-interval. Owners change, delete and recreate sources, and change content back; they
// release, scale to zero and back, pause and resume, undo rollouts, release pods that never
// become ready, delete in the foreground, and rewrite their objects; some run an operator that
// removes everything that the server writes. After each phase there is a calm: faults end, and
// the test waits until every replica shows every workload correctly. The seed determines the
// operations and their times, but not the scheduling of the processes.
//
// Each history can run with and without the webhook. Nothing else depends on that.
//
// The oracle knows with which content each pod was started. It learns that from the journal, which
// watches etcd itself: all resources in one order, without a gap while the API server is down. At
// each calm, the pods of every workload that has opted in must have started with the current
// content, as far as it counts by the rules of the oracle. Restarts are limited:
//
//   - none if what the workload reads has not changed, or has changed while no server ran and
//     changed back; never one if the workload has not opted in, while it is paused, or while it
//     has no replicas;
//   - at any moment, never more than there were changes; one for changes that belong together,
//     and for all changes while no server ran;
//   - never two for the same content;
//   - never two within min-interval;
//   - if nothing disturbs the servers: only for a change since the template last changed. Earlier
//     changes were read by the pods that the template created. An eviction does not change the
//     template, so this is not known for a change at the same time.
//
// That there is at least one restart where one is needed follows from the check of the pods. In
// addition, the server never writes to a workload that is being deleted, and if nothing disturbs
// it, it writes at most writeLimit times in a phase, whatever an operator does.
//
// Opting in adopts the content at that moment, not the content when it is recorded. After content
// changed and changed back, no pod that started in between may remain. The same applies to the
// rollback of an unfinished rollout, after which pods of the old template continue to run.
//
// A stale pod is excused only if the history proves that the leader could not know. The oracle
// keeps the content of each source by revision, and since when the process of each replica has
// watched, with the gaps in which a watch was broken and may have restarted with a list. From
// this follows what is excused:
//
//   - A record that is written without any previous knowledge adopts the content of the moment at
//     which the source began to count, or at which the process that writes the record began to
//     watch, whichever is later; but not later changes. If an owner removes a record, each process
//     that saw it still remembers it.
//   - The leader cannot know that a pod is older than the rollout of its template if it began to
//     watch after that.
//
// In quiet phases, and in noisy ones in which no watch breaks, both replicas have watched all
// the time, and nothing is excused.
//
// A restart in doubt needs a reason too. Before it, the server records that pods may differ in a
// source. Then either the source must have had other content since the previous record, or the
// rollout of the template began before the previous one was complete, and the source has changed
// since it began to count. For a Deployment, the template must also have existed before: a
// ReplicaSet shows whether it is new, a ControllerRevision does not.
//
// The oracle assumes:
//
//   - A pod reads the content at its creation. It may read newer content, but that is not
//     certain. It has one container, which never restarts.
//   - A pod that requires a missing source or key reads once that exists. A real kubelet would
//     make the pod wait; the simulated one does not, so the pods of the old template are already
//     deleted, which makes no difference in a calm.
//   - A process that starts has read everything when the test finds it ready. A process that gets
//     another key of the config hash has read everything at the next calm, where gaps also end.
//   - If an owner removes a record, and a disturbance hides whether the template changed before or
//     after its sources, the server may restart in doubt.
//   - If an owner removes the list of pods to evict, the server may begin the eviction again. The
//     same applies if the owner removes a record for which pods have been evicted and there is a
//     disturbance: no template shows when these pods started.
//   - During a disturbance, content changes back only if no pod of a reader that would not have to
//     wait starts in between. Only quiet phases undo rollouts, which restore very old records.
//   - Sources in mode matched are required where they are read. An optional one could be created
//     without a workload having known about it.
//   - All revisions are from one etcd, and all clocks are the same.
//
// SOAK_SEED=n runs the history of a seed. SOAK_DURATION=30m also runs the following ones, by
// default starting with a random seed. SOAK_WEBHOOK says whether there is a webhook: true, false,
// or both, which runs each history twice; by default the seed decides. Without any of them, one
// history runs in both ways.
package soak
