package ingest

import (
	"bytes"
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// watchKey watches the Secret with the key until the context is done. It calls changed
// when the Secret holds another key, and restores the current one when there is none: all replicas
// have to agree, and hashes with another key say nothing. What cannot be a key is left there
// for users to fix, and the current one stays in use.
func watchKey(ctx context.Context, secrets corev1client.SecretInterface, key []byte, changed func()) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "secret", KeySecret)
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, KeySecret).String()
	check := func(o any) {
		secret, ok := o.(*corev1.Secret)
		if !ok || bytes.Equal(secret.Data[keyField], key) {
			return
		}
		if err := checkKey(secret.Data[keyField]); err != nil {
			logger.Error(err, "The key of the config hash is invalid; continuing with the previous key")
		} else {
			logger.Info("The key of the config hash has been replaced, reading everything again")
			changed()
		}
	}
	deleted := make(chan struct{}, 1)
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector = only
				return secrets.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.FieldSelector = only
				return secrets.Watch(ctx, o)
			},
		},
		ObjectType: &corev1.Secret{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    check,
			UpdateFunc: func(_, o any) { check(o) },
			DeleteFunc: func(any) {
				select {
				case deleted <- struct{}{}:
				default:
				}
			},
		},
	})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { controller.RunWithContext(ctx) })
	for there := controller.HasSyncedChecker().Done(); ; there = deleted { // it may have gone before the first list
		select {
		case <-ctx.Done():
			return
		case <-there:
			if len(store.ListKeys()) == 0 {
				restoreKey(ctx, secrets, key)
			}
		}
	}
}

// restoreKey makes the Secret with a key, unless another replica does. It tries until the context
// is done.
func restoreKey(ctx context.Context, secrets corev1client.SecretInterface, key []byte) {
	_ = retry().Until(ctx, true, true, func(ctx context.Context) (bool, error) { // ends with the context, or without an error
		_, err := createKey(ctx, secrets, key)
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Restoring the key of the config hash, will try again", "secret", KeySecret)
		}
		return err == nil, nil
	})
}
