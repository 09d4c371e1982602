// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// fakeServer serves the objects of one resource as the API server does, as far as a test lets it.
type fakeServer struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	revision int
	objects  map[string]map[string]string // data by name
	log      []string                     // events, as lines
	first    int                          // the revision before the first event of the log
	changed  chan struct{}
	ends     chan struct{} // is closed to end the watches
	fail     func(w http.ResponseWriter, r *http.Request) bool
	requests []url.Values
}

func newFakeServer(t *testing.T) *fakeServer {
	t.Helper()
	s := &fakeServer{t: t, revision: 10, first: 10, objects: map[string]map[string]string{}, changed: make(chan struct{}), ends: make(chan struct{})}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *fakeServer) object(name string) string {
	data := map[string]string{}
	for key, value := range s.objects[name] {
		data[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	text, err := json.Marshal(map[string]any{
		"kind": "Secret", "metadata": map[string]any{
			"namespace": "shop", "name": name, "uid": "u-" + name, "resourceVersion": fmt.Sprint(s.revision), "creationTimestamp": "of-" + name, "annotations": map[string]string{"dir": "of-" + name},
		}, "data": data, "type": "Opaque",
	})
	if err != nil {
		s.t.Error(err)
	}
	return string(text)
}

// set changes an object; without data it is deleted.
func (s *fakeServer) set(name string, data map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.objects[name]
	s.revision++
	kind := "ADDED"
	switch {
	case data == nil:
		kind = "DELETED"
	case known:
		kind = "MODIFIED"
	}
	if data != nil {
		s.objects[name] = data
	}
	s.log = append(s.log, fmt.Sprintf(`{"type":%q,"object":%s}`, kind, s.object(name)))
	if data == nil {
		delete(s.objects, name)
	}
	s.wake()
}

func (s *fakeServer) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// end ends the watches, as the API server does after their time.
func (s *fakeServer) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.ends)
	s.ends = make(chan struct{})
}

// compact forgets the events so far.
func (s *fakeServer) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first, s.log = s.revision, nil
}

// will lets requests fail, as long as the function returns true. The lock is held meanwhile. Watches end.
func (s *fakeServer) will(fail func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
	s.CloseClientConnections()
}

// willWatch answers watches. Lists are as they are.
func (s *fakeServer) willWatch(answer func(w http.ResponseWriter, r *http.Request)) {
	s.will(func(w http.ResponseWriter, r *http.Request) bool {
		watches := r.URL.Query().Get("watch") != ""
		if watches {
			answer(w, r)
		}
		return watches
	})
}

func (s *fakeServer) asked() []url.Values {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, query)
	if r.URL.Path != "/api/v1/namespaces/shop/secrets" {
		s.t.Errorf("request for %s", r.URL)
	}
	if s.fail != nil && s.fail(w, r) {
		return
	}
	if query.Get("watch") == "" {
		s.list(w, query)
		return
	}
	var from int
	if _, err := fmt.Sscan(query.Get("resourceVersion"), &from); err != nil {
		s.t.Errorf("a watch from %q", query.Get("resourceVersion"))
	}
	if from < s.first {
		_, _ = fmt.Fprintln(w, `{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410,"message":"too old"}}`)
		return
	}
	flush, ends := http.NewResponseController(w), s.ends
	_ = flush.Flush()
	for sent := from - s.first; ; {
		for ; sent < len(s.log); sent++ {
			_, _ = fmt.Fprintln(w, s.log[sent])
		}
		_ = flush.Flush()
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ends:
			s.mu.Lock()
			return
		case <-r.Context().Done():
			s.mu.Lock()
			return
		}
		s.mu.Lock()
	}
}

func (s *fakeServer) list(w http.ResponseWriter, query url.Values) {
	var names []string
	for name := range s.objects {
		names = append(names, name)
	}
	slices.Sort(names)
	size := 0
	_, _ = fmt.Sscan(query.Get("limit"), &size)
	start, _ := slices.BinarySearch(names, query.Get("continue"))
	end, more := min(start+size, len(names)), ""
	if end < len(names) {
		more = names[end]
	}
	var items []string
	for _, name := range names[start:end] {
		items = append(items, s.object(name))
	}
	_, _ = fmt.Fprintf(w, `{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"%d","continue":%q},"items":[%s],"more":{"a":[1]}}`, s.revision, more, strings.Join(items, ","))
}

// watching is a watcher that runs.
type watching struct {
	*Watcher
	t       *testing.T
	changes atomic.Int32
}

