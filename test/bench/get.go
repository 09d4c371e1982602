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

// benchmarkGet gets one ConfigDependency through the aggregator, one request at a time, over a connection that is kept; and its
// Deployment from kube-apiserver, and a document of the same size or less, which costs the server nothing, through the aggregator.
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
		limit    limit // of the median
		request  func(i int) request
	}{
		{"get", "get of its Deployment", limit{}, func(i int) request { return path("apps/v1", "deployments", deploymentName(i), i) }},
		{"get, on the same way", "get of a discovery document", limit{ratio: 1.3}, func(int) request { return request{path: "/apis/configdep.io/v1alpha1", gzip: true} }},
	} {
		pair := func(int) [2]request {
			i := random.IntN(e.filled.workloads)
			return [2]request{path("configdep.io/v1alpha1", "configdependencies", "deployment."+deploymentName(i), i), floor.request(i)}
		}
		if _, _, err := e.user.inTurns(ctx, getWarmUp, pair); err != nil {
			return nil, err
		}
		stop, err := e.profileCPU(ctx, strings.ReplaceAll(floor.name, ", ", "-"))
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
	rows[0].note = `each time one of many objects in many namespaces. On the way are the aggregator, the harness's balancer and the
  server, which asks kube-apiserver for authorization: whether the user may get all of a namespace, every ten seconds.`
	return rows, nil
}
