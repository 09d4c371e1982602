// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import "unique"

// Text is a string that is in memory once for all who hold it: what a long annotation of a namespace says is kept
// with each of its workloads. Two of them are equal if the strings are. The zero value is the empty string.
type Text struct{ handle unique.Handle[string] }

// ShareText returns a string as a Text.
func ShareText(s string) Text {
	if s == "" {
		return Text{}
	}
	return Text{unique.Make(s)}
}

// String returns the string.
func (t Text) String() string {
	if t == (Text{}) {
		return ""
	}
	return t.handle.Value()
}

// Equal reports whether two texts are the same.
func (t Text) Equal(other Text) bool { return t == other }
