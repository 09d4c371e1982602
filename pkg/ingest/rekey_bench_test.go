// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// BenchmarkRekey measures the longest wait of other goroutines for the index when its key is
// replaced: while records are compared with the previous content, and while they are converted to the
// new key after the last list. Neither may grow with the cluster.
func BenchmarkRekey(b *testing.B) {
	for _, n := range []int{12_500, 25_000, 50_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			// The shortest of several runs counts: other load on the machine can only add to the time.
			compare, translate := time.Hour, time.Hour
			for b.Loop() {
				b.StopTimer()
				x := NewIndex(clock.RealClock{})
				c := newCrowd(n)
				c.read(x, 1)
				c.record(x)
				c.read(x, 1)
				b.StartTimer()
				compare = min(compare, longestWait(x, x.Rekey))
				b.StopTimer()
				last := c.readAllButOne(x, 2)
				b.StartTimer()
				translate = min(translate, longestWait(x, last))
			}
			b.ReportMetric(float64(compare.Microseconds())/1000, "ms-compare")
			b.ReportMetric(float64(translate.Microseconds())/1000, "ms-translate")
		})
	}
}

// longestWait returns the longest wait of another goroutine for the lock while f ran.
func longestWait(x *Index, f func()) (longest time.Duration) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			begin := time.Now()
			x.letThrough()
			longest = max(longest, time.Since(begin))
			select {
			case <-done:
				return
			default:
			}
		}
	})
	f()
	close(done)
	wg.Wait()
	return longest
}

// letThrough takes the lock and releases it.
func (x *Index) letThrough() {
	x.mu.Lock()
	x.mu.Unlock() //nolint:staticcheck,gocritic // only the wait matters
}

// crowd is a cluster in which each Deployment reads its own Secret.
type crowd struct {
	marks    []dependency.Marks
	digester *dependency.Digester
}

func newCrowd(n int) *crowd {
	return &crowd{marks: make([]dependency.Marks, n)}
}

func (c *crowd) key(i int) (namespace, name string) {
	return fmt.Sprint("ns-", i/100), fmt.Sprint("web-", i%100)
}

// readAllButOne reads everything with a key except the last list, which is empty, and returns a
// function that reads it.
func (c *crowd) readAllButOne(x *Index, key byte) (last func()) {
	k := make([]byte, dependency.KeySize)
	k[0] = key
	c.digester = dependency.NewDigester(k)
	replay := NewReplay(x, c.digester)
	deployments, secrets := make([]any, len(c.marks)), make([]any, len(c.marks))
	for i := range c.marks {
		deployments[i], secrets[i] = c.deployment(i, "10"), c.secret(i, "10", "content")
	}
	for name, s := range replay.streams {
		switch name {
		case "namespaces":
			last = func() { x.replace(s, nil, "10") }
		case "deployments":
			x.replace(s, deployments, "10")
		case "secrets":
			x.replace(s, secrets, "10")
		default:
			x.replace(s, nil, "10")
		}
	}
	return last
}

// deployment returns one of the Deployments, with another status in each version.
func (c *crowd) deployment(i int, version string) *object {
	namespace, name := c.key(i)
	return &object{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: version},
		value: &dependency.Workload{
			WorkloadKey: dependency.WorkloadKey{Kind: kind.Deployment, Namespace: namespace, Name: name},
			UID:         types.UID(name), ResourceVersion: version,
			Annotations: map[string]string{policy.ReloadAnnotation: "auto"}, Marks: c.marks[i],
			Status: dependency.Status{Replicas: 1}, Traits: kind.Table(nil).Of(kind.Deployment).Traits,
			References: []dependency.Reference{{Kind: dependency.Secret, Name: name, Uses: []dependency.Use{{Type: dependency.EnvFrom, Container: "app"}}}},
		},
	}
}

func (c *crowd) secret(i int, version, content string) *object {
	namespace, name := c.key(i)
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), ResourceVersion: version}
	keys := []dependency.KeyDigest{{Key: "a", Digest: c.digester.Content([]byte(content))}}
	return &object{ObjectMeta: meta, value: dependency.NewSource(testDigester(), dependency.Secret, &meta, dependency.SourceMarks{}, keys)}
}

func (c *crowd) read(x *Index, key byte) { c.readAllButOne(x, key)() }

// record records the current content as the content of the pods.
func (c *crowd) record(x *Index) {
	x.Read(func(known policy.Evaluator) {
		g := known.Graph
		for i := range c.marks {
			namespace, name := c.key(i)
			w := g.Workload(dependency.WorkloadKey{Kind: kind.Deployment, Namespace: namespace, Name: name})
			present := policy.Evaluator{Graph: g, Defaults: policy.Defaults{}}.Evaluate(w).Present()
			c.marks[i] = dependency.Marks{Hash: present.Hash, Sources: fmt.Sprintf(`{"Secret/%s":%q}`, name, present.Sources["Secret/"+name])}
		}
	})
	x.Reset()
}
