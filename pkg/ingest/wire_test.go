package ingest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/configdep/configdep/pkg/dependency"
)

// inProtobuf encodes an object as an API server does.
func inProtobuf(t testing.TB, o runtime.Object) []byte {
	t.Helper()
	encoder := scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), corev1.SchemeGroupVersion)
	raw, err := runtime.Encode(encoder, o)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func inJSON(t testing.TB, o runtime.Object) []byte {
	t.Helper()
	raw, err := runtime.Encode(scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion), o)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// frame encodes a watch event with an encoded object as an API server does.
func frame(t testing.TB, typ watch.EventType, object []byte) []byte {
	t.Helper()
	event := metav1.WatchEvent{Type: string(typ), Object: runtime.RawExtension{Raw: object}}
	raw, err := event.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...)
}

const protobufType = "application/vnd.kubernetes.protobuf"

// wire is the stream of a resource as it is read from a server that gives one answer.
type wire struct {
	client kubernetes.Interface
	lister cache.ListerWatcher
	asked  chan *http.Request
}

func newWire(t testing.TB, resource string, code int, contentType string, answer []byte) *wire {
	t.Helper()
	w := &wire{asked: make(chan *http.Request, 10)}
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
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: server.URL + "/behind/a/prefix", UserAgent: "tester", Transport: &http.Transport{DisableKeepAlives: true}, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: protobufType},
	})
	if err != nil {
		t.Fatal(err)
	}
	all := streams(testDigester())
	i := slices.IndexFunc(all, func(s *stream) bool { return s.name == resource })
	w.client, w.lister = client, all[i].lister(client)
	return w
}

// list lists, and fails the test if what comes are not reduced objects.
func (w *wire) list(t *testing.T, options metav1.ListOptions) (*metav1.List, error) {
	t.Helper()
	o, err := w.lister.(cache.ListerWatcherWithContext).ListWithContext(quiet(t), options)
	if err != nil {
		return nil, err
	}
	list, ok := o.(*metav1.List)
	if !ok {
		t.Fatalf("a %T comes", o)
	}
	for _, item := range list.Items {
		if _, ok := item.Object.(*object); !ok {
			t.Fatalf("a list with a %T comes", item.Object)
		}
	}
	return list, nil
}

// What is read from the wire is what client-go would have read, reduced.
func TestSourcesOnTheWireAreThoseOfTheClient(t *testing.T) {
	r := random(t)
	text := func() string { return pick(r, "", "k", "value", "\x00\xff", strings.Repeat("long ", 100)) }
	randomMeta := func(i int) metav1.ObjectMeta {
		m := metav1.ObjectMeta{
			Namespace: pick(r, "shop", "other"), Name: fmt.Sprint("s-", i), UID: "u", ResourceVersion: fmt.Sprint(r.Intn(1000)),
			CreationTimestamp: metav1.Unix(int64(r.Intn(1e9)), 0),
		}
		if r.Intn(2) == 0 {
			m.Annotations = map[string]string{pick(r, dependency.IgnoreAnnotation, dependency.MatchAnnotation, "other"): pick(r, "true", "false")}
			m.ManagedFields = []metav1.ManagedFieldsEntry{{Time: new(metav1.Unix(int64(r.Intn(2e9)), 0)), FieldsV1: metav1.NewFieldsV1(pick(r, `{"f:data":{}}`, `{}`))}}
		}
		return m
	}
	data := func() map[string][]byte {
		out := map[string][]byte{}
		for range r.Intn(4) {
			out[pick(r, "a", "b", "c.d", "long-"+strings.Repeat("k", 200))] = []byte(text())
		}
		return out
	}
	for range 200 {
		secrets, maps := &corev1.SecretList{}, &corev1.ConfigMapList{}
		secrets.ResourceVersion, secrets.Continue = fmt.Sprint(r.Intn(1000)), pick(r, "", "token")
		secrets.RemainingItemCount = new(int64(3))
		maps.ListMeta = secrets.ListMeta
		for i := range r.Intn(5) {
			secrets.Items = append(secrets.Items, corev1.Secret{ObjectMeta: randomMeta(i), Data: data(), Type: pick(r, "", corev1.SecretTypeTLS), Immutable: new(true)})
			m := corev1.ConfigMap{ObjectMeta: randomMeta(i), BinaryData: data(), Immutable: new(false)}
			for k, v := range data() {
				if m.Data == nil {
					m.Data = map[string]string{}
				}
				delete(m.BinaryData, k)
				m.Data[k] = strings.ToValidUTF8(string(v), "?")
			}
			maps.Items = append(maps.Items, m)
		}
		checkWire(t, dependency.Secret, inProtobuf(t, secrets),
			sources(dependency.Secret, "secrets", testDigester(), dependency.FromSecret, always[*corev1.SecretList](&cannedResource[*corev1.SecretList]{list: secrets})))
		checkWire(t, dependency.ConfigMap, inProtobuf(t, maps),
			sources(dependency.ConfigMap, "configmaps", testDigester(), dependency.FromConfigMap, always[*corev1.ConfigMapList](&cannedResource[*corev1.ConfigMapList]{list: maps})))
	}
}

