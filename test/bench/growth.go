// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

const (
	growthRounds = 5
	// growthReaders is the number of workloads when watches begin.
	growthReaders = 500
	// growthLimit is how long one operation may take at one size.
	growthLimit = 10 * time.Minute
)

// growth is an operation that is measured with n, 2n and 4n of the objects that its cost depends on.
type growth struct {
	name string
	n    int
	// prepare creates n of these objects, in an empty namespace.
	prepare func(context.Context, *scene, int) error
	// act makes a change that results in a changed ConfigDependency for each of the n; nil: n watches begin instead.
	act   func(ctx context.Context, s *scene, n, round int) error
	times int  // in each round, because processor time has a resolution of 10 ms
	all   bool // the objects are in several namespaces
}

var growths = []growth{
	{name: "a Secret of n workloads", n: 500, times: 5, prepare: prepareReaders, act: func(ctx context.Context, s *scene, _, round int) error {
		return s.put(ctx, s.secret("shared", fmt.Sprint("value-", round)))
	}},
	{name: "a Secret that n globs match", n: 100, times: 20, prepare: prepareGlobs, act: func(ctx context.Context, s *scene, _, round int) error {
		return s.put(ctx, s.secret(globbed, fmt.Sprint("value-", round)))
	}},
	{name: "a Secret that the globs of n workloads match, with n others", n: 100, times: 20, prepare: prepareShared, act: func(ctx context.Context, s *scene, n, round int) error {
		return s.put(ctx, s.secret(fmt.Sprint("one-", round%n), fmt.Sprint("value-", round)))
	}},
	{name: "n watches begin", n: 50, times: 1, prepare: func(ctx context.Context, s *scene, _ int) error {
		return prepareReaders(ctx, s, s.count(growthReaders))
	}},
	{name: "n namespaces are annotated", n: 100, times: 5, prepare: prepareNamespaces, act: annotateNamespaces, all: true},
}

// benchmarkGrowth measures how the processor time of the server grows with numbers that depend on tenants or on the
// size of the cluster.
func benchmarkGrowth(ctx context.Context, e *environment) (rows []row, err error) {
	for i := range growths {
		g := &growths[i]
		var used [3]samples
		for j := range used {
			if used[j], err = e.grow(ctx, g, e.count(g.n)<<j, i, j); err != nil {
				return rows, fmt.Errorf("%s: %w", g.name, err)
			}
		}
		for j := 1; j < len(used); j++ {
			floor := make(samples, len(used[0]))
			for k, one := range used[0] {
				floor[k] = one * float64(int(1)<<j)
			}
			r := row{
				name: fmt.Sprintf("growth: %s, n = %d", g.name, e.count(g.n)<<j), unit: "ms CPU", n: growthRounds, got: used[j].summary(),
				floor: floor.summary(), floorName: fmt.Sprintf("%d times that of %d", 1<<j, e.count(g.n)), limit: limit{ratio: 1.5},
			}
			say("%s: %v %s, %s %v", r.name, r.got, r.unit, r.floorName, r.floor)
			rows = append(rows, r)
		}
	}
	rows[0].note = `processor time of the server from before several changes in a row until a watch has received all results,
  or all watches their initial events. A ratio of 1 is linear.`
	return rows, nil
}

// grow measures a growth at one size.
func (e *environment) grow(ctx context.Context, g *growth, n, i, j int) (used samples, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, growthLimit, fmt.Errorf("it took more than %v", growthLimit))
	defer cancel()
	s, err := e.newScene(ctx, fmt.Sprintf("growth-%d-%d", i, j))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.end(ctx)) }()
	if err := errors.Join(g.prepare(ctx, s, n), e.idle(ctx)); err != nil {
		return nil, err
	}
	path := in(s.namespace)
	if g.all {
		path = dependencies
	}
	client, err := newRequester(e.server().AdminConfig())
	if err != nil {
		return nil, err
	}
	now, err := list(ctx, client, path)
	if err != nil {
		return nil, err
	}
	body, err := get(client, path+"?watch=true&resourceVersion="+now.Metadata.ResourceVersion).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	witness := linesOf(body)
	for round := range 1 + growthRounds { // the first round is a warm-up
		before, err := cpuTime(e.server().PID())
		if err != nil {
			return nil, err
		}
		for i := range g.times {
			if err := g.once(ctx, s, witness, n, round*g.times+i); err != nil {
				return nil, err
			}
		}
		after, err := cpuTime(e.server().PID())
		if err != nil {
			return nil, err
		}
		if round > 0 {
			used.addTime(after-before, time.Millisecond)
		}
	}
	return used, nil
}

