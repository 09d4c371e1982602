// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package podstate judges whether the containers of a pod were started with the current
// content, with other content, or with content that cannot be determined.
//
// It is pure: a verdict is a function of the pod as the API server returned it and of the
// sources in the graph. There is no client, no clock and no goroutine, and no verdict is
// Current or Stale without evidence.
//
// There are three kinds of evidence. Order: etcd revisions tell which write came first,
// where all resources share one counter. Time: writes and the creation of pods have the API
// server's time, the start of containers has the node's; a margin allows for the difference.
// Records: a pod carries the hash of the content that its template was written for.
package podstate
