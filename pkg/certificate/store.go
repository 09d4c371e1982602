// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/sharedsecret"
)

// Store holds the serving certificate that all replicas share through a Secret. Load gets it, Watch follows the Secret
// and repairs it, and Lead, on one replica, renews the certificate. While the Secret does not exist, replicas serve with
// what they hold, nothing is renewed, and no replica can start.
type Store struct {
	secret  *sharedsecret.Secret
	profile Profile
	changed signal                  // wakes the leader: the Secret has been written
	pace    flowcontrol.RateLimiter // of writes of the leader

	writing sync.Mutex // held from a read of the Secret to its update, so that only other replicas cause conflicts

	mu        sync.RWMutex
	held      Content // the last good one, and all certificates seen that have not expired
	listeners []func()
}

// NewStore makes a Store of a Secret.
func NewStore(client kubernetes.Interface, namespace, name string, profile Profile) *Store {
	return &Store{
		secret: sharedsecret.New(client, namespace, name, "the serving certificate"), profile: profile,
		changed: newSignal(), pace: flowcontrol.NewTokenBucketRateLimiter(float32(max(0.2, 20/profile.Lifetime.Seconds())), 10),
	}
}

// Missing reports whether the Secret does not exist.
func (s *Store) Missing() bool { return s.secret.Missing() }

// Current returns the certificate to serve and its key, PEM-encoded; nothing before Load
// has returned.
func (s *Store) Current() (cert, key []byte) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.held.Cert, s.held.Key
}

// OnChange registers a function that is called whenever the certificate may have changed.
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

// take adds what was found in the Secret to what this replica holds. It reports whether the
// replica switches to the certificate that was found, and whether the Secret lacks something.
func (s *Store) take(found *Content) (accepted, lacks bool, err error) {
	s.mu.Lock()
	held, accepted, lacks, err := s.profile.take(&s.held, found, time.Now())
	if err == nil {
		s.held = held
	}
	s.mu.Unlock()
	if accepted {
		s.notify()
	}
	return accepted, lacks, err
}

// adopt switches this replica to the certificate that it has written to the Secret.
func (s *Store) adopt(written *Content) error {
	s.mu.Lock()
	held, err := adopt(&s.held, written, time.Now())
	if err == nil {
		s.held = held
	}
	s.mu.Unlock()
	if err == nil {
		s.notify()
	}
	return err
}

func (s *Store) notify() {
	s.mu.RLock()
	listeners := s.listeners
	s.mu.RUnlock()
	for _, f := range listeners {
		f()
	}
}

// Load gets the certificate. The first replica creates it, in the empty Secret; the others find it.
func (s *Store) Load(ctx context.Context) error { return s.secret.Load(ctx, s.load) }

func nowhere(*x509.Certificate) bool { return false }

// load gets the certificate, and makes one if it may: into an empty Secret, or in place of what is
// invalid.
func (s *Store) load(ctx context.Context, mayFill, mayRepair bool) error {
	found, content, err := s.read(ctx)
	if err != nil {
		return err
	}
	if accepted, _, err := s.take(&content); accepted || err != nil {
		return err
	}
	empty := content.equal(&Content{})
	if !mayRepair && (!empty || !mayFill) {
		return errors.New("the Secret holds no certificate that can be served")
	}
	plan, err := s.profile.Next(content, nowhere, time.Now())
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("The Secret contains no certificate that can be served, issuing one", "secret", s.secret.Name(), "empty", empty, "did", plan.Did)
	err = s.write(ctx, found, &plan.Content)
	if apierrors.IsConflict(err) { // with another replica that makes one
		return s.load(ctx, false, false)
	}
	if err != nil {
		return err
	}
	return s.adopt(&plan.Content)
}

// Watch follows the Secret until the context is done. While the Secret holds nothing better, the replica continues with
// its previous certificate.
//
// Every replica, not only the leader, repairs a Secret that was emptied, damaged, or restored from a backup; one that was
// deleted is filled as soon as it exists again. The leader may have started from the restored Secret, and not know with
// which certificate others serve; and a replica that starts now must not create another one, which no client trusts yet.
func (s *Store) Watch(ctx context.Context) {
	logger := klog.FromContext(ctx)
	observe := func(secret *corev1.Secret) {
		found, before := ContentOf(secret), s.content()
		accepted, lacks, err := s.take(&found)
		switch {
		case err != nil:
			logger.Error(err, "Reading the Secret failed; continuing with the previous certificate", "secret", s.secret.Name())
		case !accepted:
			logger.Error(nil, "The Secret contains no certificate that this replica can switch to; continuing with the previous one", "secret", s.secret.Name())
		case string(found.Cert) != string(before.Cert):
			logger.Info("The serving certificate has been replaced", "secret", s.secret.Name())
		}
		if lacks {
			logger.Info("The Secret lacks a certificate that may be in use, repairing", "secret", s.secret.Name())
			s.secret.Lacks()
		}
		s.changed.send()
	}
	absent := func(err error) {
		logger.Error(err, "The serving certificate is in memory only; continuing with it, but it is not renewed, and no replica can start")
		s.changed.send()
	}
	s.secret.Keep(ctx, observe, absent, s.repair)
}

