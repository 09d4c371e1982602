// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package wave decides which due workloads may be restarted now, so that the many restarts that one change causes happen in sequence: within the
// budgets of policies, in the order that owners and policies ask for, fairly between namespaces, and not at all for content with which other workloads
// fail.
//
// A Planner knows only what the cluster says about each workload. It stores nothing, so nothing is lost with a leader, and all replicas give the same
// answers. A call takes time logarithmic in the number of workloads, and as much again for each workload whose answer has changed. The answer about a
// waiting workload depends only on its group and its budgets, and not on the workloads ahead of it. So a wave of N workloads changes N answers, and not N
// for each restart.
package wave

import (
	"container/heap"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/apis/policy/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/limit"
)

// Planner plans restarts. Its methods are safe for concurrent use.
type Planner struct {
	max   int
	clock clock.PassiveClock

	mu      sync.Mutex
	tell    Tell
	leading bool
	ready   bool // all workloads have been noted since this replica leads
	members map[dependency.WorkloadKey]*member
	groups  map[groupKey]*group
	buckets map[bucketKey]*bucket
	lanes   map[string]*lane
	ids     int
	sweeps  int // counts Unready
	touched touched
}

// touched is what the current call has changed.
type touched struct {
	groups  map[*group]struct{}
	buckets map[*bucket]struct{}
	lanes   map[*lane]struct{}
	// members are those whose answer may have changed, and admitted are those whose restart may begin.
	members  map[*member]struct{}
	admitted []dependency.WorkloadKey
}

// member is a workload that has been noted.
type member struct {
	Member
	groups  []*group  // of For
	fails   []*group  // of Fails
	reads   []*group  // of Reads
	ordered []*group  // the same, of one with an order of its own
	buckets []*bucket // in which it needs room, of For
	began   []*bucket // that count it as in progress, of Began
	totals  []*bucket // that count it as one of all

	// admitted: its restart may begin, and counts as in progress. begun: it has begun, so that another one has to wait for its turn.
	admitted, begun bool
	lane            *lane // in which it waits; nil: it does not, or its groups hold it
	index           int   // in its queue
	told            Hold  // but for Again
	waited          bool  // since it became due
	sweep           int   // in which it was last noted
	// since is since when it has been due, and gathered says that others that became due then have been noted.
	since    time.Time
	gathered bool
}

// Gathering is how long a workload waits for others to be noted, if an order was given. The controller handles workloads in the order in which they
// changed, so a workload that is noted again after this time comes after all others that the same change affects.
const Gathering = time.Second

// Tell is called with workloads whose answer has changed since they were noted, and with those whose restarts may begin. It must not wait for anything.
type Tell func(changed, admitted []dependency.WorkloadKey)

// New returns a Planner. At most maxInProgress restarts may be in progress, whatever policies say; negative: any number.
func New(maxInProgress int, c clock.PassiveClock, tell Tell) *Planner {
	return &Planner{
		max: maxInProgress, clock: c, tell: tell,
		members: map[dependency.WorkloadKey]*member{}, groups: map[groupKey]*group{}, buckets: map[bucketKey]*bucket{}, lanes: map[string]*lane{},
	}
}

// insert adds an element to a set, which may be nil, as most are empty most of the time.
func insert[K comparable](set *map[K]struct{}, key K) {
	if *set == nil {
		*set = map[K]struct{}{}
	}
	(*set)[key] = struct{}{}
}

// Lead notes whether this replica restarts workloads. No restart may begin until all workloads have been noted since a call of Unready, and Ready has
// been called.
func (p *Planner) Lead(is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leading, p.ready = is, false
	p.sweeps++
	for _, m := range p.members {
		if m.admitted {
			p.detach(m)
			m.admitted = false
			p.attach(m)
		}
	}
	p.settle()
	p.touched = touched{}
}

// Limited reports whether a number of restarts is the limit, whatever policies say.
func (p *Planner) Limited() bool { return p.max >= 0 }

