// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package render shows evaluated workloads as objects of the API. It is pure: the server and the command line use it.
package render
