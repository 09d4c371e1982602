// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"bytes"
	"context"
	"errors"
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
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/dependency/dependencytest"
	"github.com/configdep/configdep/pkg/sharedsecret"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// notifier is a sink that passes on the workloads after each notification. The test reads it while
// reflectors write.
type notifier struct{ views chan map[string]string }

func newNotifier() *notifier { return &notifier{views: make(chan map[string]string)} }

func (n *notifier) send(g *dependency.Graph) {
	out := map[string]string{}
	g.EachWorkload(func(w *dependency.Workload) {
		out[w.ViewName()] = dependencytest.ConfigHash(g.Digester(), g, w.Namespace, w.References)
	})
	n.views <- out
}

func (n *notifier) Synced(known decide.Evaluator, _ dependency.Progress) {
	g := known.Graph
	n.send(g)
}

func (n *notifier) Changed(known decide.Evaluator, _ dependency.Progress, _ dependency.Delta) {
	g := known.Graph

	n.send(g)
}

func (n *notifier) Progressed(dependency.Progress) {}

func runSecret(value string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
		Data:       map[string][]byte{"password": []byte(value)},
	}
}

func hashWith(d *dependency.Digester, value string) string {
	g := dependency.NewGraph()
	g.SetSource(dependencytest.Source(d, runSecret(value), dependency.SourceMarks{}))
	return dependencytest.ConfigHash(d, g, "shop", workloadtest.Read(webDeployment()).References)
}

func webDeployment() *appsv1.Deployment {
	o := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	o.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", EnvFrom: []corev1.EnvFromSource{
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}},
	}}}
	return o
}

// testKey is the key of testDigester.
var testKey = make([]byte, dependency.KeySize)

// running is an index that follows a fake client.
type running struct {
	*Index
	t       *testing.T
	client  *fake.Clientset
	sink    *notifier
	watched chan struct{}
	key     *sharedsecret.Secret
}

// run runs an index until the end of the test; TestMain checks that no goroutine continues.
func run(t *testing.T, objects ...runtime.Object) *running {
	t.Helper()
	// The fake client does not support watch lists.
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, false)
	r := &running{t: t, client: fake.NewClientset(objects...), sink: newNotifier(), watched: make(chan struct{}, 1000)}
	r.client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := r.client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		r.watched <- struct{}{}
		return true, w, err
	})
	r.Index, r.key = NewIndex(clock.RealClock{}, r.sink), NewKeySecret(r.client, home)
	ctx, cancel := context.WithCancel(quiet(t))
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(ctx, serve(t, r.client), r.key, func() {}) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return r
}

// serve returns a Reader of an API server with the objects of a fake client.
func serve(t *testing.T, client *fake.Clientset) *Reader {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		var resource schema.GroupVersionResource
		if path := strings.Split(r.URL.Path, "/"); path[1] == "api" {
			resource = corev1.SchemeGroupVersion.WithResource(path[3])
		} else {
			resource = schema.GroupVersionResource{Group: path[2], Version: path[3], Resource: path[4]}
		}
		out.Header().Set("Content-Type", protobufType)
		if r.URL.Query().Get("watch") == "" {
			kinds, err := testrestmapper.TestOnlyStaticRESTMapper(scheme.Scheme).KindFor(resource)
			if err != nil {
				t.Error(err)
				return
			}
			list, err := client.Invokes(clienttesting.NewListAction(resource, kinds, "", metav1.ListOptions{}), nil)
			if err != nil {
				t.Error(err)
				return
			}
			if strings.Contains(r.Header.Get("Accept"), partialKind) { // there are none of these
				m, _ := list.(metav1.ListInterface)
				_, _ = out.Write(metadataInProtobuf(t, partialKind+"List", &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: m.GetResourceVersion()}}))
				return
			}
			_, _ = out.Write(inProtobuf(t, list))
			return
		}
		w, err := client.InvokesWatch(clienttesting.NewWatchAction(resource, "", metav1.ListOptions{}))
		if err != nil {
			t.Error(err)
			return
		}
		defer w.Stop()
		out.WriteHeader(http.StatusOK)
		for {
			out.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
				return
			case event, open := <-w.ResultChan():
				if !open {
					return
				}
				_, _ = out.Write(frame(t, event.Type, inProtobuf(t, event.Object)))
			}
		}
	}))
	t.Cleanup(server.Close)
	reader, err := NewReader(&rest.Config{Host: server.URL, Transport: &http.Transport{DisableKeepAlives: true}}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return reader
}