// Unready notes that workloads may have been noted with outdated policies: no restart may begin until Ready is called with the number that Unready
// returns.
func (p *Planner) Unready() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = false
	p.sweeps++
	return p.sweeps
}

// Ready notes that all workloads have been noted since a call of Unready, unless there was another one since. Those that have not are gone.
func (p *Planner) Ready(since int) {
	p.mu.Lock()
	if since != p.sweeps {
		p.mu.Unlock()
		return
	}
	p.ready = true
	for key, m := range p.members {
		if m.sweep != p.sweeps {
			p.detach(m)
			delete(p.members, key)
		}
	}
	for _, l := range p.lanes {
		insert(&p.touched.lanes, l)
	}
	for _, b := range p.buckets {
		insert(&p.touched.buckets, b)
	}
	p.work()
	p.finish(dependency.WorkloadKey{})
}

// Note notes what is now known about a workload, and returns what its restart waits for; nil: nothing.
func (p *Planner) Note(n *Member) *Hold {
	p.mu.Lock()
	p.note(n)
	p.work()
	hold := p.hold(n.WorkloadKey)
	if m := p.members[n.WorkloadKey]; m != nil && (hold != nil || m.told != Hold{}) {
		insert(&p.touched.members, m)
	}
	p.finish(n.WorkloadKey)
	return hold
}

// tell notes the answer about a workload, and returns it.
func (m *member) tell(h *Hold) Hold {
	if m.told = (Hold{}); h != nil {
		m.waited = true
		m.told = *h
		m.told.Again = time.Time{}
	}
	return m.told
}

func (p *Planner) note(n *Member) {
	m := p.members[n.WorkloadKey]
	if m != nil {
		m.sweep = p.sweeps
	}
	switch {
	case m == nil:
	case m.begun || !m.same(n):
		p.detach(m)
		delete(p.members, n.WorkloadKey)
	case n.Due && !m.gathered && !p.clock.Now().Before(m.since.Add(Gathering)):
		p.detach(m)
		m.gathered = true
		p.attach(m)
		return
	default:
		if m.lane != nil { // time may have opened or closed a budget
			insert(&p.touched.lanes, m.lane)
			for _, b := range m.buckets {
				insert(&p.touched.buckets, b)
			}
		}
		return
	}
	if !n.Matters() {
		return
	}
	now := &member{Member: *n, since: p.clock.Now(), sweep: p.sweeps}
	if m != nil && m.Due && n.Due && !m.begun {
		now.admitted, now.since, now.gathered, now.told, now.waited = m.admitted, m.since, m.gathered, m.told, m.waited
	}
	p.members[n.WorkloadKey] = now
	p.attach(now)
}

// Hold is Note for callers that restart nothing. While this replica leads, it notes nothing, because such callers may know less than the controller.
func (p *Planner) Hold(n *Member) *Hold {
	p.mu.Lock()
	if !p.leading {
		p.mu.Unlock()
		return p.Note(n)
	}
	defer p.mu.Unlock()
	if !n.Due {
		return nil
	}
	return p.hold(n.WorkloadKey)
}

// Begin reports whether the due restart of a workload may begin, and whether it had to wait for others. If it may, it counts as in progress from then on.
func (p *Planner) Begin(key dependency.WorkloadKey) (may, waited bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.members[key]
	if m == nil || !m.Due {
		return false, false
	}
	m.begun = m.admitted
	return m.admitted, m.waited
}

// work draws the conclusions from what has been noted.
func (p *Planner) work() {
	p.settle()
	if p.leading && p.ready {
		p.pick()
		p.settle()
	}
}

// finish ends a call about a workload, and tells of others, and of that one if views may have asked before.
func (p *Planner) finish(of dependency.WorkloadKey) {
	var changed []dependency.WorkloadKey
	for m := range p.touched.members {
		if told := m.told; !m.admitted && m.tell(p.hold(m.WorkloadKey)) != told && (p.leading || m.WorkloadKey != of) {
			changed = append(changed, m.WorkloadKey)
		}
	}
	admitted := slices.DeleteFunc(p.touched.admitted, func(key dependency.WorkloadKey) bool { return key == of })
	p.touched = touched{}
	p.mu.Unlock()
	if len(changed)+len(admitted) > 0 && p.tell != nil {
		p.tell(changed, admitted)
	}
}

