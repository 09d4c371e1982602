// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

const (
	home = "configdep-system"
	name = "configdep-serving-cert"
	ours = "v1alpha1.configdep.io"
)

// brief has an overlap of an hour, as the default has.
var brief = Profile{Names: usual.Names, Lifetime: 10 * time.Hour, CALifetime: 30 * time.Hour}

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

// shipped returns the Secret as the manifests create it.
func shipped() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: name, Labels: map[string]string{"app.kubernetes.io/part-of": "configdep"}}}
}

// load returns a Store that has its certificate.
func load(t *testing.T, client *fake.Clientset, p Profile) *Store {
	t.Helper()
	s := NewStore(client, home, name, p)
	if err := s.Load(quiet(t)); err != nil {
		t.Fatal(err)
	}
	return s
}

// replica returns a Store that has its certificate, and follows the Secret.
func replica(t *testing.T, client *fake.Clientset, p Profile) *Store {
	t.Helper()
	s := load(t, client, p)
	background(t, s.Watch)
	return s
}

// lead lets a Store lead until it is stopped, or the test ends.
func lead(t *testing.T, s *Store, client *dynamicfake.FakeDynamicClient) (stop context.CancelFunc) {
	t.Helper()
	return background(t, func(ctx context.Context) { s.Lead(ctx, NewBundles(client, everyTarget)) })
}

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

// settle lets a second pass, after which everything that was to happen at once has happened.
func settle() {
	<-time.After(time.Second)
	synctest.Wait()
}

func currentCert(s *Store) string {
	cert, _ := s.Current()
	return string(cert)
}

// The first replica issues the certificate, the second finds it, and a restart changes nothing.
func TestStore_ReplicasShareOneCertificate(t *testing.T) {
	client := fake.NewClientset(shipped())
	certs := map[string]bool{}
	for range 3 {
		certs[currentCert(load(t, client, usual))] = true
	}
	if len(certs) != 1 || certs[""] {
		t.Errorf("got %d certificates, want one", len(certs))
	}
	if diff := cmp.Diff([]string{"get", "update", "get", "get"}, verbs(client)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if secret := get(t, client); len(secret.Data) != 4 || secret.Labels["app.kubernetes.io/part-of"] != "configdep" {
		t.Errorf("Secret has %d entries and labels %v", len(secret.Data), secret.Labels)
	}
}

// Of two replicas that start at the same time, one issues the certificate.
func TestStore_LosesARace(t *testing.T) {
	theirs := next(t, usual, Content{}, time.Now())
	read := shipped()
	read.ResourceVersion = "7"
	client := fake.NewClientset(read)
	lost := false
	client.PrependReactor("update", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if version := action.(clienttesting.UpdateAction).GetObject().(*corev1.Secret).ResourceVersion; lost || version != "7" {
			t.Errorf("update of version %q after a lost race: %v", version, lost)
		}
		lost = true
		written := shipped()
		theirs.putInto(written)
		if err := client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("secrets"), written, home); err != nil {
			t.Error(err)
		}
		return true, nil, apierrors.NewConflict(corev1.Resource("secrets"), name, errors.New("it has been written"))
	})
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
	s := NewStore(client, home, name, usual)
	if err := s.Load(klog.NewContext(t.Context(), logger)); err != nil || !lost || currentCert(s) != theirs.Cert {
		t.Errorf("error %v; served by the other replica's certificate: %v", err, currentCert(s) == theirs.Cert)
	}
	if log := logger.GetSink().(ktesting.Underlier).GetBuffer().String(); log != "" {
		t.Errorf("the log has an error:\n%s", log)
	}
}

// A replica serves what the Secret holds as soon as it sees it, and what it has while the Secret holds nothing valid or
// does not exist.
func TestStore_Watch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(shipped())
		s := replica(t, client, usual)
		told := 0
		s.OnChange(func() { told++ })
		first := ContentOf(get(t, client))
		second := next(t, usual, Content{Bundle: first.Bundle, CAKey: first.CAKey}, time.Now())
		for i, c := range []Content{{}, {Bundle: first.Bundle, Cert: second.Cert, Key: first.Key}, {Cert: second.Cert, Key: second.Key}} {
			put(t, client, c.putInto)
			synctest.Wait()
			if currentCert(s) != first.Cert {
				t.Errorf("content %d: the replica does not continue with the first certificate", i)
			}
		}
		if err := client.CoreV1().Secrets(home).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !s.Missing() || currentCert(s) != first.Cert {
			t.Errorf("missing: %v, want the first certificate to be served", s.Missing())
		}
		told = 0
		created := shipped()
		second.putInto(created)
		if err := client.Tracker().Add(created); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s.Missing() || currentCert(s) != second.Cert || told != 1 {
			t.Errorf("missing: %v, served by the second certificate: %v, listeners told %d times", s.Missing(), currentCert(s) == second.Cert, told)
		}
	})
}

