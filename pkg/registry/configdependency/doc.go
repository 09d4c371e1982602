// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package configdependency shows the ConfigDependency of each workload: how one is rendered from
// the dependency graph, and how the API presents it. Package view does the rest.
package configdependency