// attach counts a workload.
func (p *Planner) attach(m *member) {
	m.groups, m.fails, m.reads, m.ordered, m.buckets, m.began, m.totals = nil, nil, nil, nil, nil, nil, nil
	if m.Unfinished || len(m.Baking) > 0 {
		for _, s := range m.Reads {
			m.reads = p.groupsOf(m, s, m.reads, !m.Unfinished)
		}
	}
	for _, g := range m.reads {
		g.wait(m)
	}
	if m.Order != 0 {
		for _, s := range m.Reads {
			m.ordered = p.groupsOf(m, s, m.ordered, false)
		}
	}
	for _, g := range m.ordered {
		g.ordered++
	}
	if m.Due {
		for _, s := range m.For {
			m.groups = p.groupsOf(m, s, m.groups, false)
		}
	}
	for _, g := range m.groups {
		if !m.admitted {
			g.due[m] = struct{}{}
		}
	}
	for _, s := range m.Fails {
		m.fails = p.groupsOf(m, s, m.fails, false)
	}
	for _, g := range m.fails {
		g.failing.add(m.WorkloadKey)
	}
	if m.Due {
		m.buckets = p.bucketsOf(m, m.For, false)
	}
	if m.InProgress {
		m.began = p.bucketsOf(m, m.Began, false)
	}
	if m.counted() {
		m.totals = p.bucketsOf(m, m.Reads, true)
	}
	for _, b := range m.totals {
		b.all.add(m, 1)
	}
	m.use(1)
	p.place(m)
}

// use counts a workload where it is in progress, or is about to be: once in each bucket.
func (m *member) use(sign int) {
	for _, b := range m.began {
		b.used.add(m, sign)
	}
	for _, b := range m.buckets {
		if m.admitted && !slices.Contains(m.began, b) {
			b.used.add(m, sign)
		}
	}
}

// place puts a workload that is due into its lane, if its groups do not hold it.
func (p *Planner) place(m *member) {
	if !m.Due || m.admitted || m.gathers() || slices.ContainsFunc(m.groups, func(g *group) bool { return g.hold(m) != nil }) {
		return
	}
	for _, b := range m.buckets {
		if b.members[m] = struct{}{}; !slices.Contains(m.began, b) {
			b.due.add(m, 1)
		}
	}
	l := p.laneOf(m)
	l.push(m)
	p.moved(l)
}

// gathers reports whether it is not known yet whether others come first.
func (m *member) gathers() bool {
	return !m.gathered && slices.ContainsFunc(m.groups, func(g *group) bool { return g.ordered > 0 })
}

// displace is the opposite of place. Begins: it is about to be restarted.
func (p *Planner) displace(m *member, begins bool) {
	if m.lane == nil {
		return
	}
	for _, b := range m.buckets {
		if delete(b.members, m); !slices.Contains(m.began, b) {
			b.due.add(m, -1)
		}
		insert(&p.touched.buckets, b)
	}
	l := m.lane
	l.remove(m, begins)
	p.moved(l)
}

// moved notes that the first member of a lane may be another one.
func (p *Planner) moved(l *lane) {
	switch {
	case l.waitsAt != nil && len(l.queues) == 0:
		heap.Remove(&l.waitsAt.lanes, l.index)
		l.waitsAt = nil
	case l.waitsAt != nil:
		heap.Fix(&l.waitsAt.lanes, l.index)
	}
	if len(l.queues) == 0 {
		delete(p.lanes, l.key)
		delete(p.touched.lanes, l)
		for _, b := range l.buckets {
			p.release(b)
		}
		return
	}
	insert(&p.touched.lanes, l)
}

