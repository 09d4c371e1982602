package ingest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/dependency"
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

// The first replica makes the key, the second finds it, and a restart changes nothing.
func TestReplicasShareOneKey(t *testing.T) {
	client := fake.NewClientset()
	var keys [][]byte
	for range 3 {
		key, err := LoadKey(quiet(t), client.CoreV1().Secrets(home))
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	if !bytes.Equal(keys[0], keys[1]) || !bytes.Equal(keys[1], keys[2]) {
		t.Error("the replicas have different keys")
	}
	if diff := cmp.Diff([]string{"get", "create", "get", "get"}, verbs(client)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	made, err := client.CoreV1().Secrets(home).Get(t.Context(), KeySecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if key := made.Data["key"]; !bytes.Equal(key, keys[0]) || len(key) != dependency.KeySize || bytes.Equal(key, make([]byte, dependency.KeySize)) {
		t.Errorf("a key of %d bytes, perhaps of zeros", len(key))
	}
	if len(made.Data) != 1 {
		t.Errorf("the Secret has %d keys", len(made.Data))
	}
}

// Two clusters have different keys.
func TestKeysAreRandom(t *testing.T) {
	keys := map[string]bool{}
	for range 5 {
		key, err := LoadKey(quiet(t), fake.NewClientset().CoreV1().Secrets(home))
		if err != nil {
			t.Fatal(err)
		}
		keys[string(key)] = true
	}
	if len(keys) != 5 {
		t.Errorf("5 clusters have %d keys", len(keys))
	}
}

// Two replicas start at once: the one whose create comes second takes the other's key.
func TestALostRaceForTheKey(t *testing.T) {
	theirs := bytes.Repeat([]byte{9}, dependency.KeySize)
	client := fake.NewClientset()
	client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		if err := client.Tracker().Add(keySecret(theirs)); err != nil {
			t.Error(err)
		}
		return true, nil, apierrors.NewAlreadyExists(corev1.Resource("secrets"), KeySecret)
	})
	key, err := LoadKey(quiet(t), client.CoreV1().Secrets(home))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(key, theirs) {
		t.Error("the key is not the other's")
	}
	if diff := cmp.Diff([]string{"get", "create", "get"}, verbs(client)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// A key that was made by hand is refused with what to do, and not repaired: the
// other replicas may run with it. The error tells its length, never its bytes.
func TestAKeyOfTheWrongSize(t *testing.T) {
	for name, tt := range map[string]struct {
		secret *corev1.Secret
		says   string
	}{
		"short":         {keySecret([]byte("SHORTKEY")), "has 8 bytes, not 32"},
		"long":          {keySecret(bytes.Repeat([]byte("SHORTKEY"), 5)), "has 40 bytes, not 32"},
		"empty":         {keySecret(nil), "has 0 bytes, not 32"},
		"another entry": {&corev1.Secret{ObjectMeta: keySecret(nil).ObjectMeta, Data: map[string][]byte{"x": []byte("SHORTKEY")}}, "has 0 bytes, not 32"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(tt.secret)
			_, err := loadKey(t.Context(), client.CoreV1().Secrets(home))
			if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "delete the Secret") {
				t.Errorf("error %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "SHORTKEY") {
				t.Errorf("the error tells the key: %v", err)
			}
			if diff := cmp.Diff([]string{"get"}, verbs(client)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// The API server may come up after us, and the Secret may be repaired meanwhile.
func TestTheKeyIsTriedUntilItIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		answers := []error{errors.New("connection refused"), apierrors.NewForbidden(corev1.Resource("secrets"), KeySecret, nil), nil}
		client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			answer := answers[0]
			if answer != nil {
				answers = answers[1:]
				return true, nil, answer
			}
			return false, nil, nil
		})
		key, err := LoadKey(quiet(t), client.CoreV1().Secrets(home))
		if err != nil || len(key) != dependency.KeySize {
			t.Fatalf("a key of %d bytes, error %v", len(key), err)
		}
		if diff := cmp.Diff([]string{"get", "get", "get", "create"}, verbs(client)); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

// A server that is told to stop before it has the key stops at once.
func TestLoadingTheKeyEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(quiet(t))
	client := fake.NewClientset()
	client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel()
		return true, nil, errors.New("connection refused")
	})
	key, err := LoadKey(ctx, client.CoreV1().Secrets(home))
	if key != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("a key of %d bytes, error %v", len(key), err)
	}
	if diff := cmp.Diff([]string{"get"}, verbs(client)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
