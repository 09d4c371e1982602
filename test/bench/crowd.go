// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// crowdPerConnection is how many watches share a connection: as many as kube-apiserver allows. The server allows more,
// but both sides must do the same work.
const crowdPerConnection = 100

// crowd is a set of open watches of one path. Their events are counted but not decoded: the work of clients is the same
// on both sides and would only blur the difference.
type crowd struct {
	size    int
	ctx     context.Context
	cancel  context.CancelFunc
	clients []*requester
	wg      sync.WaitGroup

	due       atomic.Int64  // events that each watch must have received since it began
	behind    atomic.Int64  // watches that have not received them
	reached   chan struct{} // receives when behind becomes 0
	failed    chan error
	bytes     atomic.Int64 // of events
	bookmarks atomic.Int64
}

// gather opens watches. It returns when the server has started to answer each of them, and each has received the given
// number of events that have already happened. The path must contain a resource version, so that no later event is
// missed.
func gather(ctx context.Context, config *rest.Config, path string, size, already int) (_ *crowd, err error) {
	c := &crowd{size: size, reached: make(chan struct{}, 1), failed: make(chan error, 1)}
	c.expect(already)
	c.ctx, c.cancel = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			c.disperse()
		}
	}()
	for range (size + crowdPerConnection - 1) / crowdPerConnection {
		client, err := newRequester(ownConnection(config))
		if err != nil {
			return nil, err
		}
		c.clients = append(c.clients, client)
	}
	err = inParallel(ctx, 0, size, func(_ context.Context, i int) error {
		// The watch outlives this function and its context.
		body, _, err := c.clients[i/crowdPerConnection].open(c.ctx, request{path: path})
		if err != nil {
			return err
		}
		c.wg.Go(func() { c.count(body) })
		return nil
	})
	if err != nil || already == 0 {
		return c, err
	}
	return c, c.await(ctx)
}

// count reads a watch until the crowd disperses. An earlier end or an event too many is an error.
func (c *crowd) count(body io.ReadCloser) {
	defer body.Close()
	lines := bufio.NewReaderSize(body, 4<<10)
	var received int64
	for {
		e, err := readEvent(lines)
		switch {
		case c.ctx.Err() != nil:
			return
		case err != nil:
			c.fail(fmt.Errorf("a watch ended after %d events: %w", received, err))
			return
		case e.kind == "BOOKMARK":
			c.bookmarks.Add(1)
			continue
		}
		received++
		c.bytes.Add(e.size)
		due := c.due.Load()
		if received > due {
			c.fail(fmt.Errorf("a watch received %d events of %d changes", received, due))
			return
		}
		if received == due && c.behind.Add(-1) == 0 {
			c.reached <- struct{}{}
		}
	}
}

func (c *crowd) fail(err error) {
	select {
	case c.failed <- err:
	default: // only the first error counts
	}
}

// expect adds a number of events that each watch must receive. It must be called before the changes that cause them,
// and after all events that were expected before have been received.
func (c *crowd) expect(n int) {
	c.behind.Store(int64(c.size))
	c.due.Add(int64(n))
}

// await waits until all watches have received the expected events.
func (c *crowd) await(ctx context.Context) error {
	select {
	case <-c.reached:
		return c.check()
	case err := <-c.failed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%d of %d watches have not received %d events: %w", c.behind.Load(), c.size, c.due.Load(), context.Cause(ctx))
	}
}

// check returns the first error of a watch.
func (c *crowd) check() error {
	select {
	case err := <-c.failed:
		return err
	default:
		return nil
	}
}

// disperse ends all watches.
func (c *crowd) disperse() {
	c.cancel()
	c.wg.Wait()
	for _, client := range c.clients {
		client.client.CloseIdleConnections()
	}
}

// versionOf returns the resource version of a list, from which a watch can start.
func (r *requester) versionOf(ctx context.Context, path string) (string, error) {
	content, err := r.read(ctx, request{path: path})
	if err != nil {
		return "", err
	}
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(content, &list); err != nil || list.Metadata.ResourceVersion == "" {
		return "", fmt.Errorf("%s has no version: %w", path, err)
	}
	return list.Metadata.ResourceVersion, nil
}