// once makes one change and waits until the witness has received all events.
func (g *growth) once(ctx context.Context, s *scene, witness *bufio.Scanner, n, round int) error {
	if g.act == nil {
		return s.beginWatches(ctx, n)
	}
	if err := g.act(ctx, s, n, round); err != nil {
		return err
	}
	return readEvents(witness, n)
}

// beginWatches opens n watches that begin with all objects, and closes them when each has received its objects.
func (s *scene) beginWatches(ctx context.Context, n int) error {
	path := in(s.namespace) + "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	var clients []rest.Interface
	for range (n + watchesPerConnection - 1) / watchesPerConnection {
		client, err := newRequester(s.server().AdminConfig())
		if err != nil {
			return err
		}
		clients = append(clients, client)
	}
	var group errgroup.Group
	open := make([]io.Closer, n)
	err := inParallel(ctx, n, func(_ context.Context, i int) error {
		body, err := get(clients[i/watchesPerConnection], path).Stream(ctx)
		if err != nil {
			return err
		}
		open[i] = body
		group.Go(func() error { return readEvents(linesOf(body), s.count(growthReaders)) })
		return nil
	})
	err = errors.Join(err, group.Wait())
	for _, body := range open {
		if body != nil {
			err = errors.Join(err, body.Close())
		}
	}
	return err
}

// prepareReaders creates workloads that read the Secret shared.
func prepareReaders(ctx context.Context, s *scene, n int) error {
	if err := s.put(ctx, s.secret("shared", "value")); err != nil {
		return err
	}
	return inParallel(ctx, n, func(ctx context.Context, i int) error {
		return s.put(ctx, bystander(deploymentName(i), reads("", "shared")))
	})
}

// globbed is the name of a Secret that many different globs match.
var globbed = strings.Repeat("a", 60)

// prepareGlobs creates workloads with a glob each, which all differ and match the Secret globbed.
func prepareGlobs(ctx context.Context, s *scene, n int) error {
	if err := s.put(ctx, s.secret(globbed, "value")); err != nil {
		return err
	}
	return inParallel(ctx, n, func(ctx context.Context, i int) error {
		d := s.deployment(deploymentName(i), reads("", ""), true)
		d.Spec.Paused = true // so that the change is shown but no workload is restarted
		d.Annotations["configdep.io/sources"] = "secret/" + globbed[:1+i%50] + "*" + globbed[:i/50]
		return s.put(ctx, d)
	})
}

// prepareShared creates workloads with the same globs, and as many Secrets that match the globs.
func prepareShared(ctx context.Context, s *scene, n int) error {
	return inParallel(ctx, n, func(ctx context.Context, i int) error {
		d := s.deployment(deploymentName(i), reads("", ""), true)
		d.Spec.Paused = true // so that the change is shown but no workload is restarted
		d.Annotations["configdep.io/sources"] = "secret/*, configmap/*"
		return errors.Join(s.put(ctx, s.secret(fmt.Sprint("one-", i), "value")), s.put(ctx, d))
	})
}

func grownNamespace(s *scene, i int) string { return fmt.Sprintf("%s-%d", s.namespace, i) }

// prepareNamespaces creates namespaces with a workload each.
func prepareNamespaces(ctx context.Context, s *scene, n int) error {
	return inParallel(ctx, n, func(ctx context.Context, i int) error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: grownNamespace(s, i)}}
		if _, err := s.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
		_, err := s.client.AppsV1().Deployments(namespace.Name).Create(ctx, bystander("app", reads("", "shared")), createdBy)
		return err
	})
}

// annotateNamespaces changes the namespaces' annotations that apply to their workloads.
func annotateNamespaces(ctx context.Context, s *scene, n, round int) error {
	return inParallel(ctx, n, func(ctx context.Context, i int) error {
		_, err := s.client.CoreV1().Namespaces().Patch(ctx, grownNamespace(s, i), types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{"configdep.io/exclude":"secret/of-%d"}}}`, round), metav1.PatchOptions{FieldManager: kubectl})
		return err
	})
}
