// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package simulation checks the controller, the webhook and Reloads against an oracle, in
// hundreds of random histories (times SEEDS_FACTOR) and without a cluster.
//
// A world simulates the cluster: ConfigMaps, Secrets and workloads with versions and managed
// fields as kube-apiserver sets them, the controllers that replace pods one by one, and
// kubelets that start them container by container. Owners apply, replace, undo and scale, and
// some react to writes of other clients. Servers run in this world, each with the real index
// and the real controller. Events reach them late and in pieces. Their requests fail, are
// refused, are lost or arrive after everything has changed. They crash and lose their lease.
// Workloads and sources may have different revision counters, etcd may be restored from a
// backup, and every clock may be wrong by a constant. The time is fake (a testing/synctest
// bubble), and all random choices come from a seed, so a history is the same each time it runs.
//
// The oracle knows with which content each container was started, which a server can only
// infer. It shares no code with package policy, and reads content and hashes on its own
// (digest_test.go). It checks that
//
//   - in a calm, no container of the current template runs with old content, unless no leading
//     server could know: none has seen the change as an event after its first sync, and the
//     record does not show it. If clocks are wrong, conclusions that depend only on times are
//     excused (known_test.go);
//   - no record claims that pods have read content that they have not, if the server that writes
//     it could know better; this is judged when the record is written (judge_test.go);
//   - a restart has a reason that the server could see, comes after the changes have settled,
//     respects min-interval, and spares workloads that are paused, being deleted or without
//     pods; only pods that existed when the restart began are evicted;
//   - no server writes an object too often, whatever its owner does;
//   - a Deployment that was paused when it was restarted is resumed after that period, whichever server leads then, and one
//     that a user paused is not (foreign_test.go);
//   - the displayed state is correct (calm_test.go).
//
// In a quarter of the histories, some workloads are custom resources of a described kind. Its definition goes and comes, with or without
// the objects being seen to go; another version of it is served; or the servers may not read it for a while. No server may show
// what it cannot read. What changed before a server could list the kind must not restart a workload, unless a record tells of it
// (kinds_test.go).
//
// In a quarter of the histories, workloads ask for restarts in place. Their restarters act late, lose what they were told, or end
// containers that never start again. A pod is told only of a restart that began after its creation, one at a time, while enough others are
// ready and its PodDisruptionBudget allows it, and again only if a container still runs as before. None is recorded as restarted
// before all its containers have started again and it is ready; a rollout needs a reason; and a pod that does not come back makes the
// state Failed (inplace_test.go).
//
// In a few histories, config agents in pods apply what changes: late, not at all, or without a word. No server may show such a workload as
// in sync of which an agent has not applied content that the server has seen (agents_test.go).
//
// When a change of the policy makes a source count, its content at that moment is adopted: this
// is not a change.
//
// In a third of the histories, workloads opt in by annotations of other tools, too. For those that only Reloader's annotations
// opt in, a source that appears or disappears is no change: pods that were started while it was absent are assumed to have read
// the content with which it appears, and pods that had read it before must be restarted if it comes back with other content. A
// record does not tell a source that was absent from one without the keys that count, so that these are excused as one.
//
// The model is simpler than a cluster: a container that restarts in place reads the variables and
// files of that moment, although real volumes may lag behind; pods become ready at once or never;
// other controllers see everything at once, and act at once or every 100 ms; and after a backup so
// much is written elsewhere that revisions do not repeat soon after a restore. In every other history, as much is written
// after the restore, before any server reads again, so that only the versions of objects tell that etcd was restored.
//
// Each history ends with an hour without events. A history that fails is shortened as far as
// possible, and printed with its seed and as JSON: if it is saved in testdata, it is replayed by
// each run. SIMULATION_SEED=n runs one history and logs all of its events. SIMULATION_COUNT=n runs
// n histories, and SIMULATION_FIRST=n starts with that seed.
package simulation
