// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package version tells the version of the program.
//
// It is apart from k8s.io/component-base/version on purpose: the generic API server takes
// that one for the version of Kubernetes, and with a small number in it switches the
// features off that came later.
package version

import "runtime/debug"

// version is set by the linker in releases: -X …/pkg/version.version=v1.2.3.
var version string

// Version returns the version of the program: that of the release, else that of the
// module or its commit, else "devel".
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		if v := info.Main.Version; v != "" && v != "(devel)" {
			return v
		}
	}
	return "devel"
}
