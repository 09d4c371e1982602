// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/configdep/configdep/pkg/metrics"
	"github.com/configdep/configdep/pkg/notify"
)

// send delivers events, and returns the requests.
func send(t *testing.T, c Config, events ...notify.Event) []request {
	t.Helper()
	ctx, _ := logs(t)
	d := statuses(200)
	c.Transport = d
	s := mustNew(t, c)
	for _, e := range events {
		if result, err := s.deliver(ctx, &e); result != metrics.NotificationDelivered {
			t.Fatalf("result = %s, %v", result, err)
		}
	}
	return d.received()
}

func TestFormats(t *testing.T) {
	const card = `{"type":"message","attachments":[{"contentType":"application/vnd.microsoft.card.adaptive","content":` +
		`{"$schema":"http://adaptivecards.io/schemas/adaptive-card.json","type":"AdaptiveCard","version":"1.4",` +
		`"body":[{"type":"TextBlock","text":"Deployment shop/web: Restarted because Secret/db has changed","wrap":true}]}}]}`
	const text = `{"text":"Deployment shop/web: Restarted because Secret/db has changed"}`
	const event = `{"specversion":"1.0","id":"ID","source":"/configdep","type":"io.configdep.workload.Restarted",` +
		`"subject":"shop/Deployment/web","time":"2026-01-02T03:04:05Z","datacontenttype":"application/json",` +
		`"data":{"what":"Restarted","workload":{"kind":"Deployment","namespace":"shop","name":"web","uid":"5f0b1c1e-0000-4000-8000-000000000001"},` +
		`"trigger":"Secret/db","message":"Restarted because Secret/db has changed"}}`
	for format, want := range map[Format]struct{ contentType, body string }{
		Generic:    {"application/cloudevents+json", event},
		Slack:      {"application/json", text},
		Teams:      {"application/json", card},
		GoogleChat: {"application/json; charset=UTF-8", text},
		PlainText:  {"text/plain; charset=utf-8", "Deployment shop/web: Restarted because Secret/db has changed"},
	} {
		t.Run(string(format), func(t *testing.T) {
			e := restarted("web")
			e.At = e.At.In(time.FixedZone("", 3600)) // what is sent is in UTC
			r := send(t, Config{Format: format}, e)[0]
			body := string(r.body)
			if format == Generic {
				var parsed struct{ ID string }
				if err := json.Unmarshal(r.body, &parsed); err != nil {
					t.Fatal(err)
				}
				if err := uuid.Validate(parsed.ID); err != nil {
					t.Errorf("id %q: %v", parsed.ID, err)
				}
				body = strings.Replace(body, parsed.ID, "ID", 1)
			}
			if diff := cmp.Diff(want.body, body); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			if got := r.header.Get("Content-Type"); got != want.contentType {
				t.Errorf("content type = %q, want %q", got, want.contentType)
			}
			if got := r.header.Get("User-Agent"); got != "configdep" {
				t.Errorf("user agent = %q", got)
			}
			if _, found := r.header["X-Hub-Signature-256"]; found {
				t.Error("the body is signed without a key")
			}
		})
	}
}

// A receiver learns who asked for a restart without parsing the message.
func TestCloudEvents_RequestedBy(t *testing.T) {
	e := restarted("web")
	e.Trigger, e.RequestedBy = "Request", "alice"
	r := send(t, Config{Format: Generic}, e)[0]
	var got struct {
		Data struct{ Trigger, RequestedBy string }
	}
	if err := json.Unmarshal(r.body, &got); err != nil || got.Data.Trigger != "Request" || got.Data.RequestedBy != "alice" {
		t.Errorf("data = %+v, %v, want a request by alice; body:\n%s", got.Data, err, r.body)
	}
}

// The user of a URL is sent as basic authentication, and no longer in the URL.
func TestSink_Authenticates(t *testing.T) {
	r := send(t, Config{}, restarted("web"))[0]
	if want := "https://chat.example.com" + secretPath + "?token=s3cret-query"; r.url != want {
		t.Errorf("URL = %s, want %s", r.url, want)
	}
	if got, want := r.header.Get("Authorization"), "Basic czNjcmV0LXVzZXI6czNjcmV0LXBhc3N3b3Jk"; got != want {
		t.Errorf("Authorization = %q, want %q", got, want)
	}
	if got := send(t, Config{URL: "https://chat.example.com"}, restarted("web"))[0].header.Get("Authorization"); got != "" {
		t.Errorf("without a user, Authorization = %q", got)
	}
}

