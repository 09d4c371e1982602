// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"path"
	"strings"
)

// maxAllowed limits the entries of a list that are looked at.
const maxAllowed = 256

// Allowed reports whether a list allows a target, KIND/NAME, to get a key of the Secret that has the list: one of its entries, separated
// by commas, is KIND/NAME#KEY, whose parts before and after the # may be globs. A * matches no slash.
func Allowed(list, target, key string) bool {
	n := 0
	for entry := range strings.SplitSeq(list, ",") {
		if n++; n > maxAllowed {
			return false
		}
		who, what, _ := strings.Cut(strings.TrimSpace(entry), "#")
		if matches(who, target) && matches(what, key) {
			return true
		}
	}
	return false
}

func matches(glob, name string) bool {
	matched, err := path.Match(glob, name)
	return err == nil && matched
}
