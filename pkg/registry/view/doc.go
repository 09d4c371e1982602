// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package view serves objects that are computed from the dependency graph: whatever changes is
// rendered at once into a watch cache, from which get, list and watch are answered.
//
// A View knows nothing of what it shows. A Renderer says which items there are, which of them a change
// concerns, and what the object of an item looks like; a Resource says how the API presents the objects:
// names, columns, and the fields that can be selected.
//
// Rendering is a pure function of the graph and the time, so that every replica shows the same. The
// storage implements no interface that writes: the installer of the generic API server turns every
// method set that it knows into a verb, and a "delete" verb would make the namespace controller wait
// for objects that cannot be deleted.
package view
