// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package dependency is the pure core: which ConfigMaps and Secrets a workload consumes,
// the digests of their content, and which workloads use a source.
//
// It turns API objects into small values (Workload, Source), keeps them in a two-way
// Graph, and computes the hash of the content that a workload consumes. It imports API
// types and no client, does no I/O and reads no clock. The content of a Secret passes
// through Digester.Content and nothing else; no value of this package holds content.
package dependency
