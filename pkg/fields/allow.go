// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"path"
	"strings"
)

// maxAllowed limits the entries of a list that are looked at.
const maxAllowed = 256

// Allowed reports whether a list allows a target, KIND/NAME: one of its entries, separated by commas, is the target or a glob that
// matches it. A * does not match a slash.
func Allowed(list, target string) bool {
	n := 0
	for entry := range strings.SplitSeq(list, ",") {
		if n++; n > maxAllowed {
			return false
		}
		if matches, err := path.Match(strings.TrimSpace(entry), target); err == nil && matches {
			return true
		}
	}
	return false
}
