// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/dependency/dependencytest"
	"github.com/configdep/configdep/pkg/policy"
)

// wire is a stream of a resource from a server that gives one answer.
type wire struct {
	client kubernetes.Interface
	reader *Reader
	lister cache.ListerWatcher
	asked  chan *http.Request
	events chan watch.Event // of its watches
}

func newWire(t testing.TB, resource string, code int, contentType string, answer []byte) *wire {
	t.Helper()
	return newWireOf(t, streamOf(t, resource), code, contentType, answer)
}

func newWireOf(t testing.TB, s *stream, code int, contentType string, answer []byte) *wire {
	t.Helper()
	w := &wire{asked: make(chan *http.Request, 10), events: make(chan watch.Event, 10)}
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.asked <- r
		if r.URL.Query().Get("watch") != "" && contentType == protobufType {
			contentType += ";stream=watch"
		}
		out.Header().Set("Content-Type", contentType)
		out.WriteHeader(code)
		if _, err := out.Write(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{
		Host: server.URL + "/behind/a/prefix", UserAgent: "tester", Transport: &http.Transport{DisableKeepAlives: true}, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: protobufType},
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := NewReader(config, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	w.client, w.reader, w.lister = client, reader, reader.lister(s, make(chan time.Duration, 1), func(what watch.EventType, o *object) { w.events <- watch.Event{Type: what, Object: o} })
	return w
}

// list lists, and fails the test if the result contains anything but reduced objects.
func (w *wire) list(t *testing.T, options metav1.ListOptions) (*metav1.List, error) {
	t.Helper()
	o, err := w.lister.(cache.ListerWatcherWithContext).ListWithContext(quiet(t), options)
	if err != nil {
		return nil, err
	}
	list, ok := o.(*metav1.List)
	if !ok {
		t.Fatalf("got a %T, want a list", o)
	}
	for _, item := range list.Items {
		if _, ok := item.Object.(*object); !ok {
			t.Fatalf("got a list with a %T, want reduced objects", item.Object)
		}
	}
	return list, nil
}

// Values, and the annotation of kubectl apply, are overwritten in the buffer from the network
// before a copy is made.
func TestContentIsOverwrittenOnTheWire(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "some", Annotations: map[string]string{
		corev1.LastAppliedConfigAnnotation: `{"stringData":{"password":"` + password + `"}}`, policy.IgnoreAnnotation: "true",
	}}
	secret := &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"password": []byte(password), "more": []byte(password)}}
	maps := &corev1.ConfigMap{
		ObjectMeta: meta,
		Data:       map[string]string{"text": password}, BinaryData: map[string][]byte{"binary": []byte(password)},
	}
	for kind, raw := range map[dependency.SourceKind][]byte{dependency.Secret: inProtobuf(t, secret), dependency.ConfigMap: inProtobuf(t, maps)} {
		if n := bytes.Count(raw, []byte(password)); n != 3 {
			t.Fatalf("%s: found the password %d times in the encoded object: this test looks in the wrong place", kind, n)
		}
		o, err := streamOf(t, strings.ToLower(string(kind))+"s").decodeAny(raw)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(raw, []byte(password)) {
			t.Errorf("%s: the buffer still holds the password", kind)
		}
		if got := sourceOf(o.(*object)); len(got.Keys) != 2 || !got.Ignored {
			t.Errorf("%s: read as %+v", kind, got)
		}
	}
}

