// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"
)

// sampleText is what the templates of these tests are executed with.
func sampleText() *Text {
	return &Text{
		Cluster: "eu-1", What: "Restarted", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "5f0b",
		Trigger: "Secret/db", SourceKind: "Secret", SourceName: "db", Message: "it's <new> & \u00e9", Time: time.Unix(1_700_000_000, 5).UTC(),
	}
}

// both executes a template, also by package text/template.
func both(text string) (got, want string, err, wantErr error) {
	t, err := newTemplate(text)
	if err == nil {
		var out limited
		err = t.execute(&out, sampleText())
		got = out.text.String()
	}
	reference, wantErr := template.New("message").Parse(text)
	if wantErr == nil {
		var out bytes.Buffer
		wantErr = reference.Execute(&out, *sampleText())
		want = out.String()
	}
	return got, want, err, wantErr
}

var validTemplates = []string{
	"", "text", DefaultTemplate, "{{/* comment */}}x", "a {{- .Name -}} b", "{{.}}",
	"{{.Cluster}} {{.What}} {{.Kind}} {{.Namespace}} {{.Name}} {{.UID}} {{.Trigger}} {{.SourceKind}} {{.SourceName}} {{.RequestedBy}} {{.Message}} {{.Time}}",
	"{{if .RequestedBy}}a{{else if .Trigger}}b{{else}}c{{end}}", "{{if not .Trigger}}a{{end}}b", "{{with .RequestedBy}}{{.}}{{else with .Name}}{{.}} {{$.Kind}}{{end}}",
	"{{$x := .Name}}{{$x}}{{$x = .Kind}}{{$x}}", "{{with $x := .Name}}{{$x}}{{end}}", "{{$x := 1}}{{if true}}{{$x := 2}}{{$x}}{{$x = 3}}{{end}}{{$x}}",
	"{{$t := .Time}}{{$t.Unix}}", "{{$ := 1}}{{$}}", `{{.Time.Format "15:04"}}`, `{{with .Time}}{{.Format "2006"}}{{end}}`, `{{$.Time.Unix}}`, `{{"2006-01-02" | .Time.Format}}`,
	`{{or .RequestedBy "none"}}`, "{{and .Name .RequestedBy .Nope}}", "{{or .Name .Nope}}", "{{.Name | or .RequestedBy}}", "{{and 1 0}}",
	`{{eq .Kind "Deployment"}}`, `{{eq .Kind "A" "Deployment"}}`, `{{eq .Kind "A" "B"}}`, `{{ne .Kind "A"}}`, "{{lt 1 2}} {{le 2 2}} {{gt 1 2}} {{ge 2 1}} {{lt .Kind .Name}}",
	"{{len .Name}} {{slice .Name 1}} {{slice .Name 1 2}} {{slice .Name}}", "{{print .Name 1 2 true}} {{println .Name}}",
	`{{printf "%s is %q of %d, %v" .Name .Kind 3 .Time}}`, "{{printf `%05.1f` 2.5}}", "{{urlquery .Message}}", "{{.Message | printf `%.3s` | len}}", "{{(print .Name .Kind) | len}}",
	"{{if eq .What `Restarted`}}{{if and .SourceKind (ne .SourceName `x`)}}y{{end}}{{end}}", "{{true}} {{1}} {{`raw`}} {{'x'}} {{1.5}}", "{{(.Time).Unix | print}}",
}

var invalidTemplates = []string{
	"{{$x = 1}}", "{{.Nope}}", "{{.Name.Nope}}", "{{.Name 1}}", "{{with .Name}}{{.Kind}}{{end}}", "{{.Time.Format}}", "{{.Time.Format 1}}", "{{.Time.Unix 1}}", "{{nil}}", "{{eq .Name}}",
	"{{eq .Name 1}}", "{{lt .Name 1}}", "{{lt 1}}", "{{len 1}}", "{{len}}", "{{slice .Name 2 1}}", "{{slice .Name 9}}", "{{slice .Name `a`}}", "{{slice 1}}", "{{not}}", "{{not 1 2}}",
	"{{and}}", "{{or}}", "{{printf}}", "{{upper .Name}}", "{{.Name", "{{if}}{{end}}", "{{1 | 2}}", "{{slice .Name -1}}", "{{slice .Name 0 1 2}}",
}

// Templates mean what they mean in package text/template.
func TestTemplate_AsInTextTemplate(t *testing.T) {
	for _, text := range validTemplates {
		if got, want, err, wantErr := both(text); err != nil || wantErr != nil || got != want {
			t.Errorf("%s: %q, %v; want %q, %v", text, got, err, want, wantErr)
		}
	}
	for _, text := range invalidTemplates {
		if got, want, err, wantErr := both(text); err == nil || wantErr == nil {
			t.Errorf("%s: %q, %v and %q, %v; want errors", text, got, err, want, wantErr)
		}
	}
}

// FuzzTemplate: what is executed here, text/template executes with the same result.
func FuzzTemplate(f *testing.F) {
	for _, text := range append(validTemplates, invalidTemplates...) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, want, err, wantErr := both(text)
		if err == nil && (wantErr != nil || got != want) && !strings.Contains(text, "%") { // fmt prints types otherwise
			t.Errorf("%q: %q; want %q, %v", text, got, want, wantErr)
		}
	})
}

// Templates can use every field of a Text.
func TestText_Fields(t *testing.T) {
	text := reflect.ValueOf(*sampleText())
	var names []string
	for i := range text.NumField() {
		name := text.Type().Field(i).Name
		if got := sampleText().field(name); got != text.Field(i).Interface() {
			t.Errorf("field %s = %v, want %v", name, got, text.Field(i))
		}
		names = append(names, name)
	}
	if !slices.Equal(names, fieldNames) {
		t.Errorf("names = %q, want %q", fieldNames, names)
	}
}