// awaitWatches waits until all resources and the key are watched again: the fake client loses
// events between a list and its watch.
func (r *running) awaitWatches() {
	for range len(resources) + 1 {
		<-r.watched
	}
}

func (r *running) expect(what string, want map[string]string) {
	r.t.Helper()
	if diff := cmp.Diff(want, <-r.sink.views); diff != "" {
		r.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func (r *running) update(o *corev1.Secret) {
	r.t.Helper()
	if _, err := r.client.CoreV1().Secrets(o.Namespace).Update(r.t.Context(), o, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 2*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		t.Fatalf("timed out after a minute, waiting for: %s", what)
	}
}

// From a client to the sink: existing objects, a change and a deletion. TestMain checks that no
// goroutine continues after the context is done.
func TestRunFollowsAClient(t *testing.T) {
	r := run(t, keySecret(testKey), webDeployment(), runSecret("one"))
	r.expect("after the first sync", map[string]string{"deployment.web": hashWith(testDigester(), "one")})
	await(t, "synced", func() bool { return r.Synced() == nil })
	r.awaitWatches()
	r.update(runSecret("two"))
	r.expect("after a change of the Secret", map[string]string{"deployment.web": hashWith(testDigester(), "two")})
	if err := r.client.AppsV1().Deployments("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.expect("after the Deployment has gone", map[string]string{})
}

// If there is no key, one is created, and everything is read with it.
func TestRunMakesTheKey(t *testing.T) {
	r := run(t, made(), webDeployment(), runSecret("one"))
	got := <-r.sink.views
	filled, err := r.client.CoreV1().Secrets(home).Get(t.Context(), KeySecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"deployment.web": hashWith(dependency.NewDigester(filled.Data[keyField]), "one")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after the first sync (-want +got):\n%s", diff)
	}
}

// All replicas must use the same key: when it is replaced, everything is read again with
// the new one.
func TestAnotherKeyStartsEverythingOver(t *testing.T) {
	r := run(t, keySecret(testKey), webDeployment(), runSecret("one"))
	r.expect("with the first key", map[string]string{"deployment.web": hashWith(testDigester(), "one")})
	r.awaitWatches()
	other := bytes.Repeat([]byte{9}, dependency.KeySize)
	r.update(keySecret(other))
	r.expect("with the other key", map[string]string{"deployment.web": hashWith(dependency.NewDigester(other), "one")})
	r.awaitWatches()
	r.update(runSecret("two"))
	r.expect("after a change", map[string]string{"deployment.web": hashWith(dependency.NewDigester(other), "two")})
}

// After a restore of etcd everything is read again, and earlier versions are forgotten.
func TestRun_ReadsEverythingAgainAfterARestore(t *testing.T) {
	r := run(t, keySecret(testKey), webDeployment(), runSecret("one"))
	r.expect("at first", map[string]string{"deployment.web": hashWith(testDigester(), "one")})
	r.awaitWatches()
	must(t, newStore(r.Index, secrets).Bookmark("200"))
	if _, own := r.latest(secrets); own != 200 {
		t.Fatalf("revision of Secrets before the restore = %d", own)
	}
	latest, own := r.latest(secrets)
	r.probed(quiet(t), secrets, time.Unix(1, 0), 150, latest, own)
	r.expect("read again", map[string]string{"deployment.web": hashWith(testDigester(), "one")})
	if _, own := r.latest(secrets); own >= 150 {
		t.Errorf("revision of Secrets after the restore = %d", own)
	}
	r.awaitWatches()
	r.update(runSecret("two"))
	r.expect("after a change", map[string]string{"deployment.web": hashWith(testDigester(), "two")})
}

// An invalid key does not stop the process, which continues with the previous key until there
// is another valid one.
func TestAnInvalidKeyChangesNothing(t *testing.T) {
	r := run(t, keySecret(testKey), webDeployment(), runSecret("one"))
	r.expect("with the first key", map[string]string{"deployment.web": hashWith(testDigester(), "one")})
	r.awaitWatches()
	r.update(keySecret([]byte("invalid")))
	r.update(runSecret("two"))
	r.expect("with an invalid key", map[string]string{"deployment.web": hashWith(testDigester(), "two")})
	other := bytes.Repeat([]byte{9}, dependency.KeySize)
	r.update(keySecret(other))
	r.expect("with another key", map[string]string{"deployment.web": hashWith(dependency.NewDigester(other), "two")})
}

// A key that is removed is written back, so that the hashes of workloads and of other replicas
// can still be compared. Nothing is read again.
func TestARemovedKeyIsPutBack(t *testing.T) {
	key := bytes.Repeat([]byte{9}, dependency.KeySize)
	for name, remove := range map[string]func(*testing.T, *running){
		"removed from the Secret": func(_ *testing.T, r *running) { r.update(made()) },
		"deleted, and the manifests are applied again": func(t *testing.T, r *running) {
			t.Helper()
			secrets := r.client.CoreV1().Secrets(home)
			if err := secrets.Delete(t.Context(), KeySecret, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			await(t, "it is known to be missing", r.key.Missing)
			if _, err := secrets.Create(t.Context(), made(), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, keySecret(key), webDeployment(), runSecret("one"))
			want := map[string]string{"deployment.web": hashWith(dependency.NewDigester(key), "one")}
			r.expect("at the start", want)
			r.awaitWatches()
			remove(t, r)
			await(t, "the key is back", func() bool {
				back, err := r.client.CoreV1().Secrets(home).Get(t.Context(), KeySecret, metav1.GetOptions{})
				return err == nil && bytes.Equal(back.Data[keyField], key)
			})
			await(t, "nothing is missing", func() bool { return !r.key.Missing() })
			r.update(runSecret("two"))
			r.expect("after a change", map[string]string{"deployment.web": hashWith(dependency.NewDigester(key), "two")})
			if n := len(r.watched); n != 0 {
				t.Errorf("got %d new watches, want none", n)
			}
		})
	}
}

// The key may be removed after it was read and before the first list, and it may not be
// possible to write it back immediately.
func TestAKeyThatGoesBeforeTheFirstListIsPutBack(t *testing.T) {
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, false)
	client := fake.NewClientset(made())
	refusals := []error{errors.New("connection refused"), apierrors.NewConflict(corev1.Resource("secrets"), KeySecret, errors.New("it has been written"))}
	client.PrependReactor("update", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		if len(refusals) == 0 {
			return false, nil, nil
		}
		refusal := refusals[0]
		refusals = refusals[1:]
		return true, nil, refusal
	})
	stop := watching(t, sharedBy(client))
	await(t, "the key is back", func() bool {
		back, err := client.CoreV1().Secrets(home).Get(t.Context(), KeySecret, metav1.GetOptions{})
		return err == nil && bytes.Equal(back.Data[keyField], testKey)
	})
	stop()
}

// The whole Secret may be deleted at that moment. It is then reported as missing, and not created.
func TestASecretThatGoesBeforeTheFirstListIsMissing(t *testing.T) {
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, false)
	client := fake.NewClientset()
	shared := sharedBy(client)
	stop := watching(t, shared)
	await(t, "it is known to be missing", shared.Missing)
	await(t, "it is watched", func() bool { return slices.Contains(verbs(client), "watch") }) // which is after the list that shows it
	stop()
	if diff := cmp.Diff([]string{"list", "watch"}, verbs(client)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// watching watches the key, which is not replaced, until it is stopped.
func watching(t *testing.T, shared sharedKey) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(quiet(t))
	var wg sync.WaitGroup
	wg.Go(func() { shared.watch(ctx, testKey, func() { t.Error("the key was replaced") }) })
	return func() {
		cancel()
		wg.Wait()
	}
}