func watch(t *testing.T, s *fakeServer, spec Spec, maxBytes int, change func(*pace)) *watching {
	t.Helper()
	client, err := NewClient(Server{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	spec.Kind, spec.Namespace = Secret, "shop"
	w := &watching{t: t}
	w.Watcher = NewWatcher(client, &spec, maxBytes, func() { w.changes.Add(1) })
	w.pace = pace{list: limit, answer: limit, watch: time.Hour, idle: limit, min: time.Millisecond, max: 10 * time.Millisecond}
	if change != nil {
		change(&w.pace)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

func (w *watching) show() string {
	objects, synced := w.Objects()
	if !synced {
		return "not read"
	}
	var out []string
	for _, o := range objects {
		out = append(out, fmt.Sprintf("%s=%s", o.Name, o.Data["x"]))
	}
	return strings.Join(out, " ")
}

func (w *watching) await(want string) {
	w.t.Helper()
	await(w.t, fmt.Sprintf("objects %q, which are %q (%v)", want, w.show(), w.Health().Err), func() bool { return w.show() == want })
}

func x(value string) map[string]string { return map[string]string{"x": value, "y": "other"} }

func TestWatcher(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t)
	s.set("a", x("1"))
	w := watch(t, s, Spec{Selector: labels.SelectorFromSet(labels.Set{"app": "web"}), Keys: []Key{{"x", "x"}}, DirAnnotation: "dir"}, 1000, nil)
	w.await("a=1")
	if o, _ := w.Objects(); len(o[0].Data) != 1 || o[0].Dir != "of-a" || o[0].Created != "of-a" || o[0].UID != "u-a" || o[0].ResourceVersion != "11" {
		t.Errorf("object %+v", o[0])
	}
	s.set("b", x("2"))
	w.await("a=1 b=2")
	s.set("a", x("3"))
	w.await("a=3 b=2")
	s.set("a", nil)
	w.await("b=2")
	s.set("a", x("4"))
	w.await("a=4 b=2")
	await(t, "all changes are told", func() bool { return w.changes.Load() >= 5 }) // which is after the objects are there
	if n := w.changes.Load(); n != 5 {
		t.Errorf("%d changes were told, want 5", n)
	}
	// All connections break, for as many tries as there are in an hour, and events are lost meanwhile.
	var tries atomic.Int32
	s.will(func(http.ResponseWriter, *http.Request) bool { tries.Add(1); panic(http.ErrAbortHandler) })
	await(t, "requests have failed", func() bool { return w.Health().Err != nil && time.Duration(tries.Load())*defaultPace.max > time.Hour })
	s.set("b", nil)
	s.set("c", x("5"))
	s.compact()
	s.will(nil)
	w.await("a=4 c=5")
	await(t, "its watch is open again", func() bool { return w.Health().Err == nil }) // which is after the objects are there
	if w.Health().Heard.IsZero() {
		t.Error("the API server has not been heard")
	}
	asked := s.asked()
	if q := asked[0]; q.Get("labelSelector") != "app=web" || q.Get("limit") == "" || q.Get("watch") != "" {
		t.Errorf("the first request: %v", q)
	}
	if q := asked[1]; q.Get("watch") != "true" || q.Get("resourceVersion") != "11" || q.Get("allowWatchBookmarks") != "true" || q.Get("timeoutSeconds") == "" {
		t.Errorf("the second request: %v", q)
	}
}

// A watch that the API server has ended goes on where it was, without a list.
func TestWatcher_GoesOn(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t)
	s.set("a", x("1"))
	w := watch(t, s, Spec{Name: "a"}, 1000, func(p *pace) { p.min, p.watch = 0, 1 }) // however soon it ends
	w.await("a=1")
	for watches := 1; watches <= 5; watches++ {
		await(t, "it watches", func() bool { return len(s.asked()) > watches })
		s.end()
	}
	s.set("a", x("2"))
	w.await("a=2")
	for i, q := range s.asked() {
		if (q.Get("watch") == "") != (i == 0) {
			t.Errorf("request %d: %v", i, q)
		}
		if q.Get("fieldSelector") != "metadata.name=a" {
			t.Errorf("request %d: %v", i, q)
		}
	}
}

// While no API server answers, etcd may be restored from a backup, and written to so often that a watch would go on without what was lost.
func TestWatcher_ListsAfterAFailure(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t)
	s.set("a", x("1"))
	w := watch(t, s, Spec{Name: "a"}, 1000, func(p *pace) { p.min = 0 })
	w.await("a=1")
	await(t, "it watches", func() bool { return len(s.asked()) > 1 })
	s.mu.Lock()
	s.fail = func(w http.ResponseWriter, _ *http.Request) bool {
		s.objects["a"], s.fail = x("0"), nil // no watch tells that
		w.WriteHeader(http.StatusBadGateway)
		return true
	}
	s.mu.Unlock()
	s.end()
	w.await("a=0")
}

// A watch that ends before its time is one of an API server that ends, maybe because etcd is restored.
func TestWatcher_EndsEarly(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t)
	s.set("a", x("1"))
	w := watch(t, s, Spec{Name: "a"}, 1000, func(p *pace) { p.min = 0 })
	w.await("a=1")
	await(t, "it watches", func() bool { return len(s.asked()) > 1 })
	s.mu.Lock()
	s.objects["a"] = x("0") // no watch tells that
	s.mu.Unlock()
	s.end()
	w.await("a=0")
}

