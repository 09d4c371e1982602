// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/notify/webhook"
)

const head = "apiVersion: config.configdep.io/v1alpha1\nkind: Notifications\n"

// folder returns a folder with files, and the path of its file with destinations.
func folder(t *testing.T, config string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestRead(t *testing.T) {
	path := folder(t, head+`
destinations:
- name: audit
  format: generic
  url: https://audit.example.com/s3cret
- name: events
  format: generic
  urlFile: events-url
  keyFile: events-key
  source: https://clusters.example.com/eu-1
  events: [Restarted, RestartConflicted]
  namespaces: [shop, bank]
  timeout: 1m30ms
- name: oncall
  format: slack
  urlFile: ./events-url
  template: |
    {{.Name}}: {{.Message}}
    ---
  timeout: 3s
  proxy: http://proxy.example.com:3128
`, map[string]string{"events-url": "https://events.example.com/s3cret\n", "events-key": "s3cret\n\n"})
	if _, errs := Read(path, ""); len(errs) != 1 || !strings.HasSuffix(errs[0].Error(), `: destination "events": timeout: must be a duration from 1s to 1m, such as 10s`) {
		t.Fatalf("errors for more than a minute = %v", errs)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(content), "1m30ms", "1m", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []webhook.Config{{
		Name: "audit", Format: webhook.Generic, URL: "https://audit.example.com/s3cret", Events: DefaultEvents(),
	}, {
		Name: "events", Format: webhook.Generic, URL: "https://events.example.com/s3cret", Key: []byte("s3cret\n"),
		Source: "https://clusters.example.com/eu-1", Events: []notify.What{notify.Restarted, notify.RestartConflicted},
		Namespaces: []string{"shop", "bank"}, Timeout: time.Minute,
	}, {
		Name: "oncall", Format: webhook.Slack, URL: "https://events.example.com/s3cret", Template: "{{.Name}}: {{.Message}}\n---\n",
		Events: DefaultEvents(), Timeout: 3 * time.Second, Proxy: "http://proxy.example.com:3128",
	}}
	for _, cluster := range []string{"", "eu-1"} {
		got, errs := Read(path, cluster)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		for i := range want {
			want[i].Cluster = cluster
		}
		if cluster != "" {
			want[0].Source = "/configdep/eu-1" // of the others, one has its own, and one has none
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("destinations in the cluster %q (-want +got):\n%s", cluster, diff)
		}
	}
}

// A mistake stops the start, with the file, the destination and the field, and with what is allowed. No value is shown: it
// may be a secret in the wrong place.
func TestRead_ExplainsMistakesWithoutSecrets(t *testing.T) {
	const (
		urls    = "must be https://HOST/PATH or http://HOST/PATH, at most 4096 bytes, without spaces and line ends"
		fields  = "unknown field: must be one of name, format, url, urlFile, keyFile, source, template, events, namespaces, timeout, proxy"
		formats = "must be one of gchat, generic, slack, teams, text"
		names   = "must be a DNS label: at most 63 lower case letters, digits and hyphens"
	)
	one := func(fields string) string {
		return head + "destinations:\n- name: oncall\n  format: generic\n  url: https://s3cret.example.com\n" + fields
	}
	// with has a destination of the format slack with other fields.
	with := func(fields string) string {
		return head + "destinations:\n- {name: oncall, format: slack, " + fields + "}\n"
	}
	many := head + "destinations:\n"
	for i := range maxDestinations + 1 {
		many += fmt.Sprintf("- {name: d%d, format: slack, url: 'https://s3cret.example.com'}\n", i)
	}
	for name, tt := range map[string]struct {
		config string
		want   []string
	}{
		"an empty file":        {"", []string{"apiVersion: must be config.configdep.io/v1alpha1", "kind: must be Notifications", "destinations: must have 1 to 16 elements"}},
		"comments":             {"# s3cret\n---\n", []string{"apiVersion: must be config.configdep.io/v1alpha1", "kind: must be Notifications", "destinations: must have 1 to 16 elements"}},
		"another version":      {strings.Replace(one(""), "v1alpha1", "v1", 1), []string{"apiVersion: must be config.configdep.io/v1alpha1"}},
		"another kind":         {strings.Replace(one(""), "Notifications", "s3cret", 1), []string{"kind: must be Notifications"}},
		"no destination":       {head, []string{"destinations: must have 1 to 16 elements"}},
		"too many":             {many, []string{"destinations: must have 1 to 16 elements"}},
		"a large file":         {one("# " + strings.Repeat("x", maxFile)), []string{"must have at most 262144 bytes"}},
		"two documents":        {one("") + "---\n" + one(""), []string{"must have one YAML document"}},
		"no mapping":           {"https://s3cret.example.com", []string{"must be a mapping"}},
		"a list":               {"- s3cret", []string{"must be a mapping"}},
		"no YAML":              {one("  events: [s3cret"), []string{"must be valid YAML: line 7: did not find expected ',' or ']'"}},
		"a tab":                {one("\tevents: []"), []string{"must be valid YAML: line 7: found a tab character that violates indentation"}},
		"a URL as anchor":      {one("  source: *https://s3cret"), []string{"must be valid YAML"}},
		"an unknown anchor":    {one("  source: *s3cret"), []string{"must be valid YAML"}},
		"a mapping as key":     {one("  {s3cret: s3cret}: x"), []string{"must be valid YAML"}},
		"null as key":          {one("  null: s3cret"), []string{"must be valid YAML"}},
		"a field twice":        {one("  format: slack"), []string{`must be valid YAML: line 7: key "format" is there twice`}},
		"a secret twice":       {one("  s3cret/x: 1\n  s3cret/x: 2"), []string{"must be valid YAML"}},
		"an unknown field":     {one("  ulr: s3cret"), []string{"destinations[0].ulr: " + fields}},
		"a field in capitals":  {one("  URL: s3cret"), []string{"destinations[0].URL: " + fields}},
		"a URL as field":       {one("  https://s3cret.example.com: x"), []string{fields}},
		"an unknown top field": {one("") + "destination: []", []string{"destination: unknown field: must be one of kind, apiVersion, destinations"}},
		"several unknown":      {one("  a: 1\n  b: 2"), []string{"destinations[0].a: " + fields, "destinations[0].b: " + fields}},
		"a URL as list":        {one("  events: https://s3cret.example.com"), []string{"destinations.events: must be a list"}},
		"a number as time":     {one("  timeout: 10"), []string{"destinations.timeout: must be a string"}},
		"a list as source":     {one("  source: [s3cret]"), []string{"destinations.source: must be a string"}},
		"a text as target":     {head + "destinations: [s3cret]", []string{"destinations: must be a mapping"}},
		"an empty target":      {head + "destinations: [null]", []string{"destinations[0]: url: must be set, unless urlFile is", "destinations[0]: name: " + names, "destinations[0]: format: " + formats}},

		"no name":             {strings.Replace(one(""), "oncall", "''", 1), []string{"destinations[0]: name: " + names}},
		"a URL as name":       {strings.Replace(one(""), "oncall", "https://s3cret.example.com", 1), []string{"destinations[0]: name: " + names}},
		"a reserved name":     {strings.Replace(one(""), "oncall", "alert", 1), []string{`destination "alert": name: must not be alert, which is the destination of the variable ALERT_ON_RELOAD`}},
		"a name twice":        {one("- {name: oncall, format: slack, url: 'https://s3cret.example.com'}"), []string{"destinations[1]: name: must be unique"}},
		"no format":           {strings.Replace(one(""), "generic", "''", 1), []string{`destination "oncall": format: ` + formats}},
		"another format":      {strings.Replace(one(""), "generic", "s3cret", 1), []string{`destination "oncall": format: ` + formats}},
		"no URL":              {with("url: ''"), []string{`destination "oncall": url: must be set, unless urlFile is`}},
		"both URLs":           {with("url: 'https://s3cret.example.com', urlFile: url"), []string{`destination "oncall": url: excludes urlFile: set one of them`}},
		"an invalid URL":      {with("url: s3cret.example.com"), []string{`destination "oncall": url: ` + urls}},
		"no such file":        {with("urlFile: nowhere"), []string{`destination "oncall": urlFile: cannot be read: no such file or directory`}},
		"a URL as file":       {with("urlFile: 'https://s3cret.example.com'"), []string{`destination "oncall": urlFile: cannot be read: no such file or directory`}},
		"a folder":            {with("urlFile: ."), []string{`destination "oncall": urlFile: cannot be read: is a directory`}},
		"a large URL file":    {with("urlFile: large"), []string{`destination "oncall": urlFile: must have at most 8192 bytes`}},
		"an endless URL file": {with("urlFile: /dev/zero"), []string{`destination "oncall": urlFile: must have at most 8192 bytes`}},
		"two lines":           {with("urlFile: lines"), []string{`destination "oncall": urlFile: its content ` + urls}},
		"an empty URL file":   {with("urlFile: empty"), []string{`destination "oncall": urlFile: its content ` + urls}},
		"an empty key":        {one("  keyFile: empty"), []string{`destination "oncall": keyFile: its content must have 1 to 4096 bytes; without a key, nothing is signed`}},
		"a long key":          {one("  keyFile: long"), []string{`destination "oncall": keyFile: its content must have 1 to 4096 bytes; without a key, nothing is signed`}},
		"no key file":         {one("  keyFile: /nowhere/s3cret"), []string{`destination "oncall": keyFile: cannot be read: no such file or directory`}},
		"a key for slack":     {with("url: 'https://s3cret.example.com', keyFile: lines"), []string{`destination "oncall": keyFile: requires the format generic: the format slack has no signature`}},
		"a source for slack":  {with("url: 'https://s3cret.example.com', source: /x"), []string{`destination "oncall": source: requires the format generic: the format slack has no source`}},
		"an invalid source":   {one("  source: https://s3cret%zz"), []string{`destination "oncall": source: must be a URI reference, such as /configdep, at most 1024 bytes`}},
		"a template":          {one("  template: s3cret"), []string{`destination "oncall": template: requires a format other than generic, which has no text`}},
		"a template's syntax": {with("url: 'https://s3cret.example.com', template: '{{.Name'"), []string{`destination "oncall": template: must be a Go text/template with built-in functions only: template: message:1: unclosed action`}},
		"a template's field": {with("url: 'https://s3cret.example.com', template: '{{.Labels}}'"),
			[]string{`destination "oncall": template: fails for a sample of the event Restarted: .Labels is no field: must be one of .Cluster, .What, .Kind, .Namespace, .Name, .UID, .Trigger, .SourceKind, .SourceName, .RequestedBy, .Message, .Time`}},
		"an unknown event": {one("  events: [Restarted, s3cret]"), []string{`destination "oncall": events[1]: must be one of Restarted, ContentChanged, FieldsSet, WouldRestart, RestartFailed, RestartConflicted, RestartWaits, LookUpFailed, RecordFailed, Reverted, SwitchedOff, Approval, PodsFailing, PodRestarting, PodRestarted, ` +
			`InvalidAnnotation, TooManyPatterns, StrategyNotAllowed, TooManySources, SourceMissing, FieldsNotAllowed, FieldConflict, FieldsRefused`}},
		"a pattern":      {one("  namespaces: ['s3cret-*']"), []string{`destination "oncall": namespaces[0]: must be the name of a namespace; patterns are not supported`}},
		"no duration":    {one("  timeout: s3cret"), []string{`destination "oncall": timeout: must be a duration from 1s to 1m, such as 10s`}},
		"too short":      {one("  timeout: 999ms"), []string{`destination "oncall": timeout: must be a duration from 1s to 1m, such as 10s`}},
		"a negative one": {one("  timeout: -1s"), []string{`destination "oncall": timeout: must be a duration from 1s to 1m, such as 10s`}},
		"a proxy":        {one("  proxy: s3cret.example.com:3128"), []string{`destination "oncall": proxy: must be http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT, at most 4096 bytes, without spaces and line ends`}},
		"several at once": {one("  timeout: 1h\n- {name: other, format: s3cret, url: s3cret}"), []string{
			`destination "oncall": timeout: must be a duration from 1s to 1m, such as 10s`, `destination "other": url: ` + urls, `destination "other": format: ` + formats,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			path := folder(t, tt.config, map[string]string{
				"empty": "\n", "lines": "https://s3cret.example.com\nhttps://s3cret.example.org\n",
				"long": strings.Repeat("s3cret", 1000), "large": strings.Repeat("x", maxSecretFile+1), "url": "https://s3cret.example.com",
			})
			configs, errs := Read(path, "")
			if configs != nil {
				t.Errorf("with an error, destinations = %v", configs)
			}
			var got, want []string
			for _, err := range errs {
				if strings.Contains(err.Error(), "s3cret") {
					t.Errorf("the error contains a secret: %v", err)
				}
				got = append(got, err.Error())
			}
			for _, w := range tt.want {
				want = append(want, path+": "+w)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRead_MissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none")
	if _, errs := Read(path, ""); len(errs) != 1 || errs[0].Error() != path+": cannot be read: no such file or directory" {
		t.Errorf("errors = %v", errs)
	}
}

// Each event was considered: it is sent by default, or there is a reason why it is not.
func TestDefaultEvents_WereChosen(t *testing.T) {
	not := []notify.What{
		notify.RestartConflicted,                  // decided again at once
		notify.RestartWaits,                       // a restart proceeds as it should
		notify.PodRestarting, notify.PodRestarted, // the restart of the workload is sent
		notify.LookUpFailed, notify.RecordFailed, // they prepare a restart, and are tried again
	}
	var got []notify.What
	for _, what := range notify.Whats() {
		for _, some := range [][]notify.What{DefaultEvents(), not} {
			for _, one := range some {
				if one == what {
					got = append(got, what)
				}
			}
		}
	}
	if diff := cmp.Diff(notify.Whats(), got); diff != "" {
		t.Errorf("events that are listed once (-want +got):\n%s", diff)
	}
}
