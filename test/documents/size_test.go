// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"regexp"
	"strings"
	"testing"
)

// The documents stay short enough to be read: what people write in README.md and docs has at most 35,000 words, and no page but references has more than
// 2,500.
func TestDocuments_Size(t *testing.T) {
	t.Parallel()
	generated := regexp.MustCompile(`(?s)<!-- (generated|presets) -->.*?<!-- (/generated|end of presets) -->`)
	references := map[string]bool{"docs/annotations.md": true, "docs/api.md": true, "docs/kinds.md": true}
	total := 0
	for file, text := range documents(t) {
		if file != "README.md" && !strings.HasPrefix(file, "docs/") {
			continue
		}
		words := 0
		for word := range strings.FieldsSeq(generated.ReplaceAllString(text, "")) {
			if strings.Trim(word, "|-") != "" { // what separates the cells of tables is no word
				words++
			}
		}
		if total += words; words > 2500 && !references[file] {
			t.Errorf("%s has %d words; at most 2,500 are allowed", file, words)
		}
	}
	if total > 35_000 || total < 10_000 {
		t.Errorf("the documents have %d words; at most 35,000 are allowed", total)
	}
}
