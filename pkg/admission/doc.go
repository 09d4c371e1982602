// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package admission answers the admission webhook for workloads: it keeps our annotations on
// what is about to be written, by the same evaluation as the API and the controller. It
// changes nothing else, and whatever goes wrong, the workload is admitted as it is.
//
// Callers are not known (kube-apiserver does not authenticate to webhooks by itself), so an
// answer depends on what is asked and on the index alone, and nothing is done by it.
package admission
