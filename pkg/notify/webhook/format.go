// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/configdep/configdep/pkg/notify"
)

// Format is the form in which a destination expects events.
type Format string

// The values of Format.
const (
	Generic    Format = "generic" // CloudEvents 1.0, in the structured JSON format
	Slack      Format = "slack"   // an incoming webhook of Slack, or of a chat that accepts the same
	Teams      Format = "teams"   // a workflow of Microsoft Teams that posts the cards it receives
	GoogleChat Format = "gchat"   // an incoming webhook of Google Chat
	PlainText  Format = "text"    // the text of a message, and nothing else
)

// Formats returns all formats.
func Formats() []Format { return slices.Sorted(maps.Keys(formats)) }

// format is how events are encoded.
type format struct {
	contentType string
	// message returns the body for a text. Nil: the event is sent as a CloudEvent.
	message func(text string) ([]byte, error)
	// escape changes values of an event so that they cannot mention users or disguise links: messages may contain the
	// text of annotations, which tenants write.
	escape *strings.Replacer
	// plain removes the asterisks with which templates emphasize words, because this format shows them as they are.
	plain bool
}

var formats = map[Format]format{
	Generic: {contentType: "application/cloudevents+json"},
	// https://docs.slack.dev/messaging/formatting-message-text#escaping. Mattermost and Rocket.Chat, which accept the same
	// format, also have links of Markdown, and take @all for a mention: an invisible word joiner separates the two.
	Slack: {contentType: "application/json", message: textMessage, escape: strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "](", "] (", "@", "@\u2060")},
	// A card mentions only the users that it lists besides its text, but its text can have links, [text](URL).
	Teams: {contentType: "application/json", message: cardMessage, escape: strings.NewReplacer("](", "] (")},
	// Google Chat has no way to escape <users/all> and <URL|text>.
	GoogleChat: {contentType: "application/json; charset=UTF-8", message: textMessage, escape: strings.NewReplacer("<", "‹", ">", "›")},
	// In plain text, nothing has a meaning.
	PlainText: {contentType: "text/plain; charset=utf-8", message: plainMessage, escape: strings.NewReplacer(), plain: true},
}

func plainMessage(text string) ([]byte, error) { return []byte(text), nil }

func textMessage(text string) ([]byte, error) {
	return json.Marshal(struct {
		Text string `json:"text"`
	}{text})
}

type (
	card struct {
		Type        string       `json:"type"`
		Attachments []attachment `json:"attachments"`
	}
	attachment struct {
		ContentType string       `json:"contentType"`
		Content     adaptiveCard `json:"content"`
	}
	adaptiveCard struct {
		Schema  string      `json:"$schema"`
		Type    string      `json:"type"`
		Version string      `json:"version"`
		Body    []textBlock `json:"body"`
	}
	textBlock struct {
		Type string `json:"type"`
		Text string `json:"text"`
		Wrap bool   `json:"wrap"`
	}
)

func cardMessage(text string) ([]byte, error) {
	return json.Marshal(card{Type: "message", Attachments: []attachment{{
		ContentType: "application/vnd.microsoft.card.adaptive",
		Content: adaptiveCard{
			Schema: "http://adaptivecards.io/schemas/adaptive-card.json", Type: "AdaptiveCard", Version: "1.4",
			Body: []textBlock{{Type: "TextBlock", Text: text, Wrap: true}},
		},
	}}})
}

// eventType begins the type of all CloudEvents, before the What.
const eventType = "io.configdep.workload."

// cloudEvent is an event in the JSON format of CloudEvents 1.0. Its fields, and the types, are an API.
type cloudEvent struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject"`
	Time            time.Time `json:"time"`
	DataContentType string    `json:"datacontenttype"`
	Data            data      `json:"data"`
}

type (
	data struct {
		What        notify.What `json:"what"`
		Workload    workload    `json:"workload"`
		Trigger     string      `json:"trigger"`
		RequestedBy string      `json:"requestedBy,omitempty"`
		Message     string      `json:"message"`
	}
	workload struct {
		Kind      string `json:"kind"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		UID       string `json:"uid"`
	}
)

// render returns the body of the requests for an event. It is called once for each event, so that the ID of a CloudEvent
// is the same in all attempts.
func (s *Sink) render(e *notify.Event) ([]byte, error) {
	if s.format.message != nil {
		text, err := s.execute(e)
		if err != nil {
			return nil, err
		}
		return s.format.message(text)
	}
	w := e.Workload
	return json.Marshal(cloudEvent{
		SpecVersion: "1.0", ID: uuid.NewString(), Source: s.source, Type: eventType + string(e.What),
		Subject: w.Namespace + "/" + string(w.Kind) + "/" + w.Name, Time: e.At.UTC(), DataContentType: "application/json",
		Data: data{
			What: e.What, Trigger: e.Trigger, RequestedBy: e.RequestedBy, Message: e.Message,
			Workload: workload{Kind: string(w.Kind), Namespace: w.Namespace, Name: w.Name, UID: string(e.UID)},
		},
	})
}
