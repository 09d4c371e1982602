// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package release tests the artifacts of a release: that two builds of one commit, in different folders and with
// different module caches, are identical, that the image can be built from the files that it copies and contains the
// program of the release, and that the program needs no other files to run.
package release
