// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// stage is the cluster in which a history is played.
type stage struct {
	history *history
	client  kubernetes.Interface
	oracle  *oracle
	journal *journal
	owners  []*owner

	mu  sync.Mutex
	log []string
}

func newStage(ctx context.Context, h *history) (*stage, error) {
	client, err := kubernetes.NewForConfig(cluster.RESTConfig())
	if err != nil {
		return nil, err
	}
	s := &stage{history: h, client: client, oracle: &oracle{cells: map[string]*cell{}}}
	for i, workloads := range h.cells {
		namespace := fmt.Sprintf("soak-%d-%d", h.seed, i)
		c := &cell{oracle: s.oracle, namespace: namespace, sources: map[string]content{}, versions: map[string]int64{}, workloads: map[string]*workload{}}
		for _, m := range workloads {
			c.workloads[m.name] = &workload{cell: c, name: m.name, kind: m.kind, pods: map[string]*pod{}, reloads: map[string]bool{}, known: map[string]bool{}}
		}
		s.oracle.cells[namespace] = c
		s.owners = append(s.owners, &owner{
			client: client, namespace: namespace, workloads: workloads, sources: map[string]content{},
			begins: func(ctx context.Context) error {
				return s.judge(ctx, func() {
					for _, w := range c.workloads {
						w.before = w.changes
					}
				})
			},
			together: func(ctx context.Context) error {
				return s.judge(ctx, func() {
					for _, w := range c.workloads {
						w.together()
					}
				})
			},
		})
	}
	s.journal, err = follow(ctx, cluster.EtcdURL(), s.oracle)
	return s, err
}

func (s *stage) logf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// judge calls f when the oracle has seen everything that has happened until now.
func (s *stage) judge(ctx context.Context, f func()) error {
	if err := s.journal.catchUp(ctx); err != nil {
		return err
	}
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	f()
	return nil
}

// begin creates the cells, and waits until everything is calm.
func (s *stage) begin(ctx context.Context) error {
	s.oracle.undisturbed = true
	g, gctx := errgroup.WithContext(ctx)
	for _, o := range s.owners {
		g.Go(func() error { return o.begin(gctx) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return s.calm(ctx, "begin")
}

// end cleans up for the next history.
func (s *stage) end(t *testing.T) {
	t.Helper()
	for _, o := range s.owners {
		if err := s.client.CoreV1().Namespaces().Delete(t.Context(), o.namespace, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// play plays a phase, and waits until everything is calm.
func (s *stage) play(ctx context.Context, number int, p *phase) error {
	if err := s.judge(ctx, func() { s.oracle.undisturbed = p.kind == quiet || p.kind == rekeyed }); err != nil {
		return err
	}
	var err error
	switch p.kind {
	case down:
		err = s.playDown(ctx, p)
	case noisy, stormy:
		for i, proxy := range proxies {
			proxy.noise(s.history.seed*1000 + uint64(number*replicaCount+i))
		}
		err = s.playOn(ctx, p)
	default:
		err = s.playOn(ctx, p)
	}
	for _, proxy := range proxies {
		proxy.heal()
	}
	if err != nil {
		return err
	}
	return s.calm(ctx, strconv.Itoa(number))
}

// playOn performs the operations of owners, and disturbs the servers in the meantime.
func (s *stage) playOn(ctx context.Context, p *phase) error {
	g, ctx := errgroup.WithContext(ctx)
	for i, o := range s.owners {
		g.Go(func() error {
			for _, op := range p.operations[i] {
				pause(ctx, op.pause)
				s.logf("%s: %v", o.namespace, op)
				if err := o.do(ctx, op); err != nil {
					return fmt.Errorf("%s: %v: %w", o.namespace, op, err)
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		for _, d := range p.disruptions {
			pause(ctx, d.pause)
			s.logf("%v", d)
			if err := s.disrupt(ctx, d); err != nil {
				return fmt.Errorf("%v: %w", d, err)
			}
			s.logf("%v: over", d)
		}
		return nil
	})
	return g.Wait()
}

// playDown performs the operations while no server runs.
func (s *stage) playDown(ctx context.Context, p *phase) error {
	for _, r := range server.Replicas {
		r.Kill()
	}
	err := s.judge(ctx, s.oracle.begin)
	if err == nil {
		err = s.playOn(ctx, p)
	}
	if err == nil {
		err = s.judge(ctx, s.oracle.together)
	}
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for i := range server.Replicas {
		g.Go(func() error { return s.start(ctx, i) })
	}
	return g.Wait()
}
