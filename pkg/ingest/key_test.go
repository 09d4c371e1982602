// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/sharedsecret"
)

const home = "configdep-system"

func keySecret(key []byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: KeySecret}, Data: map[string][]byte{"key": key}}
}

func verbs(client *fake.Clientset) (out []string) {
	for _, a := range client.Actions() {
		out = append(out, a.GetVerb())
	}
	return out
}

// sharedBy returns the key in the Secret of a client.
func sharedBy(client *fake.Clientset) sharedKey {
	return sharedKey{NewKeySecret(client, home)}
}

// made returns the Secret as the manifests create it.
func made() *corev1.Secret {
	secret := keySecret(nil)
	secret.Data = nil
	secret.Labels, secret.Annotations = map[string]string{"app.kubernetes.io/part-of": "configdep"}, map[string]string{"note": "mine"}
	return secret
}

// The first replica creates the key, the second finds it, and a restart changes nothing. The metadata
// from the manifests is kept.
func TestReplicasShareOneKey(t *testing.T) {
	client := fake.NewClientset(made())
	var keys [][]byte
	for range 3 {
		key, err := sharedBy(client).load(quiet(t))
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	if !bytes.Equal(keys[0], keys[1]) || !bytes.Equal(keys[1], keys[2]) {
		t.Error("the replicas have different keys")
	}
	if diff := cmp.Diff([]string{"get", "update", "get", "get", "get"}, verbs(client)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	filled, err := client.CoreV1().Secrets(home).Get(t.Context(), KeySecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if key := filled.Data["key"]; !bytes.Equal(key, keys[0]) || len(key) != dependency.KeySize || bytes.Equal(key, make([]byte, dependency.KeySize)) {
		t.Errorf("key of %d bytes, want random bytes of the right length", len(key))
	}
	filled.Data, filled.ManagedFields = nil, nil
	if diff := cmp.Diff(made(), filled); diff != "" {
		t.Errorf("Secret without the key (-made +filled):\n%s", diff)
	}
}

// Two clusters have different keys.
func TestKeysAreRandom(t *testing.T) {
	keys := map[string]bool{}
	for range 5 {
		key, err := sharedBy(fake.NewClientset(made())).load(quiet(t))
		if err != nil {
			t.Fatal(err)
		}
		keys[string(key)] = true
	}
	if len(keys) != 5 {
		t.Errorf("5 clusters have %d different keys", len(keys))
	}
}

// Two replicas start at the same time: the one whose update is second uses the other's key.
func TestALostRaceForTheKey(t *testing.T) {
	theirs := bytes.Repeat([]byte{9}, dependency.KeySize)
	read := made()
	read.ResourceVersion = "7"
	client := fake.NewClientset(read)
	client.PrependReactor("update", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if version := action.(clienttesting.UpdateAction).GetObject().(*corev1.Secret).ResourceVersion; version != "7" {
			t.Errorf("resourceVersion of the update = %q", version)
		}
		if err := client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("secrets"), keySecret(theirs), home); err != nil {
			t.Error(err)
		}
		return true, nil, apierrors.NewConflict(corev1.Resource("secrets"), KeySecret, errors.New("it has been written"))
	})
	key, err := sharedBy(client).load(quiet(t))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(key, theirs) {
		t.Error("the key differs from the other replica's")
	}
	if diff := cmp.Diff([]string{"get", "update", "get"}, verbs(client)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// An invalid key that was created by hand is refused with instructions, and not repaired:
// other replicas may use it. The error contains its length, never its bytes.
func TestAKeyOfTheWrongSize(t *testing.T) {
	for name, tt := range map[string]struct {
		key  string
		says string
	}{
		"short": {"SHORTKEY", "has 8 bytes, not 32"},
		"long":  {strings.Repeat("SHORTKEY", 5), "has 40 bytes, not 32"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(keySecret([]byte(tt.key)))
			_, err := sharedBy(client).find(t.Context(), true)
			if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "remove it from the Secret") {
				t.Errorf("error = %v, want %q", err, tt.says)
			}
			if err != nil && strings.Contains(err.Error(), "SHORTKEY") {
				t.Errorf("the error contains the key: %v", err)
			}
			if diff := cmp.Diff([]string{"get"}, verbs(client)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// A Secret with other entries, or with an empty value, is filled in.
func TestASecretWithoutAKeyIsFilled(t *testing.T) {
	other := made()
	other.Data = map[string][]byte{"x": []byte("y")}
	for name, secret := range map[string]*corev1.Secret{"an empty value": keySecret([]byte{}), "another entry": other} {
		client := fake.NewClientset(secret)
		key, err := sharedBy(client).load(quiet(t))
		if err != nil {
			t.Fatal(err)
		}
		filled, err := client.CoreV1().Secrets(home).Get(t.Context(), KeySecret, metav1.GetOptions{})
		if err != nil || !bytes.Equal(filled.Data["key"], key) || !bytes.Equal(filled.Data["x"], secret.Data["x"]) {
			t.Errorf("%s: the Secret has %d entries (error %v)", name, len(filled.Data), err)
		}
	}
}

// The API server may start after this process, and the Secret may be filled in meanwhile.
func TestTheKeyIsTriedUntilItIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(made())
		answers := []error{errors.New("connection refused"), apierrors.NewForbidden(corev1.Resource("secrets"), KeySecret, nil), nil}
		client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			answer := answers[0]
			if answer != nil {
				answers = answers[1:]
				return true, nil, answer
			}
			return false, nil, nil
		})
		key, err := sharedBy(client).load(quiet(t))
		if err != nil || len(key) != dependency.KeySize {
			t.Fatalf("got a key of %d bytes, error %v", len(key), err)
		}
		if diff := cmp.Diff([]string{"get", "get", "get", "update", "get"}, verbs(client)); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

// Without the Secret, a replica waits, and its log says what to do. It never creates the Secret. When the
// Secret exists again, a running replica writes the key back; only if there is none, the replica that starts
// creates another key.
func TestTheSecretOfTheKeyDoesNotExist(t *testing.T) {
	key := bytes.Repeat([]byte{9}, dependency.KeySize)
	for _, tt := range []struct {
		away time.Duration
		runs bool
	}{{time.Second, true}, {time.Minute, true}, {time.Second, false}, {time.Minute, false}} {
		t.Run(fmt.Sprintf("after %v, a replica runs: %v", tt.away, tt.runs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, runs := fake.NewClientset(), tt.runs
				shared := sharedBy(client)
				logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
				var there, seen atomic.Bool
				time.AfterFunc(tt.away, func() {
					if !shared.Missing() {
						t.Error("Missing = false, want true without the Secret")
					}
					if err := client.Tracker().Add(made()); err != nil {
						t.Error(err)
					}
					there.Store(true)
				})
				client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
					if there.Load() && runs && !seen.Swap(true) { // the running replica is slow
						time.AfterFunc(sharedsecret.Patience-time.Second, func() {
							if err := sharedBy(client).restore(quiet(t), key); err != nil {
								t.Error(err)
							}
						})
					}
					return false, nil, nil
				})
				begun := time.Now()
				got, err := shared.load(klog.NewContext(t.Context(), logger))
				if err != nil || len(got) != dependency.KeySize || bytes.Equal(got, key) != runs {
					t.Errorf("error = %v, has the other replica's key: %v", err, bytes.Equal(got, key))
				}
				if took := time.Since(begun); took < tt.away+sharedsecret.Patience-time.Second || took > tt.away+30*time.Second {
					t.Errorf("the replica with the key took %v", took)
				}
				if shared.Missing() {
					t.Error("Missing = true, want false with the Secret")
				}
				log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
				if !strings.Contains(log, "the Secret configdep-hmac-key does not exist in the namespace of the server") || !strings.Contains(log, "apply the manifests again") {
					t.Errorf("the log does not say what to do:\n%s", log)
				}
				if slices.Contains(verbs(client), "create") {
					t.Errorf("requests = %v", verbs(client))
				}
			})
		})
	}
}

// A server that is stopped before it has the key stops immediately.
func TestLoadingTheKeyEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(quiet(t))
	client := fake.NewClientset()
	client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel()
		return true, nil, errors.New("connection refused")
	})
	key, err := sharedBy(client).load(ctx)
	if key != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("got a key of %d bytes, error %v", len(key), err)
	}
	if diff := cmp.Diff([]string{"get"}, verbs(client)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
