// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The build script of OSS-Fuzz lists all fuzz targets.
func TestOSSFuzzHasAllTargets(t *testing.T) {
	t.Parallel()
	var want []string
	for _, file := range files(t, "*_test.go") {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(f.Name.Name, "Fuzz") {
				continue
			}
			want = append(want, "./"+filepath.Dir(file)+" "+f.Name.Name)
			if strings.HasSuffix(parsed.Name.Name, "_test") {
				t.Errorf("%s is in an external test package, which OSS-Fuzz cannot build", f.Name)
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), "hack/oss-fuzz/build.sh", "--list")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" || len(got) < 10 {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
}
