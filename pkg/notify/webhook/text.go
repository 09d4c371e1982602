// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"strings"
	"text/template"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/notify"
)

// DefaultTemplate is the template of messages.
const DefaultTemplate = `{{.Kind}} {{.Namespace}}/{{.Name}}: {{or .Message .What}}`

// maxText limits the text of a message, in bytes, to what all chats show in one message.
const maxText = 4000

// Text is what a template is executed with.
type Text struct {
	What                       string // such as Restarted
	Kind, Namespace, Name, UID string // of the workload
	Trigger                    string // the cause of a restart, such as Secret/db; empty for other events
	Message                    string // what happened and why, in a sentence; empty for some events
	Time                       time.Time
}

var (
	errLong  = fmt.Errorf("its text must have at most %d bytes", maxText)
	errEmpty = errors.New("its text must not be empty")
)

// parseTemplate parses a template, and executes it with a sample of each event, so that mistakes appear at the start.
func parseTemplate(text string, escape *strings.Replacer) (*template.Template, error) {
	if text == "" {
		text = DefaultTemplate
	}
	t, err := template.New("message").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("must be a Go text/template with built-in functions only: %w", err)
	}
	for _, what := range notify.Whats() {
		sample := notify.Event{
			What: what, Workload: dependency.WorkloadKey{Kind: "Deployment", Namespace: "default", Name: "web"},
			UID: "00000000-0000-4000-8000-000000000000", At: time.Unix(1_700_000_000, 0).UTC(),
			Message: "Restarted because Secret/db has changed", Trigger: "Secret/db",
		}
		var out limited
		err := t.Execute(&out, textOf(&sample, escape))
		if err == nil && strings.TrimSpace(out.text.String()) == "" {
			err = errEmpty
		}
		if err != nil {
			return nil, fmt.Errorf("fails for a sample of the event %s: %w", what, err)
		}
	}
	return t, nil
}

// execute returns the text for an event, which ends early if it is too long.
func execute(t *template.Template, escape *strings.Replacer, e *notify.Event) (string, error) {
	var out limited
	err := t.Execute(&out, textOf(e, escape))
	switch text := out.text.String(); {
	case errors.Is(err, errLong):
		return clip(text, maxText), nil
	case err != nil:
		return "", fmt.Errorf("executing the template for the event %s: %w", e.What, err)
	case strings.TrimSpace(text) == "":
		return "", fmt.Errorf("executing the template for the event %s: %w", e.What, errEmpty)
	default:
		return text, nil
	}
}

func textOf(e *notify.Event, escape *strings.Replacer) Text {
	return Text{
		What: string(e.What), Kind: string(e.Workload.Kind), Namespace: e.Workload.Namespace, Name: e.Workload.Name, UID: string(e.UID),
		Trigger: escape.Replace(e.Trigger), Message: escape.Replace(e.Message), Time: e.At.UTC(),
	}
}

// limited holds what a template writes, up to one byte more than a text may have. Then it stops the template.
type limited struct{ text strings.Builder }

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if left := maxText + 1 - l.text.Len(); len(p) >= left {
		n, _ := l.text.Write(p[:left])
		return n, errLong
	}
	return l.text.Write(p)
}

// clip returns a text that has at most the given number of bytes. If it is shortened, it ends with an ellipsis.
func clip(text string, limit int) string {
	const ellipsis = "…"
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(ellipsis)], "") + ellipsis
}
