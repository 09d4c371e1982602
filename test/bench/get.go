package main

import (
	"context"
	"fmt"
	"math/rand/v2"
)

const (
	getWarmUp = 200
	getRounds = 3000
)

// benchmarkGet gets one ConfigDependency through the aggregator and its Deployment from
// kube-apiserver, one request at a time, over a connection that is kept.
func benchmarkGet(ctx context.Context, e *environment) ([]row, error) {
	if err := e.fill(ctx, standard); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(1, 2)) // the same objects in each run
	pair := func(int) [2]request {
		i := random.IntN(e.filled.workloads)
		path := func(group, resource, name string) request {
			return request{path: fmt.Sprintf("/apis/%s/namespaces/%s/%s/%s", group, namespaceOf(i), resource, name), gzip: true}
		}
		return [2]request{
			path("configdep.io/v1alpha1", "configdependencies", "deployment."+deploymentName(i)),
			path("apps/v1", "deployments", deploymentName(i)),
		}
	}
	if _, _, err := e.user.inTurns(ctx, getWarmUp, pair); err != nil {
		return nil, err
	}
	stop, err := e.profileCPU(ctx, "get")
	if err != nil {
		return nil, err
	}
	defer stop()
	took, _, err := e.user.inTurns(ctx, getRounds, pair)
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, q := range []struct {
		name  string
		share float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		r := row{
			name: "get " + q.name, unit: "ms", n: getRounds, got: exactly(took[0].quantile(q.share)),
			floor: exactly(took[1].quantile(q.share)), floorName: "get of its Deployment",
		}
		say("%s: %v ms, of a Deployment %v ms", r.name, r.got, r.floor)
		rows = append(rows, r)
	}
	rows[0].note = `each time one of many objects, so that the server's cache of authorization decisions, which is by
  name and lasts seconds, mostly misses. On the way are the aggregator, the harness's balancer and the server, which asks
  kube-apiserver for authorization.`
	return rows, nil
}
