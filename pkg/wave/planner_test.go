// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package wave_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/apis/policy/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/limit"
	"github.com/configdep/configdep/pkg/wave"
)

var monday = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

// fleet is a planner and the workloads that it plans for.
type fleet struct {
	t       *testing.T
	clock   *testingclock.FakePassiveClock
	planner *wave.Planner
	members map[dependency.WorkloadKey]*wave.Member
	// shown is what was last asked of each, and begun are those that began, in this order.
	shown map[dependency.WorkloadKey]wave.Why
	begun []string
	// told is how many answers have changed but that about the workload that is being noted.
	told  int
	sweep int
	noted dependency.WorkloadKey
	next  []dependency.WorkloadKey
}

func newFleet(t *testing.T, limit int) *fleet {
	t.Helper()
	f := &fleet{t: t, clock: testingclock.NewFakePassiveClock(monday), members: map[dependency.WorkloadKey]*wave.Member{}, shown: map[dependency.WorkloadKey]wave.Why{}}
	f.planner = wave.New(limit, f.clock, func(changed, admitted []dependency.WorkloadKey) {
		for _, key := range changed {
			if f.show(key); key != f.noted {
				f.told++
			}
		}
		f.next = append(f.next, admitted...)
	})
	f.lead()
	f.planner.Ready(f.sweep)
	return f
}

var bundle = wave.Source{Kind: dependency.ConfigMap, Name: "bundle"}

// due returns a workload that is due because of a source.
func due(namespace, name string, change ...func(*wave.Member)) *wave.Member {
	m := &wave.Member{
		WorkloadKey: dependency.WorkloadKey{Kind: "Deployment", Namespace: namespace, Name: name}, Pods: 1,
		For: []wave.Source{bundle}, Reads: []wave.Source{bundle}, Due: true, Unfinished: true,
	}
	for _, f := range change {
		f(m)
	}
	return m
}

func order(n int) func(*wave.Member) { return func(m *wave.Member) { m.Order = n } }
func pods(n int) func(*wave.Member)  { return func(m *wave.Member) { m.Pods = n } }
func by(p ...*limit.Policy) func(*wave.Member) {
	return func(m *wave.Member) { m.Policies = p }
}

func policy(t *testing.T, spec v1alpha1.ReloadPolicySpec) *limit.Policy {
	t.Helper()
	p := limit.New(&v1alpha1.ReloadPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: spec})
	if p.Problem != "" {
		t.Fatal(p.Problem)
	}
	return p
}

func budget(scope v1alpha1.BudgetScope, workloads, pods string) v1alpha1.Budget {
	b := v1alpha1.Budget{Scope: scope}
	if workloads != "" {
		b.Workloads = new(intstr.Parse(workloads))
	}
	if pods != "" {
		b.Pods = new(intstr.Parse(pods))
	}
	return b
}

// lead begins a term, in which Ready has yet to be called.
func (f *fleet) lead() {
	f.planner.Lead(true)
	f.sweep = f.planner.Unready()
}

// may reports whether a restart may begin.
func (f *fleet) may(key dependency.WorkloadKey) bool {
	may, _ := f.planner.Begin(key)
	return may
}

// show asks for what a workload waits, as a view does.
func (f *fleet) show(key dependency.WorkloadKey) {
	f.shown[key] = 0
	if m := f.members[key]; m != nil {
		if h := f.planner.Hold(m); h != nil {
			f.shown[key] = h.Why
		}
	}
}

// set notes what is now known of a workload, of which a view hears first.
func (f *fleet) set(m *wave.Member) {
	f.members[m.WorkloadKey], f.noted = m, m.WorkloadKey
	f.show(m.WorkloadKey)
	f.planner.Note(m)
}

// note notes workloads, and lets those begin that may.
func (f *fleet) note(all ...*wave.Member) {
	f.t.Helper()
	for _, m := range all {
		f.set(m)
		f.next = append(f.next, m.WorkloadKey)
		f.begin()
	}
}

