package certificate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/configdep/configdep/pkg/logging"
)

const (
	home = "configdep-system"
	name = "configdep-serving-cert"
	ours = "v1alpha1.configdep.io"
)

func newTestStore(client *fake.Clientset) *Store {
	return NewStore(client, home, name, usual)
}

func verbs(client *fake.Clientset) (out []string) {
	for _, a := range client.Actions() {
		out = append(out, a.GetVerb())
	}
	return out
}

func get(t *testing.T, client *fake.Clientset) *corev1.Secret {
	t.Helper()
	secret, err := client.CoreV1().Secrets(home).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func put(t *testing.T, client *fake.Clientset, change func(*corev1.Secret)) {
	t.Helper()
	secret := get(t, client)
	change(secret)
	if _, err := client.CoreV1().Secrets(home).Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func secretWith(c Content) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: name}}
	c.putInto(secret)
	return secret
}

func currentCert(s *Store) string {
	cert, _ := s.Current()
	return string(cert)
}

// The first replica makes the certificate, the second finds it, and a restart changes nothing.
func TestReplicasShareOneCertificate(t *testing.T) {
	client := fake.NewClientset()
	certs := map[string]bool{}
	for range 3 {
		s := newTestStore(client)
		if cert, key := s.Current(); cert != nil || key != nil {
			t.Error("there is a certificate before it was loaded")
		}
		if err := s.Load(quiet(t)); err != nil {
			t.Fatal(err)
		}
		certs[currentCert(s)] = true
	}
	if len(certs) != 1 {
		t.Errorf("there are %d certificates", len(certs))
	}
	if diff := cmp.Diff([]string{"get", "create", "get", "get"}, verbs(client)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if secret := get(t, client); secret.Type != corev1.SecretTypeTLS || len(secret.Data) != 4 {
		t.Errorf("the Secret is a %s with %d entries", secret.Type, len(secret.Data))
	}
}

func TestALostRaceForTheCertificate(t *testing.T) {
	theirs := next(t, usual, Content{}, nowhere, time.Now()).Content
	client := fake.NewClientset()
	client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		if err := client.Tracker().Add(secretWith(theirs)); err != nil {
			t.Error(err)
		}
		return true, nil, apierrors.NewAlreadyExists(corev1.Resource("secrets"), name)
	})
	s := newTestStore(client)
	if err := s.Load(quiet(t)); err != nil {
		t.Fatal(err)
	}
	if currentCert(s) != string(theirs.Cert) {
		t.Error("the certificate is not the other's")
	}
}

// The API server may come up after us.
func TestLoadingIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		answers := []error{errors.New("connection refused"), apierrors.NewForbidden(corev1.Resource("secrets"), name, nil)}
		client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			if len(answers) == 0 {
				return false, nil, nil
			}
			answer := answers[0]
			answers = answers[1:]
			return true, nil, answer
		})
		s := newTestStore(client)
		if err := s.Load(quiet(t)); err != nil || currentCert(s) == "" {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"get", "get", "get", "create"}, verbs(client)); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

func TestLoadingEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(quiet(t))
	client := fake.NewClientset()
	client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel()
		return true, nil, errors.New("connection refused")
	})
	if err := newTestStore(client).Load(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// A replica that finds a spoilt Secret leaves it to the leader, which knows what was in it; if
// nobody does anything, it does.
func TestAReplicaThatStartsWithASpoiltSecret(t *testing.T) {
	for _, led := range []bool{true, false} {
		t.Run(fmt.Sprintf("with a leader: %v", led), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := next(t, usual, Content{}, nowhere, time.Now()).Content
				spoilt := c
				spoilt.Cert = []byte("x")
				client := fake.NewClientset(secretWith(spoilt))
				s := newTestStore(client)
				begun := time.Now()
				if led {
					time.AfterFunc(2*time.Second, func() { put(t, client, c.putInto) })
				}
				if err := s.Load(quiet(t)); err != nil {
					t.Fatal(err)
				}
				if mine := currentCert(s) != string(c.Cert); mine == led {
					t.Errorf("with a leader: %v, with a certificate of its own: %v", led, mine)
				}
				if took := time.Since(begun); !led && (took < patience || took > 3*patience) {
					t.Errorf("it took %v", took)
				}
				if now := ContentOf(get(t, client)); string(now.Cert) != currentCert(s) || serves(&now, c.Bundle, time.Now()) != nil {
					t.Error("it is not in the Secret, or not by the CA that is trusted already")
				}
			})
		})
	}
}

