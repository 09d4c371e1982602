// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package integration tests the server in the way users meet it: installed from its manifests into a real control
// plane, behind the aggregator, with kubectl, client-go and plain HTTP as clients.
//
// All tests share one control plane and one installation with two replicas; each test has its own namespace. Tests
// wait until every replica shows a change, because the aggregator may send the next request to another one. A test
// that something does not happen waits for a later change of the same resource, because the server reads each
// resource in order.
package integration
