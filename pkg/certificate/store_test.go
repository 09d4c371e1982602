// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/configdep/configdep/pkg/sharedsecret"
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

// shipped returns the Secret as the manifests create it.
func shipped() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: name, Labels: map[string]string{"app.kubernetes.io/part-of": "configdep"}}}
}

func currentCert(s *Store) string {
	cert, _ := s.Current()
	return string(cert)
}

// The first replica issues the certificate, the second finds it, and a restart changes nothing.
func TestReplicasShareOneCertificate(t *testing.T) {
	client := fake.NewClientset(shipped())
	certs := map[string]bool{}
	for range 3 {
		s := newTestStore(client)
		if cert, key := s.Current(); cert != nil || key != nil {
			t.Error("Current returns a certificate before Load")
		}
		if err := s.Load(quiet(t)); err != nil {
			t.Fatal(err)
		}
		certs[currentCert(s)] = true
	}
	if len(certs) != 1 {
		t.Errorf("got %d certificates, want one", len(certs))
	}
	if diff := cmp.Diff([]string{"get", "update", "get", "get"}, verbs(client)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if secret := get(t, client); secret.Type != "" || len(secret.Data) != 4 || secret.Labels["app.kubernetes.io/part-of"] != "configdep" {
		t.Errorf("Secret has type %s, %d entries and labels %v", secret.Type, len(secret.Data), secret.Labels)
	}
}

// The type of a Secret is immutable, and earlier versions created one of type kubernetes.io/tls.
func TestTheTypeOfTheSecretDoesNotMatter(t *testing.T) {
	secret := shipped()
	secret.Type, secret.Data = corev1.SecretTypeTLS, map[string][]byte{"tls.crt": nil, "tls.key": {}}
	client := fake.NewClientset(secret)
	s := newTestStore(client)
	if err := s.Load(quiet(t)); err != nil {
		t.Fatal(err)
	}
	if filled := get(t, client); filled.Type != corev1.SecretTypeTLS || string(filled.Data["tls.crt"]) != currentCert(s) {
		t.Errorf("Secret has type %s and %d entries", filled.Type, len(filled.Data))
	}
}

func TestALostRaceForTheCertificate(t *testing.T) {
	theirs := next(t, usual, Content{}, nowhere, time.Now()).Content
	read := shipped()
	read.ResourceVersion = "7"
	client := fake.NewClientset(read)
	client.PrependReactor("update", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if version := action.(clienttesting.UpdateAction).GetObject().(*corev1.Secret).ResourceVersion; version != "7" {
			t.Errorf("resourceVersion of the update = %q", version)
		}
		if err := client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("secrets"), secretWith(theirs), home); err != nil {
			t.Error(err)
		}
		return true, nil, apierrors.NewConflict(corev1.Resource("secrets"), name, errors.New("it has been written"))
	})
	s := newTestStore(client)
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
	if err := s.Load(klog.NewContext(t.Context(), logger)); err != nil {
		t.Fatal(err)
	}
	if currentCert(s) != string(theirs.Cert) {
		t.Error("the certificate differs from the other replica's")
	}
	if log := logger.GetSink().(ktesting.Underlier).GetBuffer().String(); strings.Contains(log, "will retry") {
		t.Errorf("the log has an error:\n%s", log)
	}
	if diff := cmp.Diff([]string{"get", "update", "get"}, verbs(client)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// The API server may start after this process.
func TestLoadingIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(shipped())
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
		if diff := cmp.Diff([]string{"get", "get", "get", "update"}, verbs(client)); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

func TestLoadingEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(quiet(t))
	client := fake.NewClientset(shipped())
	client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel()
		return true, nil, errors.New("connection refused")
	})
	if err := newTestStore(client).Load(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
}

