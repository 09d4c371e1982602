// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package record defines what configdep writes on workloads and pods: the record of the content that pods run with, the last restart and, for each
// strategy, what begins a restart and tracks its progress. All of this is in annotations, which other clients can write too. So the size of what is read
// is bounded, and a value that configdep cannot have written counts as none.
package record