// A list that ends without an answer has failed, however long it took.
func TestWatcher_UnansweredList(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t)
	s.will(func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) })
	w := watch(t, s, Spec{Name: "a"}, 1000, func(p *pace) { p.min = 0 })
	await(t, "it is told that there is no answer", func() bool {
		return w.Health().Err != nil && strings.Contains(w.Health().Err.Error(), "without an answer")
	})
	// What is wrong then is told too.
	changes := w.changes.Load()
	s.will(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusForbidden); return true })
	await(t, "it is told that the list is refused", func() bool {
		return strings.Contains(w.Health().Err.Error(), "403") && w.changes.Load() > changes
	})
	s.set("a", x("1"))
	s.will(nil)
	w.await("a=1")
}

// A balancer without a backend ends connections after a while, without an answer: that is no end of a watch.
func TestWatcher_Unanswered(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t)
	s.set("a", x("1"))
	s.willWatch(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	w := watch(t, s, Spec{Name: "a"}, 1000, func(p *pace) { p.min = 0 }) // however soon it ends
	await(t, "it is told that there is no answer", func() bool {
		return w.Health().Err != nil && strings.Contains(w.Health().Err.Error(), "without an answer")
	})
	s.will(nil)
	s.set("a", x("2"))
	w.await("a=2")
}

// A watch can be dead without failing: nothing arrives in it, not even bookmarks. Then the objects are listed.
func TestWatcher_Silent(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t)
	s.set("a", x("1"))
	s.willWatch(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		s.mu.Unlock()
		<-r.Context().Done()
		s.mu.Lock()
	})
	w := watch(t, s, Spec{Name: "a"}, 1000, func(p *pace) { p.idle = 20 * time.Millisecond })
	w.await("a=1")
	for i := range 3 {
		s.set("a", x(fmt.Sprint(i)))
		w.await(fmt.Sprint("a=", i))
	}
	if err := w.Health().Err; err != nil {
		t.Errorf("error %v", err)
	}
}

