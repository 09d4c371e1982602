// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
)

const (
	getWarmUp = 200
	getRounds = 3000
)

// fewObjects is the number of objects in repeated gets, so that the authorization of the user is in the server's cache.
const fewObjects = 20

// benchmarkGet measures a get of one ConfigDependency through the aggregator, one request at a time over a persistent
// connection: of one of many, compared with its Deployment from kube-apiserver; and of one of a few, compared with a
// document that costs the server almost nothing, by the same route.
func benchmarkGet(ctx context.Context, e *environment) (rows []row, err error) {
	if err := e.fill(ctx, standard); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(1, 2)) // the same objects in each run
	path := func(group, resource, name string, i int) request {
		return request{path: fmt.Sprintf("/apis/%s/namespaces/%s/%s/%s", group, namespaceOf(i), resource, name), gzip: true}
	}
	for _, floor := range []struct {
		name, of string
		objects  int
		limit    limit // for the median
		request  func(i int) request
	}{
		{"get", "get of its Deployment", e.filled.workloads, limit{}, func(i int) request { return path("apps/v1", "deployments", deploymentName(i), i) }},
		{"get of one of a few", "get of a discovery document", fewObjects, limit{ratio: 1.3}, func(int) request { return request{path: "/apis/configdep.io/v1alpha1", gzip: true} }},
	} {
		pair := func(int) [2]request {
			i := random.IntN(floor.objects)
			return [2]request{path("configdep.io/v1alpha1", "configdependencies", "deployment."+deploymentName(i), i), floor.request(i)}
		}
		if _, _, err := e.user.inTurns(ctx, getWarmUp, pair); err != nil {
			return nil, err
		}
		stop, err := e.profileCPU(ctx, strings.ReplaceAll(floor.name, " ", "-"))
		if err != nil {
			return nil, err
		}
		took, _, err := e.user.inTurns(ctx, getRounds, pair)
		stop()
		if err != nil {
			return nil, err
		}
		for _, q := range []struct {
			name  string
			share float64
			limit limit
		}{{"p50", 0.5, floor.limit}, {"p99", 0.99, limit{}}} {
			r := row{
				name: floor.name + " " + q.name, unit: "ms", n: getRounds, got: exactly(took[0].quantile(q.share)),
				floor: exactly(took[1].quantile(q.share)), floorName: floor.of, limit: q.limit,
			}
			say("%s: %v ms, %s: %v ms", r.name, r.got, r.floorName, r.floor)
			rows = append(rows, r)
		}
	}
	rows[0].note = `each request gets one of many objects, so that the server's cache of authorization decisions, which is by
  name and lasts seconds, mostly misses. The path is the aggregator, the harness's balancer and the server, which asks
  kube-apiserver for authorization. With a few objects it mostly hits, as it does for the discovery document.`
	return rows, nil
}
