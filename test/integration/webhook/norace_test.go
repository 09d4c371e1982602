// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package webhook

const race = false
