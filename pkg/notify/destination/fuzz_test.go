// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"strings"
	"testing"
)

// Whatever is in the file, decoding it ends, and errors quote nothing that could be a URL.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"", head, head + "destinations: [{name: a, format: slack, url: 'https://a'}]", "---\n---\na: b", "a: &a [*a, *a]", "{a: b}: c",
		head + "destinations: [{https://a: b, timeout: 1}]", "a: 'b\n", "? [a]\n: b", "a: !!int https://b", "\xff", "null: https://a",
		"a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c,*c]",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		_, errs := decode([]byte(content))
		for _, err := range errs {
			if strings.Contains(err.Error(), "://") {
				t.Errorf("the error contains a URL: %v", err)
			}
		}
	})
}
