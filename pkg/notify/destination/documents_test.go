// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/notify/webhook"
)

func document(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("../../../docs/notifications.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// A user who copies a file of the document gets what the document says.
func TestDocument_ExamplesAreValid(t *testing.T) {
	examples := regexp.MustCompile("(?s)```yaml\n(apiVersion: config.*?)```").FindAllStringSubmatch(document(t), -1)
	if len(examples) < 2 {
		t.Fatalf("found only %d examples", len(examples))
	}
	for _, example := range examples {
		path := folder(t, example[1], map[string]string{
			"audit-url": "https://audit.example.com", "audit-key": "s3cret", "oncall-url": "https://chat.example.com",
		})
		if _, errs := Read(path, ""); len(errs) > 0 {
			t.Errorf("errors = %v of\n%s", errs, example[1])
		}
	}
}

// The tables of the document have all fields, events and formats, and say which events are sent by default.
func TestDocument_TablesAreComplete(t *testing.T) {
	text := document(t)
	for field := range reflect.TypeFor[Destination]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !strings.Contains(text, "\n| `"+name+"` |") {
			t.Errorf("the field %s is not in a table", name)
		}
	}
	for field := range reflect.TypeFor[webhook.Text]().Fields() {
		if !regexp.MustCompile("\n\\| [^|]*`\\." + field.Name + "`").MatchString(text) {
			t.Errorf("the field .%s is not in a table", field.Name)
		}
	}
	for _, format := range webhook.Formats() {
		if !strings.Contains(text, "`format: "+string(format)+"`") {
			t.Errorf("the format %s is not described", format)
		}
	}
	if !strings.Contains(text, "\n"+webhook.DefaultTemplate+"\n") {
		t.Error("the default template is another one")
	}
	got, want := map[notify.What]bool{}, map[notify.What]bool{}
	for _, what := range notify.Whats() {
		want[what] = false
	}
	for _, what := range DefaultEvents() {
		want[what] = true
	}
	_, events, _ := strings.Cut(text, "\n## Events\n")
	events, _, _ = strings.Cut(events, "\n## ")
	byDefault, others, _ := strings.Cut(events, "\nThese are sent only if `events` lists them:\n")
	for i, table := range []string{byDefault, others} {
		for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+`) \\| .+ \\|$").FindAllStringSubmatch(table, -1) {
			for _, event := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
				got[notify.What(event[1])] = i == 0
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events that are sent by default (-want +got):\n%s", diff)
	}
}
