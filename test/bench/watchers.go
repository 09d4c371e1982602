// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Many watches receive every change. Changes are sent in small bursts, because kube-apiserver ends watches with too
// many pending events.
const (
	watchers       = 1000
	watchersRounds = 5
	watchersBursts = 10
	watchersBurst  = 10 // changes
	watchersApps   = 10
	// watchersLimit is how long a burst may take.
	watchersLimit = time.Minute
)

// stand is a list that many clients watch, with the measurements of all rounds.
type stand struct {
	name   string
	config func() *rest.Config
	list   string // path of the list; watches start from its version
	size   int    // number of watches
	// repeats is set if the version of the list is older than its content, so that watches start with events for
	// some of the objects in it.
	repeats bool
	// bookmarks requests bookmarks, as reflectors do.
	bookmarks bool

	perEvent  samples // µs
	serverCPU samples // ms for 1,000 events, without the cost of the changes themselves
	kubeCPU   samples
	bytes     float64 // per event
}

// benchmarkWatchers measures the latency and the cost of events for many watches.
func benchmarkWatchers(ctx context.Context, e *environment) (rows []row, err error) {
	s, err := e.newScene(ctx, "watchers")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.end(ctx)) }()
	for i := range watchersApps {
		if err := s.put(ctx, configMap(i, 1<<10), secret(i, 1<<10), deployment(i)); err != nil {
			return nil, err
		}
	}
	user, server := func() *rest.Config { return e.reader }, e.readerAtServer
	ours, theirs := in(s.namespace, dependencies), in(s.namespace, deployments)
	n := e.count(watchers)
	kube := &stand{name: "Deployments", config: user, list: theirs, size: n}
	direct := &stand{name: "the server", config: server, list: ours, size: n}
	proxied := &stand{name: "the aggregator", config: user, list: ours, size: n}
	// The version of a list in pages is common to all replicas.
	common := &stand{name: "the server from a common version", config: server, list: ours + "?limit=1", size: n, repeats: true}
	stands := []*stand{kube, direct, proxied, common}

	p, err := e.newParade(ctx, s, server(), ours)
	if err != nil {
		return nil, err
	}
	defer p.witness.disperse()
	stop, err := e.profileCPU(ctx, "watchers")
	if err != nil {
		return nil, err
	}
	defer stop()
	for round := range watchersRounds {
		quiet, err := p.costs(ctx, nil)
		if err != nil {
			return nil, err
		}
		for i := range stands {
			if err := p.visit(ctx, stands[(i+round)%len(stands)], quiet); err != nil {
				return nil, err
			}
		}
	}
	named := fmt.Sprintf("%d watches", n)
	add := func(what, unit string, got, floor samples, most limit) {
		r := row{name: named + what, unit: unit, n: len(got), got: got.summary(), floor: floor.summary(), floorName: "of Deployments", limit: most}
		say("%s: %v %s, of Deployments %v", r.name, r.got, unit, r.floor)
		rows = append(rows, r)
	}
	add(": time per event", "µs", direct.perEvent, kube.perEvent, limit{ratio: 1.5})
	add(": CPU for 1,000 events", "ms", direct.serverCPU, kube.kubeCPU, limit{ratio: 1.5})
	add(" from a common version: time per event", "µs", common.perEvent, kube.perEvent, limit{})
	add(" from a common version: CPU for 1,000 events", "ms", common.serverCPU, kube.kubeCPU, limit{})
	add(" through the aggregator: time per event", "µs", proxied.perEvent, kube.perEvent, limit{})
	add(" through the aggregator: CPU for 1,000 events", "ms", proxied.serverCPU, kube.kubeCPU, limit{})
	add(" through the aggregator: its CPU for 1,000 events", "ms", proxied.kubeCPU, kube.kubeCPU, limit{})
	rows[0].note = fmt.Sprintf(`bursts of %d changes of Deployments in one namespace, one after the other, until the last watch has
  the last event: %.0f events per second, for Deployments %.0f. An event has %.1f KB, for a Deployment %.1f KB. %d watches share
  a connection on either side. The client, which uses the same processors, counts lines. CPU is the CPU of the server, or
  of kube-apiserver for Deployments, without the cost of the same changes without watches. From a common version: as after
  a list in pages, or after a list from another replica.`,
		watchersBurst, 1e6/direct.perEvent.quantile(0.5), 1e6/kube.perEvent.quantile(0.5), direct.bytes/1e3, kube.bytes/1e3, crowdPerConnection)
	return rows, nil
}

// in returns the path of a list restricted to one namespace.
func in(namespace, path string) string {
	at := strings.LastIndexByte(path, '/')
	return path[:at] + "/namespaces/" + namespace + path[at:]
}

// parade makes the changes that crowds watch.
type parade struct {
	*scene
	// witness is a watch that shows when the server has seen the last change, so that later watches do not receive
	// it.
	witness *crowd
	bursts  int
	changes int
}

func (e *environment) newParade(ctx context.Context, s *scene, config *rest.Config, path string) (*parade, error) {
	witness := &stand{config: func() *rest.Config { return config }, list: path, size: 1}
	w, err := witness.gather(ctx, nil)
	return &parade{scene: s, witness: w, bursts: e.count(watchersBursts)}, err
}

