// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package simulation checks the controller, the webhook and Reloads against an oracle, in
// thousands of random histories and without a cluster.
//
// A world stands for the cluster: ConfigMaps, Secrets and workloads with versions and managed
// fields as kube-apiserver sets them, the controllers that replace pods one by one, and
// kubelets that start them container by container. Owners apply, replace, undo and scale, and
// some react to what others write. Servers live in this world, each with the real index and
// the real controller. What they read reaches them late and in pieces, what they ask for
// fails, is refused, is lost or arrives when everything has changed, and they die and lose
// their lease. Workloads and sources may have different revision counters, etcd may be
// restored from a backup, and every clock may be wrong by a constant. Time is that of a
// testing/synctest bubble, and everything that is random comes from a seed, so that a history
// is the same each time that it runs.
//
// The oracle knows with what each container was started, which a server can only conclude. It
// shares no code with package policy, and reads content and hashes on its own (digest_test.go).
// It holds that
//
//   - at a calm, no container of the present template runs with old content, unless no server
//     that leads could know: none has seen the change happen after its first sync, and the
//     record does not tell. Where clocks are wrong, what only times could tell is excused
//     (known_test.go);
//   - no record claims that pods have read what they have not, if the server that writes it
//     could know better; this is judged when it is written (judge_test.go);
//   - a restart has a reason that the server could see, comes after the changes have settled,
//     respects min-interval, and spares workloads that are paused, being deleted or without
//     pods; an eviction is of a pod that was there when the restart began;
//   - no server writes an object too often, whatever the owner of it does;
//   - the state that is shown is the true one (calm_test.go).
//
// What the policy makes count is adopted as it is at that moment: this is no change.
//
// The model is simpler than a cluster in this: a container that restarts in place reads
// variables and files as they are then, though volumes may lag in truth; pods become ready at
// once or never; other controllers see everything at once, and act at once or every 100 ms; so much
// is written elsewhere after a backup that no revision comes again soon after it is restored.
//
// Each history ends with an hour in which nothing happens. One that fails is made as short as
// possible, and printed with its seed and as JSON: kept in testdata, it is played each time.
// SIMULATION_SEED=n runs one history and tells all that happens in it; SIMULATION_COUNT=n runs
// so many, and SIMULATION_FIRST=n begins with that seed.
package simulation