// replica runs a Store until the test ends.
func replica(t *testing.T, client *fake.Clientset) *Store {
	t.Helper()
	s := newTestStore(client)
	ctx := quiet(t)
	if err := s.Load(ctx); err != nil {
		t.Fatal(err)
	}
	background(t, func(ctx context.Context) { s.Watch(ctx) })
	return s
}

// background runs something until the test ends.
func background(t *testing.T, f func(context.Context)) context.CancelFunc {
	t.Helper()
	ctx, cancel := context.WithCancel(quiet(t))
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	stop := func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// A replica takes what is new, and keeps what it has when that is not good; it never goes
// back.
func TestAReplicaFollowsTheSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		s := replica(t, client)
		told := 0
		s.OnChange(func() { told++ })
		synctest.Wait()
		first, before := ContentOf(get(t, client)), told

		renewed := next(t, usual, first, everywhere, time.Now().Add(61*day)).Content
		put(t, client, renewed.putInto)
		synctest.Wait()
		if currentCert(s) != string(renewed.Cert) || told == before {
			t.Errorf("it does not serve by the new one, or has not said so (%d, %d)", told, before)
		}
		for what, change := range map[string]func(*corev1.Secret){
			"spoilt":         func(s *corev1.Secret) { s.Data["tls.crt"] = []byte("x") },
			"emptied":        func(s *corev1.Secret) { s.Data = nil },
			"the one before": first.putInto,
			"another's bundle": func(s *corev1.Secret) {
				s.Data["ca.crt"] = next(t, usual, Content{}, nowhere, time.Now()).Content.Bundle
			},
		} {
			put(t, client, change)
			synctest.Wait()
			if currentCert(s) != string(renewed.Cert) {
				t.Errorf("%s: it does not serve by the last good one any more", what)
			}
		}
	})
}

// A deleted Secret comes back as it was, from any replica.
func TestADeletedSecretIsPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		replica(t, client)
		replica(t, client)
		synctest.Wait()
		before := ContentOf(get(t, client))
		if err := client.CoreV1().Secrets(home).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if after := ContentOf(get(t, client)); !after.equal(&before) {
			t.Error("it is another")
		}
	})
}

// settle lets a second pass, in which an informer notices that it has seen everything.
func settle() {
	<-time.After(time.Second)
	synctest.Wait()
}

// Objects in the cluster that name the CA.

func apiService(bundle string) *unstructured.Unstructured {
	spec := map[string]any{"group": "configdep.io", "version": "v1alpha1"}
	if bundle != "" {
		spec["caBundle"] = bundle
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": ours, "resourceVersion": "1"}, "spec": spec,
	}}
}

func webhooks(bundles ...string) *unstructured.Unstructured {
	var list []any
	for i, b := range bundles {
		client := map[string]any{"service": map[string]any{"name": "x"}, "newField": int64(i)}
		if b != "" {
			client["caBundle"] = b
		}
		list = append(list, map[string]any{"name": fmt.Sprintf("w%d.configdep.io", i), "clientConfig": client})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
		"metadata": map[string]any{"name": "configdep-apiserver", "resourceVersion": "1"}, "webhooks": list,
	}}
}

func newDynamic(objects ...runtime.Object) *dynamicfake.FakeDynamicClient {
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		apiServices: "APIServiceList", webhookConfigurations: "MutatingWebhookConfigurationList",
	}, objects...)
}

