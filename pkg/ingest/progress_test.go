// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// progressOf is a sink that records the progress of the index with each notification.
type progressOf struct {
	mu    sync.Mutex
	calls []string
}

func (p *progressOf) note(what string, at dependency.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at.OneCounter {
		what += ", one counter"
	}
	if at.SeveralCounters {
		what += ", several counters"
	}
	p.calls = append(p.calls, fmt.Sprintf("%d-%d since %d: %s", at.Watermark, at.Latest, at.Floor, what))
}

func (p *progressOf) Synced(_ decide.Evaluator, at dependency.Progress) { p.note("synced", at) }

func (p *progressOf) Changed(_ decide.Evaluator, at dependency.Progress, _ dependency.Delta) {
	p.note("changed", at)
}

func (p *progressOf) Progressed(at dependency.Progress) { p.note("progressed", at) }

func (p *progressOf) told() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.calls
	p.calls = nil
	return out
}

// The watermark is the revision up to which all resources have been read, and the floor the
// revision before which objects may have been created and deleted unseen.
func TestProgress(t *testing.T) {
	sink := &progressOf{}
	x, _ := newTestIndex(sink, "deployments", "secrets", "jobs")
	web, db, run := newStore(x, deployments), newStore(x, secrets), newStore(x, jobs)
	step := func(what string, err error, want ...string) {
		t.Helper()
		must(t, err)
		if diff := cmp.Diff(want, sink.told()); diff != "" {
			t.Errorf("%s: notifications (-want +got):\n%s", what, diff)
		}
	}
	step("a first list", web.Replace([]any{deployment("web", 1, "db")}, "100"))
	step("another", db.Replace([]any{secret("db", 2)}, "90"))
	step("the last", run.Replace(nil, "80"), "80-100 since 100: synced")
	step("a bookmark of what is not the last", db.Bookmark("110"), "80-110 since 100: progressed")
	step("a bookmark of the last", run.Bookmark("105"), "100-110 since 100: progressed")
	step("an object comes", web.Add(deployment("api", 120)), "105-120 since 100: changed")
	step("an object changes", run.Update(workloadObject(kind.Job, "seed", 121)), "110-121 since 100: changed")
	step("an object goes, in the version of its deletion", db.Delete(secret("db", 122)), "120-122 since 100: changed")
	step("an event of what is not shown", run.Add(controlled("x", 123)), "120-123 since 100: progressed")
	step("a bookmark that is older", web.Bookmark("60"), "120-123 since 100: progressed")
	step("a bookmark that is no number", web.Bookmark("x"), "120-123 since 100: progressed")
	step("a list after a disconnection", db.Replace(nil, "130"), "120-130 since 130: progressed")
	step("a list that is older than another", run.Replace(nil, "125"), "120-130 since 130: changed")
	step("a bookmark of the last", web.Bookmark("140"), "125-140 since 130: progressed")
	if diff := cmp.Diff(dependency.Progress{Watermark: 125, Latest: 140, Floor: 130}, x.Progress()); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}

	x.Reset()
	step("with another key", nil)
	step("a first list", run.Replace(nil, "150"))
	step("another", web.Replace(nil, "145"))
	step("a relist before the sync", run.Replace(nil, "155"))
	step("the last", db.Replace(nil, "148"), "145-155 since 155: synced")
}

// asked is a request for the current revision of a stream.
type asked struct {
	after  time.Duration // since the start
	stream string
}

// probing is an index that asks for current revisions, in a synctest bubble.
type probing struct {
	*Index
	t       *testing.T
	sink    *progressOf
	streams []*stream
	synced  chan struct{}
	watches map[string]chan time.Duration
	start   time.Time
	cancel  context.CancelFunc

	mu     sync.Mutex
	asked  []asked
	answer func(stream string, n int) (uint64, error) // to the nth question
	count  map[string]int
	hold   chan struct{} // if not nil, answers wait for it
}

