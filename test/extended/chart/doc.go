// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package chart installs, upgrades and uninstalls the Helm chart with helm, on a control plane. The replicas are
// processes of the built program, with exactly the arguments of the Deployment that helm has created, and with the
// permissions of its ServiceAccount.
//
// Because pods do not run, a post-renderer replaces the Service and the ports so that they lead to this machine. Nothing
// else differs from a user's installation.
package chart
