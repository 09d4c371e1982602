// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package podstate judges with which content the containers of a pod were started: the
// present one, an earlier one, or one that cannot be known.
//
// It is pure: a verdict is a function of what the API server says of the pod and of what
// the graph knows of the sources. There is no client, no clock and no goroutine, and it
// never says Current or Stale without evidence for it.
//
// The evidence is of three kinds. Order: revisions of etcd say what was written first,
// where all resources share one counter. Time: the API server's for writes and for the
// creation of pods, the node's for the start of containers; these are told apart by a
// margin. Records: a pod carries the hash of the content that its template was made for.
package podstate