// probe probes three resources until the end of the test. Everything is at revision 100, and so
// are answers by default.
func probe(t *testing.T) *probing {
	t.Helper()
	p := &probing{
		t: t, sink: &progressOf{}, streams: []*stream{deployments, secrets, jobs},
		synced: make(chan struct{}), watches: map[string]chan time.Duration{},
		start: time.Now(), count: map[string]int{},
		answer: func(string, int) (uint64, error) { return 100, nil },
	}
	p.Index = newIndex(clock.RealClock{}, []string{"deployments", "secrets", "jobs"}, p.sink)
	p.begin()
	return p
}

func (p *probing) begin() {
	ctx, cancel := context.WithCancel(klog.NewContext(p.t.Context(), klog.Logger{}))
	var wg sync.WaitGroup
	for _, s := range p.streams {
		watches := make(chan time.Duration, 1)
		p.watches[s.name] = watches
		wg.Go(func() { p.probe(ctx, s, p.synced, watches, p.revision) })
	}
	p.cancel = func() {
		cancel()
		wg.Wait()
	}
	p.t.Cleanup(p.cancel)
}

func (p *probing) revision(ctx context.Context, s *stream) (uint64, error) {
	p.mu.Lock()
	n := p.count[s.name]
	p.count[s.name]++
	p.asked = append(p.asked, asked{time.Since(p.start), s.name})
	answer, hold := p.answer, p.hold
	p.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return answer(s.name, n)
}

// sync completes the first lists.
func (p *probing) sync() {
	for _, s := range p.streams {
		must(p.t, newStore(p.Index, s).Replace(nil, "100"))
	}
	close(p.synced)
	synctest.Wait()
}

// pass lets the fake time of the synctest bubble pass, which advances only when all goroutines of the test
// are blocked. So this sleep hides no race.
func (p *probing) pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // see above
	synctest.Wait()
}

// questions returns the requests since the last call, ordered by time and name.
func (p *probing) questions() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, a := range p.asked {
		out = append(out, fmt.Sprintf("%03d s: %s", int(a.after.Seconds()), a.stream))
	}
	p.asked = nil
	slices.Sort(out)
	return out
}

func (p *probing) expect(why string, want ...string) {
	p.t.Helper()
	if diff := cmp.Diff(want, p.questions()); diff != "" {
		p.t.Errorf("%s: requests (-want +got):\n%s", why, diff)
	}
}

func (p *probing) expectTold(why string, want ...string) {
	p.t.Helper()
	if diff := cmp.Diff(want, p.sink.told()); diff != "" {
		p.t.Errorf("%s: notifications (-want +got):\n%s", why, diff)
	}
}

// Revisions of resources can be compared once each resource has returned a current revision that
// is at least as new as everything that had been seen.
func TestEachResourceIsProbedOnceAfterTheSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := probe(t)
		p.pass(50 * time.Second)
		p.expect("before the sync")
		p.hold = make(chan struct{})
		p.sync()
		p.expect("after the sync", "050 s: deployments", "050 s: jobs", "050 s: secrets")
		p.expectTold("nothing is known yet", "100-100 since 100: synced")
		close(p.hold)
		synctest.Wait()
		p.expectTold("when the last has answered", "100-100 since 100: progressed, one counter")
		must(t, newStore(p.Index, secrets).Bookmark("110"))
		p.expectTold("and from then on", "100-110 since 100: progressed, one counter")
		p.pass(5 * time.Second)
		p.expect("nothing has begun to be watched")
	})
}

// An error does not count as an answer.
func TestAProbeThatFailsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := probe(t)
		failures := 8
		p.answer = func(stream string, n int) (uint64, error) {
			if stream == "jobs" && n < failures {
				return 0, errors.New("not now")
			}
			return 100, nil
		}
		p.sync()
		p.expectTold("until it is answered", "100-100 since 100: synced")
		p.pass(40 * time.Second)
		asked := p.questions()
		if n := len(asked) - 2; n < 7 || n > failures+1 {
			t.Errorf("requests = %v", asked)
		}
		p.pass(15 * time.Second)
		p.expectTold("when it is answered", "100-100 since 100: progressed, one counter")
	})
}

