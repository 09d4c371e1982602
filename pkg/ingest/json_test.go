// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// train is a custom resource that creates pods.
type train struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Template corev1.PodTemplateSpec `json:"template"`
	} `json:"spec"`
}

func (t *train) DeepCopyObject() runtime.Object { panic("it is not copied") }

var trains = &kind.Kind{
	Name:     "Train",
	Resource: schema.GroupVersionResource{Group: "rail.example.com", Version: "v2", Resource: "trains"},
	Traits:   dependency.Traits{Rollable: true},
	New:      func() kind.Object { return &train{} },
	From: func(o kind.Object) (*dependency.Object, error) {
		t := o.(*train)
		return &dependency.Object{Meta: &t.ObjectMeta, Template: &t.Spec.Template}, nil
	},
}

func trainJSON(name string, version int) string {
	return fmt.Sprintf(`{"apiVersion":"rail.example.com/v2","kind":"Train","metadata":{"namespace":"ns","name":%q,"uid":"u","resourceVersion":"%d",
		"annotations":{"configdep.io/reload":"auto","other":"x"}},"spec":{"cars":[1,{"a":"b"}],"template":{"spec":{"containers":[{"name":"app",
		"envFrom":[{"secretRef":{"name":"db"}}]}]}}}}`, name, version)
}

func trainList(items ...string) string {
	return `{"apiVersion":"rail.example.com/v2","items":[` + strings.Join(items, ",") + `],"kind":"TrainList","metadata":{"resourceVersion":"7"}}`
}

// Custom resources are only served as JSON, and are read like other resources.
func TestReader_CustomResource(t *testing.T) {
	var asked []string
	events := make(chan string, 3)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+" "+r.Header.Get("Accept"))
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprint(w, trainList(trainJSON("express", 5), trainJSON("night", 6)))
			return
		}
		for event := range events {
			fmt.Fprintln(w, event)
			w.(http.Flusher).Flush()
		}
	}))
	defer server.Close()
	reader, err := NewReader(&rest.Config{Host: server.URL}, everything, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	s := Scope{}.workloads(trains, nil)
	list, err := reader.list(t.Context(), s, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if list.ResourceVersion != "7" || len(list.Items) != 2 {
		t.Fatalf("list of %d objects with version %s", len(list.Items), list.ResourceVersion)
	}
	check := func(o runtime.Object, name, version string) {
		t.Helper()
		w := o.(*object).workload
		if w == nil || w.Kind != "Train" || w.Name != name || w.ResourceVersion != version || !w.Rollable || len(w.References) != 1 ||
			w.References[0].Name != "db" || len(w.Annotations) != 1 {
			t.Errorf("workload = %+v", w)
		}
	}
	check(list.Items[0].Object, "express", "5")
	check(list.Items[1].Object, "night", "6")

	long := strings.Replace(trainJSON("express", 8), `"other":"x"`, `"other":"`+strings.Repeat("x", 200_000)+`"`, 1) // beyond the first buffer
	events <- `{"type":"MODIFIED","object":` + long + `}`
	events <- `{"type":"BOOKMARK","object":{"apiVersion":"rail.example.com/v2","kind":"Train","metadata":{"resourceVersion":"9"},"spec":{}}}`
	events <- `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410,"reason":"Expired","message":"too old"}}`
	close(events)
	watching, err := cache.ToWatcherWithContext(reader.lister(s, make(chan time.Duration, 1))).WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "7"})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	first := <-watching.ResultChan()
	if first.Type != watch.Modified {
		t.Fatalf("first event = %+v", first)
	}
	check(first.Object, "express", "8")
	if e := <-watching.ResultChan(); e.Type != watch.Bookmark || e.Object.(*object).ResourceVersion != "9" || e.Object.(*object).kept() {
		t.Errorf("%+v", e)
	}
	if e := <-watching.ResultChan(); e.Type != watch.Error || e.Object.(*metav1.Status).Code != http.StatusGone {
		t.Errorf("%+v", e)
	}
	for _, a := range asked {
		if a != "/apis/rail.example.com/v2/trains application/json" {
			t.Errorf("request = %s", a)
		}
	}
	if len(asked) != 2 {
		t.Errorf("got %d requests", len(asked))
	}
}

