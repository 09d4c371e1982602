// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"bytes"
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// watch watches the Secret until the context is done. It calls changed when the Secret holds
// another key, and puts the current one back when it is empty: all replicas have to agree, and
// hashes with another key say nothing. What cannot be a key is left there for users to fix, and
// the current one stays in use. So it does while the Secret does not exist: it is filled when
// the manifests have been applied again.
func (k *sharedKey) watch(ctx context.Context, key []byte, changed func()) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "secret", KeySecret)
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, KeySecret).String()
	lacking := make(chan struct{}, 1)
	check := func(o any) {
		secret, ok := o.(*corev1.Secret)
		if !ok {
			return
		}
		k.missing.Store(false)
		found := secret.Data[keyField]
		switch {
		case bytes.Equal(found, key):
		case empty(secret):
			select {
			case lacking <- struct{}{}:
			default:
			}
		case checkKey(found) != nil:
			logger.Error(checkKey(found), "The key of the config hash is invalid; continuing with the previous key")
		default:
			logger.Info("The key of the config hash has been replaced, reading everything again")
			changed()
		}
	}
	gone := func() {
		k.missing.Store(true)
		logger.Error(errNoSecret, "The key of the config hash is in memory only; continuing with it, but no replica can start")
	}
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector = only
				return k.secrets.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.FieldSelector = only
				return k.secrets.Watch(ctx, o)
			},
		},
		ObjectType: &corev1.Secret{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    check,
			UpdateFunc: func(_, o any) { check(o) },
			DeleteFunc: func(any) { gone() },
		},
	})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { controller.RunWithContext(ctx) })
	wg.Go(func() {
		select {
		case <-ctx.Done():
		case <-controller.HasSyncedChecker().Done():
			if len(store.ListKeys()) == 0 { // it has gone since the key was read
				gone()
			}
		}
	})
	for {
		select {
		case <-ctx.Done():
			return
		case <-lacking:
			k.restore(ctx, key)
		}
	}
}

// restore puts a key back into the Secret, unless another replica does, or the Secret has gone. It
// tries until the context is done.
func (k *sharedKey) restore(ctx context.Context, key []byte) {
	logger := klog.FromContext(ctx)
	_ = retry().Until(ctx, true, true, func(ctx context.Context) (bool, error) { // ends with the context, or without an error
		secret, err := k.get(ctx)
		if errors.Is(err, errNoSecret) || err == nil && !empty(secret) {
			return true, nil
		}
		if err == nil {
			err = k.put(ctx, secret, key)
		}
		switch {
		case err == nil:
			logger.Info("Put the key of the config hash back", "secret", KeySecret)
		case !apierrors.IsConflict(err):
			logger.Error(err, "Putting the key of the config hash back, will try again", "secret", KeySecret)
		}
		return err == nil, nil
	})
}
