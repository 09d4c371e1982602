// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/configdep/configdep/test/await"
)

// receiver receives what the server sends: at each destination, the requests in their order.
type receiver struct {
	url string
	mu  sync.Mutex
	got map[string][]delivery
}

type delivery struct {
	host, contentType, signature string
	body                         []byte
}

// newReceiver returns a receiver. Paths are /DESTINATION/SECRET. At the destination stuck, requests get no answer. At the
// destination wrong, they get a 404 that repeats the URL, as those of some servers do.
func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{got: map[string][]delivery{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{destination}/{secret}", func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return // the client has left
		}
		destination := q.PathValue("destination")
		r.mu.Lock()
		r.got[destination] = append(r.got[destination], delivery{q.Host, q.Header.Get("Content-Type"), q.Header.Get("X-Hub-Signature-256"), body})
		r.mu.Unlock()
		switch destination {
		case "stuck":
			<-q.Context().Done()
		case "wrong":
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, q.URL)
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *receiver) at(destination string) []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]delivery(nil), r.got[destination]...)
}

// cloudEvent is an event as it is documented.
type cloudEvent struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject"`
	Time            time.Time `json:"time"`
	DataContentType string    `json:"datacontenttype"`
	Data            struct {
		What     string `json:"what"`
		Workload struct {
			Kind      string `json:"kind"`
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
			UID       string `json:"uid"`
		} `json:"workload"`
		Trigger     string `json:"trigger"`
		RequestedBy string `json:"requestedBy"`
		Message     string `json:"message"`
	} `json:"data"`
}

// events returns the CloudEvents that a destination has received, after verifying their signatures.
func (r *receiver) events(destination, key string) (events []cloudEvent, err error) {
	for _, q := range r.at(destination) {
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write(q.body)
		if want := "sha256=" + hex.EncodeToString(mac.Sum(nil)); q.signature != want || q.contentType != "application/cloudevents+json" {
			return nil, fmt.Errorf("signature = %q, want %q; content type = %q", q.signature, want, q.contentType)
		}
		var e cloudEvent
		decoder := json.NewDecoder(bytes.NewReader(q.body))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&e); err != nil {
			return nil, fmt.Errorf("decoding %s: %w", q.body, err)
		}
		events = append(events, e)
	}
	return events, nil
}

// await waits for a CloudEvent with a trigger and a What, and returns it.
func (r *receiver) await(t *testing.T, destination, key, what, trigger string) (found cloudEvent) {
	t.Helper()
	await.Until(t, fmt.Sprintf("%s receives %s by %q", destination, what, trigger), func(context.Context) error {
		events, err := r.events(destination, key)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Data.What == what && e.Data.Trigger == trigger {
				found = e
				return nil
			}
		}
		return fmt.Errorf("events = %+v", events)
	})
	return found
}

// alerts are the messages of the installation.
var alerts messages

type messages struct {
	mu  sync.Mutex
	all []string
}

func (m *messages) receive(_ http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return // the client has left
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, string(body))
}

// about returns the messages that contain a text.
func (m *messages) about(text string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.all), func(message string) bool { return !strings.Contains(message, text) })
}
