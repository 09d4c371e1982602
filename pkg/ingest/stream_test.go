// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/dump"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

const password = "PASSWORD"

// secretWith returns a Secret with the password in every possible place.
func secretWith(password string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "db", ResourceVersion: "7", UID: "u",
			Annotations:   map[string]string{corev1.LastAppliedConfigAnnotation: `{"stringData":{"password":"` + password + `"}}`},
			Labels:        map[string]string{"note": password},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: password, FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}},
		},
		Data:       map[string][]byte{"password": []byte(password)},
		StringData: map[string]string{"more": password},
	}
}

// everything is the scope of the whole cluster.
var everything Scope

func streamOf(t testing.TB, resource string) *stream {
	t.Helper()
	all := everything.streams(testDigester())
	return all[slices.IndexFunc(all, func(s *stream) bool { return s.name == resource })]
}

// After the decoder, there is no content of Secrets: reflectors keep temporary stores, and log
// objects that they cannot handle.
func TestNothingOfASecretPasses(t *testing.T) {
	if !strings.Contains(dump.Pretty(secretWith(password)), password) {
		t.Fatal("the password is not found in the Secret: this test looks in the wrong place")
	}
	s := streamOf(t, "secrets")
	decoded, err := s.decode(inner(t, secretWith(password)))
	if err != nil {
		t.Fatal(err)
	}
	if held := dump.Pretty(decoded); strings.Contains(held, password) {
		t.Errorf("the decoded object contains the password:\n%s", held)
	}
	// Make sure that the object was decoded:
	if sourceOf(decoded) == nil || sourceOf(decoded).Name != "db" || len(sourceOf(decoded).Keys) != 1 {
		t.Errorf("object = %+v", decoded)
	}
}

// Each stream reads its resource in all namespaces, without the objects that controllers create.
func TestStreams(t *testing.T) {
	var names []string
	got := map[string]string{}
	for _, s := range everything.streams(testDigester()) {
		names = append(names, s.name)
		wire := newWire(t, s.name, http.StatusForbidden, "text/plain", nil)
		if _, err := wire.list(t, metav1.ListOptions{}); err == nil {
			t.Fatal("no error")
		}
		query := (<-wire.asked).URL.Query()
		list := query.Get("labelSelector") + "|" + query.Get("fieldSelector")
		if _, err := wire.lister.(cache.ListerWatcherWithContext).WatchWithContext(quiet(t), metav1.ListOptions{}); err == nil {
			t.Fatal("no error")
		}
		asked := (<-wire.asked).URL
		if query := asked.Query(); query.Get("labelSelector")+"|"+query.Get("fieldSelector") != list {
			t.Errorf("%s: list = %s, watch = %v", s.name, list, query)
		}
		got[strings.TrimPrefix(asked.Path, "/behind/a/prefix")] = list
	}
	want := map[string]string{
		"/apis/apps/v1/deployments": "|", "/apis/apps/v1/statefulsets": "|", "/apis/apps/v1/daemonsets": "|", "/apis/batch/v1/cronjobs": "|",
		"/apis/batch/v1/jobs": "|", "/api/v1/configmaps": "|", "/api/v1/secrets": "|", "/api/v1/namespaces": "|",
		"/apis/apps/v1/replicasets": "!pod-template-hash|",
		"/api/v1/pods":              "|status.phase!=Succeeded,status.phase!=Failed",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("labels and fields of the streams (-want +got):\n%s", diff)
	}
	wantNames := []string{"replicasets/deployments", "deployments", "statefulsets", "daemonsets", "cronjobs", "jobs", "replicasets", "pods", "configmaps", "secrets", "namespaces"}
	if diff := cmp.Diff(wantNames, names); diff != "" {
		t.Errorf("names of the streams (-want +got):\n%s", diff)
	}
}

// resources are all resources that are read.
var resources = namesOf(everything.streams(nil))

// An index of some namespaces requests nothing outside of them, except for the namespaces
// themselves, and does not consider objects deleted that it does not read.
func TestStreamsOfNamespaces(t *testing.T) {
	got := map[string]string{}
	reader, err := NewReader(&rest.Config{Host: "https://kubernetes"}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range (Scope{Namespaces: []string{"shop", "bank"}}).streams(testDigester()) {
		got[s.name] = reader.requests(s)(metav1.ListOptions{}).URL().Path
	}
	if len(got) != 2*(len(resources)-1)+1 {
		t.Errorf("got %d streams: %v", len(got), got)
	}
	for name, path := range map[string]string{
		"shop/deployments": "/apis/apps/v1/namespaces/shop/deployments",
		"bank/cronjobs":    "/apis/batch/v1/namespaces/bank/cronjobs",
		"bank/secrets":     "/api/v1/namespaces/bank/secrets",
		"namespaces":       "/api/v1/namespaces",
	} {
		if got[name] != path {
			t.Errorf("path of %s = %q, want %q", name, got[name], path)
		}
	}
	g := dependency.NewGraph()
	for _, namespace := range []string{"shop", "bank"} {
		g.SetSource(&dependency.Source{SourceKey: dependency.SourceKey{Kind: dependency.Secret, Namespace: namespace, Name: "db"}})
		g.SetWorkload(&dependency.Workload{WorkloadKey: dependency.WorkloadKey{Kind: kind.Deployment, Namespace: namespace, Name: "web"}}, dependency.Patterns{})
	}
	for _, resource := range []string{"secrets", "deployments"} {
		names := streamOf(t, resource).in("shop").names(g)
		if len(names) != 1 {
			t.Errorf("%s of one namespace = %v", resource, names)
		}
	}
}

// A Job of a CronJob is a run of that, and not shown. A Job of another client is shown.
func TestJobsOfCronJobsAreNotShown(t *testing.T) {
	for owner, shown := range map[string]bool{"": true, "CronJob": false, "Workflow": true} {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "run"}}
		if owner != "" {
			j.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Controller: new(true)}}
		}
		o, err := streamOf(t, "jobs").reduce(j)
		if err != nil {
			t.Fatal(err)
		}
		if _, is := o.value.(*dependency.Workload); is != shown || o.Namespace != "shop" || o.Name != "run" {
			t.Errorf("owner %q: reduced object = %+v", owner, o)
		}
	}
}

// Only configdep's annotations of a namespace are kept. A namespace without any is kept too,
// so that the removal of annotations is noticed.
func TestNamespacesAreReducedToOurAnnotations(t *testing.T) {
	reduce := streamOf(t, "namespaces").reduce
	for name, tt := range map[string]struct{ annotations, want map[string]string }{
		"ours among others": {
			map[string]string{"configdep.io/reload": "auto", "other": "x", "configdep.io.example.com/x": "y"},
			map[string]string{"configdep.io/reload": "auto"},
		},
		"others": {map[string]string{"other": "x"}, nil},
		"none":   {nil, nil},
	} {
		o, err := reduce(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", ResourceVersion: "5", Annotations: tt.annotations}})
		if err != nil {
			t.Fatal(err)
		}
		if n, is := o.value.(*namespace); !is || o.Name != "shop" || o.ResourceVersion != "5" {
			t.Errorf("%s: reduced object = %+v", name, o)
		} else if diff := cmp.Diff(tt.want, n.annotations); diff != "" {
			t.Errorf("%s: annotations (-want +got):\n%s", name, diff)
		}
	}
}
