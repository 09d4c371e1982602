// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"bytes"
	"fmt"
	"math/rand"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/dump"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

const (
	tokenType   = "kubernetes.io/service-account-token"
	releaseType = "helm.sh/release.v1"
)

// typed is a scope in which two types of Secrets are not read.
var typed = Scope{UnreadTypes: []string{tokenType, releaseType}}

// metadataInProtobuf encodes the metadata of objects as an API server does: of one, or of a list.
func metadataInProtobuf(t *testing.T, kind string, o interface{ Marshal() ([]byte, error) }) []byte {
	t.Helper()
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: kind}, Raw: inner(t, o)}
	return append([]byte(magic), inner(t, &envelope)...)
}

// The requests of each stream: the path, the fields, and the format of lists and of watches.
func TestScope_Secrets(t *testing.T) {
	const protobuf, metadata = "application/vnd.kubernetes.protobuf", ";as=PartialObjectMetadata%s;g=meta.k8s.io;v=v1"
	whole := func(path, fields string) []string { return []string{path, fields, protobuf, protobuf} }
	partial := func(path, fields string) []string {
		return []string{path, fields, protobuf + fmt.Sprintf(metadata, "List"), protobuf + fmt.Sprintf(metadata, "")}
	}
	for name, tt := range map[string]struct {
		scope Scope
		want  map[string][]string
	}{
		"all":  {everything, map[string][]string{"secrets": whole("/api/v1/secrets", "")}},
		"none": {Scope{WithoutSecrets: true, UnreadTypes: []string{tokenType}}, map[string][]string{}},
		"some types": {typed, map[string][]string{
			"secrets":                whole("/api/v1/secrets", "type!="+tokenType+",type!="+releaseType),
			"secrets/" + tokenType:   partial("/api/v1/secrets", "type="+tokenType),
			"secrets/" + releaseType: partial("/api/v1/secrets", "type="+releaseType),
		}},
		"some types in one namespace": {Scope{Namespaces: []string{"shop"}, UnreadTypes: []string{releaseType}}, map[string][]string{
			"shop/secrets":                whole("/api/v1/namespaces/shop/secrets", "type!="+releaseType),
			"shop/secrets/" + releaseType: partial("/api/v1/namespaces/shop/secrets", "type="+releaseType),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string][]string{}
			for _, s := range tt.scope.streams(testDigester()) {
				if _, unread := s.part.(unreadPart); s.part != sourcePart(dependency.Secret) && !unread {
					continue
				}
				w := newWireOf(t, s, http.StatusForbidden, "text/plain", nil)
				if _, err := w.list(t, metav1.ListOptions{}); err == nil {
					t.Fatal("no error")
				}
				listed := <-w.asked
				if _, err := w.lister.(cache.ListerWatcherWithContext).WatchWithContext(quiet(t), metav1.ListOptions{}); err == nil {
					t.Fatal("no error")
				}
				watched := <-w.asked
				fields := listed.URL.Query().Get("fieldSelector")
				if other := watched.URL.Query().Get("fieldSelector"); other != fields {
					t.Errorf("%s: listed with fields %s, watched with %s", s.name, fields, other)
				}
				got[s.name] = []string{strings.TrimPrefix(listed.URL.Path, "/behind/a/prefix"), fields, listed.Header.Get("Accept"), watched.Header.Get("Accept")}
				if _, err := w.reader.revision(quiet(t), s); err == nil {
					t.Fatal("no error")
				}
				if probed := (<-w.asked).URL.Query().Get("fieldSelector"); !strings.HasPrefix(probed, strings.TrimPrefix(fields+",metadata.name=-", ",")) {
					t.Errorf("%s: request for the revision = %s", s.name, probed)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("requests for Secrets (-want +got):\n%s", diff)
			}
		})
	}
}

func tokenOf(secret *corev1.Secret) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: secret.ObjectMeta}
}

