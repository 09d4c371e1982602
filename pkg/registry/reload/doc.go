// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package reload serves the create-only subresources of ConfigDependencies by which users
// act: reload restarts the pods of a workload, and approval records whether its content is
// approved. Each is one patch of configdep's annotations. The patch is sent with the
// identity of the server, on behalf of a user who may create the subresource.
//
// It reads the live workload instead of the index, because it is about to change it.
package reload
