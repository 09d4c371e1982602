// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// boats returns an optional kind whose decoder keeps only what it reads.
func boats() *kind.Kind {
	return &kind.Kind{
		Name:     "Boat",
		Resource: schema.GroupVersionResource{Group: "sea.example.com", Version: "v1", Resource: "boats"},
		Versions: []string{"v2", "v1"},
		Optional: true,
		New:      func() kind.Object { return &train{} },
		Decode: func(raw []byte) (kind.Object, error) {
			t := &train{}
			return t, json.Unmarshal(raw, t)
		},
		From: trains.From,
	}
}

const boatsName = "boats.sea.example.com"

// harbour is an API server with Namespaces, Secrets and boats.
type harbour struct {
	t *testing.T
	*httptest.Server

	mu        sync.Mutex
	changed   chan struct{} // is closed with each change
	discovery int           // the status of the discovery
	versions  []string      // in which boats are served
	stale     bool          // their API group is not available
	is        string        // what else the discovery says of them
	list      int           // the status of their lists, if not 200
	watch     int           // of their watches
	malformed bool
	denied    time.Duration // of the reader's pace
	patience  time.Duration // the same
	boats     []string
	revision  int
	asked     map[string]int // the requests, by path
}

func newHarbour(t *testing.T) *harbour {
	t.Helper()
	k := &harbour{t: t, changed: make(chan struct{}), discovery: http.StatusOK, revision: 10, patience: time.Minute, asked: map[string]int{}}
	k.Server = httptest.NewServer(k)
	t.Cleanup(k.Close)
	return k
}

// change changes the API server. Its watches end.
func (k *harbour) change(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
	k.revision++
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *harbour) requests(path string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked[path]
}

func (k *harbour) document() string {
	var versions []string
	if k.stale {
		versions = append(versions, `{"version":"v1","freshness":"Stale"}`)
	} else {
		for _, v := range k.versions {
			versions = append(versions, fmt.Sprintf(`{"version":%q,"resources":[{"resource":"boats"%s},{"resource":"piers"}],"freshness":"Current"}`, v, k.is))
		}
	}
	return `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"apps"},"versions":[]},` +
		`{"metadata":{"name":"sea.example.com"},"versions":[` + strings.Join(versions, ",") + `]}]}`
}

func (k *harbour) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	changed, path := k.changed, strings.Split(r.URL.Path, "/")
	k.asked[r.URL.Path]++
	watches := r.URL.Query().Get("watch") != ""
	out.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/apis":
		tag := fmt.Sprintf(`"%d"`, k.revision)
		out.Header().Set("ETag", tag)
		switch {
		case k.discovery != http.StatusOK:
			out.WriteHeader(k.discovery)
		case r.Header.Get("If-None-Match") == tag:
			out.WriteHeader(http.StatusNotModified)
		default:
			fmt.Fprint(out, k.document())
		}
	case len(path) > 2 && path[2] == "sea.example.com":
		status := k.list
		switch {
		case watches && k.watch != 0:
			status = k.watch
		case status != http.StatusForbidden && !slices.Contains(k.versions, path[3]):
			status = http.StatusNotFound
		case watches:
			status = 0
		}
		switch {
		case status != 0:
			k.fail(out, status)
		case watches:
			k.mu.Unlock()
			out.(http.Flusher).Flush()
			select {
			case <-changed:
			case <-r.Context().Done():
			}
			return
		case k.malformed:
			fmt.Fprint(out, `{"kind":"BoatList","items":[{"spec":1}]}`)
		case r.URL.Query().Get("fieldSelector") != "":
			fmt.Fprintf(out, `{"kind":"BoatList","items":[],"metadata":{"resourceVersion":"%d"}}`, k.revision)
		default:
			var items []string
			for _, name := range k.boats {
				if len(path) <= 6 || path[4] != "namespaces" || path[5] == "ns" {
					items = append(items, strings.ReplaceAll(trainJSON(name, 5), "rail.example.com/v2", "sea.example.com/"+path[3]))
				}
			}
			fmt.Fprintf(out, `{"kind":"BoatList","items":[%s],"metadata":{"resourceVersion":"%d"}}`, strings.Join(items, ","), k.revision)
		}
	case watches:
		k.mu.Unlock()
		out.Header().Set("Content-Type", protobufType)
		out.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	default: // all others are empty
		out.Header().Set("Content-Type", protobufType)
		_, _ = out.Write(emptyList(k.t, r.URL.Path, k.revision))
	}
	k.mu.Unlock()
}