func checkWire(t *testing.T, kind dependency.SourceKind, raw []byte, typed *stream) {
	t.Helper()
	got, _, err := (&sourceDecoder{kind, testDigester()}).Decode(raw, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Times are in the zone of whoever reads them.
	sameTime := cmp.Comparer(func(a, b metav1.Time) bool { return a.Equal(&b) })
	want := list(t, typed, metav1.ListOptions{})
	want.RemainingItemCount, got.(*metav1.List).RemainingItemCount = nil, nil // reflectors do not look at it
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(object{}), sameTime, cmp.Transformer("noKeys", func(k []dependency.KeyDigest) []dependency.KeyDigest {
		return append([]dependency.KeyDigest{}, k...) // none are the same as an empty list
	})); diff != "" {
		t.Fatalf("(-client +wire):\n%s", diff)
	}
}

// Values are overwritten in the buffer that came from the network: no copy is ever made.
func TestContentIsOverwrittenOnTheWire(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Data: map[string][]byte{"password": []byte(password), "more": []byte(password)}}
	maps := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings"},
		Data:       map[string]string{"text": password}, BinaryData: map[string][]byte{"binary": []byte(password)},
	}
	for kind, raw := range map[dependency.SourceKind][]byte{dependency.Secret: inProtobuf(t, secret), dependency.ConfigMap: inProtobuf(t, maps)} {
		if n := bytes.Count(raw, []byte(password)); n != 2 {
			t.Fatalf("%s: the password is found %d times: this test looks in the wrong place", kind, n)
		}
		o, _, err := (&sourceDecoder{kind, testDigester()}).Decode(raw, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(raw, []byte(password)) {
			t.Errorf("%s: the buffer still holds the password", kind)
		}
		if got := o.(*object); len(got.source.Keys) != 2 {
			t.Errorf("%s: the keys are %v", kind, got.source.Keys)
		}
	}
}

// What is asked of the API server, by way of a client with its credentials and its path.
func TestListsOnTheWire(t *testing.T) {
	secrets := &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: "42", Continue: "token"}, Items: []corev1.Secret{*secretWith(password)}}
	w := newWire(t, "secrets", http.StatusOK, protobufType, inProtobuf(t, secrets))
	got, err := w.list(t, metav1.ListOptions{Limit: 100, ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(metav1.ListMeta{ResourceVersion: "42", Continue: "token"}, got.ListMeta); diff != "" || len(got.Items) != 1 {
		t.Errorf("%d items, metadata of the list (-want +got):\n%s", len(got.Items), diff)
	}
	asked := <-w.asked
	if asked.URL.String() != "/behind/a/prefix/api/v1/secrets?limit=100" || asked.UserAgent() != "tester" || asked.Header.Get("Accept") != protobufType {
		t.Errorf("asked for %s as %s, accepting %s", asked.URL, asked.UserAgent(), asked.Header.Get("Accept"))
	}
}

func TestEventsOnTheWire(t *testing.T) {
	bookmark := &corev1.Secret{}
	bookmark.ResourceVersion, bookmark.Annotations = "9", map[string]string{metav1.InitialEventsAnnotationKey: "true", "other": "x"}
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
	if asked := (<-wire.asked).URL.String(); asked != "/behind/a/prefix/api/v1/secrets?allowWatchBookmarks=true&resourceVersion=5&watch=true" {
		t.Errorf("asked for %s", asked)
	}
	for _, typ := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
		event := <-w.ResultChan()
		o, ok := event.Object.(*object)
		if !ok || event.Type != typ || o.source == nil || o.Name != "db" || o.ResourceVersion != "7" || len(o.source.Keys) != 1 ||
			o.source.Keys[0] != dependency.FromSecret(testDigester(), secretWith(password)).Keys[0] {
			t.Errorf("%s: event %s with %+v", typ, event.Type, event.Object)
		}
	}
	event := <-w.ResultChan()
	if o, ok := event.Object.(*object); !ok || event.Type != watch.Bookmark || o.kept() || o.ResourceVersion != "9" ||
		!cmp.Equal(o.Annotations, map[string]string{metav1.InitialEventsAnnotationKey: "true"}) {
		t.Errorf("bookmark: event %s with %+v", event.Type, event.Object)
	}
	event = <-w.ResultChan()
	if status, ok := event.Object.(*metav1.Status); !ok || event.Type != watch.Error || status.Reason != metav1.StatusReasonExpired {
		t.Errorf("error: event %s with %+v", event.Type, event.Object)
	}
}

