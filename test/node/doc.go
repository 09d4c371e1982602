// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package node runs a real node beside a control plane of package controlplane: kubelet, containerd with runc, CNI plugins
// and kube-proxy, in namespaces of their own. Tests use it for what simulated nodes cannot show: what containers really
// have, and what a kubelet does with a pod.
//
// A node is the process tree of one process, the first of its PID namespace, which lives as long as this process does. Mounts,
// links, routes and rules of the node are in its namespaces and end with them. This machine has, while the node runs, one link,
// two routes over it, and a folder for cgroups in each hierarchy. All files are below .cache. Nothing is left behind,
// even if the process that has started the node is killed.
//
// Several nodes can run at the same time, each for a control plane of its own: the name of the link is chosen by which is free,
// and the addresses by that name.
//
// It needs root, Linux, and what [Missing] checks. The programs come from hack/node/build.sh.
package node
