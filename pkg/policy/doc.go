// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package policy decides which changes restart a workload, whether its pods run with the
// current content, and what is to be done now.
//
// Its functions are pure. NewPolicy reads annotations into a Policy; an Evaluator applies it to
// the sources that a workload consumes; from that, the workload's own status and the time,
// Decide returns the state of the workload and what happens next. On every replica, the API
// shows and the controller does what the same call returns.
package policy