// Leaders renew the certificate and its CA, and publish a new CA before they use it: what any replica serves is trusted
// at each moment, by both objects.
func TestStore_Lead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, objects := fake.NewClientset(shipped()), newDynamic(apiService(""), configMap(nil))
		replicas := []*Store{replica(t, client, brief), replica(t, client, brief)}
		stop := lead(t, replicas[0], objects)
		settle()
		certs, bundles := map[string]bool{}, map[string]bool{}
		for i := range 70 * 60 / 5 { // every five minutes for 70 hours
			if i%100 == 99 {
				stop()
				stop = lead(t, replicas[i/100%2], objects)
			}
			<-time.After(5 * time.Minute)
			synctest.Wait()
			published := inCluster(t, objects, APIServices, ours)
			if other := inCluster(t, objects, configMaps, "configdep-serving-ca"); other != published {
				t.Fatal("the objects differ")
			}
			for _, s := range replicas {
				cert, key := s.Current()
				if err := verify(Content{Cert: string(cert), Key: string(key)}, published, time.Now()); err != nil {
					t.Fatalf("after %d minutes: %v", 5*i, err)
				}
				certs[string(cert)] = true
			}
			bundles[published] = true
		}
		// Three more CAs, and between them bundles of two.
		if len(bundles) != 7 || len(certs) < 10 || len(certs) > 14 {
			t.Errorf("got %d bundles and %d certificates", len(bundles), len(certs))
		}
	})
}

// A Secret that loses its content gets another CA at once, which is published and whose certificate is served within a
// second, even if a replica that starts is the first to notice.
func TestStore_Lead_LostSecret(t *testing.T) {
	for what, lose := range map[string]func(t *testing.T, client *fake.Clientset){
		"emptied": func(t *testing.T, client *fake.Clientset) {
			t.Helper()
			put(t, client, func(s *corev1.Secret) { s.Data = nil })
		},
		"emptied while a replica starts": func(t *testing.T, client *fake.Clientset) {
			t.Helper()
			put(t, client, func(s *corev1.Secret) { s.Data = nil })
			load(t, client, brief)
		},
		"deleted and created": func(t *testing.T, client *fake.Clientset) {
			t.Helper()
			if err := client.CoreV1().Secrets(home).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Hour)
			if err := client.Tracker().Add(shipped()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, objects := fake.NewClientset(shipped()), newDynamic(apiService(""), configMap(nil))
				replicas := []*Store{replica(t, client, brief), replica(t, client, brief)}
				lead(t, replicas[1], objects)
				settle()
				before := ContentOf(get(t, client))
				lose(t, client)
				settle()
				after := ContentOf(get(t, client))
				if diff := cmp.Diff(after.Bundle, inCluster(t, objects, APIServices, ours)); diff != "" || after.Bundle == before.Bundle || after.Bundle == "" {
					t.Errorf("another CA: %v, published (-want +got):\n%s", after.Bundle != before.Bundle, diff)
				}
				for i, s := range replicas {
					if currentCert(s) != after.Cert {
						t.Errorf("replica %d serves another certificate", i)
					}
				}
			})
		})
	}
}

// A leader of an earlier term publishes nothing before it has read the Secret again.
func TestStore_Lead_ForgetsEarlierTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, objects := fake.NewClientset(shipped()), newDynamic(apiService(""))
		s, bundles := load(t, client, brief), NewBundles(objects, Targets{APIService: registration})
		term := func(ctx context.Context) { s.Lead(ctx, bundles) }
		stop := background(t, term)
		settle()
		stop()
		// Another leader is elected, and replaces the CA.
		put(t, client, func(s *corev1.Secret) { s.Data = nil })
		stop = lead(t, load(t, client, brief), objects)
		settle()
		stop()
		published := inCluster(t, objects, APIServices, ours)
		client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("connection refused")
		})
		background(t, term)
		<-time.After(time.Minute)
		synctest.Wait()
		if diff := cmp.Diff(published, inCluster(t, objects, APIServices, ours)); diff != "" {
			t.Errorf("before the Secret is read (-want +got):\n%s", diff)
		}
	})
}

// Two leaders that want different names, as while the Service gets another name, do not keep the cluster busy.
func TestStore_Lead_NoRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(shipped())
		for _, service := range []string{service, "other.configdep-system.svc"} {
			lead(t, replica(t, client, Profile{Names: []string{service}, Lifetime: usual.Lifetime, CALifetime: usual.CALifetime}), newDynamic())
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if writes := strings.Count(fmt.Sprint(verbs(client)), "update"); writes < 20 || writes > 150 {
			t.Errorf("the Secret was written %d times in a minute", writes)
		}
	})
}

// No key is logged, whatever the verbosity.
func TestStore_LogsNoKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(10)))
		client := fake.NewClientset(shipped())
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		s := NewStore(client, home, name, usual)
		if err := s.Load(ctx); err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		running.Go(func() { s.Watch(ctx) })
		running.Go(func() { s.Lead(ctx, NewBundles(newDynamic(apiService("")), everyTarget)) })
		synctest.Wait()
		c := ContentOf(get(t, client))
		put(t, client, func(s *corev1.Secret) { s.Data["tls.crt"] = nil })
		settle()
		cancel()
		running.Wait()
		log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		if !strings.Contains(log, "Wrote the object") || !strings.Contains(log, "continuing with the previous one") {
			t.Errorf("log lacks an expected message:\n%s", log)
		}
		for _, secret := range []string{c.Key, c.CAKey} {
			if strings.Contains(log, strings.Split(secret, "\n")[1]) {
				t.Error("the log contains a key")
			}
		}
	})
}
