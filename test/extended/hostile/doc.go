// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package hostile attacks the server and checks that other clients are still served. The attackers are a pod that
// reaches the webhook's port, a tenant who may edit one namespace, and a user who floods the API with requests.
package hostile