// gather opens the watches of a stand. The parade is only needed if the stand repeats events.
func (st *stand) gather(ctx context.Context, p *parade) (*crowd, error) {
	client, err := newRequester(ownConnection(st.config()))
	if err != nil {
		return nil, err
	}
	defer client.client.CloseIdleConnections()
	version, err := client.versionOf(ctx, st.list)
	if err != nil {
		return nil, err
	}
	path, _, _ := strings.Cut(st.list, "?")
	path += fmt.Sprintf("?watch=true&resourceVersion=%s&allowWatchBookmarks=%t", version, st.bookmarks)
	repeated := 0
	if st.repeats {
		if repeated, err = p.repeated(ctx, client, path); err != nil {
			return nil, err
		}
	}
	return gather(ctx, st.config(), path, st.size, repeated)
}

// repeated returns the number of events at the start of a watch: one for each object that has changed since its
// version. The last change of repeated adds no further object.
func (p *parade) repeated(ctx context.Context, client *requester, path string) (int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, watchersLimit, fmt.Errorf("a change did not show within %v", watchersLimit))
	defer cancel() // ends the watch
	change := func(of int) error {
		p.witness.expect(1)
		if err := p.change(ctx, of); err != nil {
			return err
		}
		return p.witness.await(ctx)
	}
	if err := change(0); err != nil {
		return 0, err
	}
	body, _, err := client.open(ctx, request{path: path})
	if err != nil {
		return 0, err
	}
	defer body.Close()
	if err := change(0); err != nil {
		return 0, err
	}
	lines := bufio.NewReaderSize(body, 64<<10)
	for n := 0; ; n++ {
		e, err := readEvent(lines)
		if err != nil {
			return 0, fmt.Errorf("a watch ended after %d events: %w", n, err)
		}
		if bytes.Contains(e.head, fmt.Appendf(nil, `"%s":"%d"`, changeLabel, p.changes)) {
			return n, nil
		}
	}
}

// changeLabel is the label of Deployments that changes. ConfigDependencies have the labels of their workloads.
const changeLabel = "bench-change"

// change changes a Deployment.
func (p *parade) change(ctx context.Context, of int) error {
	p.changes++
	d := deployment(of)
	d.Labels[changeLabel] = strconv.Itoa(p.changes)
	return p.put(ctx, d)
}

// burst makes several changes, and returns the time from before the first until all watches of the crowd have received
// all events. There may be no crowd.
func (p *parade) burst(ctx context.Context, c *crowd) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, watchersLimit, fmt.Errorf("a burst took more than %v", watchersLimit))
	defer cancel()
	p.witness.expect(watchersBurst)
	if c != nil {
		c.expect(watchersBurst)
	}
	started := time.Now()
	for i := range watchersBurst {
		if err := p.change(ctx, i%watchersApps); err != nil {
			return 0, err
		}
	}
	if c != nil {
		if err := c.await(ctx); err != nil {
			return 0, err
		}
	}
	took := time.Since(started)
	return took, p.witness.await(ctx)
}

// costsOf is the cost of bursts.
type costsOf struct {
	server, kube time.Duration // CPU
	took         samples       // ms of each burst
}

// costs measures the bursts of one turn.
func (p *parade) costs(ctx context.Context, c *crowd) (out costsOf, err error) {
	read := func() (server, kube time.Duration, err error) { return p.cpuOfBoth(p.cluster.PID("kube-apiserver")) }
	// The first burst is a warm-up: garbage from the start of the watches is collected, and buffers grow.
	if _, err := p.burst(ctx, c); err != nil {
		return out, err
	}
	server, kube, err := read()
	if err != nil {
		return out, err
	}
	for range p.bursts {
		took, err := p.burst(ctx, c)
		if err != nil {
			return out, err
		}
		out.took.addTime(took, time.Millisecond)
	}
	out.server, out.kube, err = read()
	out.server, out.kube = out.server-server, out.kube-kube
	return out, err
}

// visit adds one measurement of a stand.
func (p *parade) visit(ctx context.Context, st *stand, quiet costsOf) error {
	c, err := st.gather(ctx, p)
	if err != nil {
		return fmt.Errorf("watching %s: %w", st.name, err)
	}
	defer c.disperse()
	cost, err := p.costs(ctx, c)
	if err != nil {
		return fmt.Errorf("watching %s: %w", st.name, err)
	}
	for _, took := range cost.took {
		st.perEvent = append(st.perEvent, took*1000/float64(watchersBurst*st.size))
	}
	events := float64(p.bursts * watchersBurst * st.size)
	perThousand := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) * 1000 / events }
	st.serverCPU = append(st.serverCPU, perThousand(cost.server-quiet.server))
	st.kubeCPU = append(st.kubeCPU, perThousand(cost.kube-quiet.kube))
	st.bytes = float64(c.bytes.Load()) / float64(c.due.Load()*int64(c.size))
	say("watching %s: %.1f µs per event; CPU for 1,000 events %.1f ms, of kube-apiserver %.1f ms", st.name,
		cost.took.quantile(0.5)*1000/float64(watchersBurst*st.size), st.serverCPU[len(st.serverCPU)-1], st.kubeCPU[len(st.kubeCPU)-1])
	return nil
}