// detach is the opposite of attach.
func (p *Planner) detach(m *member) {
	p.displace(m, false)
	m.use(-1)
	for _, b := range m.totals {
		b.all.add(m, -1)
	}
	for _, b := range slices.Concat(m.buckets, m.began, m.totals) {
		p.release(b)
	}
	for _, g := range m.groups {
		insert(&p.touched.groups, g)
		delete(g.due, m)
	}
	for _, g := range m.fails {
		insert(&p.touched.groups, g)
		g.failing.remove(m.WorkloadKey)
	}
	for _, g := range m.reads {
		insert(&p.touched.groups, g)
		g.unwait(m)
	}
	for _, g := range m.ordered {
		insert(&p.touched.groups, g)
		g.ordered--
	}
}

// groupsOf appends the groups of a source. Baking: those of policies that let others wait although the workload is complete.
func (p *Planner) groupsOf(m *member, s Source, to []*group, baking bool) []*group {
	if !baking {
		to = append(to, p.group(groupKey{namespace: m.Namespace, source: s}, nil))
	}
	for _, l := range m.Policies {
		if (!baking || slices.Contains(m.Baking, l)) && l.Concerns(s.Kind, s.Name) {
			to = append(to, p.group(groupKey{policy: l.Name, source: s}, l))
		}
	}
	return to
}

func (p *Planner) group(key groupKey, l *limit.Policy) *group {
	g := p.groups[key]
	if g == nil {
		g = &group{key: key, due: map[*member]struct{}{}}
		p.groups[key] = g
	}
	g.policy = l
	insert(&p.touched.groups, g)
	return g
}

// bucketsOf returns the buckets of a workload that is restarted for some sources, or those that count it as one of all.
func (p *Planner) bucketsOf(m *member, sources []Source, all bool) (out []*bucket) {
	if p.max >= 0 && !all {
		out = append(out, p.bucket(bucketKey{budget: -1}, nil, nil))
	}
	for _, l := range m.Policies {
		if !slices.ContainsFunc(sources, func(s Source) bool { return l.Concerns(s.Kind, s.Name) }) {
			continue
		}
		for i := range l.Budgets {
			b, key := &l.Budgets[i], bucketKey{policy: l.Name, budget: i}
			switch {
			case all && !b.Percent():
				continue
			case b.Scope == v1alpha1.ScopeNamespace:
				key.namespace = m.Namespace
			case b.Scope == v1alpha1.ScopeSource:
				for _, s := range sources {
					if l.Concerns(s.Kind, s.Name) {
						key.source = s
						out = append(out, p.bucket(key, l, b))
					}
				}
				continue
			}
			out = append(out, p.bucket(key, l, b))
		}
	}
	return out
}

func (p *Planner) bucket(key bucketKey, l *limit.Policy, budget *limit.Budget) *bucket {
	b := p.buckets[key]
	if b == nil {
		p.ids++
		b = &bucket{key: key, id: p.ids, max: p.max, members: map[*member]struct{}{}}
		p.buckets[key] = b
	}
	b.refs++
	b.policy, b.budget = l, budget
	insert(&p.touched.buckets, b)
	return b
}

func (p *Planner) release(b *bucket) {
	insert(&p.touched.buckets, b)
	if b.refs--; b.refs == 0 {
		delete(p.buckets, b.key)
		delete(p.touched.buckets, b)
	}
}

// laneOf returns the lane of a workload.
func (p *Planner) laneOf(m *member) *lane {
	buckets := slices.Clone(m.buckets)
	slices.SortFunc(buckets, func(a, b *bucket) int { return a.id - b.id })
	var key strings.Builder
	fmt.Fprint(&key, m.InProgress, " ")
	for _, b := range buckets {
		fmt.Fprint(&key, b.id, " ")
	}
	l := p.lanes[key.String()]
	if l == nil {
		l = &lane{key: key.String(), again: m.InProgress, buckets: buckets, byName: map[string]*queue{}}
		for _, b := range buckets {
			b.refs++
		}
		p.lanes[l.key] = l
	}
	return l
}

