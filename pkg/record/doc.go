// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package record is what configdep writes on workloads and pods: the record of the content that pods run with, the last restart, and, for each strategy, what
// begins a restart and tells how far it is. All of it is in annotations, which other clients can write, too: so what is read is bounded, and a value that
// configdep cannot have written counts as none.
package record
