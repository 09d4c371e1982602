// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/dependency"
)

// The Secret, in the namespace of the server, that holds the key of the digests, and the
// key within it.
const (
	KeySecret = "configdep-hmac-key"
	keyField  = "key"
)

// fieldManager is the field manager of the key.
const fieldManager = "configdep"

// errNoSecret is of a Secret that does not exist. The manifests make it, empty, so that the server
// needs no right to create Secrets.
var errNoSecret = errors.New("the Secret " + KeySecret + " does not exist in the namespace of the server, and the server may not create it: " +
	"apply the manifests again (kubectl apply or helm upgrade), and it fills the Secret")

// patience is how long a replica that has found no Secret leaves an empty one to replicas
// that run: they put back the key that they have.
const patience = 5 * time.Second

// sharedKey is the key that all replicas share by the Secret.
type sharedKey struct {
	secrets corev1client.SecretInterface
	missing *atomic.Bool // whether there is no such Secret
}

// load returns the key. The first replica makes it, in the Secret that is empty; the others
// find it. It tries until the context is done, because the API server may come up later than
// we do.
func (k *sharedKey) load(ctx context.Context) ([]byte, error) {
	var key []byte
	wasMissing, seen := false, time.Time{} // when it was seen after that
	err := retry().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		var err error
		key, err = k.find(ctx, !wasMissing || !seen.IsZero() && time.Since(seen) >= patience)
		switch {
		case errors.Is(err, errNoSecret):
			wasMissing, seen = true, time.Time{}
		case seen.IsZero():
			seen = time.Now()
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Reading the key of the config hash, will try again", "secret", KeySecret)
		}
		return err == nil, nil
	})
	return key, err
}

// retry returns how long to wait between attempts.
func retry() wait.DelayFunc {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 100, Cap: 10 * time.Second}.DelayFunc()
}

// find returns the key in the Secret. If there is none, it makes one if it may.
func (k *sharedKey) find(ctx context.Context, mayFill bool) ([]byte, error) {
	secret, err := k.get(ctx)
	if err != nil {
		return nil, err
	}
	if empty(secret) {
		if !mayFill {
			return nil, errors.New("the Secret is empty, and a replica that runs may put the key back")
		}
		switch err := k.put(ctx, secret, newKey()); {
		case err == nil:
			klog.FromContext(ctx).Info("Made the key of the config hash", "secret", KeySecret)
		case !apierrors.IsConflict(err): // else another replica has made it
			return nil, err
		}
		if secret, err = k.get(ctx); err != nil {
			return nil, err
		}
	}
	key := secret.Data[keyField]
	return key, checkKey(key)
}

func newKey() []byte {
	key := make([]byte, dependency.KeySize)
	rand.Read(key) // never fails, by its documentation
	return key
}

// empty reports whether a Secret is as the manifests make it.
func empty(secret *corev1.Secret) bool { return len(secret.Data[keyField]) == 0 }

func checkKey(key []byte) error {
	if len(key) != dependency.KeySize {
		return fmt.Errorf("the value %q of Secret %s has %d bytes, not %d: remove it from the Secret to have the key put back, or a new one made",
			keyField, KeySecret, len(key), dependency.KeySize)
	}
	return nil
}

func (k *sharedKey) get(ctx context.Context) (*corev1.Secret, error) {
	secret, err := k.secrets.Get(ctx, KeySecret, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		k.missing.Store(true)
		return nil, errNoSecret
	case err != nil:
		return nil, err
	}
	k.missing.Store(false)
	return secret, nil
}

// put puts a key into the Secret that was read. It fails when the Secret has been written since,
// so that replicas agree.
func (k *sharedKey) put(ctx context.Context, read *corev1.Secret, key []byte) error {
	secret := read.DeepCopy()
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[keyField] = key
	_, err := k.secrets.Update(ctx, secret, metav1.UpdateOptions{FieldManager: fieldManager})
	return err
}
