// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/configdep/configdep/pkg/metrics"
)

// TestController_OnlyTheLeaderActs, and a new leader handles earlier changes.
func TestController_OnlyTheLeaderActs(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.synced()
		c.set(secret("db", "1"))
		c.set(deployment("web", "db"))
		c.advance(time.Hour)
		c.expect("no replica leads")

		stop := c.lead()
		c.expect("it leads", "1h0m0s baseline web")
		c.set(secret("db", "2"))
		c.advance(500 * time.Millisecond)
		stop()
		c.advance(time.Hour)
		c.expect("it leads no more")
		c.set(secret("db", "3"))
		c.advance(time.Hour)
		c.expect("still")

		stop = c.lead()
		c.advance(time.Hour)
		c.expect("it leads again, and the content has settled long ago", "3h0m0.5s rollout web")
		stop()
		c.lead()()
		c.expect("and again")
	})
}

// TestController_NothingIsDoneBeforeTheIndexHasReadEverything: objects that have not been read look missing.
func TestController_NothingIsDoneBeforeTheIndexHasReadEverything(t *testing.T) {
	inCluster(t, func(c *cluster) {
		stop := adopted(c)
		c.set(secret("db", "2"))
		c.advance(500 * time.Millisecond)
		stop()
		c.newProcess()
		c.lead()
		c.advance(time.Hour)
		c.expect("the index has read nothing")
		c.synced()
		c.advance(time.Hour)
		c.expect("it has", "1h1m0.5s rollout web")

		c.Index().Reset() // the key of the hash has been replaced
		c.set(secret("db", "3"))
		c.advance(time.Hour)
		c.expect("it reads everything again")
		c.synced()
		c.advance(time.Hour)
		c.expect("it has", "3h1m0.5s rollout web")
	})
}

// TestController_RunReturnsWhenNothingIsUnderWay: the lease is released when Run returns.
func TestController_RunReturnsWhenNothingIsUnderWay(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.synced()
		c.set(secret("db", "1"))
		for i := range 10 {
			c.set(deployment(fmt.Sprint("web-", i), "db"))
		}
		c.lead()()
		stop := c.lead()
		c.took()

		held, under := make(chan struct{}), make(chan struct{}, 100)
		c.hear = func(string) {
			under <- struct{}{}
			<-held
		}
		c.set(secret("db", "2"))
		c.advance(time.Minute)
		if len(under) != 2 {
			t.Errorf("got %d workloads handled at once, want 2", len(under))
		}
		var returned atomic.Bool
		go func() {
			stop()
			returned.Store(true)
		}()
		c.advance(time.Hour)
		if returned.Load() {
			t.Error("Run has returned while workloads are being handled")
		}
		close(held)
		synctest.Wait()
		if !returned.Load() {
			t.Error("Run has not returned")
		}
		if got := c.took(); len(got) != 2 {
			t.Errorf("requests for the other workloads = %v, want none before the next leader", got)
		}
	})
}

// TestController_LosingTheLeadIsNoFailure: a request that is canceled at the end of a term was not refused.
func TestController_LosingTheLeadIsNoFailure(t *testing.T) {
	inCluster(t, func(c *cluster) {
		stop := adopted(c)
		under := make(chan struct{})
		c.refusing(func(clienttesting.Action) error {
			<-under
			return context.Canceled
		})
		c.set(secret("db", "2"))
		c.advance(time.Minute)
		go func() {
			<-time.After(time.Second)
			close(under)
		}()
		stop()
		c.expectEvents("the lead is lost")
		if log := c.log.String(); strings.Contains(log, "will retry") {
			t.Errorf("log = %s", log)
		}
		c.refusing(nil)
		c.took()
		c.lead()
		c.expect("the next leader", "2m1s rollout web")
	})
}

// counted returns the value of each series of a metric.
func counted(t *testing.T, name string) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			switch {
			case m.Counter != nil:
				out[strings.Join(labels, " ")] = m.Counter.GetValue()
			case m.Gauge != nil:
				out[strings.Join(labels, " ")] = m.Gauge.GetValue()
			case m.Histogram != nil:
				out[strings.Join(labels, " ")+"count"] = float64(m.Histogram.GetSampleCount())
				out[strings.Join(labels, " ")+"sum"] = m.Histogram.GetSampleSum()
			}
		}
	}
	return out
}

func TestController_RestartsAreCounted(t *testing.T) {
	metrics.Register()
	inCluster(t, func(c *cluster) {
		c.synced()
		if got := counted(t, "configdep_leader"); got[""] != 0 {
			t.Errorf("before the term: configdep_leader = %v, want 0", got)
		}
		stop := adopted(c)
		if got := counted(t, "configdep_leader"); got[""] != 1 {
			t.Errorf("during the term: configdep_leader = %v, want 1", got)
		}
		before, delay := counted(t, "configdep_rollouts_total"), counted(t, "configdep_rollout_patch_delay_seconds")
		c.set(secret("db", "2"))
		refusals := []error{apierrors.NewConflict(appsv1.Resource("deployments"), "web", errors.New("version")), apierrors.NewInternalError(errors.New("etcd"))}
		c.refusing(func(clienttesting.Action) (err error) {
			if len(refusals) > 0 {
				err, refusals = refusals[0], refusals[1:]
			}
			return err
		})
		c.advance(time.Minute)
		c.expect("two fail", "1m1s rollout web: Conflict", "1m1.005s rollout web: InternalError", "1m1.015s rollout web")
		after, delayed := counted(t, "configdep_rollouts_total"), counted(t, "configdep_rollout_patch_delay_seconds")
		got := map[string]float64{}
		for labels, n := range after {
			if n -= before[labels]; n > 0 {
				got[labels] = n
			}
		}
		want := map[string]float64{"Deployment shop success Secret": 1, "Deployment shop conflict Secret": 1, "Deployment shop error Secret": 1}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("rollouts (-want +got):\n%s", diff)
		}
		if n, sum := delayed["count"]-delay["count"], delayed["sum"]-delay["sum"]; n != 1 || sum < 0.0149 || sum > 0.0151 {
			t.Errorf("patch delays: %v with a sum of %v s, want 1 of 0.015 s", n, sum)
		}
		stop()
		if got := counted(t, "configdep_leader"); got[""] != 0 {
			t.Errorf("after the term: configdep_leader = %v, want 0", got)
		}
	})
}
