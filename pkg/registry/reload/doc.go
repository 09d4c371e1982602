// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package reload serves the create-only subresource configdependencies/reload: it
// restarts the pods of a workload as a rollout, with one patch of our annotations, under
// the identity of the server and on behalf of a user who may create the subresource.
//
// It reads the workload live and not from the index, because it is about to change it.
package reload
