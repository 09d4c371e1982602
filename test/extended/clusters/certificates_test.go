// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

const (
	// lifetime is the lifetime of serving certificates. They are renewed when a third of it is left.
	lifetime = 40 * time.Second
	// pause is the time between two requests of a client.
	pause = 100 * time.Millisecond

	caConfigMap = "configdep-serving-ca"

	serverName = install.Name + "." + install.Namespace + ".svc"
)

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// Requests continue while certificates and their CA are replaced, users damage and overwrite the objects, and a leader is killed.
func TestRotation(t *testing.T) {
	t.Parallel() // most of the time it waits
	s := newRotation(t)
	first := certs(s.secret().Data["ca.crt"])
	var pids []int
	var mu sync.Mutex
	leaves := map[string]map[string]bool{} // by replica
	defer s.keep("through the aggregator", s.get)()
	var stops []func()
	var dialed []*atomic.Int64
	for _, r := range s.server.Replicas {
		pids = append(pids, r.PID())
		leaves[r.Name()] = map[string]bool{}
		defer s.keep("on a new connection to "+r.Name(), func(ctx context.Context) error {
			leaf, err := s.dial(ctx, r)
			if err == nil {
				mu.Lock()
				leaves[r.Name()][leaf.SerialNumber.String()] = true
				mu.Unlock()
			}
			return err
		})()
		get, n := s.connected(r)
		dialed, stops = append(dialed, n), append(stops, s.keep("on an old connection to "+r.Name(), get))
	}

	// Rotation.
	most := 0
	await.Until(s.t, "the first CA is no longer trusted, and its successor is in use", func(ctx context.Context) error {
		bundles, err := s.bundles(ctx)
		if err != nil {
			return err
		}
		now := certs(bundles[0])
		most = max(most, len(now))
		mu.Lock()
		defer mu.Unlock()
		for name, seen := range leaves {
			if len(seen) < 3 {
				return fmt.Errorf("%s has served with %d certificates", name, len(seen))
			}
		}
		for _, ca := range now {
			if ca.Equal(first[0]) {
				return errors.New("the first CA is still trusted")
			}
		}
		return nil
	})
	s.check("after the rotation")
	if len(first) != 1 || most != 2 {
		t.Errorf("the first bundle has %d CAs, later bundles at most %d", len(first), most)
	}
	for i, r := range s.server.Replicas {
		stops[i]()
		if dialed[i].Load() != 1 {
			t.Errorf("the old connection to %s was opened %d times", r.Name(), dialed[i].Load())
		}
		if r.PID() != pids[i] {
			t.Errorf("%s was restarted", r.Name())
		}
		await.Until(s.t, "the metric shows when the certificate expires", func(ctx context.Context) error {
			leaf, err := s.dial(ctx, r)
			if err != nil {
				return err
			}
			expiry, err := s.metric(ctx, r, "configdep_serving_certificate_expiry_timestamp_seconds")
			if err == nil && int64(expiry) != leaf.NotAfter.Unix() {
				err = fmt.Errorf("metric = %f, the certificate expires at %d", expiry, leaf.NotAfter.Unix())
			}
			return err
		})
	}

	s.lost()
	s.check("after the content of the Secret was lost")
	s.overwritten()
	s.check("after caBundle was overwritten")
	s.leaderKilled()
	s.check("after the leader was killed")
	s.noRightIsMissing()
}
