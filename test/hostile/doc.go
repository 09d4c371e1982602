// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package hostile plays those who mean harm against the server, and looks whether others are still served: a pod that
// reaches the port of the webhook, a tenant who may edit one namespace, and a user who asks without end.
package hostile
