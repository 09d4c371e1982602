// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package hop makes clients change between replicas all the time, and checks what they
// see.
package hop