func (k *harbour) fail(out http.ResponseWriter, status int) {
	reason := map[int]string{http.StatusForbidden: "Forbidden", http.StatusNotFound: "NotFound", http.StatusInternalServerError: "InternalError"}[status]
	out.WriteHeader(status)
	fmt.Fprintf(out, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"no"}`, reason, status)
}

// states is a sink that keeps the last state.
type states struct {
	mu     sync.Mutex
	views  []string
	synced bool
	at     dependency.Progress
}

func (s *states) Synced(known decide.Evaluator, at dependency.Progress) {
	s.Changed(known, at, dependency.Delta{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = true
}

func (s *states) Changed(known decide.Evaluator, at dependency.Progress, _ dependency.Delta) {
	var views []string
	known.Graph.EachWorkload(func(w *dependency.Workload) { views = append(views, w.ViewName()) })
	slices.Sort(views)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.views, s.at = views, at
}

func (s *states) Progressed(at dependency.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = at
}

func (s *states) show() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.synced {
		return "not synced"
	}
	return strings.Join(s.views, " ")
}

// sailing is an index that reads an API server.
type sailing struct {
	*Index
	t    *testing.T
	api  *harbour
	sink *states
	kind *kind.Kind
	log  func() string // what has been logged
}

func sail(t *testing.T, api *harbour, namespaces ...string) *sailing {
	t.Helper()
	s := &sailing{t: t, api: api, sink: &states{}, kind: boats()}
	scope := Scope{
		Kinds: kind.Table{kind.BuiltIn()[0], s.kind}, Namespaces: namespaces,
	}
	reader, err := NewReader(&rest.Config{Host: api.URL, Transport: &http.Transport{DisableKeepAlives: true}}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	reader.pace = pace{request: time.Minute, least: time.Millisecond, absent: 5 * time.Millisecond, settled: 10 * time.Millisecond, retry: time.Millisecond, patience: api.patience, denied: max(api.denied, 5*time.Millisecond)}
	s.Index = NewIndex(clock.RealClock{}, s.sink)
	s.Within(scope)
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
	s.log = logger.GetSink().(ktesting.Underlier).GetBuffer().String
	ctx, cancel := context.WithCancel(klog.NewContext(quiet(t), logger))
	var wg sync.WaitGroup
	wg.Go(func() {
		s.run(ctx, reader, testDigester(), func(ctx context.Context, _ func()) { <-ctx.Done() })
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return s
}

func (s *sailing) await(what string) {
	s.t.Helper()
	await(s.t, fmt.Sprintf("workloads %q, which are %q", what, s.sink.show()), func() bool { return s.sink.show() == what })
}

// awaitForbidden waits until it is known whether boats may be read.
func (s *sailing) awaitForbidden(is bool) {
	s.t.Helper()
	await(s.t, fmt.Sprintf("forbidden: %t", is), func() bool { return cmp.Equal(s.Forbidden(), map[string]bool{boatsName: is}) })
}

// awaitProbed waits until the revisions of all streams are known.
func (s *sailing) awaitProbed() {
	s.t.Helper()
	await(s.t, "all are probed", func() bool {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return len(s.unprobed) == 0
	})
}

// A kind is read while its definition is served, and the first sync does not wait for one that is not.
func TestOptionalKind_ComesAndGoes(t *testing.T) {
	api := newHarbour(t)
	s := sail(t, api)
	s.await("")
	s.awaitForbidden(false)
	s.awaitProbed()
	if _, held := s.LastProgress()[boatsName]; held {
		t.Error("a stream that is not there is among those that hold back the watermark")
	}
	api.change(func() { api.versions, api.boats = []string{"v1"}, []string{"ark", "dory"} })
	s.await("boat.ark boat.dory")
	if got := s.kind.Served().Version; got != "v1" {
		t.Errorf("served in %s", got)
	}
	s.mu.RLock()
	floor, one, counters := s.progress.Floor, s.now().OneCounter, s.progress.SeveralCounters
	s.mu.RUnlock()
	if floor < 11 || one || counters {
		t.Errorf("floor = %d, versions compared with other replicas: %t, several counters: %t", floor, one, counters)
	}
	api.change(func() { api.versions, api.boats = nil, nil })
	s.await("")
	if _, held := s.LastProgress()[boatsName]; held {
		t.Error("a stream that is gone is among those that hold back the watermark")
	}
	api.change(func() { api.versions, api.boats = []string{"v2"}, []string{"dory"} })
	s.await("boat.dory")
	if got := s.kind.Served().Version; got != "v2" {
		t.Errorf("served in %s", got)
	}
}

// Objects that belong to no namespace, or are of another kind, are not what the kind describes. A definition may be replaced by such a
// one, although what it defines can still be listed.
func TestOptionalKind_OtherResourceOfTheName(t *testing.T) {
	for _, other := range []string{`,"scope":"Cluster"`, `,"responseKind":{"kind":"Canoe"}`} {
		api := newHarbour(t)
		api.versions, api.boats, api.is = []string{"v1"}, []string{"ark"}, `,"scope":"Namespaced","responseKind":{"kind":"Boat"}`
		is := api.is
		s := sail(t, api)
		s.await("boat.ark")
		api.change(func() { api.is = other })
		s.await("")
		api.change(func() { api.is = is })
		s.await("boat.ark")
	}
}

// One that is served at the start is one of the first lists.
func TestOptionalKind_IsAwaited(t *testing.T) {
	api := newHarbour(t)
	api.versions, api.boats = []string{"v1"}, []string{"ark"}
	s := sail(t, api)
	await(t, "synced", func() bool { return s.sink.show() != "not synced" })
	if got := s.sink.show(); got != "boat.ark" {
		t.Errorf("with the first sync: %s", got)
	}
	s.awaitProbed()
	if p := s.Progress(); !p.OneCounter {
		t.Errorf("progress = %+v", p)
	}
}

// The preferred version that is served is read, and workloads stay when it changes.
func TestOptionalKind_FollowsVersions(t *testing.T) {
	api := newHarbour(t)
	api.versions, api.boats = []string{"v1"}, []string{"ark"}
	s := sail(t, api)
	s.await("boat.ark")
	for _, step := range []struct {
		served []string
		want   string
	}{
		{[]string{"v1", "v2"}, "v2"},
		{[]string{"v2", "v3"}, "v2"},
		{[]string{"v1", "v3"}, "v1"},
	} {
		api.change(func() { api.versions = step.served })
		path := "/apis/sea.example.com/" + step.want + "/boats"
		before := api.requests(path)
		await(t, "reads "+path, func() bool { return s.kind.Served().Version == step.want && api.requests(path) > before })
		if got := s.sink.show(); got != "boat.ark" {
			t.Errorf("served in %v: workloads %q", step.served, got)
		}
	}
	api.change(func() { api.versions = []string{"v3"} })
	s.await("")
	api.change(func() { api.versions = []string{"v1"} })
	s.await("boat.ark")
}

// A missing right costs only that kind, and is noticed when it is granted or withdrawn.
func TestOptionalKind_Forbidden(t *testing.T) {
	api := newHarbour(t)
	api.versions, api.boats, api.list = []string{"v1"}, []string{"ark"}, http.StatusForbidden
	s := sail(t, api)
	s.await("")
	s.awaitForbidden(true)
	s.awaitProbed()
	// However often it is tried.
	await(t, "it is tried again", func() bool { return api.requests("/apis/sea.example.com/v1/boats") > 10 })
	if log := s.log(); strings.Count(log, "may not read the objects") != 1 || !strings.Contains(log, boatsName) || !strings.Contains(log, "list") {
		t.Errorf("the log says: %s", log)
	}
	api.change(func() { api.list = 0 })
	s.await("boat.ark")
	s.awaitForbidden(false)
	api.change(func() { api.list, api.watch = http.StatusForbidden, http.StatusForbidden })
	s.await("")
	s.awaitForbidden(true)
	api.change(func() { api.list, api.watch = 0, 0 })
	s.await("boat.ark")
	s.awaitForbidden(false)
	api.change(func() { api.watch = http.StatusForbidden }) // it is listed again and again
	s.awaitForbidden(true)
	if got := s.sink.show(); got != "boat.ark" {
		t.Errorf("what can be listed: %s", got)
	}
	api.change(func() { api.versions, api.list = nil, http.StatusForbidden })
	s.await("")
	api.change(func() { api.versions, api.list, api.watch = nil, 0, 0 })
	s.awaitForbidden(false)
}

// A kube-apiserver that has just started refuses what it allows a moment later: nothing is forgotten for that.
func TestOptionalKind_ForbiddenForAMoment(t *testing.T) {
	api := newHarbour(t)
	api.versions, api.boats = []string{"v1"}, []string{"ark"}
	api.denied = time.Hour
	s := sail(t, api)
	s.await("boat.ark")
	before := api.requests("/apis/sea.example.com/v1/boats")
	api.change(func() { api.list, api.watch = http.StatusForbidden, http.StatusForbidden })
	await(t, "it is tried again", func() bool { return api.requests("/apis/sea.example.com/v1/boats") > before+10 })
	if got := s.sink.show(); got != "boat.ark" {
		t.Errorf("after refusals: %s", got)
	}
	api.change(func() { api.list, api.watch, api.boats = 0, 0, []string{"ark", "raft"} })
	s.await("boat.ark boat.raft")
}

// A right is missing if lists are refused for a while in a row: after any other answer, that time begins again.
func TestOptionalKind_RefusalsInARow(t *testing.T) {
	now := testingclock.NewFakeClock(time.Unix(1_000_000, 0))
	x := NewIndex(now, &states{})
	k := boats()
	x.Within(Scope{Kinds: kind.Table{kind.BuiltIn()[0], k}})
	s := &stream{name: boatsName, part: workloadPart(k.Name), optional: k}
	x.optional.read[s.name] = true
	f := &followed{index: x, reader: &Reader{pace: defaultPace}, ask: make(chan struct{}, 1)}
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "boats"}, "", errors.New("no role"))
	failures, denied := 0, time.Time{}
	for i, err := range []error{refused, apierrors.NewTooManyRequests("later", 1), refused, refused} {
		f.listed(quiet(t), &followedKind{Kind: k}, s, err, &failures, &denied)
		if got, want := x.reads(s), i < 3; got != want {
			t.Errorf("after answer %d, the kind is read: %t, want %t", i, got, want)
		}
		now.Step(defaultPace.denied - time.Duration(2-i)*time.Second)
	}
}

// A definition that cannot be listed for another reason does not block the start, and keeps what was read.
func TestOptionalKind_ListsThatFail(t *testing.T) {
	for name, broken := range map[string]func(*harbour){
		"internal error": func(k *harbour) { k.list = http.StatusInternalServerError },
		"malformed":      func(k *harbour) { k.malformed = true },
		"not found, though it is served": func(k *harbour) {
			k.list = http.StatusNotFound
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := newHarbour(t)
			api.versions, api.boats = []string{"v1"}, []string{"ark"}
			broken(api)
			api.patience = 50 * time.Millisecond
			s := sail(t, api)
			s.await("")
			s.awaitProbed()
			api.change(func() { api.list, api.malformed = 0, false })
			s.await("boat.ark")
			s.awaitForbidden(false)
			before := api.requests("/apis/sea.example.com/v1/boats")
			api.change(func() {
				broken(api)
				if api.watch = api.list; api.watch == 0 {
					api.watch = http.StatusInternalServerError // so that it lists again
				}
			})
			await(t, "it fails again", func() bool { return api.requests("/apis/sea.example.com/v1/boats") > before+3 })
			if got := s.sink.show(); got != "boat.ark" {
				t.Errorf("while it fails again: %q", got)
			}
		})
	}
}

// Without an answer of the discovery, nothing comes or goes.
func TestOptionalKind_DiscoveryFails(t *testing.T) {
	for name, unknown := range map[string]func(*harbour, bool){
		"unavailable": func(k *harbour, is bool) {
			k.discovery = http.StatusOK
			if is {
				k.discovery = http.StatusServiceUnavailable
			}
		},
		"the group is stale": func(k *harbour, is bool) { k.stale = is },
	} {
		t.Run(name, func(t *testing.T) {
			api := newHarbour(t)
			api.versions, api.boats = []string{"v1"}, []string{"ark"}
			unknown(api, true)
			api.patience = 50 * time.Millisecond
			s := sail(t, api)
			s.await("") // it is not awaited forever
			api.change(func() { unknown(api, false) })
			s.await("boat.ark")
			before := api.requests("/apis")
			api.change(func() { unknown(api, true); api.versions = nil })
			await(t, "it asks again", func() bool { return api.requests("/apis") > before+10 })
			if got := s.sink.show(); got != "boat.ark" {
				t.Errorf("while it is not known: %q", got)
			}
			api.change(func() { unknown(api, false) })
			s.await("")
		})
	}
}

// A stream for each namespace comes and goes like one for all.
func TestOptionalKind_InNamespaces(t *testing.T) {
	api := newHarbour(t)
	s := sail(t, api, "ns", "other")
	s.await("")
	api.change(func() { api.versions, api.boats = []string{"v1"}, []string{"ark"} })
	s.await("boat.ark")
	await(t, "both are read", func() bool {
		p := s.LastProgress()
		return !p["ns/"+boatsName].IsZero() && !p["other/"+boatsName].IsZero()
	})
	api.change(func() { api.versions = nil })
	s.await("")
	await(t, "none is left", func() bool {
		p := s.LastProgress()
		return p["ns/"+boatsName].IsZero() && p["other/"+boatsName].IsZero()
	})
}

// emptyList returns the list of a resource by its path, without objects.
func emptyList(t *testing.T, path string, revision int) []byte {
	t.Helper()
	meta := metav1.ListMeta{ResourceVersion: fmt.Sprint(revision)}
	switch path[strings.LastIndex(path, "/")+1:] {
	case "deployments":
		return inProtobuf(t, &appsv1.DeploymentList{ListMeta: meta})
	case "pods":
		return inProtobuf(t, &corev1.PodList{ListMeta: meta})
	case "replicasets":
		return metadataInProtobuf(t, partialKind+"List", &metav1.PartialObjectMetadataList{ListMeta: meta})
	case "secrets":
		return inProtobuf(t, &corev1.SecretList{ListMeta: meta})
	case "configmaps":
		return inProtobuf(t, &corev1.ConfigMapList{ListMeta: meta})
	case "namespaces":
		return inProtobuf(t, &corev1.NamespaceList{ListMeta: meta})
	}
	t.Errorf("%s was asked for", path)
	return nil
}
