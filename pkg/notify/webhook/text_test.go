// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/metrics"
	"github.com/configdep/configdep/pkg/notify"
)

// A template with a mistake stops the start, or it would fail when it is needed.
func TestParseTemplate_RefusesMistakes(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"syntax":             {"{{.Name", "must be a Go text/template with built-in functions only"},
		"unknown function":   {"{{upper .Name}}", `function "upper" not defined`},
		"unknown field":      {"{{.Labels}}", ".Labels is no field: must be one of .Cluster, .What, .Kind"},
		"in one event only":  {`{{if eq .What "SourceMissing"}}{{.Nope}}{{end}}x`, "fails for a sample of the event SourceMissing"},
		"for a request":      {`{{if .SourceKind}}x{{else}}{{.Nope}}{{end}}`, "fails for a sample of the event Restarted"},
		"no text":            {" \n", "its text must not be empty"},
		"too long":           {strings.Repeat("x", maxText+1), "its text must have at most 4000 bytes"},
		"too long in parts":  {`{{$x := printf "%4000s" "x"}}{{$x}}{{$x}}`, "its text must have at most 4000 bytes"},
		"a loop":             {"{{if .Nothing}}{{range 5000}}x{{end}}{{end}}", "range cannot be used: only if, with, else, variables and functions can"},
		"another template":   {`{{define "x"}}x{{template "x"}}{{end}}{{template "x"}}`, "define cannot be used"},
		"one that is absent": {`{{with .Name}}{{template "x"}}{{end}}`, "template cannot be used"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(Config{Name: "oncall", URL: secretURL, Format: Slack, Template: tt.text})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestTemplate_HasAllOfAnEvent(t *testing.T) {
	r := send(t, Config{Format: Slack, Template: `{{.What}} {{.Kind}} {{.Namespace}} {{.Name}} {{.UID}} {{.Trigger}} {{.SourceKind}} {{.SourceName}} {{.Message}} {{.Time.Format "15:04"}}`}, restarted("web"))[0]
	const want = `{"text":"Restarted Deployment shop web 5f0b1c1e-0000-4000-8000-000000000001 Secret/db Secret db Restarted because Secret/db has changed 03:04"}`
	if diff := cmp.Diff(want, string(r.body)); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

// Only a source has a kind and a name.
func TestTemplate_WithoutASource(t *testing.T) {
	e := restarted("web")
	e.Trigger = "Request"
	r := send(t, Config{Format: Slack, Template: `{{.Trigger}} {{with .SourceKind}}of a {{.}}{{else}}of a user{{end}}{{.SourceName}}`}, e)[0]
	if got, want := string(r.body), `{"text":"Request of a user"}`; got != want {
		t.Errorf("body = %s, want %s", got, want)
	}
}

// Receivers of plain text would show the asterisks with which templates for chats emphasize words. Nothing else changes.
func TestPlainText_WithoutEmphasis(t *testing.T) {
	e := restarted("web")
	e.Message = "<!channel> *[a](b)* & all of ConfigMap/feature-*"
	if got, want := string(send(t, Config{Format: PlainText, Template: "*{{.Name}}*: {{.Message}}"}, e)[0].body), "web: <!channel> [a](b) & all of ConfigMap/feature-"; got != want {
		t.Errorf("body = %q, want %q", got, want)
	}
	_, err := New(Config{Name: "oncall", URL: secretURL, Format: PlainText, Template: "***"})
	if err == nil || !strings.Contains(err.Error(), "its text must not be empty") {
		t.Errorf("error for a template of asterisks = %v", err)
	}
	s := mustNew(t, Config{Format: PlainText, Template: "{{.Message}}"})
	for length, shortened := range map[int]bool{maxText: false, maxText + 1: true} {
		e.Message = strings.Repeat("*m", length)
		text, err := s.execute(&e)
		if err != nil || len(text) != maxText || strings.HasSuffix(text, "…") != shortened || strings.Contains(text, "*") {
			t.Errorf("a text of %d bytes besides asterisks has %d, %v", length, len(text), err)
		}
	}
}

// A conflict has no message.
func TestDefaultTemplate_WithoutAMessage(t *testing.T) {
	e := restarted("web")
	e.What, e.Message = notify.RestartConflicted, ""
	if got, want := string(send(t, Config{Format: Slack}, e)[0].body), `{"text":"Deployment shop/web: RestartConflicted"}`; got != want {
		t.Errorf("body = %s, want %s", got, want)
	}
}

// Several clusters may send to the same chat.
func TestDefaultTemplate_NamesTheCluster(t *testing.T) {
	r := send(t, Config{Format: Slack, Cluster: "eu-1"}, restarted("web"))[0]
	if got, want := string(r.body), `{"text":"eu-1: Deployment shop/web: Restarted because Secret/db has changed"}`; got != want {
		t.Errorf("body = %s, want %s", got, want)
	}
}

func TestExecute_BoundsTheText(t *testing.T) {
	s := mustNew(t, Config{Format: GoogleChat, Template: "{{.Message}}{{.Message}}"})
	for length, want := range map[int]int{maxText / 2: maxText, maxText/2 + 1: maxText, 50_000: maxText} {
		e := restarted("web")
		e.Message = strings.Repeat("m", length)
		text, err := s.execute(&e)
		if err != nil || len(text) != want || strings.HasSuffix(text, "…") != (length > maxText/2) {
			t.Errorf("with a message of %d bytes: %d bytes, %v, want %d", length, len(text), err, want)
		}
	}
	e := restarted("web")
	e.Message = "m" + strings.Repeat("é", 5000)
	if text, err := s.execute(&e); err != nil || !utf8.ValidString(text) || len(text) > maxText {
		t.Errorf("a character is cut in %d bytes, %v", len(text), err)
	}
}

func TestClip(t *testing.T) {
	for text, want := range map[string]string{"": "", "1234": "1234", "12345": "12345", "123456": "12…", "1éxxx": "1…", "12xéx": "12…"} {
		if got := clip(text, 5); got != want {
			t.Errorf("clip(%q, 5) = %q, want %q", text, got, want)
		}
	}
}

// What no sample showed is counted and logged, and the next event is sent.
func TestSink_TemplateFailsLater(t *testing.T) {
	for name, tt := range map[string]struct{ template, want string }{
		"error":   {"{{slice .Name 0 3}}", `executing the template for the event Restarted: `},
		"no text": {`{{if ne .Name "db"}}x{{end}}`, "its text must not be empty"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, _ := logs(t)
			d := statuses(200)
			s := mustNew(t, Config{Format: Slack, Template: tt.template, Transport: d})
			e := restarted("db")
			result, err := s.deliver(ctx, &e)
			if result != metrics.NotificationInvalid || err == nil || !strings.Contains(err.Error(), tt.want) || len(d.received()) > 0 {
				t.Errorf("result = %s, %v, want invalid, %q", result, err, tt.want)
			}
		})
	}
}
