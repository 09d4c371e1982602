// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	configdepv1alpha1 "github.com/configdep/configdep/pkg/generated/clientset/versioned/typed/configdep/v1alpha1"
	"github.com/configdep/configdep/test/install"
)

// replica is a replica that is killed or stopped and started again, and measured.
type replica struct {
	*install.Replica
	client configdepv1alpha1.ConfigdepV1alpha1Interface

	mu      sync.Mutex
	born    time.Time // when this process was started
	samples []sample
}

// sample is the memory of a replica at a time.
type sample struct {
	at  time.Time
	rss float64 // in MB of a million bytes
}

// restart stops the replica, starts it again, and waits until it is ready.
func (r *replica) restart(ctx context.Context, stop func() error) error {
	r.mu.Lock()
	err := errors.Join(stop(), r.Start())
	r.born = time.Now()
	r.mu.Unlock()
	if err != nil {
		return err
	}
	return r.AwaitReady(ctx)
}

// look measures the memory of the replica. Linux only.
func (r *replica) look() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	path := fmt.Sprintf("/proc/%d/status", r.PID())
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(content)) {
		if value, found := strings.CutPrefix(line, "VmRSS:"); found {
			kilobytes, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			if err != nil {
				return err
			}
			r.samples = append(r.samples, sample{time.Now(), kilobytes * 1024 / 1e6})
			return nil
		}
	}
	return fmt.Errorf("%s lacks VmRSS", path)
}

// The metrics that are read.
const (
	goroutines = "go_goroutines"
	heap       = "go_memstats_heap_alloc_bytes"
	eventsKept = "configdep_watch_events_kept"
)

// metric returns the value of a metric without labels.
func (r *replica) metric(ctx context.Context, name string) (float64, error) {
	metrics, err := r.client.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(metrics)) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("%s lacks the metric %s", r.Name(), name)
}

// hangUp closes the connections of the client, which would stay open for a while.
func (r *replica) hangUp() {
	if c, ok := r.client.RESTClient().(*rest.RESTClient); ok {
		utilnet.CloseIdleConnectionsFor(c.Client.Transport)
	}
}

// grown reports whether the memory of a replica grows, by its samples since the time from which the maximum amount
// of data is kept: it compares the last quarter of them with the previous one.
func (r *replica) grown(since time.Time) (before, after float64, judged bool) {
	var rss []float64
	for _, s := range r.samples {
		if s.at.After(since) {
			rss = append(rss, s.rss)
		}
	}
	quarter := len(rss) / 4
	if quarter < 15 {
		return 0, 0, false
	}
	return median(rss[2*quarter : 3*quarter]), median(rss[3*quarter:]), true
}

func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

// print returns the samples, one line for each minute.
func (r *replica) print() string {
	var b strings.Builder
	fmt.Fprintf(&b, "memory of %s in MB, by minutes:", r.Name())
	minute := -1
	for _, s := range r.samples {
		if m := int(s.at.Sub(r.samples[0].at) / time.Minute); m != minute {
			minute = m
			fmt.Fprintf(&b, "\n%3d:", m)
		}
		fmt.Fprintf(&b, " %.0f", s.rss)
	}
	return b.String()
}
