// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/apis/policy/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/limit"
	"github.com/configdep/configdep/pkg/plan"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/wave"
	"github.com/configdep/configdep/test/seeds"
)

var monday = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

// cluster has Deployments that read the Secret db of their namespaces, and what restarts them.
type cluster struct {
	*ingesttest.Cluster

	t       *testing.T
	clock   *testingclock.FakePassiveClock
	max     int
	turns   bool // namespaces take turns, so that when each begins depends on which is the first
	limits  *limit.Set
	planner *wave.Planner
	apps    map[dependency.WorkloadKey]*app
	begun   []string // since the last change, with when
}

// app is a Deployment with one pod.
type app struct {
	*appsv1.Deployment

	takes  time.Duration // a rollout
	serial int
	since  time.Time // of the rollout that is in progress; zero: none is
}

func newCluster(t *testing.T, maxInProgress int) *cluster {
	t.Helper()
	c := &cluster{t: t, clock: testingclock.NewFakePassiveClock(monday), max: maxInProgress, apps: map[dependency.WorkloadKey]*app{}}
	c.Cluster = ingesttest.New(t, c.clock)
	index := ingest.NewIndex(c.clock)
	index.SetDefaults(policy.Defaults{Mode: policy.Off, Settle: 2 * time.Second})
	c.Start(index, ingest.Scope{}, 1)
	c.List()
	c.planner = wave.New(maxInProgress, c.clock, nil)
	c.planner.Lead(true)
	c.planner.Ready(c.planner.Unready())
	return c
}

func (c *cluster) secret(namespace, content string) {
	s := ingesttest.Secret("db", "password", content)
	s.Namespace = namespace
	c.Set(s)
}

// app adds a Deployment with annotations.
func (c *cluster) app(namespace, name string, takes time.Duration, annotations map[string]string) {
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Env: []corev1.EnvVar{{Name: "P", ValueFrom: &corev1.EnvVarSource{
		SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}, Key: "password"}}}}}}}
	d := ingesttest.Deployment(name, pod)
	d.Namespace, d.UID = namespace, types.UID(namespace+"/"+name)
	maps.Copy(d.Annotations, annotations)
	a := &app{Deployment: d, takes: takes}
	c.apps[dependency.WorkloadKey{Kind: kind.Deployment, Namespace: namespace, Name: name}] = a
	c.begin(a)
	c.end(a)
}

// begin does what the controller of Deployments does when a template has changed.
func (c *cluster) begin(a *app) {
	a.serial++
	a.Generation++
	a.Status.ObservedGeneration, a.Status.UpdatedReplicas = a.Generation, 0
	revision := fmt.Sprint(a.serial)
	metav1.SetMetaDataAnnotation(&a.ObjectMeta, kind.RevisionAnnotation, revision)
	c.Set(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: a.Namespace, Name: a.Name + "-" + revision, UID: a.UID + types.UID("-"+revision), Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: revision},
		Annotations:     map[string]string{kind.RevisionAnnotation: revision},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: a.Name, UID: a.UID, Controller: new(true)}},
	}})
	a.since = c.clock.Now()
	c.Set(a.DeepCopy())
	c.Set(c.pod(a, false))
}

// end ends a rollout.
func (c *cluster) end(a *app) {
	c.Set(c.pod(a, true))
	if a.serial > 1 {
		c.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: fmt.Sprint(a.Name, "-", a.serial-1)}})
	}
	a.Status.UpdatedReplicas = 1
	a.since = time.Time{}
	c.Set(a.DeepCopy())
}

func (c *cluster) pod(a *app, ready bool) *corev1.Pod {
	now, revision := metav1.NewTime(c.clock.Now()), fmt.Sprint(a.serial)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: a.Namespace, Name: a.Name + "-" + revision, UID: types.UID(fmt.Sprint(a.UID, "-pod-", revision)), Annotations: maps.Clone(a.Spec.Template.Annotations),
			Labels:          map[string]string{"app": a.Name, appsv1.DefaultDeploymentUniqueLabelKey: revision},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: a.Name + "-" + revision, UID: a.UID + types.UID("-"+revision), Controller: new(true)}},
		},
		Spec: *a.Spec.Template.Spec.DeepCopy(),
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(a.since)}}}}},
	}
	p.CreationTimestamp = metav1.NewTime(a.since)
	if ready {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}}
	}
	return p
}

