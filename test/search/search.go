// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package search finds text where it must not occur: in logs, memory or answers.
package search

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"strings"
)

// Forms returns a text itself, and the parts of its base64 encodings that do not depend on the surrounding text.
func Forms(text string) []string {
	forms := []string{text}
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		for offset := range 3 {
			encoded := encoding.EncodeToString([]byte(strings.Repeat("x", offset) + text))
			first := []int{0, 2, 3}[offset] // the characters that depend on the text before
			forms = append(forms, encoded[first:(offset+len(text))/3*4])
		}
	}
	return forms
}

// Find returns the offsets of a text, at most five.
func Find(where []byte, text string) (at []int) {
	for from := 0; len(at) < 5; {
		i := bytes.Index(where[from:], []byte(text))
		if i < 0 {
			break
		}
		at = append(at, from+i)
		from += i + len(text)
	}
	return at
}

// Around returns the content before and after an offset.
func Around(where []byte, at int) []byte { return where[max(0, at-200):min(len(where), at+200)] }

// dumpLine is a line in which client-go logs sixteen bytes of a body in protobuf.
var dumpLine = regexp.MustCompile(`(?m)(?:^|\\n|")\s*[0-9a-f]{8}  ((?:[0-9a-f]{2} {1,2}){1,16}) *\|`)

// Bodies returns the concatenated bodies that are dumped in a log.
func Bodies(log []byte) (bodies []byte) {
	for _, line := range dumpLine.FindAllSubmatch(log, -1) {
		b, err := hex.DecodeString(strings.ReplaceAll(string(line[1]), " ", ""))
		if err != nil {
			panic(err) // impossible: the expression matches only hexadecimal digits
		}
		bodies = append(bodies, b...)
	}
	return bodies
}