// For Secrets that are not read, only their existence is known. If an API server sends whole Secrets, they are refused.
func TestUnreadOnTheWire(t *testing.T) {
	s := unread(tokenType)
	secret := secretWith(password)
	secret.CreationTimestamp = metav1.Unix(1_700_000_000, 0)
	want := dependency.Unread{
		SourceKey: dependency.SourceKey{Kind: dependency.Secret, Namespace: "shop", Name: "db"},
		Type:      tokenType, UID: "u", ResourceVersion: "7", Created: secret.CreationTimestamp,
	}
	list := metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "42"}, Items: []metav1.PartialObjectMetadata{*tokenOf(secret)}}
	w := newWireOf(t, s, http.StatusOK, protobufType+";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", metadataInProtobuf(t, partialKind+"List", &list))
	got, err := w.list(t, metav1.ListOptions{})
	if err != nil || got.ResourceVersion != "42" || len(got.Items) != 1 {
		t.Fatalf("list = %+v, error %v", got, err)
	}
	if diff := cmp.Diff(&want, got.Items[0].Object.(*object).value); diff != "" {
		t.Errorf("objects in a list (-want +got):\n%s", diff)
	}

	bookmark := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9"}}
	raw := metadataInProtobuf(t, partialKind, tokenOf(secret))
	body := append(frame(t, watch.Modified, raw), frame(t, watch.Bookmark, metadataInProtobuf(t, partialKind, bookmark))...)
	body = append(body, frame(t, watch.Modified, inProtobuf(t, secretWith(password)))...)
	w = newWireOf(t, s, http.StatusOK, protobufType, body)
	events, err := w.lister.(cache.ListerWatcherWithContext).WatchWithContext(quiet(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	events.ResultChan()
	event := <-w.events
	if diff := cmp.Diff(&want, event.Object.(*object).value); diff != "" || event.Type != watch.Modified {
		t.Errorf("object in an event %s (-want +got):\n%s", event.Type, diff)
	}
	if strings.Contains(dump.Pretty(event.Object), password) {
		t.Error("the event contains the password")
	}
	event = <-w.events
	if o, ok := event.Object.(*object); !ok || event.Type != watch.Bookmark || o.value != nil || o.ResourceVersion != "9" {
		t.Errorf("bookmark: event %s with %+v", event.Type, event.Object)
	}
	if event = <-events.ResultChan(); event.Type != watch.Error {
		t.Errorf("a whole Secret is accepted as %s %+v", event.Type, event.Object)
	}
	if _, err := readList(bytes.NewReader(inProtobuf(t, &corev1.SecretList{Items: []corev1.Secret{*secretWith(password)}})), s); err == nil {
		t.Error("a list of whole Secrets is accepted")
	}
	// The annotation of kubectl apply is overwritten in the buffer.
	raw = inner(t, tokenOf(secret))
	before := bytes.Count(raw, []byte(password))
	if _, err := s.decode(raw); err != nil || bytes.Count(raw, []byte(password)) != before-1 {
		t.Errorf("found the password %d times in the buffer, and then %d times, error %v", before, bytes.Count(raw, []byte(password)), err)
	}
}

func unreadObject(s *stream, name string, version int) *object {
	o, err := s.reduce(&metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: fmt.Sprint(version), UID: "u"})
	if err != nil {
		panic(err) // a Secret is reduced without errors
	}
	return o
}

// Sinks are told when a Secret that is not read, but used, is created, written or deleted.
func TestIndex_Unread(t *testing.T) {
	sink := &recorder{}
	tokens := unread(tokenType)
	x, _ := newTestIndex(sink, "deployments", tokens.name)
	must(t,
		newStore(x, deployments).Replace([]any{deployment("web", 10, "token"), deployment("other", 11, "db")}, "20"),
		newStore(x, tokens).Replace([]any{unreadObject(tokens, "token", 5)}, "20"),
	)
	sink.told()
	in, key := newStore(x, tokens), dependency.SourceKey{Kind: dependency.Secret, Namespace: "ns", Name: "token"}
	for _, step := range []struct {
		why   string
		do    func() error
		want  string
		there bool
	}{
		{"a list without changes", func() error { return in.Replace([]any{unreadObject(tokens, "token", 5)}, "30") }, "progressed to 30", true},
		{"a write", func() error { return in.Update(unreadObject(tokens, "token", 31)) }, "changed at 31: deployment.web", true},
		{"a write of a Secret that no workload names", func() error { return in.Add(unreadObject(tokens, "unused", 32)) }, "progressed to 32", true},
		{"a deletion", func() error { return in.Delete(unreadObject(tokens, "token", 33)) }, "changed at 33: deployment.web", false},
		{"a new creation", func() error { return in.Add(unreadObject(tokens, "token", 34)) }, "changed at 34: deployment.web", true},
		{"a list that lacks the Secret", func() error { return in.Replace(nil, "35") }, "changed at 35: deployment.web", false},
	} {
		must(t, step.do())
		if diff := cmp.Diff([]string{step.want}, sink.told()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.why, diff)
		}
		x.Read(func(known decide.Evaluator) {
			g := known.Graph
			if there := g.Unread(key) != nil; there != step.there {
				t.Errorf("%s: the Secret exists: %t", step.why, there)
			}
		})
	}
}

// A Secret can be deleted and created again with another type, and each type is read on its own stream. In whatever
// order the events of the streams arrive, the final type is known.
func TestIndex_TypesInAnyOrder(t *testing.T) { withSeeds(t, 40, typesInAnyOrder) }

