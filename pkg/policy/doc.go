// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package policy reads annotations, those of configdep and those of other tools, into a Policy: which changes restart a workload, how, and when. Its functions
// are pure.
package policy
