// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package install installs the server into a control plane of package controlplane, from the manifests that users
// apply: artifacts/base, or the chart with values, with a Service that leads to this machine. The replicas are
// processes of the built program. They run with the ServiceAccount, the permissions and the arguments of those
// manifests, so that a permission or a flag that is missing there fails here.
package install
