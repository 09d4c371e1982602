// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package release tests the artifacts of a release: that two builds of one commit, in different folders and with
// different module caches, are identical, that the images can be built from the files that they copy and contain the
// programs of the release, that archives of the images say the same as the Dockerfile, and that the programs need no
// other files to run.
package release
