// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/sharedsecret"
)

// Store serves the certificate that all replicas share through a Secret. Load gets it, Watch follows the Secret, and
// Lead, on one replica, renews the certificate. While the Secret does not exist, replicas serve what they have, nothing
// is renewed, and no replica can start.
type Store struct {
	secret  *sharedsecret.Secret
	profile Profile
	changed signal // wakes the leader: the Secret has been written

	mu        sync.RWMutex
	served    Content
	listeners []func()
}

// NewStore makes a Store of a Secret.
func NewStore(client kubernetes.Interface, namespace, name string, profile Profile) *Store {
	return &Store{secret: sharedsecret.New(client, namespace, name, "the serving certificate"), profile: profile, changed: newSignal()}
}

// Missing reports whether the Secret does not exist.
func (s *Store) Missing() bool { return s.secret.Missing() }

// Current returns the certificate to serve and its key, PEM-encoded; nothing before Load has returned.
func (s *Store) Current() (cert, key []byte) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return []byte(s.served.Cert), []byte(s.served.Key)
}

// OnChange registers a function that is called whenever the certificate may have changed.
func (s *Store) OnChange(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, f)
}

func (s *Store) serve(c Content) {
	s.mu.Lock()
	s.served = c
	listeners := s.listeners
	s.mu.Unlock()
	for _, f := range listeners {
		f()
	}
}

// Load gets the certificate. The first replica issues it; the others find it.
func (s *Store) Load(ctx context.Context) error {
	return s.secret.Load(ctx, func(ctx context.Context, _ bool) error {
		_, err := s.update(ctx)
		return err
	})
}

// update brings the Secret up to date, and serves and returns its content. If another replica writes the Secret at the
// same time, update starts again from what that one has written.
func (s *Store) update(ctx context.Context) (next Content, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		secret, err := s.secret.Get(ctx)
		if err != nil {
			return err
		}
		found := ContentOf(secret)
		if next, err = s.profile.Next(found, time.Now()); err != nil {
			return err
		}
		if next != found {
			if err := s.secret.Update(ctx, secret, next.putInto); err != nil {
				return err
			}
			klog.FromContext(ctx).Info("Updated the Secret of the serving certificate", "secret", s.secret.Name(),
				"newCA", next.CAKey != found.CAKey, "newCertificate", next.Cert != found.Cert)
		}
		s.serve(next)
		return nil
	})
	return next, err
}

// Watch follows the Secret until the context is done.
func (s *Store) Watch(ctx context.Context) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "secret", s.secret.Name())
	present := func(secret *corev1.Secret) {
		if found := ContentOf(secret); s.profile.usable(found, time.Now()) {
			s.serve(found)
		} else {
			logger.Error(nil, "The Secret contains no valid certificate; continuing with the previous one")
		}
		s.changed.send()
	}
	s.secret.Watch(ctx, present, func(err error) {
		logger.Error(err, "The serving certificate is in memory only; continuing with it, but it is not renewed, and no replica can start")
	})
}

// Lead renews the certificate and publishes its CAs until the context is done. One replica at a time does it.
func (s *Store) Lead(ctx context.Context, bundles *Bundles) {
	defer bundles.begin(ctx)()
	// If another program keeps writing the Secret, do not race with it.
	limit := flowcontrol.NewTokenBucketRateLimiter(1, 10)
	for limit.Wait(ctx) == nil {
		again := s.profile.overlap() / 6
		switch content, err := s.update(ctx); {
		case err == nil:
			bundles.Set([]byte(content.Bundle))
		case errors.Is(err, sharedsecret.ErrMissing): // Watch reports it, and wakes this when the Secret exists
		case ctx.Err() == nil:
			klog.FromContext(ctx).Error(err, "Renewing the serving certificate failed, will retry", "secret", s.secret.Name())
			again = min(again, 10*time.Second)
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
		case <-s.changed:
		}
	}
}

// signal reports that something has happened since it was last received from.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}
