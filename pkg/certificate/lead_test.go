// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// The leader renews the certificate when it is due, and every replica switches to it. The
// whole lifetime of a CA passes, with a new leader in the middle of each phase.
func TestTheLeaderRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Profile{Names: usual.Names, Lifetime: 20 * time.Second, CALifetime: time.Minute}
		client, objects := fake.NewClientset(shipped()), newDynamic(apiService(""), configMap(nil))
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
				for _, bundle := range []string{inCluster(t, objects, APIServices, ours), inCluster(t, objects, configMaps, "configdep-serving-ca")} {
					if err := serves(&c, []byte(bundle), time.Now()); err != nil {
						t.Errorf("round %d: %v", i, err)
					}
				}
			}
		}
		if len(leaves) < 4 || len(cas) < 2 {
			t.Errorf("got %d certificates and %d CAs", len(leaves), len(cas))
		}
	})
}

// The leader repairs an invalid Secret with the certificate that it serves, and keeps other entries.
func TestTheLeaderRepairsTheSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(shipped())
		s := replica(t, client)
		lead(t, s, newDynamic())
		settle()
		before := ContentOf(get(t, client))
		if before.Published == "" {
			t.Error("no object names the CA, so it counts as published")
		}
		put(t, client, func(s *corev1.Secret) {
			s.Data = map[string][]byte{"tls.crt": []byte("x"), "note": []byte("mine")}
			s.Annotations["note"] = "mine"
		})
		synctest.Wait()
		secret := get(t, client)
		if after := ContentOf(secret); !after.equal(&before) || string(secret.Data["note"]) != "mine" || secret.Annotations["note"] != "mine" {
			t.Error("the content has changed")
		}
	})
}

// A new leader publishes nothing before it has seen the latest version of the Secret: its bundle
// would lack a CA.
func TestALateLeaderPublishesNothingOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(shipped())
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
			t.Errorf("got %d patches", n)
		}
		refuse.Store(false)
		<-time.After(time.Second)
		synctest.Wait()
		if diff := cmp.Diff(string(c.Bundle), inCluster(t, objects, APIServices, ours)); diff != "" || cas(c) != 2 {
			t.Errorf("%d CAs (-want +got):\n%s", cas(c), diff)
		}
	})
}

// A replica that has started with a restored Secret and leads immediately removes no CA from
// caBundle: other replicas serve with it, and repair the Secret when they see it.
func TestANewLeaderOfARestoredSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backup := next(t, usual, Content{}, nowhere, time.Now()).Content
		current := backup
		current.CAKeys = nil // so that another CA is created
		current = next(t, usual, current, everywhere, time.Now()).Content
		<-time.After(2 * usual.Overlap())
		current = next(t, usual, current, everywhere, time.Now()).Content
		if err := serves(&current, backup.Bundle, time.Now()); err == nil {
			t.Fatal("the certificate is from the same CA")
		}
		stranger := next(t, usual, Content{}, nowhere, time.Now()).Content
		client := fake.NewClientset(secretWith(current))
		objects := newDynamic(apiService(base64.StdEncoding.EncodeToString(slices.Concat(current.Bundle, stranger.Bundle))))
		trusts := func(c *Content) bool {
			t.Helper()
			bundle := inCluster(t, objects, APIServices, ours)
			return serves(c, []byte(bundle), time.Now()) == nil
		}

		other := newTestStore(client)
		if err := other.Load(quiet(t)); err != nil {
			t.Fatal(err)
		} // and sees nothing for a while
		put(t, client, backup.putInto)
		started := replica(t, client)
		if currentCert(started) != string(backup.Cert) {
			t.Error("the leader does not start with the restored content")
		}
		lead(t, started, objects)
		<-time.After(usual.Overlap() * 9 / 10)
		synctest.Wait()
		if !trusts(&backup) || !trusts(&current) || !trusts(&stranger) {
			t.Errorf("the leader: %v, the other replica: %v, what else is there: %v", trusts(&backup), trusts(&current), trusts(&stranger))
		}

		background(t, other.Watch)
		<-time.After(usual.Overlap())
		synctest.Wait()
		if !trusts(&backup) || !trusts(&current) || trusts(&stranger) {
			t.Errorf("later, the leader: %v, the other replica: %v, what else is there: %v", trusts(&backup), trusts(&current), trusts(&stranger))
		}
		if secret := ContentOf(get(t, client)); string(secret.Cert) != string(current.Cert) || currentCert(started) != string(current.Cert) {
			t.Error("the Secret is not repaired, or the leader does not switch to it")
		}
	})
}

