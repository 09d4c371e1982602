// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package configdep names the API group. Its types live in one package per
// version; there is no internal version, because nothing is stored.
package configdep

// GroupName is the name of the API group.
const GroupName = "configdep.io"
