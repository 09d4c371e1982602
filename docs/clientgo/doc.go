// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package clientgo has examples of the Go client of configdep, which are compiled with the tests.
package clientgo