// inCluster returns the bundles that are in an object.
func inCluster(t *testing.T, client *dynamicfake.FakeDynamicClient, resource schema.GroupVersionResource, object string) (bundles []string) {
	t.Helper()
	o, err := client.Resource(resource).Get(t.Context(), object, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	places := apiServicePlaces
	if resource == webhookConfigurations {
		places = webhookPlaces
	}
	for _, p := range places(o) {
		bundles = append(bundles, string(p.bundle))
	}
	return bundles
}

func patches(client *dynamicfake.FakeDynamicClient) (n int) {
	for _, a := range client.Actions() {
		if a.GetVerb() == "patch" {
			n++
		}
	}
	return n
}

func TestTheBundleIsPutEverywhere(t *testing.T) {
	bundle := string(next(t, usual, Content{}, nowhere, time.Now()).Content.Bundle)
	other := next(t, usual, Content{}, nowhere, time.Now()).Content
	synctest.Test(t, func(t *testing.T) {
		client := newDynamic(apiService(""), webhooks("", "b3RoZXI=", "***"), apiServiceOfAnother())
		b := NewBundles(client, ours, "configdep-apiserver")
		background(t, b.Run)
		synctest.Wait()
		if n := patches(client); n > 0 {
			t.Errorf("before there is a bundle, there are %d patches", n)
		}
		b.Set([]byte(bundle))
		check := func(want string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff([]string{want}, inCluster(t, client, apiServices, ours)); diff != "" {
				t.Errorf("APIService (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{want, want, want}, inCluster(t, client, webhookConfigurations, "configdep-apiserver")); diff != "" {
				t.Errorf("webhooks (-want +got):\n%s", diff)
			}
		}
		check(bundle)
		if diff := cmp.Diff([]string{""}, inCluster(t, client, apiServices, "v1.other.io")); diff != "" {
			t.Errorf("another APIService (-want +got):\n%s", diff)
		}
		ca := parseCerts([]byte(bundle))[0]
		settle()
		if !b.InPlace(ca) || b.InPlace(parseCerts(other.Bundle)[0]) {
			t.Error("what is in place is not known")
		}
		// What others have in an object stays.
		o, err := client.Resource(webhookConfigurations).Get(t.Context(), "configdep-apiserver", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		list, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
		if got := list[2].(map[string]any)["clientConfig"].(map[string]any)["newField"]; got != int64(2) {
			t.Errorf("a field that we do not know is %v", got)
		}
		if n := patches(client); n != 2 {
			t.Errorf("%d patches", n)
		}
		// It is put right at once, whatever somebody does.
		replace := func(resource schema.GroupVersionResource, o *unstructured.Unstructured) {
			t.Helper()
			o.SetResourceVersion("1")
			if _, err := client.Resource(resource).Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		replace(apiServices, apiService("b3RoZXI="))
		check(bundle)
		replace(webhookConfigurations, webhooks("", "", ""))
		check(bundle)
		b.Set(other.Bundle)
		check(string(other.Bundle))
		// And when it comes back.
		if err := client.Resource(apiServices).Delete(t.Context(), ours, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		settle()
		if !b.InPlace(parseCerts(other.Bundle)[0]) {
			t.Error("it waits for an object that does not exist")
		}
		if _, err := client.Resource(apiServices).Create(t.Context(), apiService(""), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		check(string(other.Bundle))
	})
}

func apiServiceOfAnother() *unstructured.Unstructured {
	o := apiService("")
	o.SetName("v1.other.io")
	return o
}

// Without a right, or while somebody else writes, it is tried again and again, ever less
// often, and nothing is taken for done.
func TestARightIsMissing(t *testing.T) {
	c := next(t, usual, Content{}, nowhere, time.Now()).Content
	ca := parseCerts(c.Bundle)[0]
	for _, verb := range []string{"list", "patch"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newDynamic(apiService(""))
				var mu sync.Mutex
				refuse, refused := true, 0
				client.PrependReactor(verb, "apiservices", func(clienttesting.Action) (bool, runtime.Object, error) {
					mu.Lock()
					defer mu.Unlock()
					if refuse {
						refused++
						return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "apiservices"}, ours, nil)
					}
					return false, nil, nil
				})
				b := NewBundles(client, ours, "")
				b.Set(c.Bundle)
				background(t, b.Run)
				<-time.After(20 * time.Second)
				mu.Lock()
				if refused < 3 || refused > 100 {
					t.Errorf("it was tried %d times", refused)
				}
				refuse = false
				mu.Unlock()
				if b.InPlace(ca) {
					t.Error("it is taken for published")
				}
				<-time.After(time.Minute / 2)
				synctest.Wait()
				if diff := cmp.Diff([]string{string(c.Bundle)}, inCluster(t, client, apiServices, ours)); diff != "" || !b.InPlace(ca) {
					t.Errorf("it is not put right (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Two programs that want another bundle each do not keep the cluster busy.
func TestNoRaceForTheBundle(t *testing.T) {
	c := next(t, usual, Content{}, nowhere, time.Now()).Content
	synctest.Test(t, func(t *testing.T) {
		client := newDynamic(apiService(""))
		client.PrependReactor("patch", "apiservices", func(clienttesting.Action) (bool, runtime.Object, error) {
			// The other writes at the same moment.
			o := apiService("b3RoZXI=")
			return true, o, client.Tracker().Update(apiServices, o, "")
		})
		b := NewBundles(client, ours, "")
		b.Set(c.Bundle)
		background(t, b.Run)
		<-time.After(50 * time.Second)
		if n := patches(client); n < 5 || n > 25 {
			t.Errorf("%d patches in 50 s", n)
		}
	})
}

// lead runs a leader until it is stopped, or the test ends.
func lead(t *testing.T, s *Store, client *dynamicfake.FakeDynamicClient) (b *Bundles, stop context.CancelFunc) {
	t.Helper()
	b = NewBundles(client, ours, "configdep-apiserver")
	return b, background(t, func(ctx context.Context) { s.Lead(ctx, b) })
}

// The leader renews the certificate when it is time, and every replica goes over to it. A
// whole life of a CA passes, with a new leader in the middle of each phase.
func TestTheLeaderRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Profile{Names: usual.Names, Lifetime: 20 * time.Second, CALifetime: time.Minute}
		client, objects := fake.NewClientset(), newDynamic(apiService(""), webhooks(""))
		var replicas []*Store
		for range 2 {
			s := NewStore(client, home, name, p)
			if err := s.Load(quiet(t)); err != nil {
				t.Fatal(err)
			}
			background(t, s.Watch)
			replicas = append(replicas, s)
		}
		leaves, cas := map[string]bool{}, map[string]bool{}
		for i := range 25 {
			_, stop := lead(t, replicas[i%2], objects)
			<-time.After(1900 * time.Millisecond)
			synctest.Wait()
			stop()
			for _, s := range replicas {
				c := s.content()
				leaves[string(c.Cert)] = true
				for _, ca := range parseCerts(c.Bundle) {
					cas[Fingerprint(ca)] = true
				}
				for _, bundle := range append(inCluster(t, objects, apiServices, ours), inCluster(t, objects, webhookConfigurations, "configdep-apiserver")...) {
					if err := serves(&c, []byte(bundle), time.Now()); err != nil {
						t.Errorf("round %d: %v", i, err)
					}
				}
			}
		}
		if len(leaves) < 4 || len(cas) < 2 {
			t.Errorf("%d certificates, %d CAs", len(leaves), len(cas))
		}
	})
}

// The leader puts a spoilt Secret right from what it serves by, and keeps what else is there.
func TestTheLeaderMendsTheSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		s := replica(t, client)
		lead(t, s, newDynamic())
		settle()
		before := ContentOf(get(t, client))
		if before.Published == "" {
			t.Error("nobody names the CA, so it counts as published")
		}
		put(t, client, func(s *corev1.Secret) {
			s.Data = map[string][]byte{"tls.crt": []byte("x"), "note": []byte("mine")}
			s.Annotations["note"] = "mine"
		})
		synctest.Wait()
		secret := get(t, client)
		if after := ContentOf(secret); !after.equal(&before) || string(secret.Data["note"]) != "mine" || secret.Annotations["note"] != "mine" {
			t.Error("it is not what it was")
		}
	})
}

// A new leader that has not seen the last of the Secret publishes nothing before it has: its
// bundle would lack a CA.
func TestALateLeaderPublishesNothingOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		s := newTestStore(client)
		if err := s.Load(quiet(t)); err != nil {
			t.Fatal(err)
		} // and does not watch
		c := s.content()
		c.CAKeys = nil
		c = next(t, usual, c, everywhere, time.Now()).Content
		put(t, client, c.putInto)
		objects := newDynamic(apiService(""))
		var refuse atomic.Bool
		refuse.Store(true)
		client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return refuse.Load(), nil, errors.New("connection refused")
		})
		lead(t, s, objects)
		synctest.Wait()
		if n := patches(objects); n > 0 {
			t.Errorf("there are %d patches", n)
		}
		refuse.Store(false)
		<-time.After(time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{string(c.Bundle)}, inCluster(t, objects, apiServices, ours)); diff != "" || cas(c) != 2 {
			t.Errorf("%d CAs (-want +got):\n%s", cas(c), diff)
		}
	})
}

// However much is logged, no key is.
func TestNothingSecretIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(10)))
		client := fake.NewClientset()
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		s := newTestStore(client)
		if err := s.Load(ctx); err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		running.Go(func() { s.Watch(ctx) })
		running.Go(func() { s.Lead(ctx, NewBundles(newDynamic(apiService("")), ours, "")) })
		synctest.Wait()
		c := ContentOf(get(t, client))
		put(t, client, func(s *corev1.Secret) { s.Data["tls.crt"] = nil })
		synctest.Wait()
		cancel()
		running.Wait()
		log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		if !strings.Contains(log, "Put caBundle right") || !strings.Contains(log, "the one before is served on") {
			t.Errorf("not everything is in the log:\n%s", log)
		}
		for _, secret := range [][]byte{c.Key, c.CAKeys} {
			if line := bytes.Split(secret, []byte("\n"))[1]; strings.Contains(log, string(line)) {
				t.Error("a key is in the log")
			}
		}
		if logging.WithoutBodies(ctx) == ctx {
			t.Error("client-go may log bodies")
		}
	})
}