// Requests use the credentials and the path of the configuration, and ask for the whole current
// state, whatever the reflector would start with.
func TestListsOnTheWire(t *testing.T) {
	secrets := &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: "42"}, Items: []corev1.Secret{*secretWith(password)}}
	w := newWire(t, "secrets", http.StatusOK, protobufType, inProtobuf(t, secrets))
	got, err := w.list(t, metav1.ListOptions{Limit: 500, ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(metav1.ListMeta{ResourceVersion: "42"}, got.ListMeta); diff != "" || len(got.Items) != 1 {
		t.Errorf("%d items, metadata of the list (-want +got):\n%s", len(got.Items), diff)
	}
	asked := <-w.asked
	if asked.URL.String() != "/behind/a/prefix/api/v1/secrets" || asked.UserAgent() != "tester" || asked.Header.Get("Accept") != protobufType {
		t.Errorf("request = %s as %s, accepting %s", asked.URL, asked.UserAgent(), asked.Header.Get("Accept"))
	}
}

func TestEventsOnTheWire(t *testing.T) {
	bookmark := &corev1.Secret{}
	bookmark.ResourceVersion = "9"
	gone := apierrors.NewResourceExpired("too old").ErrStatus
	gone.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	var body []byte
	for _, typ := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
		body = append(body, frame(t, typ, inProtobuf(t, secretWith(password)))...)
	}
	body = append(body, frame(t, watch.Bookmark, inProtobuf(t, bookmark))...)
	body = append(body, frame(t, watch.Error, inProtobuf(t, &gone))...)
	wire := newWire(t, "secrets", http.StatusOK, protobufType, body)
	w, err := wire.lister.(cache.ListerWatcherWithContext).WatchWithContext(quiet(t), metav1.ListOptions{ResourceVersion: "5", AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if asked := (<-wire.asked).URL.String(); asked != "/behind/a/prefix/api/v1/secrets?allowWatchBookmarks=true&resourceVersion=5&timeoutSeconds=5&watch=true" {
		t.Errorf("request = %s", asked)
	}
	errs := w.ResultChan()
	for _, typ := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
		event := <-wire.events
		o, ok := event.Object.(*object)
		if !ok || event.Type != typ || sourceOf(o) == nil || o.Name != "db" || o.ResourceVersion != "7" || len(sourceOf(o).Keys) != 1 ||
			sourceOf(o).Keys[0] != dependencytest.Source(testDigester(), secretWith(password), dependency.SourceMarks{}).Keys[0] {
			t.Errorf("%s: event %s with %+v", typ, event.Type, event.Object)
		}
	}
	event := <-wire.events
	if o, ok := event.Object.(*object); !ok || event.Type != watch.Bookmark || o.value != nil || o.ResourceVersion != "9" {
		t.Errorf("bookmark: event %s with %+v", event.Type, event.Object)
	}
	event = <-errs
	if status, ok := event.Object.(*metav1.Status); !ok || event.Type != watch.Error || status.Reason != metav1.StatusReasonExpired {
		t.Errorf("error: event %s with %+v", event.Type, event.Object)
	}

	// The reflector has not seen the events, so it would begin the next watch where the list was.
	again, err := wire.lister.(cache.ListerWatcherWithContext).WatchWithContext(quiet(t), metav1.ListOptions{ResourceVersion: "5"})
	if err != nil {
		t.Fatal(err)
	}
	again.Stop()
	if got := (<-wire.asked).URL.Query().Get("resourceVersion"); got != "9" {
		t.Errorf("the next watch begins at %s, want 9", got)
	}
}

// A reflector lists after it has stopped a watch. What it lists is newer, so that no event of the watch may follow.
func TestWatch_AppliesNothingAfterStop(t *testing.T) {
	event := frame(t, watch.Added, inProtobuf(t, secretWith(password)))
	synctest.Test(t, func(t *testing.T) {
		answer, body := io.Pipe()
		goOn, stopped := make(chan struct{}), false
		w := newEventWatch(answer, streamOf(t, "secrets"), func() { answer.CloseWithError(context.Canceled) }, func(watch.EventType, *object) {
			<-goOn
			if stopped {
				t.Error("an event was applied after Stop")
			}
		})
		go func() { _, _ = body.Write(append(event, event...)) }()
		w.ResultChan()
		synctest.Wait() // the first event is being applied, and the second has been read
		go func() {
			w.Stop()
			stopped = true
		}()
		synctest.Wait()
		if stopped {
			t.Error("Stop returned while an event was being applied")
		}
		close(goOn)
		synctest.Wait()
		if !stopped {
			t.Error("Stop does not return")
		}
	})
}

// After an outage, a watch is stopped at once, so that the reflector lists: its events may be those of another etcd.
func TestWatch_StoppedAtOnceAppliesNothing(t *testing.T) {
	answer := io.NopCloser(bytes.NewReader(frame(t, watch.Added, inProtobuf(t, secretWith(password)))))
	w := newEventWatch(answer, streamOf(t, "secrets"), func() {}, func(watch.EventType, *object) { t.Error("an event was applied") })
	w.Stop()
	if _, open := <-w.ResultChan(); open {
		t.Error("the watch goes on")
	}
}

// After a connection that broke, there is nothing to list again for.
func TestWatch_ThatBreaksOffIsNoError(t *testing.T) {
	event := frame(t, watch.Added, inProtobuf(t, secretWith(password)))
	for _, cut := range []int{0, 2, 20, len(event)} {
		w, err := newWire(t, "secrets", http.StatusOK, protobufType, event[:cut]).lister.(cache.ListerWatcherWithContext).WatchWithContext(quiet(t), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for e := range w.ResultChan() {
			t.Errorf("after %d bytes: event %s with %v", cut, e.Type, e.Object)
		}
	}
}

// After a list, a watch begins where the reflector says.
func TestWatch_BeginsAtTheLastList(t *testing.T) {
	w := newWire(t, "secrets", http.StatusOK, protobufType, frame(t, watch.Added, inProtobuf(t, secretWith(password))))
	begin := func() string {
		t.Helper()
		watching, err := w.lister.(cache.ListerWatcherWithContext).WatchWithContext(quiet(t), metav1.ListOptions{ResourceVersion: "5"})
		if err != nil {
			t.Fatal(err)
		}
		for range watching.ResultChan() {
		}
		return (<-w.asked).URL.Query().Get("resourceVersion")
	}
	if first, second := begin(), begin(); first != "5" || second != "7" {
		t.Errorf("watches begin at %s and %s, want 5 and 7", first, second)
	}
	_, _ = w.list(t, metav1.ListOptions{}) // which fails, as the reflector knows
	<-w.asked
	if got := begin(); got != "5" {
		t.Errorf("a watch begins at %s, want 5", got)
	}
}

// The current revision is the revision of an empty list, which the API server must not answer
// from its cache.
func TestTheRevisionOfAStreamIsThatOfTheMoment(t *testing.T) {
	list := inProtobuf(t, &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "77"}})
	w := newWire(t, "pods", http.StatusOK, protobufType, list)
	v, err := w.reader.revision(quiet(t), streamOf(t, "pods"))
	if err != nil || v != 77 {
		t.Errorf("revision %d, %v", v, err)
	}
	asked := (<-w.asked).URL.Query()
	if got := asked.Get("fieldSelector"); got != "status.phase!=Succeeded,status.phase!=Failed,metadata.name=-,metadata.namespace=kube-system" {
		t.Errorf("fields %s", got)
	}
	for _, parameter := range []string{"resourceVersion", "resourceVersionMatch", "limit", "watch"} {
		if asked.Has(parameter) {
			t.Errorf("parameter %s=%s", parameter, asked.Get(parameter))
		}
	}

	w = newWire(t, "namespaces", http.StatusOK, protobufType, inProtobuf(t, &corev1.NamespaceList{ListMeta: metav1.ListMeta{ResourceVersion: "78"}}))
	if v, err := w.reader.revision(quiet(t), streamOf(t, "namespaces")); err != nil || v != 78 {
		t.Errorf("revision %d, %v", v, err)
	}
	if got := (<-w.asked).URL.Query().Get("fieldSelector"); got != "metadata.name=-" { // namespaces are cluster-scoped
		t.Errorf("fields %s", got)
	}
	w = newWire(t, "secrets", http.StatusOK, protobufType, inProtobuf(t, &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: "79"}}))
	for _, s := range (Scope{Namespaces: []string{"shop"}}).streams(nil) {
		if s.part != sourcePart(dependency.Secret) {
			continue
		}
		if v, err := w.reader.revision(quiet(t), s); err != nil || v != 79 {
			t.Errorf("revision %d, %v", v, err)
		}
		if asked := <-w.asked; strings.Contains(asked.URL.Query().Get("fieldSelector"), "metadata.namespace") { // the path has one
			t.Errorf("request = %s, want no namespace among the fields", asked.URL)
		}
	}

	for name, wire := range map[string]*wire{
		"an error":             newWire(t, "pods", http.StatusInternalServerError, protobufType, nil),
		"another list":         newWire(t, "pods", http.StatusOK, protobufType, inProtobuf(t, &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: "77"}})),
		"a list of no version": newWire(t, "pods", http.StatusOK, protobufType, inProtobuf(t, &corev1.PodList{})),
		"a word for a version": newWire(t, "pods", http.StatusOK, protobufType, inProtobuf(t, &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "x"}})),
	} {
		if v, err := wire.reader.revision(quiet(t), streamOf(t, "pods")); err == nil {
			t.Errorf("%s: got revision %d, want an error", name, v)
		}
	}
}