// read calls f with what is known of the cluster.
func (c *cluster) read(f func(decide.Evaluator)) {
	c.Read(func(now decide.Evaluator) {
		if c.limits != nil {
			now.Graph.SetLimits(c.limits)
		}
		f(now)
	})
}

func (c *cluster) may(key dependency.WorkloadKey) bool {
	may, _ := c.planner.Begin(key)
	return may
}

// Hold implements decide.Waves, as the controller does.
func (c *cluster) Hold(m *wave.Member) *wave.Hold { return c.planner.Note(m) }

// pass lets time pass, second by second, with all that happens.
func (c *cluster) pass(d time.Duration) {
	c.t.Helper()
	keys := slices.SortedFunc(maps.Keys(c.apps), func(a, b dependency.WorkloadKey) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	end := c.clock.Now().Add(d)
	defer c.clock.SetTime(end)
	for ; !c.clock.Now().After(end); c.clock.SetTime(c.clock.Now().Add(time.Second)) {
		for _, key := range keys {
			if a := c.apps[key]; !a.since.IsZero() && !c.clock.Now().Before(a.since.Add(a.takes)) {
				c.end(a)
			}
		}
		for again := 2; again > 0; again-- { // the second time, what was learned of others the first time
			for _, key := range keys {
				if c.act(key) {
					again = 2
				}
			}
		}
	}
}

// rest lets time pass until nothing happens any longer.
func (c *cluster) rest() {
	c.t.Helper()
	for quiet := 0; quiet < 20; quiet++ { // no bake time or window is longer than three minutes
		c.pass(10 * time.Second)
		for _, a := range c.apps {
			if !a.since.IsZero() {
				quiet = 0
			}
		}
	}
}

// act does what the controller does, and reports whether the planner may have another answer for others.
func (c *cluster) act(key dependency.WorkloadKey) (acted bool) {
	a := c.apps[key]
	var data []byte
	var err error
	c.read(func(now decide.Evaluator) {
		now.Waves = c
		e := now.Evaluate(now.Graph.Workload(key))
		switch d := e.Decide(c.clock.Now()); {
		case d.Action == decide.WriteRecord:
			data, err = record.Patch(e.Workload, d.Record)
		case d.Action == decide.RollOut && c.may(key):
			last := record.NewAutomaticReload(record.LastReloadOf(e.Workload), c.clock.Now(), e.Policy.MinInterval, d.Trigger)
			data, err = e.Policy.RestartPatch(e.Workload, &record.Restart{Present: e.Present(), Last: last, Changed: e.Changed(&d)})
			c.begun = append(c.begun, fmt.Sprintf("%s %s %v", c.clock.Now().Format(time.TimeOnly), key.Namespace+"/"+key.Name, a.takes))
		}
	})
	if err != nil {
		c.t.Fatal(err)
	}
	if data == nil {
		return false
	}
	hash := a.Spec.Template.Annotations[record.ConfigHashAnnotation]
	manager := c.Manager
	c.Manager = record.FieldManager
	a.Deployment = c.Stored(a.Deployment).(*appsv1.Deployment).DeepCopy()
	ingesttest.Patch(c.t, a.Deployment, data)
	if a.Spec.Template.Annotations[record.ConfigHashAnnotation] != hash {
		c.begin(a)
	} else {
		c.Set(a.DeepCopy())
	}
	c.Manager = manager
	return true
}

// plan returns when restarts are to begin, which namespace and workload, and how long it takes; and of those that are held, why.
func (c *cluster) plan(assumed *decide.Change) (all []string) {
	c.t.Helper()
	c.read(func(now decide.Evaluator) {
		now.Assumed = assumed
		p := plan.Of(context.Background(), now, c.max, c.clock.Now())
		if p.Cut {
			c.t.Error("the plan is cut")
		}
		for i, r := range p.Restarts {
			text := r.Workload.Namespace + "/" + r.Workload.Name
			switch {
			case r.Begins.IsZero():
				text += fmt.Sprintf(" %s %s", r.State, r.Reason)
			case r.Ends.IsZero():
				text += " " + r.Message
			default:
				text = fmt.Sprintf("%s %s %v", r.Begins.Format(time.TimeOnly), text, r.Ends.Sub(r.Begins))
				if r.Position == 0 {
					text += " in progress"
				} else if i > 0 && p.Restarts[i-1].Position != r.Position-1 {
					c.t.Errorf("restart %d has position %d", i, r.Position)
				}
			}
			all = append(all, text)
		}
	})
	return all
}

// A plan says what then happens, also before the change, in the middle of a wave, and of what is held.
func TestOf_SaysWhatHappens(t *testing.T) {
	tally := map[string]int{}
	defer func() { t.Log(tally) }()
	seeds.Each(t, 20, func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		pick := func(n int) int { return random.IntN(n) }
		namespaces := []string{"a", "b", "c"}[:1+pick(3)]
		ordered := pick(2) == 0
		c := newCluster(t, []int{-1, 1, 2, 3}[pick(4)])
		if c.turns = !ordered; ordered && len(namespaces) > 1 {
			c = newCluster(t, -1)
		}
		for _, n := range namespaces {
			c.secret(n, "0")
		}
		policies := map[string]v1alpha1.ReloadPolicySpec{}
		for i := range pick(3) {
			var spec v1alpha1.ReloadPolicySpec
			if pick(2) == 0 {
				b := v1alpha1.Budget{Scope: []v1alpha1.BudgetScope{v1alpha1.ScopePolicy, v1alpha1.ScopeNamespace, v1alpha1.ScopeSource}[pick(3)], Workloads: new(intstr.FromInt32(int32(1 + pick(3))))}
				if pick(3) == 0 {
					b.Workloads = new(intstr.FromString("30%"))
				}
				if len(namespaces) == 1 || !ordered { // else whose turn it is changes when others begin
					spec.Budgets = append(spec.Budgets, b)
				}
			}
			if pick(2) == 0 {
				spec.BakeTime = &metav1.Duration{Duration: time.Duration(5+pick(60)) * time.Second}
			}
			if pick(4) == 0 {
				spec.Windows = []v1alpha1.Window{{Kind: "Deny", Schedule: "0 1 * * *", Duration: metav1.Duration{Duration: time.Duration(1+pick(2)) * time.Minute}}}
			}
			if pick(8) == 0 {
				spec.Approval = v1alpha1.ApprovalRequired
			}
			name := fmt.Sprint("p", i)
			policies[name] = spec
		}
		// In the middle of a wave, it is not known how long the restarts take that are in progress. Which namespace has the first turn depends on which workload
		// the controller looks at first.
		middle := len(namespaces) > 1 || pick(2) == 0
		for i := range 2 + pick(7) {
			takes := time.Minute
			if !middle {
				takes = time.Duration(5+pick(50)) * time.Second
			}
			annotations := map[string]string{}
			if ordered && pick(2) == 0 {
				annotations[policy.OrderAnnotation] = fmt.Sprint(pick(4) - 1)
			}
			c.app(namespaces[pick(len(namespaces))], fmt.Sprint("app", i), takes, annotations)
		}
		c.pass(time.Second)
		for _, n := range namespaces { // so that it is known how long each takes
			c.secret(n, "1")
		}
		c.rest()
		if a := c.apps[dependency.WorkloadKey{Kind: kind.Deployment, Namespace: namespaces[0], Name: "app0"}]; a != nil && pick(3) == 0 {
			a.Deployment = c.Stored(a.Deployment).(*appsv1.Deployment).DeepCopy()
			a.Annotations[policy.ApprovalAnnotation] = "required"
			c.Set(a.DeepCopy())
		}
		c.clock.SetTime(monday.Add(59 * time.Minute))
		for name, spec := range policies {
			c.limits = c.limits.With(limit.New(&v1alpha1.ReloadPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}))
		}
		c.pass(time.Minute)

		change := &decide.Change{Source: dependency.SourceKey{Kind: dependency.Secret, Namespace: namespaces[0], Name: "db"}, At: c.clock.Now()}
		if pick(2) == 0 {
			change.Source.Namespace = ""
		}
		foreseen := c.plan(change)
		c.begun = nil
		for _, n := range namespaces {
			if change.Source.Namespace == "" || n == namespaces[0] {
				c.secret(n, "2")
			}
		}
		if at := time.Duration(3+pick(90)) * time.Second; middle && len(namespaces) == 1 {
			c.pass(at)
			later := c.plan(nil)
			c.rest()
			compare(t, "in the middle of it", later, c)
			tally["in the middle"] += len(later)
		} else {
			c.rest()
		}
		compare(t, "before the change", foreseen, c)
		tally["foreseen"] += len(foreseen)
		for _, line := range foreseen {
			if strings.Contains(line, "Pending") {
				tally["held"]++
			}
		}
	})
}