func TestCloudEvents_Source(t *testing.T) {
	const source = "https://clusters.example.com/eu-1"
	if r := send(t, Config{Source: source}, restarted("web"))[0]; !strings.Contains(string(r.body), `"source":"`+source+`"`) {
		t.Errorf("body = %s", r.body)
	}
}

// Receivers recognize by the ID what they have received before.
func TestCloudEvents_IDIsStableOverRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, _ := logs(t)
		d := statuses(500, 503, 200)
		s := mustNew(t, Config{Transport: d, Key: []byte(secretKey)})
		for range 2 { // of the same workload
			e := restarted("web")
			if result, err := s.deliver(ctx, &e); result != metrics.NotificationDelivered {
				t.Fatalf("result = %s, %v", result, err)
			}
		}
		got := d.received()
		if len(got) != 4 {
			t.Fatalf("requests = %d, want 4", len(got))
		}
		for _, r := range got[1:3] {
			if diff := cmp.Diff(string(got[0].body), string(r.body)); diff != "" {
				t.Errorf("a retry differs (-first +retry):\n%s", diff)
			}
		}
		if string(got[0].body) == string(got[3].body) {
			t.Errorf("two events have one ID: %s", got[3].body)
		}
	})
}

// Only restarts have a time of their own.
func TestCloudEvents_TimeOfEventsWithoutOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustNew(t, Config{})
		e := restarted("web")
		e.At = time.Time{}
		s.Notify(e)
		if got := s.queue.events[0].At; !got.Equal(time.Now()) {
			t.Errorf("time = %v, want %v", got, time.Now())
		}
	})
}

// The signature is computed as receivers of GitHub's webhooks verify it.
func TestSink_Signs(t *testing.T) {
	r := send(t, Config{Key: []byte(secretKey)}, restarted("web"))[0]
	mac := hmac.New(sha256.New, []byte(secretKey))
	fmt.Fprintf(mac, "%s", r.body)
	got, found := strings.CutPrefix(r.header.Get("X-Hub-Signature-256"), "sha256=")
	sum, err := hex.DecodeString(got)
	if !found || err != nil || !hmac.Equal(sum, mac.Sum(nil)) {
		t.Errorf("signature = %q is invalid: %v", r.header.Get("X-Hub-Signature-256"), err)
	}
}

// Tenants write annotations, whose text can be part of a message. They must not be able to alert everyone in a chat, or
// to give a link the text of another.
func TestFormats_EscapeWhatTenantsWrite(t *testing.T) {
	for format, want := range map[Format]string{
		Slack:      "&lt;!channel&gt; &lt;https://evil|a&gt; [a] (https://evil) &amp;lt; @\u2060all",
		Teams:      "<!channel> <https://evil|a> [a] (https://evil) &lt; @all",
		GoogleChat: "‹!channel› ‹https://evil|a› [a](https://evil) &lt; @all",
	} {
		e := restarted("web")
		e.Message = "<!channel> <https://evil|a> [a](https://evil) &lt; @all"
		for _, field := range []string{"Message", "Trigger", "SourceName", "RequestedBy"} {
			e.Trigger, e.RequestedBy = e.Message, e.Message
			if field == "SourceName" {
				e.Trigger = "Secret/" + e.Message
			}
			r := send(t, Config{Format: format, Template: "<!here> {{." + field + "}}"}, e)[0]
			var message struct {
				Text        string
				Attachments []struct {
					Content struct{ Body []struct{ Text string } }
				}
			}
			if err := json.Unmarshal(r.body, &message); err != nil {
				t.Fatal(err)
			}
			got := message.Text
			if format == Teams {
				got = message.Attachments[0].Content.Body[0].Text
			}
			if got != "<!here> "+want { // what the template says is meant
				t.Errorf("%s of %s = %q, want %q", field, format, got, want)
			}
		}
	}
}
