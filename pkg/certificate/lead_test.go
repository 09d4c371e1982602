package certificate

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/configdep/configdep/pkg/logging"
)

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

// The leader repairs an invalid Secret from what it serves by, and keeps what else is there.
func TestTheLeaderRepairsTheSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
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
