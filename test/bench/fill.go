// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shape is the content of the cluster, in addition to the objects of the installation.
type shape struct {
	workloads   int // Deployments
	sources     int // half of them ConfigMaps, half Secrets; at least two per workload
	sourceBytes int // the size of the content of each
}

// The shapes at scale 1.
var (
	standard  = shape{workloads: 10_000, sources: 20_000, sourceBytes: 4 << 10}
	bigValues = shape{workloads: 10_000, sources: 20_000, sourceBytes: 20 << 10}
	peers     = shape{workloads: 2_000, sources: 10_000, sourceBytes: 20 << 10} // in which other programs were measured
)

func (s shape) String() string {
	return fmt.Sprintf("%d workloads and %d sources of %d KB", s.workloads, s.sources, s.sourceBytes>>10)
}

// scaled scales the numbers of objects, not their size, and rounds up, so that all namespaces get the same number.
func (s shape) scaled(by float64) shape {
	round := func(n, to int) int { return int(math.Ceil(float64(n)*by/float64(to))) * to }
	s.workloads, s.sources = round(s.workloads, namespaces), round(s.sources, 2*namespaces)
	return s
}

// fillers is the number of concurrent requests that fill the cluster.
const fillers = 24

// fill brings the cluster into a shape and then restarts the server, so that the measurements do not depend on how the
// objects were created. It is quick if the cluster already has the shape.
func (e *environment) fill(ctx context.Context, want shape) error {
	want = want.scaled(e.scale)
	if e.filled == want {
		return nil
	}
	say("filling the cluster: %v", want)
	started := time.Now()
	e.subject.kill()
	if e.filled == (shape{}) {
		err := inParallel(ctx, 0, namespaces, func(ctx context.Context, i int) error {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(i)}}
			_, err := e.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return fmt.Errorf("creating namespaces: %w", err)
		}
	}
	if err := e.fillSources(ctx, want); err != nil {
		return fmt.Errorf("creating sources: %w", err)
	}
	if err := e.fillWorkloads(ctx, want); err != nil {
		return fmt.Errorf("creating workloads: %w", err)
	}
	e.filled = want
	say("filled the cluster in %v", time.Since(started).Round(time.Second))
	if err := e.subject.start(); err != nil {
		return err
	}
	return e.awaitServed(ctx)
}

func (e *environment) fillSources(ctx context.Context, want shape) error {
	have, pairs, rewrite := e.filled.sources/2, want.sources/2, e.filled.sourceBytes != want.sourceBytes
	err := inParallel(ctx, 0, pairs, func(ctx context.Context, i int) error {
		maps, secrets := e.client.CoreV1().ConfigMaps(namespaceOf(i)), e.client.CoreV1().Secrets(namespaceOf(i))
		switch {
		case i >= have:
			if _, err := maps.Create(ctx, configMap(i, want.sourceBytes), createdBy); err != nil {
				return err
			}
			_, err := secrets.Create(ctx, secret(i, want.sourceBytes), createdBy)
			return err
		case rewrite:
			if _, err := maps.Update(ctx, configMap(i, want.sourceBytes), updatedBy); err != nil {
				return err
			}
			_, err := secrets.Update(ctx, secret(i, want.sourceBytes), updatedBy)
			return err
		default:
			return nil
		}
	})
	if err != nil {
		return err
	}
	return inParallel(ctx, pairs, have, func(ctx context.Context, i int) error {
		if err := e.client.CoreV1().ConfigMaps(namespaceOf(i)).Delete(ctx, configMapName(i), metav1.DeleteOptions{}); err != nil {
			return err
		}
		return e.client.CoreV1().Secrets(namespaceOf(i)).Delete(ctx, secretName(i), metav1.DeleteOptions{})
	})
}

func (e *environment) fillWorkloads(ctx context.Context, want shape) error {
	have := e.filled.workloads
	err := inParallel(ctx, have, want.workloads, func(ctx context.Context, i int) error {
		_, err := e.client.AppsV1().Deployments(namespaceOf(i)).Create(ctx, deployment(i), createdBy)
		return err
	})
	if err != nil {
		return err
	}
	orphan := metav1.DeletePropagationBackground
	return inParallel(ctx, want.workloads, have, func(ctx context.Context, i int) error {
		return e.client.AppsV1().Deployments(namespaceOf(i)).Delete(ctx, deploymentName(i), metav1.DeleteOptions{PropagationPolicy: &orphan})
	})
}

// inParallel calls f for each number from begin up to end, several at a time, and returns the first error. It does
// nothing if end is not greater than begin.
func inParallel(ctx context.Context, begin, end int, f func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	next.Store(int64(begin))
	var wg sync.WaitGroup
	for range fillers {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= end {
					return
				}
				// A retry after a timeout may find that the first attempt has succeeded.
				if err := f(ctx, i); err != nil && !apierrors.IsAlreadyExists(err) {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