func typesInAnyOrder(t *testing.T, r *rand.Rand) {
	t.Helper()
	all := []*stream{secrets, unread(tokenType), unread(releaseType)}
	x, _ := newTestIndex(&recorder{}, all[0].name, all[1].name, all[2].name)
	stores, coming := map[*stream]*store{}, map[*stream][]func(){}
	for _, s := range all {
		stores[s] = newStore(x, s)
		must(t, stores[s].Replace(nil, "1"))
	}
	type incarnation struct {
		of *stream
		*object
	}
	cluster, version := map[string]incarnation{}, 1
	objectOf := func(s *stream, name string) *object {
		version++
		if s == secrets {
			return secret(name, version)
		}
		return unreadObject(s, name, version)
	}
	happen := func() {
		name := pick(r, "a", "b")
		now, there := cluster[name]
		switch {
		case !there:
			s := pick(r, all...)
			o := objectOf(s, name)
			cluster[name] = incarnation{s, o}
			coming[s] = append(coming[s], func() { must(t, stores[s].Add(o)) })
		case r.Intn(2) == 0:
			o := objectOf(now.of, name)
			cluster[name] = incarnation{now.of, o}
			coming[now.of] = append(coming[now.of], func() { must(t, stores[now.of].Update(o)) })
		default:
			o := objectOf(now.of, name)
			delete(cluster, name)
			coming[now.of] = append(coming[now.of], func() { must(t, stores[now.of].Delete(o)) })
		}
	}
	list := func(s *stream) {
		var objects []any
		for _, i := range cluster {
			if i.of == s {
				objects = append(objects, i.object)
			}
		}
		must(t, stores[s].Replace(objects, fmt.Sprint(version)))
		coming[s] = nil
	}
	for range 300 {
		switch s := pick(r, all...); {
		case r.Intn(2) == 0:
			happen()
		case r.Intn(10) == 0:
			list(s)
		case len(coming[s]) > 0:
			coming[s][0]()
			coming[s] = coming[s][1:]
		}
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, s := range all {
		for _, event := range coming[s] {
			event()
		}
	}
	x.Read(func(known decide.Evaluator) {
		g := known.Graph
		for _, name := range []string{"a", "b"} {
			key := dependency.SourceKey{Kind: dependency.Secret, Namespace: "ns", Name: name}
			want, got := "absent", "absent"
			if now, there := cluster[name]; there {
				want = now.of.name + " " + now.ResourceVersion
			}
			if s := g.Source(key); s != nil {
				got = secrets.name + " " + s.ResourceVersion
			} else if u := g.Unread(key); u != nil {
				got = "secrets/" + u.Type + " " + u.ResourceVersion
			}
			if got != want {
				t.Errorf("type of %s = %s, want %s", name, got, want)
			}
		}
	})
}

// If no Secrets are read, the sync does not wait for them, and views know that.
func TestIndex_WithoutSecrets(t *testing.T) {
	x := NewIndex(stoppedClock{}, &recorder{})
	x.Within(Scope{WithoutSecrets: true})
	replay := NewReplay(x, testDigester())
	must(t, replay.List("10"))
	if err := x.Synced(); err != nil {
		t.Fatal(err)
	}
	if err := replay.Set(secretWith(password)); err == nil {
		t.Error("a Secret is accepted")
	}
	for range 2 { // again after a reset
		x.mu.RLock()
		if g := x.graph; g.Observes(dependency.Secret) || !g.Observes(dependency.ConfigMap) {
			t.Error("views are told that Secrets are read, or that ConfigMaps are not")
		}
		x.mu.RUnlock()
		x.Reset()
	}
}

type stoppedClock struct{}

func (stoppedClock) Now() time.Time                   { return now }
func (stoppedClock) Since(at time.Time) time.Duration { return now.Sub(at) }

// A replay handles a Secret according to its type.
func TestReplay_Types(t *testing.T) {
	x := NewIndex(stoppedClock{}, &recorder{})
	x.SetDefaults(policy.Defaults{Mode: policy.Off})
	x.Within(typed)
	replay := NewReplay(x, testDigester())
	token := secretWith(password)
	token.Name, token.Type = "token", tokenType
	must(t, replay.List("10", secretWith(password), token))
	x.Read(func(known decide.Evaluator) {
		g := known.Graph
		key := dependency.SourceKey{Kind: dependency.Secret, Namespace: "shop", Name: "token"}
		if u := g.Unread(key); u == nil || u.Type != tokenType || g.Source(key) != nil {
			t.Errorf("token: unread = %+v, source = %+v", u, g.Source(key))
		}
		key.Name = "db"
		if g.Unread(key) != nil || g.Source(key) == nil {
			t.Error("a Secret of another type is not read")
		}
	})
}
