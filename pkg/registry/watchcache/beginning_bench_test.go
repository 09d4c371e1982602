// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/utils/clock"
)

// BenchmarkBeginning measures what n watches cost that begin at the same time, with 50,000 objects of
// 2 KB: those that are sent all of them, and those that come from another replica to one where 10,000
// have changed since. How often an object is encoded is the growth that matters; each of the watches
// also copies what it sends.
func BenchmarkBeginning(b *testing.B) {
	const objects, changed = 50_000, 10_000
	c := benchCache(objects, changed)
	for _, kind := range []string{"initial", "catchUp"} {
		for _, n := range []int{1, 50, 100, 200} {
			b.Run(fmt.Sprintf("%s/%d", kind, n), func(b *testing.B) {
				for b.Loop() {
					each := objects
					if kind == "catchUp" {
						each = changed
					}
					beginAtOnce(b, c, n, each, kind == "catchUp")
				}
			})
		}
	}
}

func benchObject(i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("ns-%d", i%200), Name: fmt.Sprintf("object-%d", i)},
		Data:       map[string]string{"a": strings.Repeat("x", 900), "b": strings.Repeat("y", 900), "c": fmt.Sprint(i)},
	}
}

// benchCache returns a cache with objects, some of which have changed since watermark 1,000,000.
func benchCache(objects, changed int) *Cache[*corev1.ConfigMap] {
	c := New(Config[*corev1.ConfigMap]{
		New:   func() *corev1.ConfigMap { return &corev1.ConfigMap{} },
		Copy:  func(o *corev1.ConfigMap) *corev1.ConfigMap { c := *o; return &c },
		Key:   func(o *corev1.ConfigMap) string { return o.Namespace + "/" + o.Name },
		Size:  func(_, _ *corev1.ConfigMap) int { return 2100 },
		Clock: clock.RealClock{},
		Tag:   1,
	})
	all := make([]*corev1.ConfigMap, objects)
	for i := range all {
		all[i] = benchObject(i)
	}
	c.Replace(all, 1e6, 1e6)
	for i := range changed {
		o := benchObject(i * (objects / changed))
		c.Apply(1e6+uint64(i), []Change[*corev1.ConfigMap]{{Key: c.Key(o), Object: o, Cause: 1e6 + uint64(i) + 1}})
	}
	return c
}

// beginAtOnce begins n watches and takes so many events of each.
func beginAtOnce(b *testing.B, c *Cache[*corev1.ConfigMap], n, events int, elsewhere bool) {
	b.Helper()
	serializer := json.NewSerializerWithOptions(json.DefaultMetaFactory, nil, nil, json.SerializerOptions{})
	var encodings, bytes atomic.Int64
	encode := func(o apiruntime.Object, w io.Writer) error {
		encodings.Add(1)
		return serializer.Encode(o, w)
	}
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	before, peak := stats.HeapAlloc, uint64(0)
	cpu := cpuTime()
	var wg sync.WaitGroup
	for i := range n {
		var o WatchOptions[*corev1.ConfigMap]
		if elsewhere { // each has seen another version
			o.ResourceVersion = newVersion(1e6, uint64(i), 2).String()
		}
		w, err := c.Watch(b.Context(), o)
		if err != nil {
			b.Fatal(err)
		}
		wg.Go(func() {
			defer w.Stop()
			buffer := make([]byte, 0, 16<<10)
			for range events {
				e := <-w.ResultChan()
				out := writer{&buffer}
				var err error
				if shared, ok := e.Object.(apiruntime.CacheableObject); ok {
					err = shared.CacheEncode("json", encode, out)
				} else {
					err = encode(e.Object, out)
				}
				if err != nil {
					b.Error(err)
				}
				bytes.Add(int64(len(buffer)))
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for open := true; open; {
		select {
		case <-done:
			open = false
		case <-time.After(200 * time.Millisecond):
			runtime.ReadMemStats(&stats)
			peak = max(peak, stats.HeapInuse)
		}
	}
	b.ReportMetric(float64((cpuTime()-cpu).Milliseconds())/float64(n), "ms-CPU/watch")
	b.ReportMetric(float64(encodings.Load())/float64(events), "encodings/object")
	b.ReportMetric(float64(int64(peak)-int64(before))/(1<<20), "MB-peak")
}

// writer overwrites a buffer, as what sends does.
type writer struct{ buffer *[]byte }

func (w writer) Write(p []byte) (int, error) {
	*w.buffer = append((*w.buffer)[:0], p...)
	return len(p), nil
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
