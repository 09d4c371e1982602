// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package standin acts as Stakater Reloader v1.4.21 does with its default flags, so that tests can run configdep beside it, and
// switch from one to the other. It has no code of Reloader.
//
// What it does as Reloader does:
//
//   - It watches ConfigMaps and Secrets, and handles those of each kind one after the other. An update whose SHA-1 of the data
//     differs from that of the object before is a change; objects that appear or disappear are not, nor is metadata.
//   - For each change it lists the Deployments, DaemonSets and StatefulSets of the namespace, and reads their annotations: auto and
//     auto of the kind, the list of regular expressions, search with match, exclude, and ignore; of the workload before those of
//     the pod template.
//   - It restarts a workload by a patch of its pod template, as field manager Reloader: with a variable STAKATER_…, unless it
//     has the value already, or with the annotation last-reloaded-from. Then it creates the event Reloaded.
//   - It keeps no state, so that it restarts nothing when it starts, and loses what changes while it does not run.
//
// What it leaves out: Jobs and CronJobs, Argo Rollouts, SecretProviderClasses, pauses, leader election, alerts, metrics, the
// flags, and retries. A request that fails is an error of the test.
package standin