// The first watch is short, so that the watermark soon passes the first lists; the others last
// as configured. The prober is told of the last watch that has begun.
func TestHowLongWatchesLast(t *testing.T) {
	w := newWire(t, "secrets", http.StatusOK, protobufType, nil)
	watches := make(chan time.Duration, 1)
	lister := w.reader.lister(streamOf(t, "secrets"), watches, nil).(cache.ListerWatcherWithContext)
	for i, want := range []string{"5", "60", "60"} {
		// A reflector would ask for a random duration.
		events, err := lister.WatchWithContext(quiet(t), metav1.ListOptions{ResourceVersion: "5", TimeoutSeconds: new(int64(123))})
		if err != nil {
			t.Fatal(err)
		}
		events.Stop()
		if got := (<-w.asked).URL.Query().Get("timeoutSeconds"); got != want {
			t.Errorf("watch %d lasts %s s, want %s", i, got, want)
		}
		if i == 0 {
			continue // no probe was waiting for the first watch
		}
		if got := <-watches; got != time.Minute || len(watches) != 0 {
			t.Errorf("duration of watch %d that the prober is told = %s", i, got)
		}
	}
}

// The reflector needs to know the kind of an error, in whatever format. Unexpected responses
// are not passed on, because they may contain Secrets in another format.
func TestErrorsOnTheWire(t *testing.T) {
	expired := apierrors.NewResourceExpired("too old").ErrStatus
	forbidden := apierrors.NewForbidden(corev1.Resource("secrets"), "", nil).ErrStatus
	secrets := &corev1.SecretList{Items: []corev1.Secret{*secretWith(password)}}
	for name, tt := range map[string]struct {
		code        int
		contentType string
		body        []byte
		is          func(error) bool
	}{
		"expired":                                  {http.StatusGone, protobufType, inProtobuf(t, &expired), apierrors.IsResourceExpired},
		"expired, in JSON":                         {http.StatusGone, "application/json", inJSON(t, &expired), apierrors.IsResourceExpired},
		"forbidden, in JSON":                       {http.StatusForbidden, "application/json", inJSON(t, &forbidden), apierrors.IsForbidden},
		"a page of a proxy":                        {http.StatusBadGateway, "text/html", []byte("<html>"), func(err error) bool { return err != nil }},
		"an invalid object":                        {http.StatusOK, protobufType, []byte("PASSWORD"), func(err error) bool { return err != nil }},
		"half an object":                           {http.StatusOK, protobufType, inProtobuf(t, secrets)[:100], func(err error) bool { return err != nil }},
		"ConfigMaps instead of Secrets":            {http.StatusOK, protobufType, inProtobuf(t, &corev1.ConfigMapList{}), func(err error) bool { return err != nil }},
		"Secrets in JSON, which was not requested": {http.StatusOK, "application/json", inJSON(t, secrets), func(err error) bool { return err != nil }},
		"a page of a proxy, with a 200":            {http.StatusOK, "text/html", []byte("<html>"), func(err error) bool { return err != nil }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, "secrets", tt.code, tt.contentType, tt.body)
			got, err := w.list(t, metav1.ListOptions{})
			if !tt.is(err) {
				t.Errorf("list = %v, error = %v", got, err)
			}
			if err != nil && strings.Contains(err.Error(), password) {
				t.Errorf("the error contains content of a Secret: %v", err)
			}
		})
	}
	t.Run("a watch in JSON, which was not requested", func(t *testing.T) {
		event := append([]byte(`{"type":"ADDED","object":`), append(inJSON(t, secretWith(password)), '}')...)
		w, err := newWire(t, "secrets", http.StatusOK, "application/json", event).lister.(cache.ListerWatcherWithContext).WatchWithContext(quiet(t), metav1.ListOptions{})
		if err != nil {
			return
		}
		defer w.Stop()
		for e := range w.ResultChan() {
			if status, ok := e.Object.(*metav1.Status); !ok || e.Type != watch.Error || strings.Contains(status.Message, password) {
				t.Errorf("got event %s with a %T: %v", e.Type, e.Object, e.Object)
			}
		}
	})
}

