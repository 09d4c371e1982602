// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package admission is the admission webhook for workloads: it preserves or sets our
// annotations on workloads that are about to be written, with the same evaluation as the API
// and the controller, and preserves our environment variables. It changes nothing else, and
// if anything fails, the workload is admitted unchanged.
//
// Callers are not authenticated (by default, kube-apiserver does not authenticate to
// webhooks), so an answer depends only on the request and the index, and has no side
// effects.
package admission
