// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package pods serves the read-only subresource configdependencies/pods, which shows with
// which content the containers of the pods of a workload were started.
//
// Unlike ConfigDependencies, which every replica computes from its index, the answer is read
// from the API server on request: an index of all pods in a cluster would cost too much
// memory. So the number of pods in an answer, and of concurrent requests, is limited.
package pods