// Anything but a complete list of the kind is refused, because missing objects would be considered deleted.
func TestReadJSONList_Refuses(t *testing.T) {
	s := Scope{}.workloads(trains, nil)
	whole := trainList(trainJSON("express", 5))
	if _, err := readList(strings.NewReader(whole), s); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"nothing":            ``,
		"no object":          `[]`,
		"another kind":       strings.Replace(whole, "TrainList", "BoatList", 1),
		"no kind":            strings.Replace(whole, `"kind":"TrainList"`, `"x":1`, 1),
		"a page":             strings.Replace(whole, `"resourceVersion":"7"`, `"resourceVersion":"7","continue":"x"`, 1),
		"items of no list":   `{"items":{},"kind":"TrainList"}`,
		"an item of no kind": trainList(`[]`),
		"half of it":         whole[:len(whole)/2],
		"all but the end":    whole[:len(whole)-1],
	} {
		if list, err := readList(strings.NewReader(text), s); err == nil {
			t.Errorf("%s: got a list of %d objects, want an error", name, len(list.Items))
		}
	}
	if list, err := readList(strings.NewReader(`{"items":null,"kind":"TrainList","metadata":{"resourceVersion":"7"}}`), s); err != nil || len(list.Items) != 0 {
		t.Errorf("an empty list: error = %v", err)
	}
}

// endless is an API server whose responses never end.
type endless struct {
	begin io.Reader
	read  int
}

func (e *endless) Read(p []byte) (int, error) {
	if n, err := e.begin.Read(p); err == nil {
		return n, nil
	}
	for i := range p {
		p[i] = 'x'
	}
	e.read += len(p)
	return len(p), nil
}

func (e *endless) Close() error { return nil }

// The memory for one object is limited, in lists and in events, however many objects were read before.
func TestReadJSON_Bounds(t *testing.T) {
	s := Scope{}.workloads(trains, nil)
	list := &endless{begin: strings.NewReader(strings.TrimSuffix(trainList(trainJSON("express", 5)), `],"kind":"TrainList","metadata":{"resourceVersion":"7"}}`) + `,{"x":"`)}
	if _, err := readList(list, s); err == nil || !strings.Contains(err.Error(), "bytes is not read") {
		t.Errorf("the error is %v", err)
	}
	events := &endless{begin: strings.NewReader(`{"type":"ADDED","object":` + trainJSON("express", 5) + `}{"type":"`)}
	frames := newJSONFramer().NewFrameReader(events)
	buffer := make([]byte, 1<<20)
	n, err := frames.Read(buffer)
	if err != nil || !json.Valid(buffer[:n]) || !bytes.Contains(buffer[:n], []byte("express")) {
		t.Fatalf("%v: %s", err, buffer[:n])
	}
	if _, err := frames.Read(buffer); err == nil || !strings.Contains(err.Error(), "bytes is not read") {
		t.Errorf("the error is %v", err)
	}
	for name, e := range map[string]*endless{"list": list, "events": events} {
		if e.read > maxObject+1<<20 {
			t.Errorf("%s: read %d bytes", name, e.read)
		}
	}
	// The limit does not include objects that were read before.
	var items []string
	large := strings.Replace(trainJSON("express", 5), `"other":"x"`, `"other":"`+strings.Repeat("x", maxObject/3)+`"`, 1)
	for range 4 {
		items = append(items, large)
	}
	if got, err := readList(strings.NewReader(trainList(items...)), s); err != nil || len(got.Items) != 4 {
		t.Errorf("many large objects: error = %v", err)
	}
}