// gather lets the time pass until it is known which workloads come first.
func (f *fleet) gather() {
	f.t.Helper()
	f.clock.SetTime(f.clock.Now().Add(time.Second))
	for _, m := range f.members {
		if m.Due {
			f.set(m)
			f.next = append(f.next, m.WorkloadKey)
		}
	}
	slices.SortFunc(f.next, func(a, b dependency.WorkloadKey) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	f.begin()
}

// begin lets those begin that may.
func (f *fleet) begin() {
	f.t.Helper()
	for len(f.next) > 0 {
		key := f.next[0]
		f.next = f.next[1:]
		m := f.members[key]
		if !m.Due || !f.may(key) {
			continue
		}
		f.begun = append(f.begun, key.Namespace+"/"+key.Name)
		f.checkOrder(m)
		now := *m
		now.Due, now.InProgress, now.Began = false, true, now.For
		f.set(&now)
	}
}

// end ends the restart of a workload that is in progress.
func (f *fleet) end(key dependency.WorkloadKey, change func(*wave.Member)) {
	f.t.Helper()
	now := *f.members[key]
	now.InProgress, now.Unfinished, now.Fails = false, false, nil
	if change != nil {
		change(&now)
	}
	f.set(&now)
	f.begin()
}

// inProgress returns the workloads that are being restarted.
func (f *fleet) inProgress() (keys []dependency.WorkloadKey) {
	for key, m := range f.members {
		if m.InProgress {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b dependency.WorkloadKey) int {
		return slices.Index(f.begun, a.Namespace+"/"+a.Name) - slices.Index(f.begun, b.Namespace+"/"+b.Name)
	})
	return keys
}

// run ends one restart after the other, the first that began first.
func (f *fleet) run() {
	f.t.Helper()
	for keys := f.inProgress(); len(keys) > 0; keys = f.inProgress() {
		f.end(keys[0], nil)
	}
}

func (f *fleet) wantBegun(what string, want ...string) {
	f.t.Helper()
	if diff := cmp.Diff(want, f.begun); diff != "" {
		f.t.Errorf("%s: begun (-want +got):\n%s", what, diff)
	}
}

func (f *fleet) wantShown(what string, want map[string]wave.Why) {
	f.t.Helper()
	got := map[string]wave.Why{}
	for key, why := range f.shown {
		if why != 0 {
			got[key.Namespace+"/"+key.Name] = why
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Errorf("%s: shown (-want +got):\n%s", what, diff)
	}
}

// Namespaces take turns, and the first by name comes first within each.
func TestPlanner_Fair(t *testing.T) {
	f := newFleet(t, 1)
	f.note(due("a", "0"), due("a", "3"), due("a", "1"), due("a", "2"), due("b", "2"), due("b", "1"), due("c", "1"))
	f.wantShown("with one at a time", map[string]wave.Why{"a/1": wave.Budget, "a/2": wave.Budget, "a/3": wave.Budget, "b/1": wave.Budget, "b/2": wave.Budget, "c/1": wave.Budget})
	f.run()
	f.wantBegun("by turns", "a/0", "a/1", "b/1", "c/1", "a/2", "b/2", "a/3")
	f.wantShown("in the end", map[string]wave.Why{})
	if f.told != 0 {
		t.Errorf("%d answers have changed; who is admitted begins", f.told)
	}

	// Who comes later takes turns, too, and does not go first as often as the others have.
	f = newFleet(t, 1)
	f.note(due("a", "0"), due("a", "1"), due("a", "2"), due("a", "3"), due("a", "4"), due("a", "5"))
	for range 3 {
		f.end(f.inProgress()[0], nil)
	}
	f.note(due("b", "1"), due("b", "2"))
	f.run()
	f.wantBegun("later", "a/0", "a/1", "a/2", "a/3", "a/4", "b/1", "a/5", "b/2")

	// Who waits for a canary is noted again soon, and has its place when that is complete.
	f = newFleet(t, 3)
	f.note(due("c", "1", order(-1)))
	for _, name := range []string{"2", "1", "0"} {
		f.note(due("c", name+"0"))
	}
	f.gather()
	f.wantBegun("the canary", "c/1")
	last := due("c", "00")
	if h := f.planner.Note(last); h == nil || h.Why != wave.Order || !h.Again.IsZero() {
		t.Errorf("hold = %+v, want one by the order, and not again", h)
	}
	late := due("c", "40")
	if h := f.planner.Note(late); h == nil || h.Why != wave.Order || !h.Again.Equal(f.clock.Now().Add(wave.Gathering)) {
		t.Errorf("hold = %+v, want one by the order, and again soon", h)
	}
	f.run()
	f.wantBegun("in the order of names", "c/1", "c/00", "c/10", "c/20")
}

// A policy that is read again, as when its status is written, changes no turns.
func TestPlanner_FairWhenPoliciesAreReadAgain(t *testing.T) {
	f := newFleet(t, -1)
	read := func() (all []*wave.Member) {
		p := by(policy(t, v1alpha1.ReloadPolicySpec{Budgets: []v1alpha1.Budget{budget("", "1", "")}}))
		return []*wave.Member{due("a", "1", p), due("a", "2", p), due("b", "1", p), due("b", "2", p)}
	}
	f.lead()
	f.note(read()...)
	f.planner.Ready(f.sweep)
	f.begin()
	f.note(read()[1:]...)
	f.run()
	f.wantBegun("by turns", "a/1", "b/1", "a/2", "b/2")
}

// A budget of pods counts those of the workloads in progress. A workload with more pods than the budget is restarted alone.
func TestPlanner_Pods(t *testing.T) {
	f := newFleet(t, -1)
	p := by(policy(t, v1alpha1.ReloadPolicySpec{Budgets: []v1alpha1.Budget{budget("", "", "10")}}))
	f.note(due("a", "1", p, pods(4)), due("a", "2", p, pods(4)), due("a", "3", p, pods(20)), due("a", "4", p, pods(1)))
	f.wantBegun("two fit, and who comes after the third waits, too", "a/1", "a/2")
	f.run()
	f.wantBegun("alone", "a/1", "a/2", "a/3", "a/4")

	f = newFleet(t, -1)
	f.planner.Lead(false)
	f.note(due("a", "3", p, pods(20)))
	f.wantShown("alone, it does not wait", map[string]wave.Why{})
}

// What is in progress and due again counts, and needs no more room than it has, so that it does not wait for itself to be complete.
func TestPlanner_Again(t *testing.T) {
	for what, b := range map[string]v1alpha1.Budget{"workloads": budget("", "1", ""), "pods": budget("", "", "2")} {
		for _, most := range []int{-1, 1} {
			p := policy(t, v1alpha1.ReloadPolicySpec{Budgets: []v1alpha1.Budget{b}})
			f := newFleet(t, most)
			f.note(due("a", "2", by(p), pods(2)))
			f.note(due("a", "1", by(p)), due("a", "3", by(p)))
			again := *f.members[due("a", "2").WorkloadKey]
			again.Due = true
			f.note(&again)
			f.wantBegun(what, "a/2", "a/2")
			f.run()
			f.wantBegun(what+", in the end", "a/2", "a/2", "a/1", "a/3")
		}
	}
}

// A restart that was let begin is one, even if what it has written is read only when the next one is due, for which there may be no room.
func TestPlanner_BeginsOnce(t *testing.T) {
	f := newFleet(t, -1)
	key := due("a", "1").WorkloadKey
	f.planner.Note(due("a", "1"))
	if !f.may(key) {
		t.Fatal("the first may not begin")
	}
	none := by(policy(t, v1alpha1.ReloadPolicySpec{Budgets: []v1alpha1.Budget{budget("", "0", "")}}))
	if h := f.planner.Note(due("a", "1", none)); h == nil || f.may(key) {
		t.Errorf("the second may begin, and waits for %+v", h)
	}
	f.planner.Note(due("a", "1"))
	if !f.may(key) {
		t.Error("the second may not begin")
	}
}

// A budget of 0 lets nothing begin, a percentage is rounded up.
func TestPlanner_Numbers(t *testing.T) {
	for value, want := range map[string]int{"0": 0, "0%": 0, "1%": 1, "34%": 2, "50%": 2, "51%": 3, "100%": 4, "2": 2, "9": 4} {
		for _, b := range []v1alpha1.Budget{budget("", value, ""), budget("", "", value)} {
			f, p := newFleet(t, -1), by(policy(t, v1alpha1.ReloadPolicySpec{Budgets: []v1alpha1.Budget{b}}))
			idle := func(m *wave.Member) { m.Due, m.Unfinished = false, false }
			all := []*wave.Member{due("a", "1", p, idle), due("a", "2", p, idle), due("b", "1", p, idle), due("b", "2", p, idle)}
			f.note(all...)
			for _, m := range all {
				now := *m
				now.Due, now.Unfinished = true, true
				f.note(&now)
			}
			if got := len(f.inProgress()); got != want {
				t.Errorf("%s of 4: %d are in progress, want %d", value, got, want)
			}
		}
	}
}

// Of limits that let a workload wait, the smallest is named, from the beginning.
func TestPlanner_NamesTheSmallest(t *testing.T) {
	for _, test := range []struct{ flag, first, second, want int }{{4, 3, 2, 2}, {4, 2, 3, 2}, {2, 3, 4, 2}} {
		f := newFleet(t, test.flag)
		p := by(policy(t, v1alpha1.ReloadPolicySpec{Budgets: []v1alpha1.Budget{budget("", fmt.Sprint(test.first), ""), budget("", fmt.Sprint(test.second), "")}}))
		for i := range 9 {
			f.note(due("a", fmt.Sprint(i), p))
		}
		h := f.planner.Hold(f.members[due("a", "8").WorkloadKey])
		if h == nil {
			t.Fatal("it does not wait")
		}
		got := h.Max
		if h.Limit != nil {
			got, _ = h.Limit.Limit(9, monday)
		}
		if got != test.want {
			t.Errorf("%+v: the limit is %d", test, got)
		}
		if f.run(); f.told != 0 {
			t.Errorf("%+v: %d answers have changed", test, f.told)
		}
	}
}

// A scope is the policy, a namespace, or a source in any namespace.
func TestPlanner_Scopes(t *testing.T) {
	other := wave.Source{Kind: dependency.Secret, Name: "db"}
	for scope, want := range map[v1alpha1.BudgetScope][]string{
		v1alpha1.ScopePolicy: {"a/1"}, v1alpha1.ScopeNamespace: {"a/1", "b/1"}, v1alpha1.ScopeSource: {"a/1", "b/2"},
	} {
		f := newFleet(t, -1)
		p := by(policy(t, v1alpha1.ReloadPolicySpec{Budgets: []v1alpha1.Budget{budget(scope, "1", "")}}))
		f.note(due("a", "1", p), due("a", "2", p), due("b", "1", p), due("b", "2", p, func(m *wave.Member) { m.For, m.Reads = []wave.Source{other}, []wave.Source{other} }))
		f.wantBegun(string(scope), want...)
	}
}

// Workloads of a lower order come first, in a namespace and in those that a policy selects, and until their bake time is over. What is idle holds no
// one.
func TestPlanner_Order(t *testing.T) {
	f := newFleet(t, -1)
	f.note(due("a", "1", order(1)), due("a", "0", order(-1)), due("a", "2", order(2)), due("b", "1", order(3)), due("c", "1"))
	f.wantBegun("only where no order was given", "c/1")
	f.gather()
	f.wantBegun("each namespace for itself", "c/1", "a/0", "b/1")
	f.wantShown("the higher ones wait", map[string]wave.Why{"a/1": wave.Order, "a/2": wave.Order})
	f.run()
	f.wantBegun("in the end", "c/1", "a/0", "b/1", "a/1", "a/2")

	f = newFleet(t, -1)
	slow := policy(t, v1alpha1.ReloadPolicySpec{BakeTime: &metav1.Duration{Duration: time.Hour}})
	p := by(slow)
	canary := due("a", "0", p)
	f.note(canary, due("b", "1", p, order(1)))
	f.gather()
	f.wantBegun("the namespaces of a policy together", "a/0")
	f.end(canary.WorkloadKey, func(m *wave.Member) { m.Baking = m.Policies })
	f.wantShown("baking", map[string]wave.Why{"b/1": wave.Order})
	if h := f.planner.Hold(f.members[due("b", "1").WorkloadKey]); h == nil || h.By != canary.WorkloadKey || h.Source != bundle || h.Policy == nil {
		t.Errorf("it waits for %+v", h)
	}
	quick := policy(t, v1alpha1.ReloadPolicySpec{})
	quick.Name = "quick"
	f.note(due("a", "2", order(1)), due("b", "2", by(quick), order(1)))
	f.gather()
	f.wantBegun("others do not wait for that", "a/0", "a/2", "b/2")
	f.end(canary.WorkloadKey, func(m *wave.Member) { m.Baking = nil })
	f.wantBegun("baked", "a/0", "a/2", "b/2", "b/1")

	// Of those that a workload waits for, the same one is named as long as it is one of them. Others that are noted again do not prolong the time in which it
	// is not known who comes first.
	f = newFleet(t, -1)
	f.note(due("a", "1", order(-1)), due("a", "2", order(-1)), due("a", "3"))
	f.gather()
	for name, want := range map[string]string{"2": "1", "": ""} {
		if name != "" {
			f.end(due("a", name).WorkloadKey, nil)
			if h := f.planner.Hold(f.members[due("a", "3").WorkloadKey]); h == nil || h.By.Name != want {
				t.Errorf("it waits for %+v, want %s", h, want)
			}
		}
	}
	f.clock.SetTime(f.clock.Now().Add(time.Second / 2))
	f.note(due("a", "4", order(1)))
	f.clock.SetTime(f.clock.Now().Add(time.Second / 2))
	f.note(due("a", "4", order(1), pods(2)))
	f.clock.SetTime(f.clock.Now().Add(time.Second / 2))
	f.end(due("a", "1").WorkloadKey, nil)
	f.run()
	f.note(due("a", "4", order(1), pods(2)))
	f.wantBegun("a second after it became due", "a/1", "a/2", "a/3", "a/4")

	f = newFleet(t, -1)
	other := due("a", "0", order(-1))
	other.Due, other.Unfinished, other.For = false, false, nil
	f.note(other, due("a", "1"))
	f.wantBegun("it may not be the first")
	without := *other
	without.Order = 0
	f.note(&without)
	f.wantBegun("no order is given any longer", "a/1")
}

// As many failures as a policy allows halt what would get the same content. A member that is noted again without one ends that.
func TestPlanner_Halt(t *testing.T) {
	f := newFleet(t, 2)
	p := by(policy(t, v1alpha1.ReloadPolicySpec{FailureLimit: new(int32(2))}))
	f.note(due("a", "1", p), due("a", "2", p), due("b", "1", p), due("b", "2", p), due("b", "3"))
	fails := func(m *wave.Member) { m.Unfinished, m.Fails = true, m.For }
	f.end(due("a", "1").WorkloadKey, fails)
	f.wantBegun("one failure", "a/1", "a/2", "b/1")
	f.end(due("a", "2").WorkloadKey, fails)
	f.wantBegun("two", "a/1", "a/2", "b/1", "b/3")
	f.wantShown("two", map[string]wave.Why{"b/2": wave.Halted})
	f.note(due("a", "3", p, order(1)))
	f.wantShown("that is said before an order", map[string]wave.Why{"b/2": wave.Halted, "a/3": wave.Halted})
	f.note(&wave.Member{WorkloadKey: due("a", "3").WorkloadKey})
	f.end(due("b", "3").WorkloadKey, nil)
	f.wantShown("still", map[string]wave.Why{"b/2": wave.Halted})
	f.end(due("a", "1").WorkloadKey, nil)
	f.wantBegun("one has recovered", "a/1", "a/2", "b/1", "b/3", "b/2")
}

// Budgets may apply at some times only.
func TestPlanner_Schedule(t *testing.T) {
	f := newFleet(t, -1)
	b := budget("", "0", "")
	b.Schedule, b.Duration = "0 1 * * *", &metav1.Duration{Duration: 2 * time.Hour}
	p := by(policy(t, v1alpha1.ReloadPolicySpec{Budgets: []v1alpha1.Budget{b}}))
	f.note(due("a", "1", p))
	f.clock.SetTime(monday.Add(time.Hour))
	f.note(due("a", "2", p))
	f.gather()
	f.wantBegun("one before", "a/1")
	if h := f.planner.Hold(f.members[due("a", "2").WorkloadKey]); h == nil || !h.Again.Equal(monday.Add(3*time.Hour)) {
		t.Errorf("it waits for %+v", h)
	}
	f.clock.SetTime(monday.Add(3 * time.Hour))
	f.note(due("a", "2", p))
	f.wantBegun("and one after", "a/1", "a/2")
}

// Nothing begins before all has been noted, nor on another replica. What did not begin after all makes room, until it is noted again.
func TestPlanner_Lead(t *testing.T) {
	f := newFleet(t, 1)
	f.lead()
	f.note(due("a", "1"), due("a", "2"))
	f.wantBegun("not ready")
	f.planner.Ready(f.sweep)
	f.begin()
	f.wantBegun("ready", "a/1")
	f.planner.Lead(false)
	f.planner.Note(&wave.Member{WorkloadKey: due("a", "1").WorkloadKey})
	f.begin()
	f.wantBegun("another replica leads", "a/1")
	f.lead()
	f.planner.Ready(f.sweep)
	f.lead()
	if f.may(due("a", "2").WorkloadKey) {
		t.Error("what was admitted in an earlier term may begin before all has been noted")
	}
	f.planner.Note(due("a", "2"))
	f.planner.Ready(f.sweep - 1)
	if f.may(due("a", "2").WorkloadKey) {
		t.Error("it may begin because of an earlier sweep")
	}
	f.planner.Ready(f.sweep)
	key := due("a", "2").WorkloadKey
	if f.next = nil; !f.may(key) {
		t.Fatal("a/2 may not begin")
	}
	f.note(due("a", "3"))
	f.wantBegun("another one has been admitted", "a/1")
	failed := due("a", "2", func(m *wave.Member) { m.Due = false })
	f.planner.Note(failed)
	f.begin()
	f.wantBegun("what failed makes room", "a/1", "a/3")
	f.end(due("a", "3").WorkloadKey, nil)
	f.note(f.members[key])
	f.wantBegun("and is noted again", "a/1", "a/3", "a/2")

	f.sweep = f.planner.Unready()
	f.note(due("a", "4"))
	f.wantBegun("policies have changed", "a/1", "a/3", "a/2")
	f.planner.Ready(f.sweep)
	f.begin()
	f.wantBegun("what is in progress has not been noted again, so it is gone", "a/1", "a/3", "a/2", "a/4")
}

// With any policies, orders and failures: never above a budget, never out of order, never past a halt, and nothing is forgotten. Each answer that was
// shown is right until it is told that it has changed, and a wave changes as many as there are workloads.
func TestPlanner_Random(t *testing.T) {
	for seed := range uint64(300) {
		random(t, seed)
	}
}

func random(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	f := newFleet(t, []int{-1, 1, 3, 20}[r.IntN(4)])
	var policies []*limit.Policy
	for i := range r.IntN(3) {
		spec := v1alpha1.ReloadPolicySpec{}
		for range r.IntN(3) {
			scope := []v1alpha1.BudgetScope{v1alpha1.ScopePolicy, v1alpha1.ScopeNamespace, v1alpha1.ScopeSource}[r.IntN(3)]
			value := []string{"1", "2", "5", "10%", "40%"}[r.IntN(5)]
			if r.IntN(2) == 0 {
				spec.Budgets = append(spec.Budgets, budget(scope, value, ""))
			} else {
				spec.Budgets = append(spec.Budgets, budget(scope, "", value))
			}
		}
		if r.IntN(3) == 0 {
			spec.FailureLimit = new(int32(1 + r.IntN(2)))
		}
		p := policy(t, spec)
		p.Name = fmt.Sprint("p", i)
		policies = append(policies, p)
	}
	var all []*wave.Member
	sources := []wave.Source{bundle, {Kind: dependency.Secret, Name: "db"}, {Kind: dependency.Secret, Name: "tls"}}
	n, orders := 5+r.IntN(60), 1+r.IntN(3)
	for i := range n {
		m := due(fmt.Sprint("ns", r.IntN(4)), fmt.Sprintf("w%02d", i), order(r.IntN(orders)), pods(1+r.IntN(5)))
		r.Shuffle(len(sources), func(i, j int) { sources[i], sources[j] = sources[j], sources[i] })
		m.Reads = slices.Clone(sources[:1+r.IntN(3)])
		m.For = m.Reads[:1+r.IntN(len(m.Reads))]
		for _, p := range policies {
			if r.IntN(3) > 0 {
				m.Policies = append(m.Policies, p)
			}
		}
		all = append(all, m)
	}
	idle := func(m *wave.Member) *wave.Member {
		now := *m
		now.Due, now.Unfinished = false, false
		return &now
	}
	for _, m := range all {
		f.note(idle(m))
	}
	r.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
	failures := r.IntN(2) * r.IntN(4)
	for i := 0; ; i++ {
		keys := f.inProgress()
		if len(keys) == 0 || r.IntN(4) == 0 {
			f.gather()
			keys = f.inProgress()
		}
		switch {
		case i < n:
			f.note(all[i])
		case len(keys) == 0:
			stalled(f, seed, all, idle)
			return
		case failures > 0 && r.IntN(4) == 0:
			failures--
			f.end(keys[r.IntN(len(keys))], func(m *wave.Member) { m.Fails, m.Unfinished = m.For, true })
		default:
			f.end(keys[r.IntN(len(keys))], nil)
		}
		if r.IntN(3) == 0 {
			if keys := f.inProgress(); len(keys) > 0 {
				f.end(keys[r.IntN(len(keys))], nil)
			}
		}
		check(f, seed)
		if t.Failed() {
			return
		}
	}
}

// stalled checks what is left when nothing is in progress: what failed, and what that holds.
func stalled(f *fleet, seed uint64, all []*wave.Member, idle func(*wave.Member) *wave.Member) {
	f.t.Helper()
	for key, m := range f.members {
		if len(m.Fails) > 0 {
			f.end(key, nil)
		}
	}
	for f.run(); ; f.run() {
		if f.gather(); len(f.inProgress()) == 0 {
			break
		}
	}
	for _, m := range f.members {
		if m.Due {
			f.t.Errorf("seed %d: %s is forgotten: %+v", seed, m.Name, f.planner.Hold(m))
		}
	}
	if len(f.begun) != len(all) {
		f.t.Errorf("seed %d: %d restarts of %d workloads", seed, len(f.begun), len(all))
	}
	if f.told > 8*len(all) {
		f.t.Errorf("seed %d: %d answers of %d workloads have changed", seed, f.told, len(all))
	}
	for _, m := range f.members {
		f.planner.Note(idle(m))
	}
}

// check compares the state of the fleet with what may be.
func check(f *fleet, seed uint64) {
	f.t.Helper()
	type scope struct {
		policy, of string
		budget     int
	}
	used, usedPods, all, allPods := map[scope]int{}, map[scope]int{}, map[scope]int{}, map[scope]int{}
	budgets := map[scope]*limit.Budget{}
	for _, m := range f.members {
		for _, p := range m.Policies {
			for i := range p.Budgets {
				b := &p.Budgets[i]
				scopes := func(sources []wave.Source) (out []scope) {
					switch b.Scope {
					case v1alpha1.ScopeSource:
						for _, s := range sources {
							out = append(out, scope{p.Name, s.String(), i})
						}
					case v1alpha1.ScopeNamespace:
						out = append(out, scope{p.Name, m.Namespace, i})
					default:
						out = append(out, scope{p.Name, "", i})
					}
					return out
				}
				for _, s := range scopes(m.Reads) {
					all[s], allPods[s], budgets[s] = all[s]+1, allPods[s]+m.Pods, b
				}
				if m.InProgress {
					for _, s := range scopes(m.Began) {
						used[s], usedPods[s], budgets[s] = used[s]+1, usedPods[s]+m.Pods, b
					}
				}
			}
		}
		was := f.shown[m.WorkloadKey]
		if f.show(m.WorkloadKey); f.shown[m.WorkloadKey] != was {
			f.t.Errorf("seed %d: %s waits for %d, and %d was shown", seed, m.Name, f.shown[m.WorkloadKey], was)
		}
	}
	for s, b := range budgets {
		n, of := used[s], all[s]
		if b.Pods {
			n, of = usedPods[s], allPods[s]
		}
		if most, _ := b.Limit(of, f.clock.Now()); n > most && (!b.Pods || used[s] != 1) {
			f.t.Errorf("seed %d: %d are in progress in %v, which allows %d", seed, n, s, most)
		}
	}
}

// checkOrder checks that a workload that begins has none to wait for.
func (f *fleet) checkOrder(m *wave.Member) {
	f.t.Helper()
	shares := func(sources []wave.Source) bool {
		return slices.ContainsFunc(sources, func(s wave.Source) bool { return slices.Contains(m.For, s) })
	}
	for _, o := range f.members {
		waits := o.Namespace == m.Namespace || slices.ContainsFunc(o.Policies, func(p *limit.Policy) bool { return slices.Contains(m.Policies, p) })
		if waits && o.Order < m.Order && (o.Due && shares(o.For) || o.Unfinished && shares(o.Reads)) {
			f.t.Errorf("%s of order %d begins before %s", m.Name, m.Order, o.Name)
		}
	}
	failing := map[*limit.Policy]int{}
	for _, o := range f.members {
		for _, p := range o.Policies {
			if slices.Contains(m.Policies, p) && shares(o.Fails) {
				failing[p]++
			}
		}
	}
	for p, n := range failing {
		if p.FailureLimit > 0 && n >= p.FailureLimit*len(m.For) { // one source alone has so many
			f.t.Errorf("%s begins although %d fail", m.Name, n)
		}
	}
}
