// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/window"
)

// The windows that annotations.md shows are valid as they stand there.
func TestWindows(t *testing.T) {
	text, err := os.ReadFile("../../docs/annotations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "```yaml\nmetadata:\n  annotations:\n    configdep.io/windows:")
	example, _, found := strings.Cut(after, "```")
	var of struct{ Windows string }
	if err := yaml.UnmarshalStrict([]byte("windows:"+example), &of); !found || err != nil {
		t.Fatalf("there is no example: %v", err)
	}
	if _, err := window.Parse(of.Windows); err != nil {
		t.Error(err)
	}
}