// A canary that fails holds the others, and no time is foreseen for them.
func TestOf_Failure(t *testing.T) {
	c := newCluster(t, -1)
	c.limits = c.limits.With(limit.New(&v1alpha1.ReloadPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.ReloadPolicySpec{FailureLimit: new(int32(1))}}))
	c.secret("a", "0")
	c.app("a", "canary", time.Hour, map[string]string{policy.OrderAnnotation: "-1"})
	c.app("a", "web", time.Minute, nil)
	c.app("b", "other", time.Minute, nil)
	c.pass(time.Minute)
	c.secret("a", "1")
	c.pass(10 * time.Second)
	want := func(what string, lines ...string) {
		t.Helper()
		if diff := cmp.Diff(lines, c.plan(nil)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	want("while it is started", "00:01:03 a/canary 1m0s in progress", "00:02:03 a/web 1m0s")
	c.pass(83 * time.Second)
	want("when it is half a minute late", "00:01:03 a/canary 2m0s in progress", "00:03:03 a/web 1m0s")
	canary := c.apps[dependency.WorkloadKey{Kind: kind.Deployment, Namespace: "a", Name: "canary"}]
	p := c.pod(canary, false)
	p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	c.Set(p)
	c.pass(time.Second)
	want("when it crashes", "a/canary The rollout is not complete: 0 of 1 pod is up to date. 1 of 2 pods is not running: canary-2 (CrashLoopBackOff). It fails: pod canary-2 is not ready (CrashLoopBackOff).", "a/web Blocked HaltedAfterFailure")
}

// What cannot begin waits for what holds it in the end, not for what held it first.
func TestOf_Held(t *testing.T) {
	c := newCluster(t, -1)
	c.secret("a", "0")
	c.app("a", "canary", time.Minute, map[string]string{policy.OrderAnnotation: "-2"})
	c.app("a", "second", time.Minute, map[string]string{policy.OrderAnnotation: "-1", policy.ApprovalAnnotation: "required"})
	c.app("a", "web", time.Minute, nil)
	c.pass(time.Minute)
	c.secret("a", "1")
	c.pass(10 * time.Second)
	c.read(func(now decide.Evaluator) {
		restarts := plan.Of(t.Context(), now, c.max, c.clock.Now()).Restarts
		web := restarts[len(restarts)-1]
		if web.Workload.Name != "web" || web.State != decide.Pending || web.Reason != decide.ReasonOrder || !strings.HasSuffix(web.Message, "such as Deployment second.") {
			t.Errorf("%s waits: %+v", web.Workload.Name, web.Shown)
		}
	})
}

// What lacks something that the new content needs is part of the plan, because others may wait for it, and so is what a mistake blocks.
func TestOf_Blocked(t *testing.T) {
	c := newCluster(t, -1)
	content := func(pairs ...string) {
		s := ingesttest.Secret("db", pairs...)
		s.Namespace = "a"
		c.Set(s)
	}
	content("password", "0", "user", "ada")
	for name, annotation := range map[string]string{"canary": policy.OrderAnnotation, "invalid": policy.SettleAnnotation, "web": policy.OrderAnnotation} {
		c.app("a", name, time.Minute, map[string]string{annotation: "0"})
	}
	canary := c.apps[dependency.WorkloadKey{Kind: kind.Deployment, Namespace: "a", Name: "canary"}]
	user := canary.Spec.Template.Spec.Containers[0].Env[0].DeepCopy()
	user.Name, user.ValueFrom.SecretKeyRef.Key = "U", "user"
	canary.Spec.Template.Spec.Containers[0].Env = append(canary.Spec.Template.Spec.Containers[0].Env, *user)
	c.begin(canary)
	c.end(canary)
	c.pass(time.Minute)
	annotate := func(name, annotation, value string) {
		a := c.apps[dependency.WorkloadKey{Kind: kind.Deployment, Namespace: "a", Name: name}]
		a.Deployment = c.Stored(a.Deployment).(*appsv1.Deployment).DeepCopy()
		a.Annotations[annotation] = value
		c.Set(a.DeepCopy())
	}
	annotate("canary", policy.OrderAnnotation, "-1")
	annotate("invalid", policy.SettleAnnotation, "soon")
	content("password", "1")
	c.pass(10 * time.Second)
	if diff := cmp.Diff([]string{"a/canary Blocked KeyMissing", "a/invalid Blocked InvalidAnnotation", "a/web Pending Order"}, c.plan(nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A restart that a window or a budget will delay says so, although it is due when it begins.
func TestOf_SaysWhatDelays(t *testing.T) {
	for name, tt := range map[string]struct {
		spec  v1alpha1.ReloadPolicySpec
		order string // of the first
		want  []string
	}{
		"a window":  {v1alpha1.ReloadPolicySpec{Windows: []v1alpha1.Window{{Kind: "Deny", Schedule: "0 0 * * *", Duration: metav1.Duration{Duration: time.Hour}}}}, "0", []string{"Pending Window", "Pending Window"}},
		"a budget":  {v1alpha1.ReloadPolicySpec{Budgets: []v1alpha1.Budget{{Workloads: new(intstr.FromInt32(1))}}}, "0", []string{"Settling SourceChanged", "Pending Budget"}},
		"an order":  {v1alpha1.ReloadPolicySpec{}, "-1", []string{"Settling SourceChanged", "Pending Order"}},
		"approvals": {v1alpha1.ReloadPolicySpec{Approval: v1alpha1.ApprovalRequired}, "-1", []string{"Pending Approval", "Pending Approval"}},
	} {
		c := newCluster(t, -1)
		c.limits = c.limits.With(limit.New(&v1alpha1.ReloadPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: tt.spec}))
		c.secret("a", "0")
		c.app("a", "one", time.Minute, map[string]string{policy.OrderAnnotation: tt.order})
		c.app("a", "two", time.Minute, nil)
		c.pass(time.Minute)
		c.read(func(now decide.Evaluator) {
			now.Assumed = &decide.Change{Source: dependency.SourceKey{Kind: dependency.Secret, Namespace: "a", Name: "db"}, At: c.clock.Now()}
			var got []string
			for _, r := range plan.Of(t.Context(), now, c.max, c.clock.Now()).Restarts {
				if got = append(got, fmt.Sprint(r.State, " ", r.Reason)); strings.Contains(r.Message, "checking") {
					t.Errorf("%s: %q", name, r.Message)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		})
	}
}

// times returns when restarts begin, and of which namespaces.
func times(lines []string) (out []string) {
	namespaces := map[string]int{}
	for _, line := range lines {
		at, name, _ := strings.Cut(line, " ")
		namespace, _, _ := strings.Cut(name, "/")
		namespaces[namespace]++
		out = append(out, at)
	}
	return append(out, fmt.Sprint(namespaces))
}

// compare compares a plan with what has happened since the change.
func compare(t *testing.T, what string, planned []string, c *cluster) {
	t.Helper()
	var want, got []string
	for _, line := range planned {
		if !strings.Contains(line, "Pending") {
			got = append(got, strings.TrimSuffix(line, " in progress"))
		}
	}
	want = append(want, c.begun...)
	for len(want) > len(got) && what != "before the change" { // it was complete
		want = want[1:]
	}
	if len(want)+len(got) == 0 {
		return
	}
	if strings.Contains(strings.Join(want, ""), " b/") {
		if want, got = times(want), times(got); c.turns {
			want, got = want[len(want)-1:], got[len(got)-1:]
		}
	}
	slices.Sort(want) // the order within a second is that in which the controller looked at them
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: the plan is not what happened (-happened +planned):\n%s\nplan: %s", what, diff, strings.Join(planned, "\n"))
	}
}
