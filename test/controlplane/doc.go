// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs a real Kubernetes control plane out of child processes:
// etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and kwok as the kubelet
// of simulated nodes. Tests, the demo and benchmarks use it, because a fake would only
// confirm what its author believed about Kubernetes.
//
// Any number of control planes can run at once, also from several processes: ports come
// from the kernel, all files are below one folder, and identities are signed by an
// authority that only this control plane trusts. Nothing is left behind, not even when
// the process that started one is killed (see guard). Containers are never run: a pod
// is Running because kwok says so.
//
// The binaries come from hack/controlplane/build.sh. It needs a Unix system with bash.
package controlplane
