// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package policy decides: which changes restart a workload, whether its pods run with the
// current content, and what is to be done now.
//
// Its functions are pure. Of reads annotations into a Policy; an Evaluator applies it to the
// sources that a workload consumes; Decide says from that, from the workload's own status
// and from the time what state the workload is in and what happens next. The API shows
// and the controller does what the same call returns, on every replica. It imports
// package dependency and nothing else of ours.
package policy
