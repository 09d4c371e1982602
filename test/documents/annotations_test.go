// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// The table of annotations on workloads and namespaces has each of them, in the place where it may be: the message on an unknown annotation names
// all that there are.
func TestTableOfAnnotations(t *testing.T) {
	t.Parallel()
	const unknown = "configdep.io/no-such-annotation"
	known := func(a policy.Annotated) []string {
		t.Helper()
		for _, problem := range policy.NewPolicy(a, policy.Defaults{}).Problems {
			if _, all, found := strings.Cut(problem, ": must be one of "); found {
				return sorted(strings.Split(all, ", "))
			}
		}
		t.Fatal("no message names the annotations")
		return nil
	}
	onWorkloads, onNamespaces := known(policy.Annotated{Workload: map[string]string{unknown: ""}}), known(policy.Annotated{Namespace: map[string]string{unknown: ""}})
	var workloads, namespaces []string
	for _, row := range rows(t, "annotations") {
		name := strings.Trim(row[0], "`")
		workloads = append(workloads, name)
		if row[1] == "yes" {
			namespaces = append(namespaces, name)
		}
	}
	if diff := cmp.Diff(onWorkloads, sorted(workloads)); diff != "" {
		t.Errorf("on workloads (-code +document):\n%s", diff)
	}
	if diff := cmp.Diff(onNamespaces, sorted(namespaces)); diff != "" {
		t.Errorf("on namespaces (-code +document):\n%s", diff)
	}
}

// The table of annotations on ConfigMaps and Secrets has each of them.
func TestTableOfAnnotationsOnSources(t *testing.T) {
	t.Parallel()
	var got []string
	for _, row := range rows(t, "sources") {
		got = append(got, strings.Trim(row[0], "`"))
	}
	if diff := cmp.Diff([]string{policy.IgnoreAnnotation, policy.MatchAnnotation, policy.AllowFieldsAnnotation}, got); diff != "" {
		t.Errorf("(-code +document):\n%s", diff)
	}
}

// The table of what configdep writes has each annotation that is its own, and no other.
func TestTableOfWrittenAnnotations(t *testing.T) {
	t.Parallel()
	var got []string
	for _, row := range rows(t, "written") {
		for _, found := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[0], -1) {
			got = append(got, found[1])
		}
	}
	for _, key := range slices.Concat(record.WorkloadMarks(), record.TemplateMarks()) {
		if !slices.Contains(got, key) {
			t.Errorf("the table lacks %s", key)
		}
	}
	for _, key := range got {
		if strings.HasPrefix(key, record.Prefix) && !record.IsOfWorkload(key) {
			t.Errorf("configdep does not write %s", key)
		}
	}
}

// rows returns the cells of the rows of a table of annotations.md, which is between the marks of a name.
func rows(t *testing.T, name string) (rows [][]string) {
	t.Helper()
	_, after, found := strings.Cut(documents(t)["docs/annotations.md"], "<!-- "+name+" -->\n")
	table, _, ends := strings.Cut(after, "<!-- /"+name+" -->\n")
	if !found || !ends {
		t.Fatalf("docs/annotations.md has no table of %s", name)
	}
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[2:] {
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), " | ") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		rows = append(rows, cells)
	}
	return rows
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}
