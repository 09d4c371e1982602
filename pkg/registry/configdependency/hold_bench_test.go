// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"fmt"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
)

// BenchmarkHold measures how long others wait at most, for the index and for the cache, while
// something happens that concerns n workloads: a Secret changes that all of them use, one comes for
// which all of their pods wait, their namespace is annotated, Secrets are listed again of which each has changed, everything is read
// for the first time. "ns/op" is how long it takes until it can be read.
func BenchmarkHold(b *testing.B) {
	for _, what := range []string{"secret", "waiting", "namespace", "relist", "sync"} {
		for _, n := range []int{2500, 5000, 10_000, 20_000} {
			b.Run(fmt.Sprintf("%s/%d", what, n), func(b *testing.B) {
				// Of several runs the shortest counts: what else the machine does can only add to it.
				index, cache, ingested := time.Hour, time.Hour, time.Hour
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					c := newLive(b, n, what == "relist")
					if what != "sync" {
						c.sync()
					}
					if what == "waiting" {
						c.wait()
					}
					var longest [2]time.Duration
					done := make(chan struct{})
					var others sync.WaitGroup
					for j, ask := range []func(){func() { c.index.Size() }, func() { _, _ = c.views.Lookup("ns", "deployment.web-0") }} {
						others.Go(func() { longest[j] = longestCall(done, ask) })
					}
					b.StartTimer()
					begin := time.Now()
					c.happens(what, i)
					took := time.Since(begin)
					c.rendered()
					b.StopTimer()
					close(done)
					others.Wait()
					index, cache, ingested = min(index, longest[0]), min(cache, longest[1]), min(ingested, took)
					b.StartTimer()
				}
				b.ReportMetric(float64(index.Microseconds())/1000, "ms-index")
				b.ReportMetric(float64(cache.Microseconds())/1000, "ms-cache")
				b.ReportMetric(float64(ingested.Microseconds())/1000, "ms-ingest")
			})
		}
	}
}

// longestCall returns how long a call took at most, until done is closed.
func longestCall(done <-chan struct{}, call func()) (longest time.Duration) {
	for {
		begin := time.Now()
		call()
		longest = max(longest, time.Since(begin))
		select {
		case <-done:
			return longest
		case <-time.After(50 * time.Microsecond): // the processors are for others
		}
	}
}

// live is an index that is read from memory, with views of it. It is no cluster of package ingesttest, which copies
// or encodes all that it lists: that would be measured, too.
type live struct {
	b      *testing.B
	index  *ingest.Index
	views  *Views
	replay *ingest.Replay
	first  []runtime.Object
	own    []runtime.Object // a Secret for each workload
}

func newLive(b *testing.B, n int, own bool) *live {
	b.Helper()
	digester := dependency.NewDigester(make([]byte, dependency.KeySize))
	c := &live{b: b, views: NewViews(0, nil, nil, clock.RealClock{})}
	b.Cleanup(func() { end(c.views) })
	c.index = ingest.NewIndex(clock.RealClock{}, c.views)
	c.index.SetDefaults(defaults)
	c.views.Reset()
	c.replay = ingest.NewReplay(c.index, digester)
	c.first = append(c.first, c.secret("shared", 0))
	for i := range n {
		name := fmt.Sprint("web-", i)
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "10", Generation: 1,
			Labels: map[string]string{"app": name},
		}}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", EnvFrom: []corev1.EnvFromSource{{
			SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "shared"}},
		}}}}
		if own {
			d.Spec.Template.Spec.Containers[0].EnvFrom[0].SecretRef.Name = name
			c.own = append(c.own, c.secret(name, 0))
		}
		c.first = append(c.first, d)
	}
	c.first = append(c.first, c.own...)
	return c
}

func (c *live) secret(name string, version int) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: fmt.Sprint(10 + version)},
		Data:       map[string][]byte{"k": fmt.Append(nil, version)},
	}
}

func (c *live) must(err error) {
	c.b.Helper()
	if err != nil {
		c.b.Fatal(err)
	}
}

func (c *live) sync() {
	c.must(c.replay.List("10", c.first...))
	c.rendered()
}

// wait deletes the Secret that all use, and gives the workloads new templates.
func (c *live) wait() {
	shared := c.secret("shared", 1)
	c.must(c.replay.Delete(shared))
	for _, o := range c.first {
		if d, ok := o.(*appsv1.Deployment); ok {
			d.ResourceVersion, d.Spec.Template.Spec.Containers[0].Image = "12", "2"
			c.must(c.replay.Set(d))
		}
	}
	c.rendered()
}

func (c *live) happens(what string, i int) {
	switch what {
	case "secret", "waiting":
		c.must(c.replay.Set(c.secret("shared", 10+i)))
	case "namespace":
		c.must(c.replay.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "ns", ResourceVersion: fmt.Sprint(11 + i), Annotations: map[string]string{"configdep.io/reload": "auto", "configdep.io/settle": fmt.Sprint(i+1, "s")},
		}}))
	case "relist":
		again := []runtime.Object{c.secret("shared", 0)}
		for _, o := range c.own {
			again = append(again, c.secret(o.(*corev1.Secret).Name, 1+i))
		}
		c.must(c.replay.ListOf("secrets", fmt.Sprint(11+i), again...))
	case "sync":
		c.must(c.replay.List("10", c.first...))
	}
}

// rendered waits until all that has happened can be read.
func (c *live) rendered() { c.views.CatchUp(c.b.Context()) }
