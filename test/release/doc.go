// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package release tests what is shipped: that two builds of one commit, in different
// folders and with different module caches, are the same bytes, that the image is built from
// what it copies and holds the program of the release, and that this program needs nothing
// else to run.
package release
