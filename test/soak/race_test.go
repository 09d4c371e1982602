// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package soak

// The replicas are built like the tests.
const race = true
