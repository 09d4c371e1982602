// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// What is wrong is said in terms of the flags, of the file, and of the variables.
func TestNotifications(t *testing.T) {
	const (
		oncall  = "apiVersion: config.configdep.io/v1alpha1\nkind: Notifications\ndestinations:\n- {name: oncall, format: generic, url: 'https://s3cret.example.com'}\n"
		cluster = "--cluster-name must have at most 63 letters, digits, hyphens, underscores and dots, and begin and end with a letter or a digit"
		urls    = "must be https://HOST/PATH or http://HOST/PATH, at most 4096 bytes, without spaces and line ends"
	)
	for name, tt := range map[string]struct {
		file        string // FILE in what follows
		args        string
		environment map[string]string
		want        []string // names and sources of destinations
		errs        []string
	}{
		"nothing":                 {"", "", nil, nil, nil},
		"a cluster alone":         {"", "--cluster-name=eu-1", nil, nil, nil},
		"a file":                  {oncall, "--notifications-config=FILE", nil, []string{"oncall "}, nil},
		"a file and a cluster":    {oncall, "--notifications-config=FILE --cluster-name=prod_eu.1", nil, []string{"oncall /configdep/prod_eu.1"}, nil},
		"the environment":         {"", "", map[string]string{"ALERT_ON_RELOAD": "true", "ALERT_WEBHOOK_URL": "https://s3cret.example.com"}, []string{"alert "}, nil},
		"both":                    {oncall, "--notifications-config=FILE", map[string]string{"ALERT_ON_RELOAD": "true", "ALERT_WEBHOOK_URL": "https://s3cret.example.com"}, []string{"oncall ", "alert "}, nil},
		"variables that are off":  {"", "", map[string]string{"ALERT_ON_RELOAD": "yes", "ALERT_WEBHOOK_URL": "s3cret"}, nil, nil},
		"no such file":            {"", "--notifications-config=/nowhere", nil, nil, []string{"--notifications-config: /nowhere: cannot be read: no such file or directory"}},
		"an invalid file":         {oncall + "  {", "--notifications-config=FILE", nil, nil, []string{"--notifications-config: FILE: must be valid YAML: line 4: did not find expected key"}},
		"an invalid destination":  {strings.Replace(oncall, "https", "s3cret", 1), "--notifications-config=FILE", nil, nil, []string{`--notifications-config: FILE: destination "oncall": url: ` + urls}},
		"an invalid variable":     {"", "", map[string]string{"ALERT_ON_RELOAD": "true", "ALERT_WEBHOOK_URL": "s3cret"}, nil, []string{"ALERT_WEBHOOK_URL: " + urls}},
		"a URL as cluster":        {"", "--cluster-name=https://s3cret.example.com", nil, nil, []string{cluster}},
		"a long cluster":          {"", "--cluster-name=" + strings.Repeat("x", 64), nil, nil, []string{cluster}},
		"a cluster with a hyphen": {"", "--cluster-name=eu-", nil, nil, []string{cluster}},
		"the environment and FILE": {"", "--notifications-config=FILE", map[string]string{"ALERT_ON_RELOAD": "true"}, nil, []string{
			"--notifications-config: FILE: apiVersion: must be config.configdep.io/v1alpha1", "--notifications-config: FILE: kind: must be Notifications",
			"--notifications-config: FILE: destinations: must have 1 to 16 elements", "ALERT_WEBHOOK_URL: must be set, because ALERT_ON_RELOAD is true: " + urls,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(file, []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, variable := range []string{"ALERT_ON_RELOAD", "ALERT_SINK", "ALERT_WEBHOOK_URL", "ALERT_WEBHOOK_PROXY", "ALERT_ADDITIONAL_INFO"} {
				t.Setenv(variable, tt.environment[variable])
			}
			o := NewOptions()
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			for _, set := range o.Flags().FlagSets {
				fs.AddFlagSet(set)
			}
			if err := fs.Parse(strings.Fields("--kubeconfig=x --namespace=configdep-system " + strings.ReplaceAll(tt.args, "FILE", file))); err != nil {
				t.Fatal(err)
			}
			completed := o.Complete()
			var got, errs []string
			for _, d := range completed.Destinations() {
				got = append(got, d.Name+" "+d.Source)
			}
			if err := completed.Validate(); err != nil {
				errs = strings.Split(strings.ReplaceAll(err.Error(), file, "FILE"), "\n")
				if strings.Contains(err.Error(), "s3cret") {
					t.Errorf("the error contains a secret: %v", err)
				}
			}
			if diff := cmp.Diff(tt.errs, errs); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" && len(tt.errs) == 0 {
				t.Errorf("destinations (-want +got):\n%s", diff)
			}
		})
	}
}