// A current revision below one that was seen before the request is from another counter. That
// remains so, whatever the later answers, and also with another key.
func TestARevisionThatIsTooLowIsOfAnotherCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := probe(t)
		p.sync()
		p.expectTold("at first", "100-100 since 100: synced", "100-100 since 100: progressed, one counter")
		must(t, newStore(p.Index, deployments).Bookmark("120"))
		p.expectTold("a bookmark", "100-120 since 100: progressed, one counter")
		p.answer = func(string, int) (uint64, error) { return 119, nil }
		p.watches["secrets"] <- 10 * time.Second
		p.pass(10 * time.Second)
		p.expectTold("when it is known", "100-120 since 100: progressed, several counters")
		p.answer = func(string, int) (uint64, error) { return 200, nil }
		p.watches["secrets"] <- 10 * time.Second
		p.pass(10 * time.Second)
		p.expectTold("another answer is no news")
		must(t, newStore(p.Index, secrets).Bookmark("130"))
		p.expectTold("from then on", "100-130 since 100: progressed, several counters")

		p.cancel()
		p.Reset()
		p.synced = make(chan struct{})
		p.begin()
		p.sync()
		p.expectTold("with another key", "100-130 since 100: synced, several counters")
	})
	synctest.Test(t, func(t *testing.T) {
		p := probe(t)
		p.answer = func(stream string, _ int) (uint64, error) {
			if stream == "secrets" {
				return 99, nil
			}
			return 100, nil
		}
		p.sync()
		p.expectTold("when it is so from the start", "100-100 since 100: synced", "100-100 since 100: progressed, several counters")
	})
}

// A revision below one that was seen of the same resource means that etcd was restored, which watches do not show.
func TestIndex_NoticesARestoredEtcd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := probe(t)
		p.sync()
		restarts := 0
		p.restart = func() { restarts++ }
		must(t, newStore(p.Index, secrets).Bookmark("120"))
		p.answer = func(string, int) (uint64, error) { return 120, nil }
		p.watches["secrets"] <- 10 * time.Second
		p.pass(10 * time.Second)
		if restarts != 0 {
			t.Error("everything is read again although no revision has gone back")
		}
		p.answer = func(string, int) (uint64, error) { return 119, nil }
		p.watches["secrets"] <- 10 * time.Second
		p.pass(10 * time.Second)
		if restarts != 1 || !p.hasRegressed() {
			t.Errorf("restarts = %d, want 1; hasRegressed = %t, want true", restarts, p.hasRegressed())
		}
	})
}

