// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package controller restarts workloads whose pods run with old content.
//
// It is level-triggered: whatever happens to a workload or its sources puts the workload into a queue, and a
// worker asks package decide what to do. A restart is one patch, bound to the version of the workload that
// the decision was made for. One replica at a time leads; the others stand by.
//
// The record on the workload says with which content its pods were started. A new process
// or leader compares it with the current content, so that it neither loses a change that the
// record shows nor restarts anything twice. The rest is in memory and is lost with it:
//
//   - The notes of the leader: which events it has sent, since when content differs, and its
//     pace. Without them, an event is sent again, or a request is made sooner or later.
//   - What each replica has read, in package dependency. The next leader uses its own memory;
//     what no running replica has read is lost: content that changed and changed back, for
//     example. Where that leaves a doubt, the state is Unknown.
package controller
