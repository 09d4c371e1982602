// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package configdependency renders the ConfigDependency of each workload from the dependency graph,
// and defines how the API presents it. Package view does the rest.
package configdependency
