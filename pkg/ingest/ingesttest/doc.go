// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package ingesttest is a cluster for tests: the objects that an API server stores, and an index that reads them
// with the code of the server. What a test sees of the cluster is therefore what the server sees. Each test adds
// what it needs: a client, a clock, decisions.
//
// Only tests may import it. The simulation (test/simulation) does not use it: it is checked against an oracle, and
// has its own cluster.
package ingesttest
