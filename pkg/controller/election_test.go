// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// lease is a lease for which replicas compete.
type lease struct {
	mu      sync.Mutex
	record  *resourcelock.LeaderElectionRecord
	version int
	// access can make requests of a replica fail or take long; nil: none.
	access func(ctx context.Context, identity string) error
}

// holder returns the identity of the holder of the lease.
func (l *lease) holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record == nil {
		return ""
	}
	return l.record.HolderIdentity
}

func (l *lease) accessing(f func(ctx context.Context, identity string) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.access = f
}

// lock is the lock of one replica for the lease.
type lock struct {
	*lease
	identity string
	seen     int
}

var _ resourcelock.Interface = &lock{}

func (l *lock) enter(ctx context.Context) error {
	l.mu.Lock()
	access := l.access
	l.mu.Unlock()
	if access != nil {
		if err := access(ctx, l.identity); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := l.enter(ctx); err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record == nil {
		return nil, nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), "configdep")
	}
	l.seen = l.version
	record := *l.record
	raw, err := json.Marshal(record)
	return &record, raw, err
}

func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, func() bool { return l.record == nil })
}

func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, func() bool { return l.version == l.seen })
}

func (l *lock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, allowed func() bool) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !allowed() {
		return apierrors.NewConflict(coordinationv1.Resource("leases"), "configdep", errors.New("it is another version"))
	}
	l.version++
	l.seen, l.record = l.version, &record
	return nil
}

func (l *lock) RecordEvent(string) {}
func (l *lock) Identity() string   { return l.identity }
func (l *lock) Describe() string   { return "a lease" }

// replica takes part in an election.
type replica struct {
	start time.Time
	stop  context.CancelFunc
	ended chan struct{} // Run has returned

	mu     sync.Mutex
	events []string
	leads  bool
	// linger is how long lead takes to return.
	linger time.Duration
}

func (r *replica) note(event string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, fmt.Sprintf("%v %s", time.Since(r.start).Round(time.Second), event))
	r.leads = event == "leads"
}

func (r *replica) leading() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leads
}

func (r *replica) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if diff := cmp.Diff(want, r.events); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
	r.events = nil
}

// compete begins to take part. During lead the replica records that it leads.
func compete(t *testing.T, l *lease, identity string, linger time.Duration) *replica {
	t.Helper()
	ctx := klog.NewContext(context.WithoutCancel(t.Context()), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&lockedBuffer{}))))
	ctx, stop := context.WithCancel(ctx)
	r := &replica{start: time.Now(), stop: stop, ended: make(chan struct{}), linger: linger}
	e := &Election{
		Lock:          &lock{lease: l, identity: identity},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 3 * time.Second,
	}
	go func() {
		defer close(r.ended)
		e.Run(ctx, func(ctx context.Context) {
			r.note("leads")
			<-ctx.Done()
			if r.linger > 0 {
				r.note("is told to end")
				<-time.After(r.linger)
			}
			r.note("has ended")
		})
	}()
	t.Cleanup(func() {
		stop()
		l.accessing(nil)
		<-r.ended
	})
	synctest.Wait()
	return r
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestElection_LeaseIsGivenUpWhenTheLeaderHasEnded, neither earlier nor much later.
func TestElection_LeaseIsGivenUpWhenTheLeaderHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{}
		a := compete(t, l, "a", 3*time.Second)
		b := compete(t, l, "b", 0)
		pass(time.Hour)
		a.expect(t, "a", "0s leads")
		b.expect(t, "b")

		a.stop()
		pass(2999 * time.Millisecond)
		if l.holder() != "a" {
			t.Errorf("before a has ended, holder = %q, want a", l.holder())
		}
		pass(time.Millisecond)
		<-a.ended
		if l.holder() != "" {
			t.Errorf("after a has ended, holder = %q, want none", l.holder())
		}
		a.expect(t, "a", "1h0m0s is told to end", "1h0m3s has ended")
		pass(7 * time.Second) // b retries every 3 s, or up to 2.2 times as long at random
		if !b.leading() {
			t.Error("b does not lead")
		}
	})
}

// TestElection_LosingTheLeaseEndsTheLeaderAndNothingElse: the replica competes again.
func TestElection_LosingTheLeaseEndsTheLeaderAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{}
		a := compete(t, l, "a", 0)
		pass(time.Minute)
		a.expect(t, "at first", "0s leads")
		l.accessing(func(context.Context, string) error { return errors.New("no route to host") })
		pass(time.Minute)
		a.expect(t, "without access for longer than the deadline", "1m13s has ended")
		l.accessing(nil)
		pass(time.Minute)
		if !a.leading() {
			t.Error("the replica does not lead again")
		}
	})
}

// TestElection_LeaderEndsBeforeItsLeaseExpires, even if the API server does not answer at all, and
// takes as long for the release.
func TestElection_LeaderEndsBeforeItsLeaseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{}
		a := compete(t, l, "a", 0)
		b := compete(t, l, "b", 0)
		pass(time.Minute)
		l.accessing(func(ctx context.Context, identity string) error {
			if identity != "a" {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		for range 60 {
			pass(time.Second)
			if a.leading() && b.leading() {
				t.Fatal("two replicas lead")
			}
		}
		if !b.leading() {
			t.Error("b does not lead")
		}
		if l.holder() != "b" {
			t.Errorf("the lease is that of %q", l.holder())
		}
	})
}

