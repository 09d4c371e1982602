// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package integration tests the server as its users meet it: installed from its
// manifests into a real control plane, behind the aggregator, with kubectl, client-go and
// plain HTTP in front.
//
// All tests share one control plane and one installation with two replicas; each has a
// namespace of its own. What the server shows is awaited on every replica, because the
// aggregator may send the next request to another one. A test that something does not
// happen waits for a later change of the same resource, as the server reads each resource
// in order.
package integration
