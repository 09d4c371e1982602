// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	serveroptions "github.com/configdep/configdep/pkg/apiserver/options"
)

// serverFlags returns the flags of the server, and its options.
func serverFlags() (*pflag.FlagSet, *serveroptions.Options) {
	o := serveroptions.NewOptions()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range o.Flags().FlagSets {
		fs.AddFlagSet(set)
	}
	return fs, o
}

// The server has all flags that become arguments, and accepts their values.
func TestConvert_ServerAcceptsFlags(t *testing.T) {
	inputs := map[string]string{}
	for name, tt := range conversions {
		inputs[name] = tt.in
	}
	for _, file := range []string{"everything", "defaults"} {
		text, err := os.ReadFile("testdata/" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		inputs[file] = string(text)
	}
	accepted := 0
	for name, in := range inputs {
		o := testOptions
		o.observe = true
		output, err := convert(parsedValues(t, in), o)
		if err != nil {
			t.Fatal(err)
		}
		values, comment := split(t, output)
		args, _ := values.(map[string]any)["extraArgs"].([]any)
		fs, server := serverFlags()
		list := []string{"--kubeconfig=x"}
		for _, arg := range args {
			list = append(list, arg.(string))
		}
		if err := fs.Parse(list); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := server.Complete().Validate(); err != nil {
			t.Errorf("%s: %q: %v", name, args, err)
		}
		accepted += len(args)
		for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(comment, -1) {
			if fs.Lookup(strings.TrimPrefix(flag, "--")) == nil && flag != "--namespace" { // that is helm's
				t.Errorf("%s: the comment names %s, which the server does not have", name, flag)
			}
		}
	}
	if accepted < len(inputs)+20 { // --observe is in all of them
		t.Errorf("only %d arguments", accepted)
	}
}

// docs/migration.md names only flags that exist, in the table of Reloader's flags all of which are accepted.
func TestMigration_NamesFlagsThatExist(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "### Flags of Reloader\n")
	if !found {
		t.Fatal("there is no table of flags")
	}
	table, _, _ = strings.Cut(table, "\n#")
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
	text, err := os.ReadFile(root + "/docs/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "### Values of Reloader's chart\n")
	if !found {
		t.Fatal("there is no table of values")
	}
	table, _, _ = strings.Cut(table, "\n#")
	older := regexp.MustCompile(`^(namespace|reloader\.(volumes|volumeMounts)|reloader\.deployment\.(image\..*|imagePullSecrets|automountServiceAccountToken))$`)
	for path := range rules {
		if older.MatchString(path) {
			continue // of earlier versions of the chart
		}
		named := func(path string) bool {
			short, in := strings.CutPrefix(path, "reloader.deployment.")
			return strings.Contains(table, "`"+path+"`") || strings.Contains(table, "`"+path+".*`") || in && strings.Contains(table, "`"+short+"`")
		}
		for parent := path; ; parent = parent[:strings.LastIndexByte(parent, '.')] {
			if named(parent) {
				break
			}
			if !strings.Contains(parent, ".") {
				t.Errorf("%s is not in the table", path)
				break
			}
		}
	}
}