// settle places workloads again that are due, as far as what they wait for has changed, and notes whose answers are others.
func (p *Planner) settle() {
	for g := range p.touched.groups {
		delete(p.touched.groups, g)
		before, now := g.shown, g.now()
		if g.shown = now; before != now {
			for m := range g.due {
				same := before.halted == now.halted && before.failed == now.failed && (m.gathered || before.ordered == now.ordered)
				if same && m.Order <= before.order && m.Order <= now.order {
					continue
				}
				p.displace(m, false)
				p.place(m)
				insert(&p.touched.members, m)
			}
		}
		if g.empty() {
			delete(p.groups, g.key)
		}
	}
	at := p.clock.Now()
	for b := range p.touched.buckets {
		if over := b.isOver(at); over != b.over {
			b.over = over
			for m := range b.members {
				insert(&p.touched.members, m)
			}
		}
	}
}

// pick admits workloads as far as there is room for them.
func (p *Planner) pick() {
	now := p.clock.Now()
	for len(p.touched.lanes) > 0 || len(p.touched.buckets) > 0 {
		for l := range p.touched.lanes { // those that are new, or whose first member is, wait for a bucket
			delete(p.touched.lanes, l)
			if l.waitsAt == nil {
				p.park(l, now)
			}
		}
		for b := range p.touched.buckets {
			delete(p.touched.buckets, b)
			p.fill(b, now)
		}
	}
}

// park lets a lane wait for a bucket: one that is full, if there is one.
func (p *Planner) park(l *lane, now time.Time) {
	b := l.full(now)
	switch {
	case len(l.buckets) == 0:
		for len(l.queues) > 0 {
			p.admit(l.head())
		}
		return
	case b == nil:
		b = l.buckets[0]
		insert(&p.touched.buckets, b)
	}
	l.waitsAt = b
	heap.Push(&b.lanes, l)
}

// fill admits workloads of the lanes that wait for a bucket, until it is full.
func (p *Planner) fill(b *bucket, now time.Time) {
	for len(b.lanes) > 0 {
		l := b.lanes[0]
		switch full := l.full(now); full {
		case nil:
			p.admit(l.head())
		case b:
			return
		default:
			heap.Pop(&b.lanes)
			l.waitsAt = full
			heap.Push(&full.lanes, l)
		}
	}
}

// admit lets a restart begin.
func (p *Planner) admit(m *member) {
	p.displace(m, true)
	m.use(-1)
	m.admitted = true
	m.use(1)
	for _, g := range m.groups {
		delete(g.due, m)
	}
	for _, b := range m.buckets {
		insert(&p.touched.buckets, b)
	}
	p.touched.admitted = append(p.touched.admitted, m.WorkloadKey)
}

// hold returns what the restart of a workload waits for; nil: nothing.
func (p *Planner) hold(key dependency.WorkloadKey) *Hold {
	m := p.members[key]
	if m == nil || !m.Due || m.admitted {
		return nil
	}
	var out *Hold
	for _, g := range m.groups {
		if h := g.hold(m); h != nil && (out == nil || h.Why == Halted && out.Why != Halted) { // as a user has to act
			out = h
		}
	}
	for _, g := range m.groups {
		if m.gathered || g.ordered == 0 {
			continue
		}
		if out == nil {
			out = &Hold{Why: Order, Policy: g.policy, Source: g.key.source}
		}
		out.Again = m.since.Add(Gathering) // also while it waits for others, so that it then has its place among those that do
	}
	if out != nil {
		return out
	}
	now, least := p.clock.Now(), 0
	var again time.Time
	for _, b := range m.buckets {
		n, until := b.limit(now)
		if !until.IsZero() && (again.IsZero() || until.Before(again)) {
			again = until
		}
		if b.isOver(now) && (out == nil || n < least) {
			out, least = &Hold{Why: Budget, Policy: b.policy, Limit: b.budget, Max: b.max}, n
		}
	}
	if out != nil {
		out.Again = again
	}
	return out
}
