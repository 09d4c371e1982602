// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package sharedsecret is for data that all replicas share through a Secret: the first replica creates the data, the
// others find it, and each may restore what is missing.
//
// The manifests create the Secret, empty, so that the server needs no right to create Secrets. While it does not
// exist, replicas continue with what they hold, and no replica can start.
package sharedsecret

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/follow"
)

// ErrMissing means that the Secret does not exist.
var ErrMissing = errors.New("does not exist in the namespace of the server, and the server may not create it: " +
	"apply the manifests again (kubectl apply or helm upgrade), and it fills the Secret")

// Patience is how long a replica that starts leaves a Secret alone that has just been created empty: other replicas, if
// there are any, may know what it contained.
const Patience = 5 * time.Second

// fieldManager is the field manager of what is written.
const fieldManager = "configdep"

// Secret is a Secret that all replicas share.
type Secret struct {
	client  kubernetes.Interface
	secrets corev1client.SecretInterface
	name    string
	holds   string
	missing atomic.Bool
	lacking chan struct{} // wakes the repair
}

// New returns a Secret. Holds says in the log what it is for, such as "the serving certificate".
func New(client kubernetes.Interface, namespace, name, holds string) *Secret {
	return &Secret{
		client: client, secrets: client.CoreV1().Secrets(namespace), name: name, holds: holds, lacking: make(chan struct{}, 1),
	}
}

// Name returns the name of the Secret.
func (s *Secret) Name() string { return s.name }

// Missing reports whether the Secret did not exist when it was last looked for.
func (s *Secret) Missing() bool { return s.missing.Load() }

// Get returns the Secret, or ErrMissing.
func (s *Secret) Get(ctx context.Context) (*corev1.Secret, error) {
	secret, err := s.secrets.Get(ctx, s.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		s.missing.Store(true)
		return nil, s.errMissing()
	case err != nil:
		return nil, err
	}
	s.missing.Store(false)
	return secret, nil
}

func (s *Secret) errMissing() error { return fmt.Errorf("the Secret %s %w", s.name, ErrMissing) }

// Update writes the Secret that was read, as it is after a change. It fails with a conflict when the Secret has been
// written since, so that replicas agree.
func (s *Secret) Update(ctx context.Context, read *corev1.Secret, change func(*corev1.Secret)) error {
	secret := read.DeepCopy()
	change(secret)
	_, err := s.secrets.Update(ctx, secret, metav1.UpdateOptions{FieldManager: fieldManager})
	return err
}

// Load calls try until it returns no error or the context is done, because the API server may start later than this
// process. The replica may fill an empty Secret, unless that has just been created: then other replicas may restore what
// it contained, and it may be filled only after Patience.
func (s *Secret) Load(ctx context.Context, try func(ctx context.Context, mayFill bool) error) error {
	seen, wasMissing := time.Now(), false // since when there is the Secret, as far as is known
	backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 100, Cap: 10 * time.Second}
	return backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := try(ctx, !wasMissing || !seen.IsZero() && time.Since(seen) >= Patience)
		switch {
		case errors.Is(err, ErrMissing):
			seen, wasMissing = time.Time{}, true
		case seen.IsZero():
			seen = time.Now()
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Reading "+s.holds+" failed, will retry", "secret", s.name)
		}
		return err == nil, nil
	})
}

// Lacks makes Keep repair the Secret, which lacks something that this replica holds.
func (s *Secret) Lacks() {
	select {
	case s.lacking <- struct{}{}:
	default:
	}
}

// Keep is Watch that also calls repair after each Lacks, and again while that fails, at a limited rate, because another
// program may keep writing the Secret. A conflict means that another replica repairs it.
func (s *Secret) Keep(ctx context.Context, present func(*corev1.Secret), absent func(error), repair func(context.Context) error) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { s.keepRepaired(ctx, repair) })
	s.Watch(ctx, present, absent)
}

// Watch follows the Secret until the context is done. It calls present with each state of the Secret, and absent with an
// ErrMissing if the Secret does not exist.
func (s *Secret) Watch(ctx context.Context, present func(*corev1.Secret), absent func(error)) {
	follow.Object[*corev1.Secret, *corev1.SecretList]{
		Name: s.name, Client: s.client, List: s.secrets.List, Watch: s.secrets.Watch,
		Present: func(secret *corev1.Secret) {
			s.missing.Store(false)
			present(secret)
		},
		Absent: func() {
			s.missing.Store(true)
			absent(s.errMissing())
		},
	}.Run(ctx)
}

func (s *Secret) keepRepaired(ctx context.Context, repair func(context.Context) error) {
	fresh := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 100, Cap: 30 * time.Second}
	backoff := fresh
	limit := flowcontrol.NewTokenBucketRateLimiter(0.2, 10)
	var later <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-later:
		case <-s.lacking:
		}
		later = nil
		if limit.Wait(ctx) != nil {
			return
		}
		switch err := repair(ctx); {
		case err == nil:
			backoff = fresh
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrMissing): // until it is seen again
		default:
			if !apierrors.IsConflict(err) {
				klog.FromContext(ctx).Error(err, "Repairing the Secret of "+s.holds+" failed, will retry", "secret", s.name)
			}
			later = time.After(backoff.Step())
		}
	}
}