// A replica that finds an invalid Secret leaves the repair to the leader, which knows the previous
// content. If no leader repairs it, the replica does.
func TestAReplicaThatStartsWithAnInvalidSecret(t *testing.T) {
	for _, led := range []bool{true, false} {
		t.Run(fmt.Sprintf("with a leader: %v", led), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := next(t, usual, Content{}, nowhere, time.Now()).Content
				invalid := c
				invalid.Cert = []byte("x")
				client := fake.NewClientset(secretWith(invalid))
				s := newTestStore(client)
				begun := time.Now()
				if led {
					time.AfterFunc(2*time.Second, func() { put(t, client, c.putInto) })
				}
				if err := s.Load(quiet(t)); err != nil {
					t.Fatal(err)
				}
				if mine := currentCert(s) != string(c.Cert); mine == led {
					t.Errorf("with a leader: %v, certificate issued by the replica: %v", led, mine)
				}
				if took := time.Since(begun); !led && (took < sharedsecret.Patience || took > 3*sharedsecret.Patience) {
					t.Errorf("the replica took %v", took)
				}
				if now := ContentOf(get(t, client)); string(now.Cert) != currentCert(s) || serves(&now, c.Bundle, time.Now()) != nil {
					t.Error("the certificate is not in the Secret, or not by the CA that is already trusted")
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

// background runs a function until the test ends.
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

// A replica switches to a new certificate, but keeps its own if the new one is invalid or
// older.
func TestAReplicaFollowsTheSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(shipped())
		s := replica(t, client)
		told := 0
		s.OnChange(func() { told++ })
		synctest.Wait()
		first, before := ContentOf(get(t, client)), told

		renewed := next(t, usual, first, everywhere, time.Now().Add(61*day)).Content
		put(t, client, renewed.putInto)
		synctest.Wait()
		if currentCert(s) != string(renewed.Cert) || told == before {
			t.Errorf("the replica does not serve the new certificate, or has not notified listeners (%d notifications, %d before)", told, before)
		}
		for what, change := range map[string]func(*corev1.Secret){
			"invalid":        func(s *corev1.Secret) { s.Data["tls.crt"] = []byte("x") },
			"emptied":        func(s *corev1.Secret) { s.Data = nil },
			"the one before": first.putInto,
			"another's bundle": func(s *corev1.Secret) {
				s.Data["ca.crt"] = next(t, usual, Content{}, nowhere, time.Now()).Content.Bundle
			},
		} {
			put(t, client, change)
			synctest.Wait()
			if currentCert(s) != string(renewed.Cert) {
				t.Errorf("%s: the replica no longer serves the last valid certificate", what)
			}
		}
	})
}

// Any replica restores entries that are removed from the Secret; if the Secret is deleted, as soon as the
// manifests are applied again. No replica creates it.
func TestARemovedCertificateIsPutBack(t *testing.T) {
	for what, remove := range map[string]func(*testing.T, *fake.Clientset, []*Store){
		"emptied": func(t *testing.T, client *fake.Clientset, _ []*Store) {
			t.Helper()
			put(t, client, func(s *corev1.Secret) { s.Data, s.Annotations = nil, nil })
		},
		"deleted": func(t *testing.T, client *fake.Clientset, replicas []*Store) {
			t.Helper()
			before := []string{currentCert(replicas[0]), currentCert(replicas[1])}
			if err := client.CoreV1().Secrets(home).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			client.ClearActions()
			replicas[0].secret.Lacks() // as if it had been damaged before
			<-time.After(time.Hour)
			synctest.Wait()
			if diff := cmp.Diff([]string{"get"}, verbs(client)); diff != "" {
				t.Errorf("requests in an hour (-want +got):\n%s", diff)
			}
			for i, s := range replicas {
				if !s.Missing() || currentCert(s) != before[i] {
					t.Errorf("replica %d does not know, or serves by another", i)
				}
			}
			if err := client.Tracker().Add(shipped()); err != nil {
				t.Fatal(err)
			}
		},
		"deleted, and restored": func(t *testing.T, client *fake.Clientset, replicas []*Store) {
			t.Helper()
			backup := get(t, client)
			if err := client.CoreV1().Secrets(home).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if !replicas[0].Missing() {
				t.Error("Missing = false, want true without the Secret")
			}
			if err := client.Tracker().Add(backup); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(shipped())
				replicas := []*Store{replica(t, client), replica(t, client)}
				synctest.Wait()
				before := ContentOf(get(t, client))
				remove(t, client, replicas)
				synctest.Wait()
				if after := ContentOf(get(t, client)); !after.equal(&before) {
					t.Error("the Secret has another certificate")
				}
				for i, s := range replicas {
					if s.Missing() || currentCert(s) != string(before.Cert) {
						t.Errorf("replica %d takes it for missing, or serves by another", i)
					}
				}
				if slices.Contains(verbs(client), "create") {
					t.Errorf("requests = %v", verbs(client))
				}
			})
		})
	}
}

// Without the Secret, a replica does not start, and its log says what to do. When the Secret exists again,
// running replicas restore its content; only if there are none, the replica that starts issues another
// certificate.
func TestAReplicaThatStartsWithoutTheSecret(t *testing.T) {
	for _, tt := range []struct {
		away time.Duration
		runs bool
	}{{time.Second, true}, {time.Minute, true}, {time.Second, false}, {time.Minute, false}} {
		t.Run(fmt.Sprintf("after %v, a replica runs: %v", tt.away, tt.runs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, runs := fake.NewClientset(), tt.runs
				theirs := next(t, usual, Content{}, nowhere, time.Now()).Content
				s := newTestStore(client)
				logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
				var there, seen atomic.Bool
				time.AfterFunc(tt.away, func() {
					if !s.Missing() {
						t.Error("Missing = false, want true without the Secret")
					}
					if err := client.Tracker().Add(shipped()); err != nil {
						t.Error(err)
					}
					there.Store(true)
				})
				client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
					if there.Load() && runs && !seen.Swap(true) { // and is slow
						time.AfterFunc(sharedsecret.Patience-time.Second, func() { put(t, client, theirs.putInto) })
					}
					return false, nil, nil
				})
				begun := time.Now()
				if err := s.Load(klog.NewContext(t.Context(), logger)); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); took < tt.away+sharedsecret.Patience-time.Second || took > tt.away+30*time.Second {
					t.Errorf("the replica took %v", took)
				}
				if takes := currentCert(s) == string(theirs.Cert); takes != runs || s.Missing() {
					t.Errorf("serves the other replica's certificate: %v; Missing = %v", takes, s.Missing())
				}
				if log := logger.GetSink().(ktesting.Underlier).GetBuffer().String(); !strings.Contains(log, "apply the manifests again") {
					t.Errorf("the log does not say what to do:\n%s", log)
				}
				if slices.Contains(verbs(client), "create") {
					t.Errorf("requests = %v", verbs(client))
				}
			})
		})
	}
}

// The Secret may be deleted between Load and the first list of Watch.
func TestASecretThatGoesBeforeItIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(shipped())
		s := newTestStore(client)
		if err := s.Load(quiet(t)); err != nil {
			t.Fatal(err)
		}
		if err := client.CoreV1().Secrets(home).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		background(t, s.Watch)
		settle()
		if !s.Missing() {
			t.Error("Missing = false, want true without the Secret")
		}
	})
}

// settle lets a second pass, in which an informer syncs.
func settle() {
	<-time.After(time.Second)
	synctest.Wait()
}

// Objects in the cluster that name the CA.