// repair puts into the Secret what it lacks.
func (s *Store) repair(ctx context.Context) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	secret, found, err := s.read(ctx)
	if err != nil {
		return err
	}
	now, held := time.Now(), s.content()
	if lacks, err := s.profile.lacks(&held, &found, now); err != nil || !lacks {
		return err
	}
	combined, _, err := s.profile.combine(&held, &found, now)
	if err != nil {
		return err
	}
	if err := s.write(ctx, secret, &combined); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Repaired the Secret of the serving certificate", "secret", s.secret.Name())
	return nil
}

// read returns the Secret and its content, or sharedsecret.ErrMissing.
func (s *Store) read(ctx context.Context) (*corev1.Secret, Content, error) {
	secret, err := s.secret.Get(ctx)
	if err != nil {
		return nil, Content{}, err
	}
	return secret, ContentOf(secret), nil
}

// write puts a content into the Secret that was read. It fails when the Secret has been written
// since.
func (s *Store) write(ctx context.Context, read *corev1.Secret, content *Content) error {
	return s.secret.Update(ctx, read, content.putInto)
}

// rest is the longest time between two looks of the leader.
const rest = 10 * time.Minute

// Lead renews the certificate and has its CAs trusted in the cluster, until the context
// is done. One replica at a time does it.
//
// A leader that has just started may know the Secret only as it was restored from a
// backup, and other replicas may serve by a certificate of a CA that is not in it. So, during
// the overlap that follows, it adds to caBundle and removes nothing: by then, those replicas
// have repaired the Secret. While the Secret does not exist, they cannot, so that the overlap
// begins when it exists again.
func (s *Store) Lead(ctx context.Context, bundles *Bundles) {
	var publishing sync.WaitGroup
	defer publishing.Wait()
	bundles.forget()
	began := time.Now()
	var settled time.Time // when the Secret has existed for the overlap; zero while it does not
	published := false
	fresh := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 100, Cap: 30 * time.Second}
	backoff := fresh
	for ctx.Err() == nil {
		look, wrote, err := s.reconcile(ctx, bundles, began)
		missing := errors.Is(err, sharedsecret.ErrMissing)
		var pause time.Duration
		if err == nil || missing {
			now := time.Now()
			switch {
			case missing:
				settled = time.Time{}
			case settled.IsZero():
				settled = now.Add(s.profile.Overlap())
			}
			// Until now, this replica may have seen only an old state of the Secret, without a CA whose certificate
			// others serve already.
			pause = look.Sub(now)
			if held := s.content(); missing || now.Before(settled) {
				bundles.Add(held.Bundle)
				pause = min(pause, settled.Sub(now))
			} else {
				bundles.Set(held.Bundle)
			}
			if !published {
				published = true
				publishing.Go(func() { bundles.Run(ctx) })
			}
		}
		switch {
		case err == nil:
			backoff = fresh
		case missing: // Watch says so, and wakes this when it is there again
			pause = rest
		case ctx.Err() == nil:
			pause = backoff.Step()
			klog.FromContext(ctx).Error(err, "Maintaining the serving certificate failed, will retry", "secret", s.secret.Name())
		}
		timer := time.NewTimer(min(max(pause, 0), rest))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.changed:
		case <-bundles.changed:
		}
		timer.Stop()
		if wrote { // not as fast as another program that keeps writing the Secret
			_ = s.pace.Wait(ctx) // ends with the context, as does the loop
		}
	}
}

// reconcile does what is to be done now in a term as the leader. It returns when to look again, and
// whether it has written the Secret.
func (s *Store) reconcile(ctx context.Context, bundles *Bundles, began time.Time) (look time.Time, wrote bool, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	secret, found, err := s.read(ctx)
	if err != nil {
		return time.Time{}, false, err
	}
	now, held := time.Now(), s.content()
	base, _, err := s.profile.combine(&held, &found, now)
	if err != nil {
		return time.Time{}, false, fmt.Errorf("combining what is served with what is in the Secret: %w", err)
	}
	// Before MissingAtFirst is called: otherwise, a CA could count as in place before it is known whether it was missing
	// at first.
	known := bundles.known()
	inPlace := func(ca *x509.Certificate) bool { return known && bundles.InPlace(ca) }
	plan, err := s.profile.Next(inherit(base, began, bundles.MissingAtFirst, now), inPlace, now)
	if err != nil {
		return time.Time{}, false, err
	}
	if !plan.Content.equal(&found) {
		if err := s.write(ctx, secret, &plan.Content); err != nil {
			return time.Time{}, false, err
		}
		wrote = true
	}
	if len(plan.Did) > 0 {
		klog.FromContext(ctx).Info("Wrote the serving certificate", "secret", s.secret.Name(), "did", plan.Did)
	}
	return plan.Look, wrote, s.adopt(&plan.Content)
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
