// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package ingest keeps the dependency graph equal to the cluster.
//
// One reflector per resource lists and watches it. What it reads is reduced to a value of
// package dependency before anything else sees it: the values of ConfigMaps and Secrets
// become digests directly after the decoder and are not kept. It uses reflectors with its
// own store instead of shared informers, because handlers of informers lag behind their
// store and never see bookmarks, and the versions of this API depend on both. The events of
// a watch are applied by the goroutine that decodes them.
//
// Index holds the graph, applies one change at a time and notifies a Sink of each, in
// order.
package ingest