// FuzzReader: any input is refused, or decoded into objects that may be kept.
func FuzzReader(f *testing.F) {
	r := rand.New(rand.NewSource(1))
	secret, maps := secretWith(password), &corev1.ConfigMap{Data: map[string]string{"a": "1"}, BinaryData: map[string][]byte{"b": {0}}}
	for _, seed := range []runtime.Object{
		secret, maps, &corev1.SecretList{Items: []corev1.Secret{*secret, {}}}, &corev1.ConfigMapList{Items: []corev1.ConfigMap{*maps}},
		&metav1.Status{Message: "x"}, &corev1.Pod{}, &appsv1.DeploymentList{Items: []appsv1.Deployment{*webDeployment()}},
	} {
		raw := inProtobuf(f, seed)
		f.Add(raw)
		f.Add(raw[:len(raw)/2])
		for range 5 {
			damaged := bytes.Clone(raw)
			damaged[r.Intn(len(damaged))] ^= byte(1 << r.Intn(8))
			f.Add(damaged)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, resource := range []string{"secrets", "configmaps", "deployments"} {
			s := streamOf(t, resource)
			if o, err := s.decodeAny(bytes.Clone(raw)); err == nil {
				switch o.(type) {
				case *object, *metav1.Status:
				default:
					t.Errorf("got a %T", o)
				}
			}
			if list, err := readList(bytes.NewReader(bytes.Clone(raw)), s); err == nil {
				for _, item := range list.Items {
					if _, ok := item.Object.(*object); !ok {
						t.Errorf("got a list with a %T", item.Object)
					}
				}
			}
		}
	})
}

