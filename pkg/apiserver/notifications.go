// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"sync"
	"time"

	"github.com/configdep/configdep/pkg/metrics"
	"github.com/configdep/configdep/pkg/notify/webhook"
)

// notificationDrain is for how long a server that ends may go on to send events. It is part of the time between the shutdown
// delay and the end of the grace period of the pod.
const notificationDrain = 5 * time.Second

// notifications send events out of the cluster.
type notifications []*webhook.Sink

func newNotifications(configs []webhook.Config) (notifications, error) {
	metrics.Register() // because the counters of a destination begin with it
	var all notifications
	for _, c := range configs {
		c.Drain = notificationDrain
		sink, err := webhook.New(c)
		if err != nil {
			return nil, err
		}
		all = append(all, sink)
	}
	return all, nil
}

// start sends events until stop is called. Then those that are left are sent to all destinations at once, and stop returns
// after notificationDrain at the latest.
func (n notifications) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var sending sync.WaitGroup
	for _, sink := range n {
		sending.Go(func() { sink.Run(ctx) })
	}
	return func() {
		cancel()
		sending.Wait()
	}
}
