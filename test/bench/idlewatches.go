// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
)

// Many watches are open, and no change concerns them.
const (
	idleWatches = 1000
	idleSeconds = 60
	idleChanges = 20 // changes of unused ConfigMaps per second
)

// benchmarkIdleWatches measures the cost of watches that receive only bookmarks.
func benchmarkIdleWatches(ctx context.Context, e *environment) (rows []row, err error) {
	// A server that had many watches before keeps their memory.
	if err := e.cluster.RestartAPIServer(ctx); err != nil {
		return nil, err
	}
	if _, err := e.restart(ctx); err != nil {
		return nil, err
	}
	if err := e.awaitServed(ctx); err != nil {
		return nil, err
	}
	s, err := e.newScene(ctx, "idlewatches")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.end(ctx)) }()
	for i := range watchersApps {
		if err := s.put(ctx, configMap(i, 1<<10), secret(i, 1<<10), deployment(i)); err != nil {
			return nil, err
		}
	}
	server, err := e.newIdler("the server", e.readerAtServer(), dependencies, e.server().PID())
	if err != nil {
		return nil, err
	}
	kube, err := e.newIdler("kube-apiserver", e.reader, deployments, e.cluster.PID("kube-apiserver"))
	if err != nil {
		return nil, err
	}
	n := e.count(idleWatches)
	if err := s.idleAway(ctx, server, kube); err != nil {
		return nil, err
	}
	for _, i := range []*idler{server, kube} {
		if err := i.open(ctx, e, n); err != nil {
			return nil, fmt.Errorf("watching %s: %w", i.name, err)
		}
		defer i.crowd.disperse()
	}
	if err := e.profileHeap(ctx, "idlewatches"); err != nil {
		return nil, err
	}
	stop, err := e.profileCPU(ctx, "idlewatches")
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := s.idleAway(ctx, server, kube); err != nil {
		return nil, err
	}
	// The crowds report an error if a watch has ended or received an event meanwhile.
	if err := errors.Join(server.crowd.check(), kube.crowd.check()); err != nil {
		return nil, err
	}
	named := fmt.Sprintf("%d idle watches", n)
	add := func(what, unit string, got, floor float64, most limit) {
		r := row{name: named + what, unit: unit, n: 1, got: exactly(got), floor: exactly(floor), floorName: "the same of Deployments", limit: most}
		say("%s: %v %s, of Deployments %v", r.name, r.got, unit, r.floor)
		rows = append(rows, r)
	}
	add(": memory of each in use", "KB", server.inUse, kube.inUse, limit{ratio: 1.5})
	add(": RSS of each", "KB", server.rss, kube.rss, limit{})
	add(": CPU", "ms/s", server.cpu[1], kube.cpu[1], limit{value: 30})
	add(": CPU, without them", "ms/s", server.cpu[0], kube.cpu[0], limit{})
	rows[0].note = fmt.Sprintf(`heap and stacks after a garbage collection, in addition to those without watches; RSS when it has not changed
  for a while, which includes garbage from the start of the watches. %d watches share a connection. CPU is the total of the
  server, or of kube-apiserver, while %d unused ConfigMaps change per second, for %d s; kube-apiserver needs most of its CPU to
  write them, so the limit is absolute and not a ratio. The server sent %d bookmarks, kube-apiserver %d.`,
		crowdPerConnection, idleChanges, s.count(idleSeconds), server.crowd.bookmarks.Load(), kube.crowd.bookmarks.Load())
	return rows, nil
}

// idler is a server with many idle watches.
type idler struct {
	name   string
	config *rest.Config
	path   string
	pid    int
	admin  *requester
	crowd  *crowd

	inUse, rss float64   // KB per watch
	cpu        []float64 // ms per second, one value for each measurement
}

