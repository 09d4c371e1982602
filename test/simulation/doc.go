// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package simulation checks servers against an oracle, in hundreds of random histories (times SEEDS_FACTOR) and without a cluster.
//
// A world simulates the cluster: ConfigMaps, Secrets, workloads, ReplicaSets and pods as the API server shows them, the controllers that replace pods
// one by one, and kubelets that start them container by container. Owners apply, replace, undo, pause and scale, and some revert what other clients write.
// Servers run in this world, each with the real index and the real controller. Each stream of events reaches them late and in pieces. Their requests
// fail, are refused, are lost or arrive after everything has changed. They crash, lose their lease, and get another key of the hash. The time is fake
// (a testing/synctest bubble), and all random choices come from a seed, so a history is the same each time it runs.
//
// The world knows what each container has read, which a server can only infer. The oracle compares that with what each server has read of the world, and with
// what it says and does (oracle_test.go):
//
//   - a container that a server calls Current has read the current content, and one that it calls Stale has not;
//   - a workload is Current for kstatus, as in the state InSync, only if no verdict says otherwise and no container without a verdict has read other content,
//     and Stale, Settling or Pending only if a verdict says so;
//   - a workload is restarted only if the server could know that a container has not read the current content, or that it may not have, because it started at
//     about the time of a change or the change came unseen; the latter only once for each change; and never while it is paused, being deleted or without pods;
//   - content is adopted only when a workload opts in, its scope changes, or its record is lost;
//   - at rest, no container of a workload that has opted in runs with other content, unless it was adopted, and nothing seems to be due;
//   - no server writes an object too often, whatever its owner does;
//   - in waves, a restart begins only if its server knows of nothing that holds it: a budget, a workload of a lower order, a failure, a window, a policy that is
//     suspended or invalid, or content that has not been approved; and at rest, something holds each restart that waits.
//
// Only the documented limits excuse a false verdict: content that was there and back, removed or deleted unseen; a source deleted while no template named it; a
// late watch of a removal; content and pods of the same second and clocks that differ, or volumes that were set up before; a kubelet whose watch lags; and clocks
// that differ by more than is assumed. With -v, the test prints how often each was the case, and how often a server did not know.
//
// This is the only model of kubelets and containers in one process (kubelet_test.go): the examples of pkg/judge and pkg/policy say what each rule is for, and the
// histories whether they are true together. In two of three histories, pods start slowly, volumes are refreshed late, variables come from a cache, containers
// crash for a while, pods end slowly, kubelets forget containers, and clocks of nodes are wrong. Each verdict Unknown needs a cause that the world knows; with -v,
// the test prints how often each was the case. A release, and opting in, when nothing else happens, restart nothing.
//
// In some histories, workloads mount a SecretProviderClass, which the drivers of nodes update at different times (class_test.go), read more sources than others,
// or are scaled by an autoscaler while their pods are being replaced. In others, pods of StatefulSets and DaemonSets break, so that rollouts wait for them: the
// state must say so, and what the message says must free the rollout (stuck_test.go). In others, lists of
// another tool name sources that do not exist, or cannot, which the state must say (lists_test.go). In others, containers
// have variables whose names are not unique, and those of Reloader, and patches are refused for a while (variables_test.go). In others, the
// driver of the class makes a Secret only while pods mount it (synced_test.go), or restarts pause
// Deployments for a time (pauses_test.go). A quarter of the histories are about waves (waves_test.go): several workloads read the same sources, ReloadPolicies
// come, change and go, owners ask for an order, users approve content, pods crash with some content, and leaders change in the middle. There is one namespace.
//
// The model is simpler than a cluster: controllers see everything at once, and act at once or every 100 ms.
//
// Each history ends with an hour without events. A history that fails is shortened as far as possible, and printed with its seed and as JSON: if it is saved in
// testdata, it is replayed by each run. SIMULATION_SEED=n runs one history and logs all of its events. SIMULATION_COUNT=n runs n histories, and
// SIMULATION_FIRST=n starts with that seed.
package simulation
