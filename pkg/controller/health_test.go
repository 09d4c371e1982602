// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/configdep/configdep/pkg/metrics"
	"github.com/configdep/configdep/pkg/policy"
)

// currentAfter returns how often it was measured how long pods ran with old content, and the sum.
func currentAfter(t *testing.T) (n uint64, sum time.Duration) {
	t.Helper()
	metrics.Register()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "configdep_current_after_seconds" {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleCount(), time.Duration(h.GetSampleSum() * float64(time.Second))
		}
	}
	t.Fatal("there is no such metric")
	return 0, 0
}

// How long pods ran with old content is measured once for each time that they did, when all have the current content: from the first change on, also in
// another term.
func TestReconcile_MeasuresAfterWhatTimePodsAreCurrent(t *testing.T) {
	inCluster(t, func(c *cluster) {
		before, sumBefore := currentAfter(t)
		expect := func(what string, n uint64, least time.Duration) {
			t.Helper()
			c.advance(10 * time.Second)
			got, sum := currentAfter(t)
			if took := sum - sumBefore; got-before != n || took < least || took > least+20*time.Second {
				t.Errorf("%s: measured %d times, %v in all; want %d, %v", what, got-before, took, n, least)
			}
			before, sumBefore = got, sum
		}
		adopted(c)
		expect("nothing has changed", 0, 0)
		c.set(secret("db", "2"))
		expect("restarted", 1, time.Second)
		c.advance(time.Minute)
		c.annotateDeployment(policy.HoldAnnotation, "a freeze")
		c.set(secret("db", "3"))
		c.advance(time.Hour)
		c.set(secret("db", "4"))
		c.resign()
		c.lead() // a term remembers nothing of the last one
		c.advance(time.Hour)
		expect("on hold", 0, 0)
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { delete(d.Annotations, policy.HoldAnnotation) })
		expect("released", 1, 2*time.Hour)
		c.advance(time.Hour)
		expect("long current", 0, 0)

		c.annotateDeployment(policy.HoldAnnotation, "a freeze")
		c.ownPods()
		c.set(aged(pod("web-0", "uid-web-a")))
		c.set(secret("db", "5"))
		c.advance(time.Hour)
		c.set(secret("db", "6"))
		c.set(pod("web-0", "uid-web-a")) // its container starts again
		c.advance(time.Minute)
		expect("it is not known what the container has read", 0, 0)
		c.set(pod("web-0", "uid-web-a"))
		expect("its container has started again", 1, time.Hour+time.Minute)
	})
}
