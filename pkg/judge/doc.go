// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package judge judges whether the containers of a pod were started with the current content, with other content, or with content that cannot be
// determined.
//
// It is pure: a verdict depends only on a pod and on what configdep knows about the sources that its containers read. The package has no client and no
// clock. The API shows these verdicts, the controller acts on them, and metrics count them.
//
// A container reads its environment, and the files of its volumes, around the time when it starts. So each verdict begins with a time window, wide
// enough for clock skew between nodes and for the delays of kubelets, and with the contents that the source had in that window. If all of them equal
// the current content, or all differ from it, the verdict is certain. If configdep began to read the source only later, the record on the workload may
// tell what the source contained.
package judge
