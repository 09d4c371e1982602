// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package pods serves the read-only subresource configdependencies/pods, which shows with
// which content the containers of the pods of a workload were started.
//
// It computes the answer from the index on request, with the verdicts of package judge, and
// makes no requests of its own. The size of an answer is limited, because the numbers of pods,
// containers and sources multiply.
package pods
