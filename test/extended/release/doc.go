// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package release tests the artifacts of a release: that two builds of one commit, in different folders and with
// different module caches, are identical, that archives of the images contain the programs of the release and say the same
// as the Dockerfile, and that the programs need no other files to run.
package release
