package ingest

import (
	"bytes"
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/logging"
)

// watchKey watches the Secret with the key until the context is done. It calls changed
// when it holds another key, and restores the current one when it was
// deleted: all replicas have to agree, and hashes with another key say nothing. What
// cannot be a key is left there for users to fix, and the current one stays in use.
func watchKey(ctx context.Context, secrets corev1client.SecretInterface, key []byte, changed func()) {
	ctx = logging.WithoutBodies(ctx)
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, KeySecret).String()
	check := func(o any) {
		secret, ok := o.(*corev1.Secret)
		if !ok || bytes.Equal(secret.Data[keyField], key) {
			return
		}
		if err := checkKey(secret.Data[keyField]); err != nil {
			klog.FromContext(ctx).Error(err, "The key of the config hash is invalid; continuing with the previous key", "secret", KeySecret)
		} else {
			klog.FromContext(ctx).Info("The key of the config hash has been replaced, reading everything again", "secret", KeySecret)
			changed()
		}
	}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
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
				if _, err := createKey(ctx, secrets, key); err != nil && !apierrors.IsAlreadyExists(err) {
					klog.FromContext(ctx).Error(err, "Putting the key of the config hash back", "secret", KeySecret)
				}
			},
		},
	})
	controller.RunWithContext(ctx)
}
