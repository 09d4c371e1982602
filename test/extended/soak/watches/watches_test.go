// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/hop"
)

// history is how long a replica keeps events.
const history = 2 * time.Minute

// soak is one run.
type soak struct {
	t        *testing.T
	replicas []*replica
	hopper   *hop.Hopper
	churn    *hop.Churn
	clients  []*hop.Client
	rand     *rand.Rand
	changes  int
	restarts int
	// lastRestart is when the last replica that was killed or stopped was ready again.
	lastRestart time.Time
}

func TestWatches(t *testing.T) {
	s := newSoak(t)
	if err := s.churn.Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.calm()
	alone := s.metrics(goroutines)
	leftAlone := goleak.IgnoreCurrent()

	// client-go logs each connection that is cut.
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	var running, looking sync.WaitGroup
	defer running.Wait()
	defer looking.Wait()
	defer stop()
	began := time.Now()
	s.clients = newClients(t, s.hopper)
	for _, c := range s.clients {
		running.Go(func() { c.Run(ctx) })
	}
	looking.Go(func() { s.look(ctx) })
	s.calm()
	if now := s.metrics(goroutines); sum(now) < sum(alone)+float64(len(s.clients)) {
		t.Errorf("goroutines: %v with clients, %v without, want more with clients", now, alone)
	}
	for round := 0; round == 0 || time.Since(began) < how.duration; round++ {
		if err := s.round(how.duration == 0 || time.Since(began) < how.duration/3); err != nil {
			t.Fatal(err)
		}
		took, last := s.calm()
		s.say("round %d: %d changes and %d restarts so far; calm after %.1f s, until when %.100q; goroutines %v, events kept %v, heap %v",
			round, s.changes, s.restarts, took.Seconds(), last, s.metrics(goroutines), s.metrics(eventsKept), s.metrics(heap))
	}

	stop()
	running.Wait()
	looking.Wait()
	s.hopper.Close()
	await.Until(s.t, "all goroutines for clients have ended", func(context.Context) error {
		for _, r := range s.replicas {
			r.hangUp() // the client that measures the replica has a connection, too
		}
		return goleak.Find(leftAlone, goleak.IgnoreAnyFunction("github.com/configdep/configdep/test/install.(*Replica).Start.func1"),
			goleak.IgnoreAnyFunction("github.com/configdep/configdep/test/install.(*balancer).serve"),
			goleak.IgnoreAnyFunction("github.com/configdep/configdep/test/install.(*balancer).serve.func1"))
	})
	// One replica leads, which needs some more goroutines, and the connections of the API server come and go; each
	// watch needs several.
	most := slices.Max(alone) + float64(len(s.clients)/2)
	for i, r := range s.replicas {
		await.Until(s.t, r.Name()+" has as many goroutines as before", func(ctx context.Context) error {
			n, err := r.metric(ctx, goroutines)
			if err == nil && n > most {
				err = fmt.Errorf("goroutines = %v, were %v", n, alone[i])
			}
			return err
		})
	}
	s.say("goroutines before %v, at the end %v", alone, s.metrics(goroutines))
	s.judgeClients()
	s.judgeMemory()
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	s := &soak{t: t, rand: rand.New(rand.NewPCG(how.seed, 1))}
	var addresses []string
	for _, r := range server.Replicas {
		s.replicas = append(s.replicas, &replica{Replica: r, client: client(t, r.AdminConfig())})
		addresses = append(addresses, r.Address())
	}
	var err error
	if s.hopper, err = hop.New(addresses...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.hopper.Close)
	core, err := dynamic.NewForConfig(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	var namespaces []string
	for i := range how.namespaces {
		namespaces = append(namespaces, fmt.Sprintf("soak-%d", i))
	}
	s.churn = hop.NewChurn(core, how.seed, how.workloads, namespaces...)
	return s
}

// newClients returns clients of all kinds, each with all selections.
func newClients(t *testing.T, h *hop.Hopper) (out []*hop.Client) {
	t.Helper()
	labelled := func(value string) func(*v1alpha1.ConfigDependency) bool {
		return func(o *v1alpha1.ConfigDependency) bool { return o.Labels[hop.Label] == value }
	}
	state := func(want v1alpha1.State) func(*v1alpha1.ConfigDependency) bool {
		return func(o *v1alpha1.ConfigDependency) bool { return o.Status.State == want }
	}
	for _, s := range []hop.Selection{
		{},
		{Labels: hop.Label + "=yes", Matches: labelled("yes")},
		{Namespace: "soak-0"},
		{Namespace: "soak-1"},
		{Namespace: "soak-1", Labels: hop.Label + "=no", Matches: labelled("no")},
		{Namespace: "soak-2", Fields: "status.state=Stale", Matches: state(v1alpha1.StateStale)},
		{Fields: "status.state=Blocked", Matches: state(v1alpha1.StateBlocked)},
		{Fields: "status.state=RollingOut", Matches: state(v1alpha1.StateRollingOut)},
		{Fields: "source=Secret/source-000", Matches: func(o *v1alpha1.ConfigDependency) bool {
			return slices.ContainsFunc(o.Spec.Sources, func(s v1alpha1.Source) bool {
				return s.Kind == v1alpha1.SourceSecret && s.Name == "source-000"
			})
		}},
		{Fields: "spec.workloadRef.kind=CronJob", Matches: func(o *v1alpha1.ConfigDependency) bool { return o.Spec.WorkloadRef.Kind == "CronJob" }},
	} {
		for kind := range 4 {
			through := client(t, h.Config(server.Replicas[0].AdminConfig()))
			switch kind {
			case 0, 1:
				out = append(out, hop.NewFollower(through, s, int64(kind*how.workloads/3)))
			default:
				out = append(out, hop.NewInformer(through, s, kind == 3))
			}
		}
	}
	return out
}

// say prints a line at once, because the test takes long.
func (s *soak) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// metrics returns the value of a metric of each replica.
func (s *soak) metrics(name string) (out []float64) {
	s.t.Helper()
	for _, r := range s.replicas {
		n, err := r.metric(s.t.Context(), name)
		if err != nil {
			s.t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

func sum(values []float64) (sum float64) {
	for _, v := range values {
		sum += v
	}
	return sum
}

// look measures the memory of the replicas, until the context is done.
func (s *soak) look(ctx context.Context) {
	tick := time.NewTicker(how.sample)
	defer tick.Stop()
	for {
		for _, r := range s.replicas {
			if err := r.look(); err != nil {
				s.t.Error(err)
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// every calls f at a pace until the context is done.
func every(ctx context.Context, pace time.Duration, f func() error) error {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := f(); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// round changes everything for a while, and cuts connections. A replica may be killed, and then another one
// stopped gracefully, as in a rolling update.
func (s *soak) round(restart bool) error {
	ctx := s.t.Context()
	over, cancel := context.WithTimeout(ctx, how.round)
	defer cancel()
	var g errgroup.Group
	g.Go(func() error {
		return every(over, 25*time.Millisecond, func() error {
			if s.changes++; s.changes%1000 == 500 {
				return s.churn.Touch(ctx)
			}
			_, err := s.churn.Step(ctx)
			return err
		})
	})
	g.Go(func() error {
		return every(over, 100*time.Millisecond, func() error {
			if s.rand.IntN(60) == 0 {
				s.hopper.Cut()
			} else {
				s.hopper.CutOne()
			}
			return nil
		})
	})
	if restart {
		killed, stopped := s.replicas[s.restarts%len(s.replicas)], s.replicas[(s.restarts+1)%len(s.replicas)]
		s.restarts += 2
		g.Go(func() error {
			err := wait.PollUntilContextCancel(ctx, how.round/4, false, func(ctx context.Context) (bool, error) {
				return true, killed.restart(ctx, func() error { killed.Kill(); return nil })
			})
			if err != nil {
				return err
			}
			if err := stopped.restart(ctx, stopped.Terminate); err != nil {
				return err
			}
			s.lastRestart = time.Now()
			return nil
		})
	}
	return g.Wait()
}

// calm waits until each replica shows the current state, and each client holds it. It returns how long that took,
// and the last difference.
func (s *soak) calm() (took time.Duration, last string) {
	s.t.Helper()
	began := time.Now()
	await.Until(s.t, "all replicas and clients have the current state", func(ctx context.Context) (err error) {
		defer func() {
			if err != nil {
				last = err.Error()
			}
		}()
		var first map[string]*v1alpha1.ConfigDependency
		for _, r := range s.replicas {
			views, err := hop.List(ctx, r.client)
			if err == nil {
				err = s.churn.Check(ctx, views)
			}
			if err == nil && first != nil {
				err = hop.Diff(first, views)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", r.Name(), err)
			}
			first = views
		}
		for _, c := range s.clients {
			if err := hop.Diff(c.Of(first), c.Copy()); err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
		}
		return nil
	})
	return time.Since(began), last
}

func (s *soak) judgeClients() {
	s.t.Helper()
	var tallies []string
	for _, c := range s.clients {
		tally, err := c.Tally()
		if tallies = append(tallies, c.Name+": "+tally); err != nil {
			s.t.Errorf("%s: %v", c.Name, err)
		}
	}
	s.t.Log(strings.Join(tallies, "\n"))
}

// judgeMemory reports whether the memory grows, after each replica has kept events for as long as it keeps any.
func (s *soak) judgeMemory() {
	s.t.Helper()
	since := s.lastRestart.Add(history + 30*time.Second)
	for _, r := range s.replicas {
		s.say("%s", r.print())
		before, after, judged := r.grown(since)
		switch {
		case !judged && how.duration >= 12*time.Minute:
			s.t.Error(errors.New("too few samples to judge the memory"))
		case judged:
			s.say("%s: %.0f MB in the last quarter, %.0f MB in the one before", r.Name(), after, before)
			if after > 1.2*before {
				s.t.Errorf("the memory of %s grows: %.0f MB after %.0f MB", r.Name(), after, before)
			}
		}
	}
}
