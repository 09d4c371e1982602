// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests configdep as users run it: its images, made without an engine, on a real node (package node), installed by the
// Helm chart with its defaults. What the API says is compared with what containers really have.
//
// make e2e-node runs it. It needs what package node needs, and takes minutes.
package e2e