// hanging is an API server that begins to answer, and then sends nothing.
type hanging struct{ ctx context.Context }

func (hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	header := http.Header{"Content-Type": {protobufType + ";stream=watch"}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: hanging{r.Context()}, Request: r}, nil
}

func (h hanging) Read([]byte) (int, error) {
	<-h.ctx.Done()
	return 0, h.ctx.Err()
}

func (hanging) Close() error { return nil }

// A watch ends even if the server sends nothing, not even its end.
func TestWatchThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, err := NewReader(&rest.Config{Host: "http://api", Transport: hanging{}, QPS: -1}, 2*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		lister := reader.lister(streamOf(t, "secrets"), make(chan time.Duration, 1), nil).(cache.ListerWatcherWithContext)
		for _, lasts := range []time.Duration{firstWatch, 2 * time.Minute} {
			begin := time.Now()
			w, err := lister.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "5"})
			if err != nil {
				t.Fatal(err)
			}
			for e := range w.ResultChan() {
				t.Errorf("got event %s with %v", e.Type, e.Object)
			}
			w.Stop()
			if took := time.Since(begin); took != lasts+watchGrace {
				t.Errorf("a watch of %v took %v", lasts, took)
			}
		}
	})
}

// outage is an API server that cannot be reached for a while, and then hangs.
type outage struct {
	lasts atomic.Bool
	err   error
}

func (o *outage) RoundTrip(r *http.Request) (*http.Response, error) {
	if o.lasts.Load() {
		return nil, o.err
	}
	return hanging{}.RoundTrip(r)
}

// After a time in which there was no API server, a stream is listed again, however it could not be reached: etcd may have been restored, and a
// watch does not show what that has changed.
func TestWatchAfterAnOutage(t *testing.T) {
	for name, tt := range map[string]struct {
		err   error
		lasts time.Duration
		lists func(error) bool
	}{
		"connections are refused": {&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, 5 * time.Second, apierrors.IsResourceExpired}, // sooner than client-go would give up
		"and for longer":          {&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, time.Hour, apierrors.IsResourceExpired},       // than a watch would last
		// As by a balancer without backends.
		"connections end at once": {io.EOF, 5 * time.Second, func(err error) bool { return errors.Is(err, io.EOF) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &outage{err: tt.err}
				reader, err := NewReader(&rest.Config{Host: "http://api", Transport: server, QPS: -1}, 2*time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				lister := reader.lister(streamOf(t, "secrets"), make(chan time.Duration, 1), nil).(cache.ListerWatcherWithContext)
				watch := func() error {
					w, err := lister.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "5"})
					if err == nil {
						w.Stop()
					}
					return err
				}
				for range 2 {
					if err := watch(); err != nil {
						t.Errorf("a watch fails: %v", err)
					}
					server.lasts.Store(true)
					back := make(chan struct{})
					time.AfterFunc(tt.lasts, func() { server.lasts.Store(false); close(back) })
					if err := watch(); !tt.lists(err) {
						t.Errorf("the watch after an outage ends with %v", err)
					}
					<-back
				}
			})
		})
	}
}
