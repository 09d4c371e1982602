// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// Each reason of a decision can be selected.
func TestReasons_AreAllThereAre(t *testing.T) {
	files, err := filepath.Glob("../../decide/*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for name, o := range parsed.Scope.Objects {
			spec, is := o.Decl.(*ast.ValueSpec)
			if !is || o.Kind != ast.Con || !strings.HasPrefix(name, "Reason") {
				continue
			}
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			if found++; !slices.Contains(reasons, value) && name != "ReasonCoveredByOwner" { // of a source
				t.Errorf("%s is not in the list", name)
			}
		}
	}
	if found < 40 {
		t.Errorf("%d reasons are found", found)
	}
}

// docs/api.md lists each reason.
func TestReasons_AreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range reasons {
		if !strings.Contains(string(text), "`"+reason+"`") {
			t.Errorf("docs/api.md does not list %s", reason)
		}
	}
}

func TestReasonsOf(t *testing.T) {
	allows := reasonsOf(append(kind.BuiltIn(), workloadtest.Preset("argo-rollout")))
	for _, reason := range []string{"OptedInStale", "ProgressDeadlineExceeded", "NotObserved", "FilesChanged", "Degraded"} {
		if err := allows(v1alpha1.FieldReason, reason); err != nil {
			t.Error(err)
		}
	}
	for _, reason := range []string{"", "optedinstale", "RoutesReady"} {
		if err := allows(v1alpha1.FieldReason, reason); err == nil || !strings.Contains(err.Error(), "use one of AgentFailed, ") {
			t.Errorf("the reason %q: error %v", reason, err)
		}
	}
	if err := allows(v1alpha1.FieldName, "any"); err != nil {
		t.Error(err)
	}
}
