// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package judge judges whether the containers of a pod were started with the current content, with other content, or with content that cannot be
// determined.
//
// It is pure: a verdict is a function of a pod and of what is known about the sources that its containers read. There is no client and no clock of its
// own. What a workload runs with, as the API shows it, as the controller acts on it and as metrics count it, are verdicts of this package.
//
// A container reads its environment, and the files of its volumes, around the time when it starts. So each verdict begins with a window of time, as
// wide as the clocks of nodes and the delays of kubelets make it, and with the contents that the source had in this window. If these are all the
// same as the current one, or all different, the verdict is certain. Where the process began to read the source only later, the record on the workload
// may tell what was there.
package judge
