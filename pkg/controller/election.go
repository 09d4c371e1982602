package controller

import (
	"context"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// Election says how replicas agree on who leads.
type Election struct {
	Lock          resourcelock.Interface
	LeaseDuration time.Duration
	RenewDeadline time.Duration
	RetryPeriod   time.Duration
}

// Run calls lead whenever this replica leads, with a context that is done when it does
// not any more, until the context of Run is done. Losing the lease ends lead and nothing
// else: the replica serves on and tries again. The lease is given up when lead has
// returned, so that the next leader never works beside us.
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
	led := make(chan struct{})
	started := make(chan struct{})
	config := leaderelection.LeaderElectionConfig{
		Lock:            e.Lock,
		LeaseDuration:   e.LeaseDuration,
		RenewDeadline:   e.RenewDeadline,
		RetryPeriod:     e.RetryPeriod,
		ReleaseOnCancel: true,
		Name:            "configdep",
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				close(started)
				defer close(led)
				leading, stop := context.WithCancel(leading)
				defer stop()
				defer context.AfterFunc(ctx, stop)()
				lead(leading)
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
		select {
		case <-started:
			<-led
		default:
		}
		giveUp()
	})()
	le.Run(elector)
	select {
	case <-started:
		<-led
	default:
	}
}
