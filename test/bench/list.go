// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
)

// The resources: through the aggregator, and from kube-apiserver itself.
const (
	dependencies = "/apis/configdep.io/v1alpha1/configdependencies"
	deployments  = "/apis/apps/v1/deployments"
)

// asTable is the Accept header of kubectl get.
const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// benchmarkList lists all ConfigDependencies through the aggregator, and all Deployments, of which there are as many,
// from kube-apiserver: without pages and without a resourceVersion.
func benchmarkList(ctx context.Context, e *environment) ([]row, error) {
	if err := e.fill(ctx, standard); err != nil {
		return nil, err
	}
	if err := e.sameCount(ctx); err != nil {
		return nil, err
	}
	stop, err := e.profileCPU(ctx, "list")
	if err != nil {
		return nil, err
	}
	defer stop()
	var rows []row
	for _, v := range []struct {
		name  string
		how   request
		limit limit
	}{
		{"list", request{gzip: true}, limit{ratio: 1}},
		{"list, uncompressed", request{}, limit{ratio: 1}},
		{"list as Table", request{gzip: true, accept: asTable}, limit{}},
	} {
		measured, err := e.compareLists(ctx, v.name, v.how, v.limit)
		if err != nil {
			return rows, err
		}
		rows = append(rows, measured...)
	}
	rows[0].note = "JSON with gzip, as kubectl get -o json; until the last byte, not decoded. The Deployments have no status and no last-applied annotation, so they are small."
	return rows, nil
}

const (
	listWarmUp = 3
	listRounds = 21
)

func (e *environment) compareLists(ctx context.Context, name string, how request, most limit) ([]row, error) {
	ours, theirs := how, how
	ours.path, theirs.path = dependencies, deployments
	pair := func(int) [2]request { return [2]request{ours, theirs} }
	if _, _, err := e.user.inTurns(ctx, listWarmUp, pair); err != nil {
		return nil, err
	}
	took, size, err := e.user.inTurns(ctx, listRounds, pair)
	if err != nil {
		return nil, err
	}
	rows := []row{
		{
			name: name, unit: "ms", n: listRounds, got: took[0].summary(),
			floor: took[1].summary(), floorName: "list of Deployments", limit: most,
		},
		{
			name: name + ": bytes", unit: "MB", n: listRounds, got: inMB(size[0]),
			floor: inMB(size[1]), floorName: "list of Deployments",
		},
	}
	say("%s: %v ms, of Deployments %v ms", name, rows[0].got, rows[0].floor)
	return rows, nil
}

func inMB(bytes samples) summary { return exactly(bytes.quantile(0.5) / 1e6) }

// sameCount checks that both lists are complete, because a shorter list would be faster.
func (e *environment) sameCount(ctx context.Context) error {
	var counts [2]int
	for i, path := range []string{dependencies, deployments} {
		content, err := e.user.read(ctx, request{path: path, gzip: true})
		if err != nil {
			return err
		}
		var list struct {
			Items []json.RawMessage `json:"items"`
		}
		if err := json.NewDecoder(bytes.NewReader(content)).Decode(&list); err != nil {
			return fmt.Errorf("decoding %s: %w", path, err)
		}
		counts[i] = len(list.Items)
	}
	if counts[0] != counts[1] || counts[0] < e.filled.workloads {
		return fmt.Errorf("listed %d ConfigDependencies and %d Deployments, want the same number and at least %d", counts[0], counts[1], e.filled.workloads)
	}
	return nil
}
