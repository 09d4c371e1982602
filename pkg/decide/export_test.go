// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide

// Exports for tests.

var (
	Enumerate  = enumerate
	UpperFirst = upperFirst
	IDOf       = idOf
)
