// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/notify"
)

// DefaultTemplate is the template of messages.
const DefaultTemplate = `{{with .Cluster}}{{.}}: {{end}}{{.Kind}} {{.Namespace}}/{{.Name}}: {{or .Message .What}}`

// maxText limits the text of a message, in bytes, to what all chats show in one message.
const maxText = 4000

// Text is what a template is executed with.
type Text struct {
	Cluster                    string // its name, if it is configured
	What                       string // such as Restarted
	Kind, Namespace, Name, UID string // of the workload
	Trigger                    string // the cause of a restart, such as Secret/db; empty for other events
	SourceKind, SourceName     string // of the source that is the trigger, such as Secret and db; empty if none is
	RequestedBy                string // the user who asked for a restart; empty if none did
	Message                    string // what happened and why, in a sentence; empty for some events
	Time                       time.Time
}

// fieldNames are the names of the fields of a Text.
var fieldNames = []string{"Cluster", "What", "Kind", "Namespace", "Name", "UID", "Trigger", "SourceKind", "SourceName", "RequestedBy", "Message", "Time"}

// field returns a field by its name; nil: there is none.
func (t *Text) field(name string) any {
	values := []any{t.Cluster, t.What, t.Kind, t.Namespace, t.Name, t.UID, t.Trigger, t.SourceKind, t.SourceName, t.RequestedBy, t.Message, t.Time}
	if i := slices.Index(fieldNames, name); i >= 0 {
		return values[i]
	}
	return nil
}

var (
	errLong  = fmt.Errorf("its text must have at most %d bytes", maxText)
	errEmpty = errors.New("its text must not be empty")
)

// parseTemplate parses a template, and executes it with a sample of each event, so that mistakes appear at the start.
func parseTemplate(text string, f *format, cluster string) (*messageTemplate, error) {
	if text == "" {
		text = DefaultTemplate
	}
	t, err := newTemplate(text)
	if err != nil {
		return nil, fmt.Errorf("must be a Go text/template with built-in functions only: %w", err)
	}
	for _, sample := range samples() {
		if _, err := run(t, f, cluster, &sample); err != nil {
			return nil, fmt.Errorf("fails for a sample of the event %s: %w", sample.What, err)
		}
	}
	return t, nil
}

// samples returns an event of each kind, and one of a restart that no source caused.
func samples() (all []notify.Event) {
	sample := notify.Event{
		Workload: dependency.WorkloadKey{Kind: "Deployment", Namespace: "default", Name: "web"},
		UID:      "00000000-0000-4000-8000-000000000000", At: time.Unix(1_700_000_000, 0).UTC(),
		Message: "Restarted because Secret/db has changed", Trigger: "Secret/db",
	}
	for _, what := range notify.Whats() {
		sample.What = what
		all = append(all, sample)
	}
	sample.What, sample.Trigger, sample.RequestedBy, sample.Message = notify.Restarted, "Request", "alice", "Restarted at the request of alice"
	return append(all, sample)
}

// execute returns the text for an event, which ends early if it is too long.
func (s *Sink) execute(e *notify.Event) (string, error) {
	text, err := run(s.template, &s.format, s.cluster, e)
	switch {
	case errors.Is(err, errLong):
		return clip(text, maxText), nil
	case err != nil:
		return "", fmt.Errorf("executing the template for the event %s: %w", e.What, err)
	default:
		return text, nil
	}
}

// run executes a template. With errLong, it returns the beginning of the text, which is too long by at least one byte.
func run(t *messageTemplate, f *format, cluster string, e *notify.Event) (string, error) {
	out := limited{plain: f.plain}
	data := textOf(e, f.escape, cluster)
	err := t.execute(&out, &data)
	text := out.text.String()
	if err == nil && strings.TrimSpace(text) == "" {
		err = errEmpty
	}
	return text, err
}

func textOf(e *notify.Event, escape *strings.Replacer, cluster string) Text {
	kind, name, _ := e.Source()
	return Text{
		Cluster: cluster, What: string(e.What), Kind: string(e.Workload.Kind), Namespace: e.Workload.Namespace, Name: e.Workload.Name, UID: string(e.UID),
		Trigger: escape.Replace(e.Trigger), SourceKind: string(kind), SourceName: escape.Replace(name),
		RequestedBy: escape.Replace(e.RequestedBy), Message: escape.Replace(e.Message), Time: e.At.UTC(),
	}
}

// limited holds what a template writes, up to one byte more than a text may have. Then it stops the template.
type limited struct {
	text  strings.Builder
	plain bool // without asterisks
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	text := p
	if l.plain {
		text = bytes.ReplaceAll(p, []byte("*"), nil)
	}
	if left := maxText + 1 - l.text.Len(); len(text) >= left {
		l.text.Write(text[:left])
		return 0, errLong
	}
	l.text.Write(text)
	return len(p), nil
}

// clip returns a text that has at most the given number of bytes. If it is shortened, it ends with an ellipsis.
func clip(text string, limit int) string {
	const ellipsis = "…"
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(ellipsis)], "") + ellipsis
}