// A restored Secret may be outdated about its CA: a new leader signs with the CA only after it has been
// published again for the overlap.
func TestANewLeaderChecksWhatIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backup := next(t, usual, Content{}, nowhere, time.Now()).Content
		backup = next(t, usual, backup, everywhere, time.Now()).Content
		<-time.After(61 * day) // the certificate is due for renewal
		stranger := next(t, usual, Content{}, nowhere, time.Now()).Content
		s := replica(t, fake.NewClientset(secretWith(backup)))
		lead(t, s, newDynamic(apiService(base64.StdEncoding.EncodeToString(stranger.Bundle))))
		<-time.After(usual.Overlap() * 9 / 10)
		synctest.Wait()
		if currentCert(s) != string(backup.Cert) {
			t.Error("the leader signs with a CA that has just been published")
		}
		<-time.After(usual.Overlap())
		synctest.Wait()
		if c := s.content(); string(c.Cert) == string(backup.Cert) || serves(&c, backup.Bundle, time.Now()) != nil {
			t.Error("the leader has not renewed the certificate")
		}
	})
}

// While the Secret does not exist, the leader keeps caBundle correct for the served certificate, and
// creates nothing that it could not save. A new leader removes no CA from caBundle until the Secret has
// existed again for the overlap: only then can other replicas, which it does not know, repair it.
func TestALeaderWithoutTheSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		current := next(t, usual, Content{}, nowhere, time.Now()).Content
		current = next(t, usual, current, everywhere, time.Now()).Content
		stranger := next(t, usual, Content{}, nowhere, time.Now()).Content
		client := fake.NewClientset(secretWith(current))
		objects := newDynamic(apiService(base64.StdEncoding.EncodeToString(slices.Concat(stranger.Bundle, current.Bundle))))
		trusts := func(c *Content) bool {
			t.Helper()
			bundle := inCluster(t, objects, APIServices, ours)
			return serves(c, []byte(bundle), time.Now()) == nil
		}
		s := replica(t, client)
		settle()
		if err := client.CoreV1().Secrets(home).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		lead(t, s, objects)
		<-time.After(day)
		overwritten := apiService(base64.StdEncoding.EncodeToString(stranger.Bundle))
		if _, err := objects.Resource(APIServices).Update(t.Context(), overwritten, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		<-time.After(79 * day) // the certificate is due for renewal
		synctest.Wait()
		if !trusts(&current) || !trusts(&stranger) || currentCert(s) != string(current.Cert) {
			t.Errorf("without the Secret, what it serves: %v, what others may serve: %v; it serves by another: %v",
				trusts(&current), trusts(&stranger), currentCert(s) != string(current.Cert))
		}
		if writes := verbs(client); slices.Contains(writes, "create") || slices.Contains(writes, "update") {
			t.Errorf("writes of the leader = %v", writes)
		}
		if n := len(verbs(client)); n > 80*24*10 {
			t.Errorf("got %d requests in 80 days", n)
		}

		if err := client.Tracker().Add(shipped()); err != nil {
			t.Fatal(err)
		}
		<-time.After(usual.Overlap() * 9 / 10)
		synctest.Wait()
		if now := ContentOf(get(t, client)); string(now.Cert) != currentCert(s) || currentCert(s) == string(current.Cert) || serves(&now, current.Bundle, time.Now()) != nil {
			t.Error("the certificate is not in the Secret, is not renewed, or is by another CA")
		}
		if !trusts(&stranger) {
			t.Error("the leader has removed a CA whose certificate others may serve")
		}
		<-time.After(usual.Overlap())
		synctest.Wait()
		if !trusts(&current) || trusts(&stranger) {
			t.Errorf("in the end, what it serves: %v, what none does: %v", trusts(&current), trusts(&stranger))
		}

		// The same applies whenever the Secret does not exist.
		if err := client.CoreV1().Secrets(home).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		overwritten = apiService(base64.StdEncoding.EncodeToString(stranger.Bundle))
		if _, err := objects.Resource(APIServices).Update(t.Context(), overwritten, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		<-time.After(day)
		synctest.Wait()
		if err := client.Tracker().Add(shipped()); err != nil {
			t.Fatal(err)
		}
		<-time.After(usual.Overlap() * 9 / 10)
		synctest.Wait()
		if !trusts(&current) || !trusts(&stranger) {
			t.Errorf("away again, what it serves: %v, what others may serve: %v", trusts(&current), trusts(&stranger))
		}
		<-time.After(usual.Overlap())
		synctest.Wait()
		if !trusts(&current) || trusts(&stranger) {
			t.Errorf("after that, what it serves: %v, what none does: %v", trusts(&current), trusts(&stranger))
		}
	})
}

// Two leaders that want different names, as during a change of the Service, do not keep the cluster
// busy.
func TestNoRaceOfTwoLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(shipped())
		for _, service := range []string{service, "other.configdep-system.svc"} {
			s := NewStore(client, home, name, Profile{Names: []string{service}, Lifetime: usual.Lifetime, CALifetime: usual.CALifetime})
			if err := s.Load(quiet(t)); err != nil {
				t.Fatal(err)
			}
			background(t, s.Watch)
			lead(t, s, newDynamic())
		}
		<-time.After(30 * time.Second)
		synctest.Wait()
		writes := 0
		for _, verb := range verbs(client) {
			if verb == "update" {
				writes++
			}
		}
		if writes < 4 || writes > 60 { // each ten at once and then one every five seconds, and repairs
			t.Errorf("the Secret was written %d times in 30 s", writes)
		}
	})
}

