// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// Election configures leader election.
type Election struct {
	Lock          resourcelock.Interface
	LeaseDuration time.Duration
	RenewDeadline time.Duration
	RetryPeriod   time.Duration
}

// Run calls lead whenever this replica becomes the leader, with a context that is done
// when it stops leading, until the context of Run is done. Losing the Lease ends lead and
// nothing else: the replica keeps serving and tries again. The Lease is released when
// lead has returned, so that two leaders never work at the same time.
func (e *Election) Run(ctx context.Context, lead func(context.Context)) {
	for ctx.Err() == nil {
		e.term(ctx, lead)
	}
}

// term runs until the lease is lost or the context is done.
func (e *Election) term(ctx context.Context, lead func(context.Context)) {
	// The elector outlives the context until lead has returned.
	elector, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	t := newTurn()
	config := leaderelection.LeaderElectionConfig{
		Lock:          e.Lock,
		LeaseDuration: e.LeaseDuration,
		RenewDeadline: e.RenewDeadline,
		RetryPeriod:   e.RetryPeriod,
		// The elector would try, for long, to release the Lease before it ends lead.
		ReleaseOnCancel: false,
		Name:            "configdep",
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				t.take(func() {
					leading, stop := context.WithCancel(leading)
					defer stop()
					defer context.AfterFunc(ctx, stop)()
					lead(leading)
				})
			},
			OnStoppedLeading: func() {},
		},
	}
	le, err := leaderelection.NewLeaderElector(config)
	if err != nil {
		// The durations have been validated, so that this does not happen.
		klog.FromContext(ctx).Error(err, "Electing a leader")
		<-ctx.Done()
		return
	}
	defer context.AfterFunc(ctx, func() {
		t.end()
		giveUp()
	})()
	le.Run(elector)
	t.end()
	e.release(ctx)
}

// turn has a token while nothing has taken it, and is closed once it has ended.
type turn chan struct{}

func newTurn() turn {
	t := make(turn, 1)
	t <- struct{}{}
	return t
}

func (t turn) take(f func()) {
	if _, is := <-t; is {
		defer func() { t <- struct{}{} }()
		f()
	}
}

// end waits until the function that took the turn has returned.
func (t turn) end() {
	if _, is := <-t; is {
		close(t)
	}
}

// release releases the Lease, if we hold it.
func (e *Election) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.RenewDeadline)
	defer cancel()
	held, _, err := e.Lock.Get(ctx)
	if err != nil || held.HolderIdentity != e.Lock.Identity() {
		return // it expires, or another replica holds it
	}
	now := metav1.Now()
	err = e.Lock.Update(ctx, resourcelock.LeaderElectionRecord{
		LeaderTransitions: held.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now,
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Releasing the Lease failed; it will expire", "lock", e.Lock.Describe())
	}
}
