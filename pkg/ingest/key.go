// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/sharedsecret"
)

// The Secret, in the namespace of the server, that holds the key of the digests, and the
// key within it.
const (
	KeySecret = "configdep-hmac-key"
	keyField  = "key"
)

// NewKeySecret returns the Secret with the key of the digests, in the namespace of the server.
func NewKeySecret(client kubernetes.Interface, namespace string) *sharedsecret.Secret {
	return sharedsecret.New(client, namespace, KeySecret, "the key of the config hash")
}

// sharedKey is the key that all replicas share by the Secret.
type sharedKey struct{ *sharedsecret.Secret }

// load returns the key. The first replica makes it, in the Secret that is empty; the others find it. Without a Secret, it makes one
// in memory.
func (k sharedKey) load(ctx context.Context) (key []byte, err error) {
	if k.Secret == nil {
		return newKey(), nil
	}
	err = k.Load(ctx, func(ctx context.Context, mayFill bool) (err error) {
		key, err = k.find(ctx, mayFill)
		return err
	})
	return key, err
}

// find returns the key in the Secret. If there is none, it makes one if it may.
func (k sharedKey) find(ctx context.Context, mayFill bool) ([]byte, error) {
	secret, err := k.Get(ctx)
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
		if secret, err = k.Get(ctx); err != nil {
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

// put puts a key into the Secret that was read.
func (k sharedKey) put(ctx context.Context, read *corev1.Secret, key []byte) error {
	return k.Update(ctx, read, func(secret *corev1.Secret) {
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[keyField] = key
	})
}
