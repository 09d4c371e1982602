// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// textBelow returns the part of docs/migration.md below a heading.
func textBelow(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile(root + "/docs/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, below, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		t.Fatalf("there is no heading %s", heading)
	}
	below, _, _ = strings.Cut(below, "\n#")
	return below
}

// All flags of Reloader in docs/migration.md exist here.
func TestMigration_NamesFlagsThatExist(t *testing.T) {
	table := textBelow(t, "### Flags of Reloader")
	fs, _ := serverFlags()
	checked := 0
	for _, flag := range regexp.MustCompile("`--([A-Za-z-]+)").FindAllStringSubmatch(table, -1) {
		checked++
		if fs.Lookup(flag[1]) == nil {
			t.Errorf("--%s does not exist", flag[1])
		}
	}
	if checked < 30 {
		t.Errorf("found only %d flags", checked)
	}
}

// docs/migration.md names each value of Reloader's chart, or the map that it is in.
func TestMigration_NamesAllValues(t *testing.T) {
	table := textBelow(t, "### Values of Reloader's chart")
	older := regexp.MustCompile(`^(namespace|reloader\.(volumes|volumeMounts)|reloader\.deployment\.(image\..*|imagePullSecrets|automountServiceAccountToken))$`)
	named := func(path string) bool {
		names := []string{path, path + ".*"}
		if short, in := strings.CutPrefix(path, "reloader.deployment."); in {
			names = append(names, short)
		}
		return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(table, "`"+name+"`") })
	}
	for path := range rules {
		if older.MatchString(path) {
			continue // of earlier versions of the chart
		}
		of, found := path, named(path)
		for !found && strings.Contains(of, ".") {
			of = of[:strings.LastIndexByte(of, '.')]
			found = named(of)
		}
		if !found {
			t.Errorf("%s is not in the table", path)
		}
	}
}
