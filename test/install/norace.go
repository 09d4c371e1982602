// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package install

// RaceDetector reports whether the tests run with the race detector. Then the replicas do too: see Options.Race.
const RaceDetector = false
