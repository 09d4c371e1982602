// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"bytes"
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// watch watches the Secret until the context is done. It calls changed when the Secret holds
// another key, and puts the current one back when it is empty: all replicas have to agree, and
// hashes with another key say nothing. What cannot be a key is left there for users to fix, and
// the current one stays in use. It also stays in use while the Secret does not exist: the Secret
// is filled once the manifests have been applied again.
func (k sharedKey) watch(ctx context.Context, key []byte, changed func()) {
	if k.Secret == nil {
		return
	}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "secret", KeySecret)
	present := func(secret *corev1.Secret) {
		found := secret.Data[keyField]
		switch {
		case bytes.Equal(found, key):
		case empty(secret):
			k.Lacks()
		case checkKey(found) != nil:
			logger.Error(checkKey(found), "The key of the config hash is invalid; continuing with the previous key")
		default:
			logger.Info("The key of the config hash has been replaced, reading everything again")
			changed()
		}
	}
	absent := func(err error) {
		logger.Error(err, "The key of the config hash is in memory only; continuing with it, but no replica can start")
	}
	k.Keep(ctx, present, absent, func(ctx context.Context) error { return k.restore(ctx, key) })
}

// restore puts a key back into the Secret, unless another replica has done so.
func (k sharedKey) restore(ctx context.Context, key []byte) error {
	secret, err := k.Get(ctx)
	if err != nil || !empty(secret) {
		return err
	}
	if err := k.put(ctx, secret, key); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Put the key of the config hash back", "secret", KeySecret)
	return nil
}
