// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
	reader, err := NewReader(&rest.Config{Host: server.URL}, time.Minute)
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
		w := workloadOf(o.(*object))
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
	applied := make(chan watch.Event, 2)
	watching, err := cache.ToWatcherWithContext(reader.lister(s, make(chan time.Duration, 1), func(what watch.EventType, o *object) { applied <- watch.Event{Type: what, Object: o} })).WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "7"})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	errs := watching.ResultChan()
	first := <-applied
	if first.Type != watch.Modified {
		t.Fatalf("first event = %+v", first)
	}
	check(first.Object, "express", "8")
	if e := <-applied; e.Type != watch.Bookmark || e.Object.(*object).ResourceVersion != "9" || e.Object.(*object).value != nil {
		t.Errorf("%+v", e)
	}
	if e := <-errs; e.Type != watch.Error || e.Object.(*metav1.Status).Code != http.StatusGone {
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
	watching := newEvents(events, s)
	if _, o, err := watching.next(); err != nil || o.(*object).Name != "express" {
		t.Fatalf("%v: %+v", err, o)
	}
	if _, _, err := watching.next(); err == nil || !strings.Contains(err.Error(), "bytes is not read") {
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

// harbors are custom resources with fields.
func harbors(t testing.TB) *stream {
	t.Helper()
	k, err := kind.New(kind.Descriptor{
		Group: "goharbor.io", Kind: "Harbor", Resource: "harbors", Versions: []string{"v1"}, Reload: kind.Reload{By: kind.ByAnnotation}, Fields: true,
	}, field.NewPath("kinds"))
	if err != nil {
		t.Fatal(err)
	}
	return Scope{}.workloads(k, dependency.NewDigester([]byte("key")))
}

// harborJSON returns a Harbor with the password in a field.
func harborJSON(name, rest string) string {
	return fmt.Sprintf(`{"apiVersion":"goharbor.io/v1","kind":"Harbor","metadata":{"namespace":"shop","name":%q,"resourceVersion":"5",
		"annotations":{"configdep.io/fields":"spec.key = secret/db#password"}},"spec":{"key":%q,"rest":%q}}`, name, password, rest)
}

// notingBody notes the buffers into which a body is read.
type notingBody struct {
	io.Reader
	buffers [][]byte
}

func (b *notingBody) Read(p []byte) (int, error) {
	b.buffers = append(b.buffers, p)
	return b.Reader.Read(p)
}

func (b *notingBody) check(t *testing.T, when string) {
	t.Helper()
	for _, buffer := range b.buffers {
		if bytes.Contains(buffer, []byte(password)) {
			t.Errorf("%s: a buffer of %d bytes holds the password", when, len(buffer))
		}
	}
	if len(b.buffers) == 0 {
		t.Error("no buffer was noted")
	}
}

// Nothing of a custom resource is left in a buffer, because fields may contain values of Secrets.
func TestNothingIsLeftOfJSON(t *testing.T) {
	s, large := harbors(t), strings.Repeat(password+" ", 30_000)
	list := func(items ...string) string {
		return `{"items":[` + strings.Join(items, ",") + `],"kind":"HarborList","metadata":{"resourceVersion":"7"}}`
	}
	for name, tt := range map[string]struct {
		text string
		fine bool
	}{
		"objects":             {list(harborJSON("a", ""), harborJSON("b", large), harborJSON("c", "")), true},
		"half a list":         {list(harborJSON("a", ""), harborJSON("b", large))[:200_000], false},
		"an odd object":       {list(harborJSON("a", ""), `{"metadata":{"name":5},"x":"`+password+`"}`), false},
		"not JSON":            {list(harborJSON("a", "")+password, harborJSON("b", "")), false},
		"another kind":        {strings.Replace(list(harborJSON("a", "")), "HarborList", "BoatList", 1), true}, // of an optional kind
		"a text after it all": {list(harborJSON("a", "")) + password, true},
	} {
		t.Run(name, func(t *testing.T) {
			body := &notingBody{Reader: iotest.HalfReader(strings.NewReader(tt.text))}
			if _, err := readList(body, s); (err == nil) != tt.fine {
				t.Errorf("error = %v", err)
			} else if err != nil && strings.Contains(err.Error(), password) {
				t.Errorf("the error contains the password: %v", err)
			}
			body.check(t, "after the list")
		})
	}
	event := func(object string) string { return `{"type":"ADDED","object":` + object + "}\n" }
	for name, tt := range map[string]struct {
		text    string
		decoded int
	}{
		"events that need larger and larger buffers": {event(harborJSON("a", "")) + event(harborJSON("b", large)) + event(harborJSON("c", "")), 3},
		"another kind":              {event(strings.Replace(harborJSON("a", ""), `"Harbor"`, `"Boat"`, 1)), 0},
		"an odd object":             {event(`{"kind":"Harbor","metadata":{"name":5},"x":"` + password + `"}`), 0},
		"not an event":              {`{"type":5,"object":` + harborJSON("a", "") + `}`, 0},
		"not an object":             {`"` + password + `"`, 0},
		"an event that breaks off":  {event(harborJSON("a", "")) + event(harborJSON("b", large))[:200_000], 1},
		"an event and half another": {event(harborJSON("a", "")) + `{"type":"ADDED","object":{"x":"` + password, 1},
	} {
		t.Run(name, func(t *testing.T) {
			body := &notingBody{Reader: iotest.HalfReader(strings.NewReader(tt.text))}
			e := newEvents(body, s)
			n := 0
			for ; ; n++ {
				_, o, err := e.next()
				if err != nil {
					break
				}
				if w := workloadOf(o.(*object)); w == nil || len(w.Fields.States) != 1 {
					t.Errorf("event %d is read as %+v", n, w)
				}
			}
			if n != tt.decoded {
				t.Errorf("got %d events, want %d", n, tt.decoded)
			}
			e.window.clear()
			body.check(t, "at the end")
		})
	}
}

// Values end where they end, however they arrive, and whatever is in them.
func TestTakeJSON(t *testing.T) {
	values := []string{
		`{}`, `[]`, `"a"`, `"\""`, `"\\"`, `"{"`, `["]",{"}":"\"}"}]`, `5`, `-0.5e+3`, `true`, `null`, `[[[],[]],{"a":{}}]`, `""`, `{"\\":"\\\\\""}`,
		`"` + strings.Repeat("x", 70_000) + `"`,
	}
	for name, arrives := range map[string]func(io.Reader) io.Reader{
		"at once": func(r io.Reader) io.Reader { return r }, "by halves": iotest.HalfReader, "byte by byte": iotest.OneByteReader, "with the end": iotest.DataErrReader,
	} {
		for _, between := range []string{"\n", " \t\r\n "} {
			w := newWindow(arrives(strings.NewReader(strings.Join(values, between)+between)), 64)
			for _, want := range values {
				if got, err := w.takeJSON(); err != nil || string(got) != want {
					t.Fatalf("%s: %.100s, %v, want %.100s", name, got, err, want)
				}
			}
			if got, err := w.takeJSON(); err != io.EOF { //nolint:errorlint // it must be this itself
				t.Errorf("%s: %s and the error %v at the end", name, got, err)
			}
		}
	}
	for text, want := range map[string]error{
		"": io.EOF, " ": io.EOF, "{": io.ErrUnexpectedEOF, `"a\"`: io.ErrUnexpectedEOF, "[[]": io.ErrUnexpectedEOF, "12": io.ErrUnexpectedEOF,
		"]": errNoJSON, "}": errNoJSON, ",": errNoJSON, ":": errNoJSON,
	} {
		if got, err := newWindow(strings.NewReader(text), 64).takeJSON(); !errors.Is(err, want) {
			t.Errorf("%q: %s, %v, want the error %v", text, got, err, want)
		}
	}
	for _, c := range " \t\r\n,:]}" {
		if got, err := newWindow(strings.NewReader("5"+string(c)), 64).takeJSON(); err != nil || string(got) != "5" {
			t.Errorf("before %q: %q, %v", c, got, err)
		}
	}
	if _, err := newWindow(&spaces{}, 64).takeJSON(); !errors.Is(err, errTooLarge) {
		t.Errorf("endless white space: error = %v", err)
	}
}

// spaces is an endless answer of them.
type spaces struct{}

func (*spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// Lists with wrong commas are refused.
func TestReadJSONList_Commas(t *testing.T) {
	s, one := harbors(t), harborJSON("a", "")
	for _, items := range []string{"," + one, one + ",", one + ",," + one, one + one, one + ":" + one} {
		if got, err := readList(strings.NewReader(`{"items":[`+items+`],"kind":"HarborList"}`), s); err == nil {
			t.Errorf("%.50s: got %d objects", items, len(got.Items))
		}
	}
	for _, list := range []string{`{"kind" "HarborList"}`, `{"kind","HarborList"}`, `{"kind":"HarborList",}`, `{,"kind":"HarborList"}`, `{5:"HarborList"}`, `{"kind":"HarborList","x":y}`} {
		if _, err := readList(strings.NewReader(list), s); err == nil {
			t.Errorf("%s is read", list)
		}
	}
}

// FuzzReadJSON: any input is refused, or read as encoding/json reads it.
func FuzzReadJSON(f *testing.F) {
	for _, seed := range []string{
		`{"items":[` + harborJSON("a", "") + `,{"metadata":{"name":"b"}}],"kind":"HarborList"}`, `{"items":null,"kind":"HarborList"}`, `{"items":[1,"a\"",[]],"x":{}}`,
		`{"type":"ADDED","object":` + harborJSON("a", `"\u00`) + `}`, `{"type":"ERROR","object":{"kind":"Status"}}`, `[`, `"\`, "{}{}", "",
	} {
		f.Add([]byte(seed))
	}
	s := harbors(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		list, err := readList(bytes.NewReader(raw), s)
		var want struct {
			Kind  string            `json:"kind"`
			Items []json.RawMessage `json:"items"`
		}
		if decoded := json.NewDecoder(bytes.NewReader(raw)); err == nil {
			if decoded.Decode(&want) != nil {
				t.Fatalf("%d objects are read from invalid JSON", len(list.Items))
			}
			if bytes.Count(raw, []byte("tems")) == 1 && len(want.Items) != len(list.Items) { // not for two members of one name
				t.Fatalf("%d objects, want %d", len(list.Items), len(want.Items))
			}
		}
		e := newEvents(bytes.NewReader(raw), s)
		for range len(raw) + 1 {
			_, o, err := e.next()
			if err != nil {
				return
			}
			switch o.(type) {
			case *object, *metav1.Status:
			default:
				t.Fatalf("got a %T", o)
			}
		}
		t.Fatal("more events than bytes")
	})
}

// Events are read completely, whatever their size: the size of a buffer, or slightly more or less.
func TestJSONEvents_OfAnySize(t *testing.T) {
	n := 0
	var body strings.Builder
	for _, around := range []int{4096, 65536} {
		for size := around - 600; size <= around+10; size += 7 {
			n++
			fmt.Fprintf(&body, `{"type":"ADDED","object":%s}`+"\n", harborJSON(fmt.Sprint("h", n), strings.Repeat("x", size)))
		}
	}
	e := newEvents(strings.NewReader(body.String()), harbors(t))
	for i := range n {
		if _, o, err := e.next(); err != nil || o.(*object).Name != fmt.Sprint("h", i+1) {
			t.Fatalf("event %d is read as %+v: %v", i+1, o, err)
		}
	}
	if _, _, err := e.next(); !errors.Is(err, io.EOF) {
		t.Errorf("error at the end = %v, want EOF", err)
	}
}

// An API server may quote an object in its errors, as the webhook does that converts it.
func TestReader_ErrorsQuoteNoFields(t *testing.T) {
	failed := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500,"message":"conversion webhook failed: ` + password + `",` +
		`"details":{"name":"` + password + `","causes":[{"reason":"UnexpectedServerResponse","message":"` + password + `","field":"` + password + `"}],"retryAfterSeconds":7}}`
	var inWatch bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if inWatch {
			fmt.Fprintln(w, `{"type":"ERROR","object":`+failed+`}`)
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, failed)
	}))
	defer server.Close()
	reader, err := NewReader(&rest.Config{Host: server.URL}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	lister := cache.ToWatcherWithContext(reader.lister(harbors(t), make(chan time.Duration, 1), nil))
	check := func(what string, err error) {
		t.Helper()
		if text := fmt.Sprintf("%v %#v", err, err); !apierrors.IsInternalError(err) || strings.Contains(text, password) || !strings.Contains(text, "is not shown") {
			t.Errorf("%s: %s", what, text)
		}
		if after, found := apierrors.SuggestsClientDelay(err); !found || after != 7 {
			t.Errorf("%s: to be retried after %d s", what, after)
		}
	}
	_, err = reader.list(t.Context(), harbors(t), metav1.ListOptions{})
	check("list", err)
	_, err = lister.WatchWithContext(t.Context(), metav1.ListOptions{})
	check("watch", err)
	inWatch = true
	watching, err := lister.WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	check("event", apierrors.FromObject((<-watching.ResultChan()).Object))
}
