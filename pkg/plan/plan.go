// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package plan predicts when workloads will be restarted, and in which order. It runs the same decisions and the same planner that restart workloads,
// with a simulated clock. It assumes that nothing else happens, and that each restart takes as long as the last one of the workload.
package plan

import (
	"cmp"
	"container/heap"
	"context"
	"math"
	"slices"
	"time"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/wave"
)

// Plan is a prediction of restarts.
type Plan struct {
	At time.Time
	// Restarts are, in this order: restarts in progress, restarts that will begin, and restarts whose beginning cannot be predicted.
	Restarts []Restart
	// Cut: the prediction ended early, and more restarts may follow.
	Cut bool
}

// Restart is a restart of one workload.
type Restart struct {
	Workload dependency.WorkloadKey
	// Position is its place among the restarts that have yet to begin, from 1; 0: it is in progress, or its beginning cannot be predicted.
	Position int
	// Begins and Ends are approximate; zero: the time cannot be predicted. A restart that has begun and has no end fails.
	Begins, Ends time.Time
	// Shown is the state of the workload now or, if the restart is not due yet, when it becomes due, and why the restart has to wait.
	Shown
}

// Shown is what a workload waits for.
type Shown struct {
	State           decide.State
	Reason, Message string
}

// The limits of a prediction.
const (
	maxAhead = 31 * 24 * time.Hour
	// stepsPerWorkload is how many steps a workload may take, on average. A restart takes about five.
	stepsPerWorkload = 10
	fewSteps         = 10_000
)

// Of predicts the restarts of all workloads after a time. At most maxInProgress of them may be in progress at once, whatever policies say; negative: any
// number. If the context is done, the prediction ends early.
func Of(ctx context.Context, now decide.Evaluator, maxInProgress int, at time.Time) *Plan {
	f := &future{evaluator: now, clock: at, restarts: map[dependency.WorkloadKey]*restart{}}
	f.planner = wave.New(maxInProgress, f, func(changed, admitted []dependency.WorkloadKey) {
		for _, key := range append(admitted, changed...) {
			f.look(key, f.clock)
		}
	})
	f.evaluator.Waves = f
	f.planner.Lead(true)
	sweep := f.planner.Unready()
	steps := fewSteps
	now.Graph.EachWorkload(func(w *dependency.Workload) {
		steps += stepsPerWorkload
		if ctx.Err() == nil {
			f.step(w.WorkloadKey)
		}
	})
	f.planner.Ready(sweep)
	for len(f.looks) > 0 && ctx.Err() == nil {
		next := heap.Pop(&f.looks).(look) //nolint:forcetypeassert // it is its own
		if next.at.Sub(at) > maxAhead {
			continue
		}
		if steps--; steps < 0 {
			break
		}
		f.clock = next.at
		f.step(next.key)
	}
	return f.plan(at, steps < 0 || ctx.Err() != nil)
}

// future is the cluster at a later time.
type future struct {
	evaluator decide.Evaluator
	planner   *wave.Planner
	clock     time.Time
	looks     looks
	number    int // of looks that have been made
	restarts  map[dependency.WorkloadKey]*restart
	begun     int
	// noted is what the planner was told last, and hold what it said.
	noted *wave.Member
	hold  *wave.Hold
}

// restart is a Restart, and what has yet to happen.
type restart struct {
	Restart

	due   time.Time // since when it waits only for others
	later Shown     // for what it waits later
	takes time.Duration
	// member is what the planner knows about it since it began; nil: it has not begun.
	member *wave.Member
}

// Now implements clock.PassiveClock.
func (f *future) Now() time.Time { return f.clock }

// Since implements clock.PassiveClock.
func (f *future) Since(t time.Time) time.Duration { return f.clock.Sub(t) }

// Hold implements decide.Waves.
func (f *future) Hold(m *wave.Member) *wave.Hold {
	f.noted, f.hold = m, f.planner.Note(m)
	return f.hold
}

func (f *future) look(key dependency.WorkloadKey, at time.Time) {
	f.number++
	heap.Push(&f.looks, look{at, f.number, key})
}

