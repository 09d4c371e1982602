package ingest

import (
	"context"
	"crypto/rand"
	"fmt"
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

// LoadKey returns the key that all replicas share. The first replica makes it; the others
// find it. It tries until the context is done, because the API server may come up later
// than we do.
func LoadKey(ctx context.Context, secrets corev1client.SecretInterface) ([]byte, error) {
	var key []byte
	err := retry().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		var err error
		key, err = loadKey(ctx, secrets)
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

func loadKey(ctx context.Context, secrets corev1client.SecretInterface) ([]byte, error) {
	found, err := secrets.Get(ctx, KeySecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		fresh := make([]byte, dependency.KeySize)
		rand.Read(fresh) // never fails, by its documentation
		found, err = createKey(ctx, secrets, fresh)
		if apierrors.IsAlreadyExists(err) { // by another replica
			found, err = secrets.Get(ctx, KeySecret, metav1.GetOptions{})
		}
	}
	if err != nil {
		return nil, err
	}
	key := found.Data[keyField]
	return key, checkKey(key)
}

func checkKey(key []byte) error {
	if len(key) != dependency.KeySize {
		return fmt.Errorf("the value %q of Secret %s has %d bytes, not %d: delete the Secret to have the key put back, or a new one made",
			keyField, KeySecret, len(key), dependency.KeySize)
	}
	return nil
}

func createKey(ctx context.Context, secrets corev1client.SecretInterface, key []byte) (*corev1.Secret, error) {
	return secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: KeySecret},
		Data:       map[string][]byte{keyField: key},
	}, metav1.CreateOptions{})
}
