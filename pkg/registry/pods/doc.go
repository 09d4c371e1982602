// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package pods serves the read-only subresource configdependencies/pods: with which content
// the containers of the pods of a workload were started.
//
// Unlike ConfigDependencies, which every replica computes from what it has read, the answer
// is read from the API server when it is asked for: an index of all pods of a cluster would
// cost more than it says. So the number of pods in an answer, and of answers at a time, is
// bounded.
package pods
