// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package search

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
)

func TestForms(t *testing.T) {
	const text = "swordfish>>>???"
	for _, before := range []string{"", "a", "ab", "abc", "\xff\xfe"} {
		for name, where := range map[string]string{
			"unencoded":       before + text + "end",
			"standard base64": base64.StdEncoding.EncodeToString([]byte(before + text + "end")),
			"URL base64":      base64.RawURLEncoding.EncodeToString([]byte(before + text + "end")),
		} {
			found := false
			for _, form := range Forms(text) {
				found = found || len(Find([]byte(where), form)) > 0
			}
			if !found {
				t.Errorf("%s, after %q: not found in %q", name, before, where)
			}
		}
	}
}

func TestFind(t *testing.T) {
	if at := Find([]byte("xabxxab"), "ab"); len(at) != 2 || at[0] != 1 || at[1] != 5 {
		t.Errorf("offsets = %v, want 1 and 5", at)
	}
	if at := Find([]byte(strings.Repeat("ab", 100)), "ab"); len(at) != 5 {
		t.Errorf("%d offsets, want 5", len(at))
	}
	if at := Find([]byte("xyz"), "ab"); at != nil {
		t.Errorf("offsets = %v, want none", at)
	}
}

// Bodies are found in logs in text and in JSON.
func TestBodies(t *testing.T) {
	const body = "k8s\x00 a body that is longer than one line"
	dump := "\t" + strings.ReplaceAll(hex.Dump([]byte(body)), "\n", "\n\t")
	line, err := json.Marshal(map[string]string{"msg": "Response Body", "body": hex.Dump([]byte(body))})
	if err != nil {
		t.Fatal(err)
	}
	for name, log := range map[string]string{
		"text": "I1125 00:00:00 request.go:1 \"Response Body\" body=<\n" + dump + " >\nI1125 00:00:00 x.go:1 \"next\"\n",
		"JSON": string(line) + "\n",
	} {
		if got := string(Bodies([]byte(log))); got != body {
			t.Errorf("%s: bodies = %q in\n%s", name, got, log)
		}
	}
	if got := Bodies([]byte("00000000 nothing of the kind\n")); len(got) > 0 {
		t.Errorf("bodies = %q, want none", got)
	}
}
