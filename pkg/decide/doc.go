// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package decide decides what is to be done for a workload now.
//
// Its functions are pure. An Evaluator applies the policy of a workload to the sources that it consumes; from that, what package judge says of its pods, the
// record and the time, Decide returns the state of the workload and what happens next. On every replica, the API shows and the controller does what the same
// call returns.
package decide
