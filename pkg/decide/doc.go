// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package decide decides what is to be done for a workload now.
//
// Its functions are pure. An Evaluator applies the policy of a workload to the sources that it consumes. From the result, the verdicts of package judge
// on its pods, the record and the time, Decide returns the state of the workload and what happens next. On every replica, the same call decides what the
// API shows and what the controller does.
package decide