// If others have written so much since the restore that no revision is lower, a list shows it: what it has in a version that had been read is not
// what was read.
func TestIndex_NoticesARestoreThatWasOvertaken(t *testing.T) {
	other := secret("a", 50)
	sourceOf(other).UID = "other"
	for name, tt := range map[string]struct {
		stream   *stream
		objects  []any
		restored bool
	}{
		"nothing has happened":                        {secrets, []any{secret("a", 50), secret("b", 90)}, false},
		"an object has changed":                       {secrets, []any{secret("a", 91), secret("b", 90)}, false},
		"an object has come":                          {secrets, []any{secret("a", 50), secret("b", 90), secret("c", 91)}, false},
		"all objects are gone":                        {secrets, nil, false},
		"an object is older":                          {secrets, []any{secret("a", 49), secret("b", 90)}, true},
		"an object was written in another version":    {secrets, []any{secret("a", 51), secret("b", 90)}, true},
		"an object that was not there is from before": {secrets, []any{secret("a", 50), secret("b", 90), secret("c", 89)}, true},
		"the object that was read last was another":   {secrets, []any{secret("a", 50), secret("c", 90)}, true},
		"another object has the version":              {secrets, []any{other, secret("b", 90)}, true},
		"a workload has changed":                      {deployments, []any{deployment("web", 101, "a")}, false},
		"a workload is older":                         {deployments, []any{deployment("web", 39, "a")}, true},
		"a workload that is not shown":                {deployments, []any{deployment("web", 40, "a"), controlled("other", 30)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			x, _ := synced(t, []any{deployment("web", 40, "a")}, []any{secret("a", 50), secret("b", 90)})
			restarts := 0
			x.restart = func() { restarts++ }
			must(t, newStore(x, tt.stream).Replace(tt.objects, "200"))
			if restored := x.hasRegressed(); restored != tt.restored || restarts > 0 != tt.restored {
				t.Errorf("it is restored: %t, want %t; %d restarts", restored, tt.restored, restarts)
			}
		})
	}
	// In another version of its definition, an object may be shown that was not.
	x, _ := synced(t, nil, nil)
	served := *deployments
	served.again = true
	must(t, newStore(x, &served).Replace([]any{deployment("web", 40)}, "200"))
	if x.hasRegressed() {
		t.Error("what is served in another version is of a restored etcd")
	}
	// A list of a lower revision tells that already.
	x, _ = synced(t, nil, []any{secret("a", 50)})
	must(t, newStore(x, secrets).Replace([]any{secret("a", 49)}, "89"))
	if n := x.Progress().Restored; n != 1 {
		t.Errorf("restored %d times", n)
	}
	x, _ = synced(t, nil, nil)
	for range 2 {
		must(t, newStore(x, namespaces).Replace([]any{namespaceObject("ns", 30, nil)}, "200"))
	}
	if x.hasRegressed() {
		t.Error("namespaces that have not changed are of a restored etcd")
	}
}

// Events during the request may be newer than the answer.
func TestAnAnswerMayBeOlderThanWhatHasComeMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := probe(t)
		p.hold = make(chan struct{})
		p.sync()
		must(t, newStore(p.Index, secrets).Bookmark("150"))
		close(p.hold)
		synctest.Wait()
		p.expectTold("with the answer 100", "100-100 since 100: synced", "100-150 since 100: progressed", "100-150 since 100: progressed, one counter")
	})
}

// If nothing is written to a resource, the API server is asked shortly before the watch ends, so
// that the last bookmark is current. If there was a recent event, that is not needed.
func TestASilentResourceIsProbedBeforeItsWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := probe(t)
		p.sync()
		p.questions()
		for _, s := range p.streams {
			p.watches[s.name] <- 20 * time.Second
		}
		p.pass(5 * time.Second)
		must(t, newStore(p.Index, jobs).Add(workloadObject(kind.Job, "seed", 111)))
		p.pass(10 * time.Second)
		must(t, newStore(p.Index, secrets).Bookmark("112"))
		p.pass(5 * time.Second)
		p.expect("the first watch", "016 s: deployments", "016 s: jobs")
		p.watches["deployments"] <- 15 * time.Second
		p.watches["secrets"] <- 15 * time.Second
		p.pass(15 * time.Second)
		p.expect("the second watch", "031 s: deployments", "031 s: secrets")
		p.pass(20 * time.Second)
		p.expect("nothing is watched")
	})
}

// Nothing continues after the context is done, whatever it was waiting for: at the end of a bubble,
// no goroutine may be left.
func TestProbingEndsWithTheContext(t *testing.T) {
	for name, until := range map[string]func(*probing){
		"before the sync": func(*probing) {},
		"while an answer is awaited": func(p *probing) {
			p.hold = make(chan struct{})
			p.sync()
		},
		"while a retry is pending": func(p *probing) {
			p.answer = func(string, int) (uint64, error) { return 0, errors.New("not now") }
			p.sync()
		},
		"while nothing is watched": func(p *probing) { p.sync() },
		"during a watch": func(p *probing) {
			p.sync()
			p.watches["secrets"] <- time.Hour
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := probe(t)
				until(p)
				synctest.Wait()
				p.questions()
				p.cancel()
				p.pass(time.Hour)
				p.expect("after the end")
			})
		})
	}
}
