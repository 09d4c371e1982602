// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package integration tests the server and the agent in the way users meet them: the server installed from its manifests into a real control
// plane, behind the aggregator, with kubectl, client-go and plain HTTP as clients.
//
// All tests share one control plane and one installation with two replicas and all rights; each test has its own namespace. Tests wait until
// every replica shows a change, because the aggregator may send the next request to another one. A test that something does not happen waits
// for a later change of the same resource, because the server reads each resource in order.
//
// A test that needs other flags starts another replica: one that only serves (replica), or one for a namespace that the installation does not
// see (newOwnShop), which may also be killed. A test that disturbs others is not parallel, and so runs before those that are.
//
// With the build tag extended, there are tests that tell little more for what they cost: of the agent with real applications, from packages of
// Debian, and of clients that change replicas all the time.
package integration
