// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"regexp"
	"strings"
	"testing"
)

// The description of the project for security tools links to files and headings that exist.
func TestSecurityInsights(t *testing.T) {
	t.Parallel()
	links := regexp.MustCompile(`https://github\.com/configdep/configdep/blob/main/(\S+)`).FindAllStringSubmatch(read(t, "security-insights.yml"), -1)
	for _, found := range links {
		path, anchor, _ := strings.Cut(found[1], "#")
		if text := read(t, path); text == "" || anchor != "" && !anchors(text)[anchor] {
			t.Errorf("%s: no such file or heading", found[0])
		}
	}
	if len(links) < 10 {
		t.Errorf("found only %d links", len(links))
	}
}
