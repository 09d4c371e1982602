// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

// Exports for tests.

var EncodePods = podsToEvict
