// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package hop makes clients switch between replicas all the time, and checks the objects that they receive.
package hop
