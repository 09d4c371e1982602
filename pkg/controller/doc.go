// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package controller restarts workloads whose pods run with old content.
//
// It is level-triggered: whatever happens to a workload or its sources puts the workload
// into a queue, and a worker asks policy.Decide what is to be done. A restart is one
// patch, bound to the version of the workload that the decision was made for. One replica
// at a time leads; the others stand by.
//
// The record on the workload says with which content its pods were started. A new process
// or leader compares it with the current content, so that it neither loses a change that the
// record shows nor restarts anything twice. The rest is in memory and is lost with it:
//
//   - The notes of the leader: which events it has sent, since when content differs, and its
//     pace. Without them, an event is sent again, or a request is made sooner or later.
//   - What each replica has read, in package dependency. The next leader uses its own memory;
//     what no running replica has read is lost.
//
// Of the latter, this affects restarts:
//
//   - A record that another client has removed (InSync, RecordRemoved). If it is lost before it
//     is written again, the hash on the pod template is compared; if there is none, the current
//     content is adopted.
//   - When a workload without a record opted in (Pending, NotRecorded). If that is lost before
//     the first record is written, changes since then are adopted as well.
//   - Content that changed and changed back (Pending, Verifying). If that is lost before a
//     replica has looked up the pods, the state is InSync, as the record says. A replica that
//     does not lead looks them up too, if it saw the changes and nothing has been recorded for
//     a while.
//   - Whether the template or the content changed first. If that is lost, the revision of the
//     template is looked up (Pending, Verifying), and the workload is restarted in doubt.
//
// The API shows the states in parentheses while something is remembered but not written. Once it
// is lost, the state is what the record says, or NotRecorded until there is a record.
package controller
