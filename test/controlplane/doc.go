// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs a real Kubernetes control plane as child processes:
// etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and kwok as the kubelet
// of simulated nodes. Tests, the demo and benchmarks use it, because a fake would only
// confirm its author's assumptions about Kubernetes.
//
// Any number of control planes can run at the same time, also from several processes: ports come from the kernel, all
// files are in one folder, and identities are signed by an authority that only this control plane trusts. Nothing is
// left behind, even if the process that has started the control plane is killed (see guard). Containers are never run:
// kwok sets the status of pods.
//
// The binaries come from hack/controlplane/build.sh. It needs a Unix system with bash.
package controlplane