// Lists come in pages, and what is not allowed is told, and tried again.
func TestWatcher_Lists(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t)
	var want []string
	for i := range 250 {
		s.set(fmt.Sprintf("s%03d", i), x("1"))
		want = append(want, fmt.Sprintf("s%03d=1", i))
	}
	s.will(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"secrets is forbidden: User \"x\" cannot list","reason":"Forbidden","code":403}`)
		return true
	})
	w := watch(t, s, Spec{Selector: labels.Everything()}, 1<<20, nil)
	await(t, "it is told that it is forbidden", func() bool {
		return w.Health().Err != nil && strings.Contains(w.Health().Err.Error(), "cannot list") && w.changes.Load() > 0
	})
	s.will(nil)
	w.await(strings.Join(want, " "))
	for i := range MaxObjects {
		s.set(fmt.Sprintf("s%04d", i), x("1"))
	}
	await(t, "it is told that there are too many", func() bool {
		return w.Health().Err != nil && strings.Contains(w.Health().Err.Error(), "more than 1000 objects")
	})
}

// Whatever the API server, or what takes its place, answers, the watcher goes on, and tells nothing of a Secret.
func TestWatcher_StrangeAnswers(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"nothing":      "",
		"no JSON":      "<html>PASSWORD</html>",
		"another list": `{"items":"PASSWORD"}`,
		"no base64":    `{"kind":"SecretList","items":[{"metadata":{"name":"a"},"data":{"x":"PASSWORD!"}}]}`,
		"no text":      `{"kind":"SecretList","items":[{"metadata":{"name":"a"},"data":{"x":7}}]}`,
		"cut":          `{"kind":"SecretList","items":[{"metadata":{"name":"a"},"data":{"x":"UEFT`,
		"a null":       `null`,
		"an array":     `["PASSWORD"]`,
		"no version":   `{"kind":"SecretList","items":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFakeServer(t)
			s.set("a", x("1"))
			s.will(func(w http.ResponseWriter, _ *http.Request) bool {
				_, _ = fmt.Fprint(w, answer)
				return true
			})
			w := watch(t, s, Spec{Name: "a"}, 1000, nil)
			await(t, "it is tried again", func() bool { return len(s.asked()) > 3 })
			if err := w.Health().Err; err != nil && strings.Contains(err.Error(), "PASSWORD") {
				t.Errorf("error %v", err)
			}
			s.will(nil)
			w.await("a=1")
		})
	}
}

// An API server of which each version is too old at once is not asked without end.
func TestWatcher_ExpiresAtOnce(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t)
	s.set("a", x("1"))
	s.willWatch(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	w := watch(t, s, Spec{Name: "a"}, 1000, func(p *pace) { p.min, p.max = time.Hour, time.Hour })
	await(t, "it is told that the version is too old", func() bool { return w.Health().Err != nil })
	if n := len(s.asked()); n != 2 || w.show() != "a=1" { // a list and a watch
		t.Errorf("%d requests, objects %s", n, w.show())
	}
}

// An object that may not be read is one that is not known: what was read last stays, and is not what there is now.
func TestWatcher_Refused(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t)
	s.set("a", x("1"))
	w := watch(t, s, Spec{Name: "a", Keys: []Key{{"x", "x"}}}, 100, nil)
	w.await("a=1")
	before := w.changes.Load()
	s.set("a", x(strings.Repeat("2", 100)))
	await(t, "it is told that it is too large", func() bool {
		_, is := errors.AsType[*LimitError](w.Health().Err)
		return is && strings.Contains(w.Health().Err.Error(), "more than 100 bytes") && w.changes.Load() > before
	})
	w.await("a=1")
	before = w.changes.Load()
	s.set("a", x("3"))
	await(t, "it is told that it is not anymore", func() bool { return w.Health().Err == nil && w.changes.Load() > before })
	w.await("a=3")
}

// A watch whose request is not answered is a request that fails.
func TestWatcher_NoAnswer(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t)
	s.set("a", x("1"))
	silent := make(chan struct{})
	defer close(silent)
	s.willWatch(func(_ http.ResponseWriter, r *http.Request) {
		s.mu.Unlock()
		select {
		case <-silent:
		case <-r.Context().Done():
		}
		s.mu.Lock()
	})
	w := watch(t, s, Spec{Name: "a"}, 1000, func(p *pace) { p.answer, p.idle = 10*time.Millisecond, 20*time.Millisecond })
	await(t, "it is told that there is no answer", func() bool {
		return w.Health().Err != nil && strings.Contains(w.Health().Err.Error(), "no answer within 10ms")
	})
	s.will(nil)
	s.set("a", x("2"))
	w.await("a=2")
}

// An object without an end is not read to the end.
func TestWatcher_Endless(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]string{
		"a list":  `{"kind":"SecretList","items":[{"metadata":{"name":"a"},"data":{"x":"`,
		"a watch": `{"type":"ADDED","object":{"metadata":{"name":"b"},"data":{"x":"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFakeServer(t)
			s.set("a", x("1"))
			s.will(func(w http.ResponseWriter, r *http.Request) bool {
				if (r.URL.Query().Get("watch") == "") != (name == "a list") {
					return false
				}
				_, err := fmt.Fprint(w, start)
				for part := strings.Repeat("A", 1<<20); err == nil; {
					_, err = fmt.Fprint(w, part)
				}
				return true
			})
			w := watch(t, s, Spec{Name: "a"}, 1000, nil)
			await(t, "it is told that the object is too large", func() bool {
				return w.Health().Err != nil && strings.Contains(w.Health().Err.Error(), "more than 33554432 bytes")
			})
			s.will(nil)
			s.set("a", x("2"))
			w.await("a=2")
		})
	}
}

// The token of the ServiceAccount does not follow a redirect.
func TestClient_Redirects(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	s := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer s.Close()
	client, err := NewClient(Server{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Send(t.Context(), http.MethodPatch, "/x", "application/json", nil); err == nil || elsewhere.Load() != 0 {
		t.Errorf("error %v, %d requests elsewhere", err, elsewhere.Load())
	}
}
