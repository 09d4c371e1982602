// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"time"
)

const (
	watchListWarmUp = 2
	watchListRounds = 11
)

// initialEvents are the parameters with which reflectors list by a watch.
const initialEvents = "?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"

// benchmarkWatchList measures the time and the bytes of a watch that starts with all ConfigDependencies, compared with
// a list of them, and with the same for Deployments.
func benchmarkWatchList(ctx context.Context, e *environment) ([]row, error) {
	if err := e.fill(ctx, standard); err != nil {
		return nil, err
	}
	if err := e.sameCount(ctx); err != nil {
		return nil, err
	}
	direct, err := newRequester(ownConnection(e.readerAtServer()))
	if err != nil {
		return nil, err
	}
	defer direct.client.CloseIdleConnections()
	stop, err := e.profileCPU(ctx, "watchlist")
	if err != nil {
		return nil, err
	}
	defer stop()
	var rows []row
	for _, compressed := range []bool{true, false} {
		measured, err := e.compareWatchLists(ctx, direct, compressed)
		if err != nil {
			return rows, err
		}
		rows = append(rows, measured...)
	}
	rows[0].note = `JSON with gzip, as client-go gets it by default, through the aggregator; until the bookmark that ends the
  initial events, which are counted, decompressed but not decoded. The lists are read in the same way. The rows with a
  ratio compare the ratio of watch-list to list with the same ratio for kube-apiserver. CPU is the CPU of the server.`
	return rows, nil
}

// compareWatchLists measures lists and watches of both resources in turns.
func (e *environment) compareWatchLists(ctx context.Context, direct *requester, compressed bool) ([]row, error) {
	type way struct {
		client      *requester
		path        string
		watch       bool
		ms, mb, cpu samples
	}
	ours := &way{client: e.user, path: dependencies, watch: true}
	ourList := &way{client: e.user, path: dependencies}
	theirs := &way{client: e.user, path: deployments, watch: true}
	theirList := &way{client: e.user, path: deployments}
	past := &way{client: direct, path: dependencies, watch: true}
	ways := []*way{ours, ourList, theirs, theirList, past}
	for round := range watchListWarmUp + watchListRounds {
		for i := range ways {
			w := ways[(round+i)%len(ways)]
			before, err := e.subjectCPU()
			if err != nil {
				return nil, err
			}
			got, err := w.client.all(ctx, w.path, w.watch, compressed, e.filled.workloads)
			if err != nil {
				return nil, fmt.Errorf("%s, by a watch: %v: %w", w.path, w.watch, err)
			}
			after, err := e.subjectCPU()
			if err != nil {
				return nil, err
			}
			if round >= watchListWarmUp {
				w.ms.addTime(got.took, time.Millisecond)
				w.cpu.addTime(after-before, time.Millisecond)
				w.mb = append(w.mb, float64(got.bytes)/1e6)
			}
		}
	}
	name := "watch-list"
	if !compressed {
		name += ", uncompressed"
	}
	between := func(what, unit string, got, floor samples, of string, most limit) row {
		r := row{name: name + what, unit: unit, n: len(got), got: got.summary(), floor: floor.summary(), floorName: of, limit: most}
		say("%s: %v %s, %s %v", r.name, r.got, unit, of, r.floor)
		return r
	}
	ratio := func(what string, a, b, c, d samples, most limit) row {
		return row{
			name: name + what, n: len(a), got: exactly(a.quantile(0.5) / b.quantile(0.5)),
			floor: exactly(c.quantile(0.5) / d.quantile(0.5)), floorName: "that ratio of Deployments", limit: most,
		}
	}
	const ofDeployments, ofList = "watch-list of Deployments", "list of the same"
	if !compressed {
		return []row{
			between("", "ms", ours.ms, theirs.ms, ofDeployments, limit{ratio: 1}),
			between(": against the list", "ms", ours.ms, ourList.ms, ofList, limit{}),
			between(": bytes", "MB", ours.mb, ourList.mb, ofList, limit{}),
		}, nil
	}
	return []row{
		between("", "ms", ours.ms, theirs.ms, ofDeployments, limit{ratio: 1}),
		between(": against the list", "ms", ours.ms, ourList.ms, ofList, limit{}),
		ratio(": ratio to the list, time", ours.ms, ourList.ms, theirs.ms, theirList.ms, limit{ratio: 1.5}),
		between(": CPU", "ms", ours.cpu, ourList.cpu, ofList, limit{}),
		between(": past the aggregator", "ms", past.ms, theirs.ms, ofDeployments, limit{}),
		between(": bytes", "MB", ours.mb, ourList.mb, ofList, limit{}),
		ratio(": ratio to the list, bytes", ours.mb, ourList.mb, theirs.mb, theirList.mb, limit{ratio: 1.5}),
	}, nil
}

// all reads all objects, by a list or by a watch that starts with them.
func (r *requester) all(ctx context.Context, path string, byWatch, compressed bool, least int) (answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the watch
	if byWatch {
		path += initialEvents
	}
	started := time.Now()
	body, header, err := r.open(ctx, request{path: path, gzip: compressed})
	if err != nil {
		return answer{}, err
	}
	defer body.Close()
	counted := &countingReader{Reader: body}
	plain := io.Reader(counted)
	if header.Get("Content-Encoding") == "gzip" {
		if plain, err = gzip.NewReader(counted); err != nil {
			return answer{}, err
		}
	}
	if byWatch {
		err = readInitial(plain, least)
	} else {
		_, err = io.Copy(io.Discard, plain)
	}
	return answer{time.Since(started), counted.n}, err
}

// readInitial reads the initial events of a watch, of which there must be at least a given number.
func readInitial(plain io.Reader, least int) error {
	lines := bufio.NewReaderSize(plain, 64<<10)
	added := 0
	for {
		e, err := readEvent(lines)
		switch {
		case err != nil:
			return fmt.Errorf("after %d events: %w", added, err)
		case e.endsInitial() && added < least:
			return fmt.Errorf("received only %d objects, want at least %d", added, least)
		case e.endsInitial():
			return nil
		case e.kind != "ADDED":
			return fmt.Errorf("unexpected %s among the initial events", e.kind)
		}
		added++
	}
}

// countingReader counts the bytes that are read.
type countingReader struct {
	io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}
