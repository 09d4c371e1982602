// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package configdependency serves ConfigDependencies: it renders one for each workload
// whenever something changes that it shows, keeps them in order, and answers get and
// list from there.
//
// Rendering is a pure function of the dependency graph, so that every replica shows the
// same. The storage implements no interface that writes: the installer of the generic
// API server turns every method set that it knows into a verb, and a "delete" verb would
// make the namespace controller wait for objects that cannot be deleted.
package configdependency