// Errors are what the reflector needs to know, in whatever format they come, and none of
// what comes in the place of Secrets is passed on: it may be Secrets in another format.
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
		"expired":                       {http.StatusGone, protobufType, inProtobuf(t, &expired), apierrors.IsResourceExpired},
		"expired, in JSON":              {http.StatusGone, "application/json", inJSON(t, &expired), apierrors.IsResourceExpired},
		"forbidden, in JSON":            {http.StatusForbidden, "application/json", inJSON(t, &forbidden), apierrors.IsForbidden},
		"a page of a proxy":             {http.StatusBadGateway, "text/html", []byte("<html>"), func(err error) bool { return err != nil }},
		"what is no object":             {http.StatusOK, protobufType, []byte("PASSWORD"), func(err error) bool { return err != nil }},
		"half an object":                {http.StatusOK, protobufType, inProtobuf(t, secrets)[:100], func(err error) bool { return err != nil }},
		"ConfigMaps in their place":     {http.StatusOK, protobufType, inProtobuf(t, &corev1.ConfigMapList{}), func(err error) bool { return err != nil }},
		"Secrets in JSON, unasked":      {http.StatusOK, "application/json", inJSON(t, secrets), func(err error) bool { return err != nil }},
		"a page of a proxy, with a 200": {http.StatusOK, "text/html", []byte("<html>"), func(err error) bool { return err != nil }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, "secrets", tt.code, tt.contentType, tt.body)
			got, err := w.list(t, metav1.ListOptions{})
			if !tt.is(err) {
				t.Errorf("list %v, error %v", got, err)
			}
			if err != nil && strings.Contains(err.Error(), password) {
				t.Errorf("the error tells content: %v", err)
			}
		})
	}
	t.Run("a watch in JSON, unasked", func(t *testing.T) {
		event := append([]byte(`{"type":"ADDED","object":`), append(inJSON(t, secretWith(password)), '}')...)
		w, err := newWire(t, "secrets", http.StatusOK, "application/json", event).lister.(cache.ListerWatcherWithContext).WatchWithContext(quiet(t), metav1.ListOptions{})
		if err != nil {
			return
		}
		defer w.Stop()
		for e := range w.ResultChan() {
			if status, ok := e.Object.(*metav1.Status); !ok || e.Type != watch.Error || strings.Contains(status.Message, password) {
				t.Errorf("event %s with a %T passes: %v", e.Type, e.Object, e.Object)
			}
		}
	})
}

// However verbose the program is, client-go dumps no answer into the log.
func TestSourcesOnTheWireAreNotLogged(t *testing.T) {
	w := newWire(t, "secrets", http.StatusOK, protobufType, inProtobuf(t, &corev1.SecretList{Items: []corev1.Secret{*secretWith(password)}}))
	dumped := regexp.MustCompile(`(?m)[0-9a-f]{8}  ([0-9a-f]{2} {1,2}){8}`)
	logged := func(request func(context.Context) error) string {
		logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.Verbosity(10), ktesting.BufferLogs(true)))
		if err := request(klog.NewContext(t.Context(), logger)); err != nil {
			t.Fatal(err)
		}
		return logger.GetSink().(ktesting.Underlier).GetBuffer().String()
	}
	if log := logged(func(ctx context.Context) error {
		_, err := w.client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
		return err
	}); !dumped.MatchString(log) {
		t.Fatalf("client-go does not log bodies any more, or not so that this test finds them:\n%s", log)
	}
	if log := logged(func(ctx context.Context) error {
		_, err := w.lister.(cache.ListerWatcherWithContext).ListWithContext(ctx, metav1.ListOptions{})
		return err
	}); dumped.MatchString(log) {
		t.Errorf("the log has a body:\n%s", log)
	}
}

// FuzzSourceDecoder: whatever comes is refused, or decoded into what can be kept; and what
// client-go can read as well has the keys that it finds there.
func FuzzSourceDecoder(f *testing.F) {
	r := rand.New(rand.NewSource(1))
	secret, maps := secretWith(password), &corev1.ConfigMap{Data: map[string]string{"a": "1"}, BinaryData: map[string][]byte{"b": {0}}}
	for _, seed := range []runtime.Object{
		secret, maps, &corev1.SecretList{Items: []corev1.Secret{*secret, {}}}, &corev1.ConfigMapList{Items: []corev1.ConfigMap{*maps}},
		&metav1.Status{Message: "x"}, &corev1.Pod{},
	} {
		raw := inProtobuf(f, seed)
		f.Add(raw)
		f.Add(raw[:len(raw)/2])
		for range 5 {
			spoilt := bytes.Clone(raw)
			spoilt[r.Intn(len(spoilt))] ^= byte(1 << r.Intn(8))
			f.Add(spoilt)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, kind := range []dependency.SourceKind{dependency.Secret, dependency.ConfigMap} {
			o, _, err := (&sourceDecoder{kind, testDigester()}).Decode(bytes.Clone(raw), nil, nil)
			if err != nil {
				continue
			}
			switch o := o.(type) {
			case *object, *metav1.Status:
			case *metav1.List:
				for _, item := range o.Items {
					if _, ok := item.Object.(*object); !ok {
						t.Errorf("a list with a %T", item.Object)
					}
				}
			default:
				t.Errorf("a %T", o)
			}
		}
	})
}