// A replica that starts while the Secret is empty issues another certificate, with a CA that no client
// trusts. Replicas that already serve keep their certificate, and the new replica switches to it.
func TestACertificateThatIsMadeWhileTheSecretIsEmpty(t *testing.T) {
	for _, published := range []bool{true, false} {
		t.Run(fmt.Sprintf("published: %v", published), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				current := next(t, usual, Content{}, nowhere, time.Now()).Content
				if published {
					current = next(t, usual, current, everywhere, time.Now()).Content
				}
				client := fake.NewClientset(secretWith(current))
				replicas := []*Store{replica(t, client), replica(t, client)}
				<-time.After(time.Minute)
				made := next(t, usual, Content{}, nowhere, time.Now()).Content
				started := newTestStore(client)
				if accepted, _, err := started.take(&made); !accepted || err != nil {
					t.Fatal(accepted, err)
				}
				client.ClearActions()
				put(t, client, made.putInto)
				background(t, started.Watch)
				<-time.After(time.Minute)
				synctest.Wait()
				for i, s := range append(replicas, started) {
					if currentCert(s) != string(current.Cert) {
						t.Errorf("replica %d serves by another certificate", i)
					}
				}
				if secret := ContentOf(get(t, client)); string(secret.Cert) != string(current.Cert) || serves(&made, secret.Bundle, time.Now()) != nil {
					t.Error("the Secret has another certificate, or lacks the CA of the issued one")
				}
				writes := 0
				for _, verb := range verbs(client) {
					if verb == "update" {
						writes++
					}
				}
				if writes > 3 { // the test's own write, and a repair by each of the two
					t.Errorf("the Secret was written %d times", writes)
				}
			})
		})
	}
}

// Any replica repairs a Secret that was restored, or that has lost a certificate that may be in
// use. If several do, conflicts prevent further writes.
func TestEveryReplicaRepairsTheSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := next(t, usual, Content{}, nowhere, time.Now()).Content
		first = next(t, usual, first, everywhere, time.Now()).Content
		<-time.After(61 * day)
		renewed := next(t, usual, first, everywhere, time.Now()).Content
		client := fake.NewClientset(secretWith(first))
		replicas := []*Store{replica(t, client), replica(t, client), replica(t, client)}
		put(t, client, renewed.putInto)
		synctest.Wait()
		for what, change := range map[string]func(*corev1.Secret){
			"damaged":              func(s *corev1.Secret) { s.Data["tls.crt"] = []byte("x") },
			"emptied":              func(s *corev1.Secret) { s.Data = nil },
			"restored":             first.putInto,
			"without those before": func(s *corev1.Secret) { delete(s.Data, "previous.crt") },
			"with the bundle of others": func(s *corev1.Secret) {
				s.Data["ca.crt"] = next(t, usual, Content{}, nowhere, time.Now()).Content.Bundle
			},
		} {
			put(t, client, change)
			<-time.After(time.Minute) // for the limit of the rate
			synctest.Wait()
			if after := ContentOf(get(t, client)); !after.equal(&renewed) {
				t.Errorf("%s: the Secret is not repaired", what)
			}
		}
		// The key of a CA is deleted to get another CA, and stays deleted.
		put(t, client, func(s *corev1.Secret) { delete(s.Data, "ca.key") })
		<-time.After(time.Minute)
		synctest.Wait()
		if keys := get(t, client).Data["ca.key"]; len(keys) > 0 {
			t.Error("the key of the CA was restored, want it to stay deleted")
		}
		for i, s := range replicas {
			if currentCert(s) != string(renewed.Cert) {
				t.Errorf("replica %d serves by another certificate", i)
			}
		}
	})
}

// No key is logged, whatever the verbosity.
func TestNothingSecretIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(10)))
		client := fake.NewClientset(shipped())
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		s := newTestStore(client)
		if err := s.Load(ctx); err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		running.Go(func() { s.Watch(ctx) })
		running.Go(func() { s.Lead(ctx, NewBundles(newDynamic(apiService("")), Targets{APIService: ours})) })
		synctest.Wait()
		c := ContentOf(get(t, client))
		put(t, client, func(s *corev1.Secret) { s.Data["tls.crt"] = nil })
		synctest.Wait()
		cancel()
		running.Wait()
		log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		if !strings.Contains(log, "Updated the CAs") || !strings.Contains(log, "continuing with the previous one") {
			t.Errorf("log lacks an expected message:\n%s", log)
		}
		for _, secret := range [][]byte{c.Key, c.CAKeys} {
			if line := bytes.Split(secret, []byte("\n"))[1]; strings.Contains(log, string(line)) {
				t.Error("the log contains a key")
			}
		}
	})
}
