package certificate

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/logging"
)

// Store holds the serving certificate that all replicas share by a Secret. Load gets it,
// Watch keeps up with the Secret, and Lead, on one replica, renews it.
type Store struct {
	client  kubernetes.Interface
	secrets corev1client.SecretInterface
	name    string
	profile Profile
	changed signal // wakes the leader: somebody has written the Secret

	mu        sync.RWMutex
	held      Content // the last good one
	listeners []func()
}

// NewStore makes a Store of a Secret.
func NewStore(client kubernetes.Interface, namespace, name string, profile Profile) *Store {
	return &Store{client: client, secrets: client.CoreV1().Secrets(namespace), name: name, profile: profile, changed: newSignal()}
}

// Current returns the certificate to serve and its key, PEM-encoded; nothing before Load
// has returned.
func (s *Store) Current() (cert, key []byte) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.held.Cert, s.held.Key
}

// OnChange has a function called whenever there may be another certificate.
func (s *Store) OnChange(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, f)
}

func (s *Store) content() Content {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.held
}

// accept goes over to what was found in the Secret, and tells whether that was right.
func (s *Store) accept(found *Content) bool {
	s.mu.Lock()
	ok := Succeeds(&s.held, found, time.Now())
	if ok {
		s.held = *found
	}
	listeners := s.listeners
	s.mu.Unlock()
	if ok {
		for _, f := range listeners {
			f()
		}
	}
	return ok
}

// patience is how long a replica that starts leaves a spoilt Secret to the leader, which
// knows what was in it, if there is one.
const patience = 5 * time.Second

// Load gets the certificate. The first replica makes it; the others find it. It tries until
// the context is done, because the API server may come up later than we do.
func (s *Store) Load(ctx context.Context) error {
	ctx = logging.WithoutBodies(ctx)
	begun := time.Now()
	backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 100, Cap: 10 * time.Second}
	return backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := s.load(ctx, time.Since(begun) >= patience)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Reading the serving certificate, will try again", "secret", s.name)
		}
		return err == nil, nil
	})
}

func nowhere(*x509.Certificate) bool { return false }

func (s *Store) load(ctx context.Context, mend bool) error {
	found, err := s.secrets.Get(ctx, s.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		plan, err := s.profile.Next(Content{}, nowhere, time.Now())
		if err != nil {
			return err
		}
		found, err = s.create(ctx, &plan.Content)
		if apierrors.IsAlreadyExists(err) { // by another replica
			found, err = s.secrets.Get(ctx, s.name, metav1.GetOptions{})
		}
		if err != nil {
			return err
		}
	case err != nil:
		return err
	}
	content := ContentOf(found)
	if s.accept(&content) {
		return nil
	}
	if !mend {
		return errors.New("the Secret holds no certificate that can be served")
	}
	plan, err := s.profile.Next(content, nowhere, time.Now())
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("The Secret holds no certificate that can be served, and nobody mends it, so this replica does", "secret", s.name, "did", plan.Did)
	if found, err = s.update(ctx, found, &plan.Content); err != nil {
		return err
	}
	if content = ContentOf(found); !s.accept(&content) {
		return errors.New("the certificate that was just made cannot be served")
	}
	return nil
}

func (s *Store) create(ctx context.Context, content *Content) (*corev1.Secret, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Type: corev1.SecretTypeTLS}
	content.putInto(secret)
	return s.secrets.Create(ctx, secret, metav1.CreateOptions{})
}

// update fails when somebody has written the Secret since it was read.
func (s *Store) update(ctx context.Context, read *corev1.Secret, content *Content) (*corev1.Secret, error) {
	secret := read.DeepCopy()
	content.putInto(secret)
	return s.secrets.Update(ctx, secret, metav1.UpdateOptions{})
}