func (e *environment) newIdler(name string, config *rest.Config, path string, pid int) (*idler, error) {
	// Profiles are for administrators.
	admin := rest.CopyConfig(config)
	admin.BearerToken = ""
	from := e.cluster.RESTConfig()
	admin.CertData, admin.KeyData = from.CertData, from.KeyData
	client, err := newRequester(ownConnection(admin))
	return &idler{name: name, config: config, path: path, pid: pid, admin: client}, err
}

// open opens the watches and records the growth of memory.
func (i *idler) open(ctx context.Context, e *environment, n int) error {
	measure := func() (inUse float64, m memory, err error) {
		if m, err = e.settledMemoryOf(ctx, func() (memory, error) { return memoryOf(i.pid) }); err != nil {
			return 0, m, err
		}
		inUse, err = i.memoryInUse(ctx)
		return inUse, m, err
	}
	before, rssBefore, err := measure()
	if err != nil {
		return err
	}
	watching := &stand{config: func() *rest.Config { return i.config }, list: i.path, size: n, bookmarks: true}
	if i.crowd, err = watching.gather(ctx, nil); err != nil {
		return err
	}
	after, rssAfter, err := measure()
	if err != nil {
		return err
	}
	i.inUse = (after - before) / 1e3 / float64(n)
	i.rss = (rssAfter.rss - rssBefore.rss) * 1e3 / float64(n)
	say("%s with %d idle watches: %.1f MB in use, %.1f MB before; RSS %.1f MB, %.1f MB before", i.name, n, after/1e6, before/1e6, rssAfter.rss, rssBefore.rss)
	return nil
}

// memoryInUse returns the size of the heap and the stacks after a garbage collection, in bytes.
func (i *idler) memoryInUse(ctx context.Context) (float64, error) {
	return i.memStats(ctx, "HeapAlloc", "Stack") // the first number of Stack
}

// memoryAllocated returns the size of all that has been allocated on the heap since the start, in bytes.
func (i *idler) memoryAllocated(ctx context.Context) (float64, error) {
	return i.memStats(ctx, "TotalAlloc")
}

// memStats returns the sum of fields of runtime.MemStats, after a garbage collection.
func (i *idler) memStats(ctx context.Context, names ...string) (float64, error) {
	// With debug=1 the profile is text that ends with them.
	content, err := i.admin.read(ctx, request{path: "/debug/pprof/heap?gc=1&debug=1", accept: "*/*"})
	if err != nil {
		return 0, err
	}
	return sumOf(content, names...)
}

// sumOf reads fields of runtime.MemStats.
func sumOf(profile []byte, names ...string) (float64, error) {
	var sum float64
	for _, name := range names {
		_, rest, found := bytes.Cut(profile, []byte("\n# "+name+" = "))
		var value float64
		if _, err := fmt.Fscan(bytes.NewReader(rest), &value); !found || err != nil {
			return 0, fmt.Errorf("the heap profile does not contain %s", name)
		}
		sum += value
	}
	return sum, nil
}

// idleAway records the processor time of the servers while ConfigMaps change that no workload uses.
func (s *scene) idleAway(ctx context.Context, idlers ...*idler) error {
	name := func(i int) string { return fmt.Sprintf("unused-%d", i%unusedSources) }
	before := make([]time.Duration, len(idlers))
	for n, i := range idlers {
		var err error
		if before[n], err = cpuTime(i.pid); err != nil {
			return err
		}
	}
	started := time.Now()
	tick := time.NewTicker(time.Second / idleChanges)
	defer tick.Stop()
	for i := range s.count(idleSeconds) * idleChanges {
		if err := s.put(ctx, s.configMap(name(i), strconv.FormatInt(started.UnixNano(), 10)+strconv.Itoa(i))); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	took := time.Since(started)
	for n, i := range idlers {
		after, err := cpuTime(i.pid)
		if err != nil {
			return err
		}
		i.cpu = append(i.cpu, float64((after-before[n]).Milliseconds())/took.Seconds())
	}
	return nil
}