// TestElection_LeaseIsNotReleasedBesideTheLeader: access works again between the last attempt to renew
// the lease and the deadline, while the leader is ending.
func TestElection_LeaseIsNotReleasedBesideTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{}
		a := compete(t, l, "a", 4*time.Second)
		pass(61 * time.Second)
		l.accessing(func(context.Context, string) error { return errors.New("no route to host") })
		pass(11500 * time.Millisecond) // attempts at 63, 66, 69 and 72 s
		l.accessing(nil)
		pass(500 * time.Millisecond)
		a.expect(t, "at the deadline", "0s leads", "1m13s is told to end")
		for range 39 {
			if l.holder() != "a" {
				t.Fatalf("before a has ended, holder = %q, want a", l.holder())
			}
			pass(100 * time.Millisecond)
		}
		pass(time.Second)
		a.expect(t, "after that", "1m17s has ended", "1m17s leads")
	})
}

// TestElection_LeaseThatAnotherClientHasTakenIsLeftToIt: the replica neither leads with it nor releases it.
func TestElection_LeaseThatAnotherClientHasTakenIsLeftToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{}
		a := compete(t, l, "a", 0)
		pass(time.Minute)
		l.mu.Lock()
		l.record.HolderIdentity, l.record.LeaseDurationSeconds = "other", 3600
		l.version++
		l.mu.Unlock()
		pass(time.Minute)
		if a.leading() {
			t.Error("a leads with the lease of another client")
		}
		if l.holder() != "other" {
			t.Errorf("the lease is that of %q", l.holder())
		}
		a.stop()
		<-a.ended
		if l.holder() != "other" {
			t.Errorf("the lease is that of %q", l.holder())
		}
	})
}

func TestElection_ReplicaThatNeverLedEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{}
		compete(t, l, "a", 0)
		b := compete(t, l, "b", 0)
		pass(time.Minute)
		begin := time.Now()
		b.stop()
		<-b.ended
		if waited := time.Since(begin); waited > 0 {
			t.Errorf("Run took %v to return", waited)
		}
		b.expect(t, "b")
		if l.holder() != "a" {
			t.Errorf("the lease is that of %q", l.holder())
		}
	})
}

// A leader that takes longer to end than its lease lasts keeps the lease until then, so no other replica leads
// at the same time.
func TestElection_LeaseIsHeldUntilASlowLeaderHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{}
		a := compete(t, l, "a", 2*time.Minute)
		b := compete(t, l, "b", 0)
		pass(time.Minute)
		a.stop()
		pass(2*time.Minute - time.Millisecond)
		if l.holder() != "a" || b.leading() {
			t.Errorf("before a has ended: holder = %q, b leads: %v", l.holder(), b.leading())
		}
		pass(time.Minute)
		if !b.leading() {
			t.Error("b does not lead after a has ended")
		}
	})
}

// The API server rejects a lease with a duration of 0, so it would not be released.
func TestElection_LeaseThatIsGivenUpIsValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{}
		a := compete(t, l, "a", 0)
		a.stop()
		<-a.ended
		if l.holder() != "" || l.record.LeaseDurationSeconds < 1 {
			t.Errorf("released lease = %+v", l.record)
		}
	})
}

// A lease that is acquired while the replica ends is not used.
func TestTurn_IsNotTakenOnceItHasEnded(t *testing.T) {
	late := newTurn()
	late.end()
	late.take(func() { t.Error("the function is called after the end") })
	late.end()
}

// TestElection_NeverTwoLeaders starts and stops three replicas for a day, with a lease that they often
// cannot access.
func TestElection_NeverTwoLeaders(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			var mu sync.Mutex
			coin := rand.New(rand.NewPCG(seed, 8))
			broken := map[string]time.Time{}
			l := &lease{}
			l.access = func(ctx context.Context, identity string) error {
				mu.Lock()
				until := broken[identity]
				slow := coin.IntN(2) == 0
				mu.Unlock()
				switch wait := time.Until(until); {
				case wait <= 0:
					return nil
				case slow:
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(wait):
						return nil
					}
				default:
					return errors.New("no route to host")
				}
			}
			names := []string{"a", "b", "c"}
			replicas := map[string]*replica{}
			terms, led := 0, time.Duration(0)
			for step := range 2000 {
				name := names[r.IntN(3)]
				switch x := r.IntN(20); {
				case replicas[name] == nil:
					replicas[name] = compete(t, l, fmt.Sprint(name, step), 0)
					mu.Lock()
					broken[fmt.Sprint(name, step)] = time.Now()
					mu.Unlock()
				case x == 0:
					replicas[name].stop()
					<-replicas[name].ended
					delete(replicas, name)
				case x < 3:
					mu.Lock()
					for identity := range broken {
						if identity[:1] == name {
							broken[identity] = time.Now().Add(time.Duration(r.IntN(40)) * time.Second)
						}
					}
					mu.Unlock()
				}
				d := time.Duration(r.IntN(4000)) * time.Millisecond
				pass(d)
				leaders := 0
				for _, p := range replicas {
					if p.leading() {
						leaders++
					}
				}
				if leaders > 1 {
					t.Fatalf("seed %d, step %d: %d replicas lead", seed, step, leaders)
				}
				if leaders == 1 {
					terms++
					led += d
				}
			}
			if terms < 1000 {
				t.Errorf("seed %d: a replica led in %d of 2000 steps, for %v", seed, terms, led)
			}
		})
	}
}