// step simulates what the controller does when it handles a workload, and what happens to its pods.
func (f *future) step(key dependency.WorkloadKey) {
	r := f.restarts[key]
	if r != nil && r.member != nil {
		f.goOn(r)
		return
	}
	e := f.evaluator.Evaluate(f.evaluator.Graph.Workload(key))
	d := e.Decide(f.clock)
	m := f.noted
	awaits := d.Awaits() || d.State == decide.Blocked && d.Stale
	if r == nil && (m.Unfinished || awaits) {
		r = &restart{Restart: Restart{Workload: key}}
		f.restarts[key] = r
	}
	switch {
	case len(m.Fails) > 0 && !m.Due: // it may recover at any time, or never
		r.member = m
		r.Begins, _ = e.Restart(&d)
		if r.Shown = (Shown{d.State, d.Reason, d.Message}); d.Fails != "" {
			r.Message += " It fails: " + d.Fails + "."
		}
		return
	case m.InProgress && !m.Due:
		r.member = m
		r.Shown = Shown{d.State, d.Reason, d.Message}
		if r.Begins, r.takes = e.Restart(&d); r.Begins.IsZero() {
			r.Begins = f.clock
		}
		r.Ends = r.Begins.Add(r.takes)
		if late := f.clock.Sub(r.Ends); late > 0 { // as much again
			r.Ends = f.clock.Add(late)
		}
		f.look(key, r.Ends)
		return
	case r != nil:
		if m.Due && r.due.IsZero() {
			r.due = f.clock
		}
		r.later = Shown{d.State, d.Reason, d.Message}
		switch {
		case f.hold != nil && f.hold.Why == wave.Order && f.hold.By.Name == "": // it is not known yet whether it has to wait
		case d.Action == decide.RollOut && r.Shown != (Shown{}): // what it waited for stays shown
		case r.due.IsZero() || !f.clock.After(r.due.Add(wave.Gathering)):
			r.Shown = r.later
		}
	}
	switch {
	case m.Due && d.Action == decide.RollOut && f.begin(key):
		f.begun++
		r.Position, r.Begins = f.begun, f.clock
		_, r.takes = e.Restart(&d)
		r.Ends = f.clock.Add(r.takes)
		begun := *m
		begun.Due, begun.InProgress, begun.Unfinished, begun.Began = false, true, true, begun.For
		r.member = &begun
		f.planner.Note(r.member)
		f.look(key, r.Ends)
	case f.hold != nil && !f.hold.Again.IsZero():
		f.look(key, f.hold.Again)
	case f.hold == nil && d.State != decide.Blocked && d.RecheckAt.After(f.clock) && (awaits || m.Matters()):
		f.look(key, d.RecheckAt)
	}
}

func (f *future) begin(key dependency.WorkloadKey) bool {
	may, _ := f.planner.Begin(key)
	return may
}

// goOn ends a restart that is in progress, and later the time for which others wait for it.
func (f *future) goOn(r *restart) {
	if r.Ends.IsZero() || f.clock.Before(r.Ends) {
		return
	}
	m := *r.member
	m.InProgress, m.Unfinished, m.Began, m.Baking = false, false, nil, nil
	for _, p := range m.Policies {
		if until := r.Ends.Add(p.BakeTime); f.clock.Before(until) {
			m.Baking = append(m.Baking, p)
			f.look(r.Workload, until)
		}
	}
	f.planner.Note(&m)
}

func (f *future) plan(at time.Time, cut bool) *Plan {
	out := &Plan{At: at, Restarts: make([]Restart, 0, len(f.restarts)), Cut: cut}
	for _, r := range f.restarts {
		if r.member == nil {
			r.Shown = r.later
		}
		out.Restarts = append(out.Restarts, r.Restart)
	}
	slices.SortFunc(out.Restarts, func(a, b Restart) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), a.Begins.Compare(b.Begins), cmp.Compare(a.Workload.Namespace, b.Workload.Namespace), cmp.Compare(a.Workload.ViewName(), b.Workload.ViewName()))
	})
	return out
}

func (r *Restart) rank() int {
	if r.Begins.IsZero() {
		return math.MaxInt
	}
	return r.Position
}

// look is when a workload will be looked at.
type look struct {
	at     time.Time
	number int
	key    dependency.WorkloadKey
}

// looks implements heap.Interface.
type looks []look

func (l looks) Len() int { return len(l) }
func (l looks) Less(i, j int) bool {
	return cmp.Or(l[i].at.Compare(l[j].at), l[i].number-l[j].number) < 0
}
func (l looks) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l *looks) Push(x any)   { *l = append(*l, x.(look)) } //nolint:forcetypeassert // it is its own
func (l *looks) Pop() any {
	last := len(*l) - 1
	out := (*l)[last]
	*l = (*l)[:last]
	return out
}