// Watch follows the Secret until the context is done. What cannot be served is left to
// the leader to mend, and the certificate before is served on. When somebody has deleted
// the Secret, it is put back.
func (s *Store) Watch(ctx context.Context) {
	ctx = logging.WithoutBodies(ctx)
	logger := klog.FromContext(ctx)
	observe := func(o any) {
		secret, ok := o.(*corev1.Secret)
		if !ok {
			return
		}
		found, before := ContentOf(secret), s.content()
		switch {
		case !s.accept(&found):
			logger.Error(nil, "The Secret holds no certificate that this replica can go over to, the one before is served on", "secret", s.name)
		case string(found.Cert) != string(before.Cert):
			logger.Info("The serving certificate has been replaced", "secret", s.name)
		}
		s.changed.send()
	}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: named(s.name, s.client, s.secrets.List, s.secrets.Watch),
		ObjectType:    &corev1.Secret{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    observe,
			UpdateFunc: func(_, o any) { observe(o) },
			DeleteFunc: func(any) {
				// By every replica: one that starts now must not make another certificate,
				// which nobody trusts yet.
				if held := s.content(); held.Usable(time.Now()) {
					if _, err := s.create(ctx, &held); err != nil && !apierrors.IsAlreadyExists(err) {
						logger.Error(err, "Putting the serving certificate back", "secret", s.name)
					}
				}
				s.changed.send()
			},
		},
	})
	controller.RunWithContext(ctx)
}

// rest is how long the leader looks away at most.
const rest = 10 * time.Minute

// Lead renews the certificate and has its CAs trusted in the cluster, until the context
// is done. One replica at a time does it.
func (s *Store) Lead(ctx context.Context, bundles *Bundles) {
	ctx = logging.WithoutBodies(ctx)
	var publishing sync.WaitGroup
	defer publishing.Wait()
	leads := false
	fresh := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 100, Cap: 30 * time.Second}
	backoff := fresh
	for ctx.Err() == nil {
		look, err := s.reconcile(ctx, bundles.InPlace)
		pause := time.Until(look)
		if err == nil {
			backoff = fresh
			// What this replica had seen of the Secret until now may have been old, and the
			// bundle would have lacked a CA by which others serve already.
			bundles.Set(s.content().Bundle)
			if !leads {
				leads = true
				publishing.Go(func() { bundles.Run(ctx) })
			}
		} else if ctx.Err() == nil {
			pause = backoff.Step()
			klog.FromContext(ctx).Error(err, "Keeping the serving certificate, will try again", "secret", s.name)
		}
		timer := time.NewTimer(min(max(pause, 0), rest))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.changed:
		case <-bundles.changed:
		}
		timer.Stop()
	}
}

// reconcile does what is to be done now, and returns when to look again.
func (s *Store) reconcile(ctx context.Context, inPlace func(*x509.Certificate) bool) (time.Time, error) {
	var found Content
	secret, err := s.secrets.Get(ctx, s.name, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	switch {
	case err == nil:
		found = ContentOf(secret)
	case !missing:
		return time.Time{}, err
	}
	now, held := time.Now(), s.content()
	base, err := Combine(&held, &found, now)
	if err != nil {
		return time.Time{}, fmt.Errorf("combining what is served with what is in the Secret: %w", err)
	}
	plan, err := s.profile.Next(base, inPlace, now)
	if err != nil {
		return time.Time{}, err
	}
	switch {
	case missing:
		secret, err = s.create(ctx, &plan.Content)
	case !plan.Content.equal(&found):
		secret, err = s.update(ctx, secret, &plan.Content)
	}
	if err != nil {
		return time.Time{}, err
	}
	if len(plan.Did) > 0 {
		klog.FromContext(ctx).Info("Wrote the serving certificate", "secret", s.name, "did", plan.Did)
	}
	if found = ContentOf(secret); !s.accept(&found) {
		return time.Time{}, errors.New("the Secret holds no certificate that this replica can go over to")
	}
	return plan.Look, nil
}

// signal tells that something has happened since it was last received from.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}
