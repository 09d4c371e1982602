// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package values

import (
	"encoding/json"
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

// startWith reports what is wrong with arguments of the server.
func startWith(args []string) error {
	fs, o := serverFlags()
	if err := fs.Parse(append(args, "--kubeconfig=x", "--namespace=configdep-system")); err != nil {
		return err
	}
	return o.Complete().Validate()
}

// The comment tells users to set only values that configdep's chart has, and flags that the server has.
func TestConvert_NamesWhatExists(t *testing.T) {
	content, err := os.ReadFile(root + "/artifacts/charts/configdep/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(content, &schema); err != nil {
		t.Fatal(err)
	}
	fs, _ := serverFlags()
	flags, values := regexp.MustCompile(`--[A-Za-z-]+`), regexp.MustCompile(`\b[a-z][A-Za-z]*(\.[a-z_][A-Za-z_]*)+\b`)
	named := map[string]bool{}
	for name, tt := range conversions {
		output, err := convert(parsedValues(t, tt.in), testOptions)
		if err != nil {
			t.Fatal(err)
		}
		_, comment := split(t, output)
		for note := range strings.SplitSeq(comment, " - ") { // a note begins with values of Reloader's chart
			_, text, _ := strings.Cut(note, ": ")
			text = regexp.MustCompile(`https://\S+`).ReplaceAllString(text, "")
			for _, flag := range flags.FindAllString(text, -1) {
				if flag != "--namespace" && fs.Lookup(strings.TrimPrefix(flag, "--")) == nil { // which is one of helm
					t.Errorf("%s: the comment names %s, which the server does not have", name, flag)
				}
			}
			for _, value := range values.FindAllString(text, -1) {
				if strings.HasPrefix(value, "reloader.") || value == "app.kubernetes.io" { // values of Reloader's chart, and a label
					continue
				}
				named[value] = true
				if at(schema, "properties."+strings.ReplaceAll(value, ".", ".properties.")) == nil {
					t.Errorf("%s: the comment names %s, which configdep's chart does not have", name, value)
				}
			}
		}
	}
	if len(named) < 8 {
		t.Errorf("found only the values %v", named)
	}
}

// All flags of Reloader in docs/migrate.md exist here.
func TestMigration_NamesFlagsThatExist(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/migrate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n### Flags of Reloader\n")
	table, _, _ = strings.Cut(table, "\n#")
	fs, _ := serverFlags()
	named := regexp.MustCompile("`--([A-Za-z-]+)").FindAllStringSubmatch(table, -1)
	for _, flag := range named {
		if fs.Lookup(flag[1]) == nil {
			t.Errorf("--%s does not exist", flag[1])
		}
	}
	if len(named) < 30 {
		t.Errorf("found only %d flags", len(named))
	}
}
