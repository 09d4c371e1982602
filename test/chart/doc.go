// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package chart installs, upgrades and uninstalls the Helm chart by helm itself, on a control
// plane. The replicas are processes of the built program, which run with exactly the
// arguments of the Deployment that helm has made, and with the rights of its ServiceAccount.
//
// A post-renderer gives the Service and the ports that lead to this machine, as pods do not
// run; nothing else differs from what users install.
package chart
