// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/policy/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/limit"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/wave"
)

// limited gives the cluster a ReloadPolicy.
func (x *world) limited(name string, spec v1alpha1.ReloadPolicySpec) {
	x.limits = x.limits.With(limit.New(&v1alpha1.ReloadPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}))
}

// dueIn returns a world in which content has changed and settled.
func dueIn(t *testing.T) *world {
	t.Helper()
	x := typical(t)
	x.adopt()
	x.set(secret("db", "password", "2"))
	x.tick(5 * time.Second)
	return x
}

func allow(schedule, duration string) v1alpha1.Window {
	d, _ := time.ParseDuration(duration)
	return v1alpha1.Window{Kind: "Allow", Schedule: schedule, Duration: metav1.Duration{Duration: d}}
}

// Each policy that selects the workload and is about one of the sources that have changed lets a restart wait.
func TestDecide_Policies(t *testing.T) {
	suspended := outcome{decide.Blocked, decide.ReasonPolicySuspended, decide.None, "Secret/db"}
	for name, tt := range map[string]struct {
		specs []v1alpha1.ReloadPolicySpec
		want  outcome
		says  string
	}{
		"nothing":             {[]v1alpha1.ReloadPolicySpec{{}}, rollOut("Secret/db"), restartIsDue},
		"suspended":           {[]v1alpha1.ReloadPolicySpec{{}, {Suspend: true}}, suspended, "The ReloadPolicy p1 suspends restarts."},
		"other workloads":     {[]v1alpha1.ReloadPolicySpec{{Suspend: true, WorkloadSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}}}, rollOut("Secret/db"), restartIsDue},
		"other namespaces":    {[]v1alpha1.ReloadPolicySpec{{Suspend: true, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}}}, rollOut("Secret/db"), restartIsDue},
		"other sources":       {[]v1alpha1.ReloadPolicySpec{{Suspend: true, Sources: []v1alpha1.SourcePattern{{Kind: "ConfigMap", Name: "*"}, {Kind: "Secret", Name: "d"}}}}, rollOut("Secret/db"), restartIsDue},
		"some sources":        {[]v1alpha1.ReloadPolicySpec{{Suspend: true, Sources: []v1alpha1.SourcePattern{{Kind: "Secret", Name: "d*"}}}}, suspended, "The ReloadPolicy p0 suspends restarts."},
		"an invalid one":      {[]v1alpha1.ReloadPolicySpec{{FailureLimit: new(int32(0)), Sources: []v1alpha1.SourcePattern{{Kind: "ConfigMap", Name: "other"}}}}, outcome{decide.Blocked, decide.ReasonPolicyInvalid, decide.None, "Secret/db"}, "The ReloadPolicy p0 is invalid, so nothing that it selects is restarted: failureLimit 0: must be at least 1"},
		"an invalid selector": {[]v1alpha1.ReloadPolicySpec{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"-": "-"}}}}, outcome{decide.Blocked, decide.ReasonPolicyInvalid, decide.None, "Secret/db"}, "is invalid"},
		"approval":            {[]v1alpha1.ReloadPolicySpec{{Approval: v1alpha1.ApprovalRequired}}, outcome{decide.Pending, decide.ReasonApproval, decide.None, "Secret/db"}, "as the ReloadPolicy p0 asks for."},
		"a window":            {[]v1alpha1.ReloadPolicySpec{{Windows: []v1alpha1.Window{allow("0 13 * * *", "1h")}}}, outcome{decide.Pending, decide.ReasonWindow, decide.None, "Secret/db"}, "A restart is due at 2026-03-01T13:00:00Z, when one may begin by the ReloadPolicy p0."},
		"windows of two":      {[]v1alpha1.ReloadPolicySpec{{Windows: []v1alpha1.Window{allow("0 13 * * *", "2h")}}, {Windows: []v1alpha1.Window{allow("30 14 * * *", "1h")}}}, outcome{decide.Pending, decide.ReasonWindow, decide.None, "Secret/db"}, "A restart is due at 2026-03-01T14:30:00Z, when one may begin by the ReloadPolicy p0."},
		"windows that never open together": {[]v1alpha1.ReloadPolicySpec{{Windows: []v1alpha1.Window{allow("0 13 * * *", "1h")}}, {Windows: []v1alpha1.Window{allow("30 14 * * *", "1h")}}},
			outcome{decide.Blocked, decide.ReasonWindow, decide.None, "Secret/db"}, "no restart may begin in the foreseeable future."},
	} {
		t.Run(name, func(t *testing.T) {
			x := dueIn(t)
			for i, spec := range tt.specs {
				x.limited("p"+string(rune('0'+i)), spec)
			}
			if d := x.want("due", tt.want); !strings.HasSuffix(d.Message, tt.says) && !strings.Contains(d.Message, tt.says) {
				t.Errorf("%q, want %q", d.Message, tt.says)
			}
			if d := x.decide(); tt.want.Reason == decide.ReasonWindow && d.RecheckAt.IsZero() {
				t.Error("it is not looked at again")
			}
		})
	}
	x := dueIn(t)
	x.limits = (*limit.Set)(nil).Unread(true)
	x.want("there may be policies", outcome{decide.Pending, decide.ReasonPolicyUnknown, decide.None, "Secret/db"})
	x.limited("p", v1alpha1.ReloadPolicySpec{})
	x.limits = x.limits.Unread(false)
	x.want("all are known", rollOut("Secret/db"))
	for i := range 64 {
		x.limited(strings.Repeat("q", i+1), v1alpha1.ReloadPolicySpec{})
	}
	x.want("too many", outcome{decide.Pending, decide.ReasonPolicyUnknown, decide.None, "Secret/db"})
	x.annotate(policy.ReloadAnnotation, "off")
	if limits := x.evaluate().Limits(); limits != nil {
		t.Errorf("policies of a workload that has not opted in: %v", limits)
	}
}

// What is assumed to change is due as if it had changed, and no approval of the content of now is one of what it would be.
func TestDecide_Assumed(t *testing.T) {
	x := typical(t)
	x.annotate(policy.ApprovalAnnotation, "required")
	x.adopt()
	a := record.NewApproval(record.Approved, x.evaluate().Hash, "ada", "", metav1.NewMicroTime(x.now))
	x.patch(record.ApprovalPatch(x.workload(), &a))
	for _, of := range []dependency.SourceKey{{Kind: dependency.Secret, Namespace: namespace, Name: "db"}, {Kind: dependency.Secret, Name: "db"}, {Kind: dependency.Secret, Namespace: "other", Name: "db"}} {
		known := x.known()
		known.Assumed = &decide.Change{Source: of, At: x.now}
		d := known.Evaluate(x.workload()).Decide(x.now.Add(time.Minute))
		want := outcome{decide.Pending, decide.ReasonApproval, decide.None, "Secret/db"}
		if of.Namespace == "other" {
			want = outcome{decide.InSync, decide.ReasonContentApplied, decide.None, ""}
		}
		if got := outcomeOf(d); got != want {
			t.Errorf("%+v changes: %+v (%s), want %+v", of, got, d.Message, want)
		}
	}
}

// A workload with many sources that many policies select would hold up the planner.
func TestDecide_TooLimited(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.annotate(policy.SourcesAnnotation, "configmap/*")
	for i := range 127 { // and the Secret
		x.set(configMap(fmt.Sprint("c", i), "a", "1"))
	}
	x.tick(time.Hour)
	x.image("web:2")
	x.rollOut()
	x.tick(time.Hour)
	x.act()
	for i := range 32 {
		x.limited(fmt.Sprint("p", i), v1alpha1.ReloadPolicySpec{})
	}
	x.set(secret("db", "password", "2"))
	x.tick(time.Minute)
	x.want("4096", rollOut("Secret/db"))
	x.limited("q", v1alpha1.ReloadPolicySpec{})
	d := x.want("one policy more", outcome{decide.Blocked, decide.ReasonTooManySources, decide.None, "Secret/db"})
	if !strings.Contains(d.Message, "33 ReloadPolicies select it, and it has 128 sources.") {
		t.Errorf("%q", d.Message)
	}
	p := &planned{}
	x.waves = p
	if x.decide(); len(p.told.Policies) != 0 {
		t.Errorf("the planner was told of %d policies", len(p.told.Policies))
	}
}

const restartIsDue = "A restart is due."

// Requests are held only by policies that bind them, whether or not the workload has opted in.
func TestHoldsRequests(t *testing.T) {
	for want, spec := range map[string]v1alpha1.ReloadPolicySpec{
		"": {Suspend: true},
		"the ReloadPolicy p suspends restarts, also on request":                                    {Suspend: true, Requests: v1alpha1.RequestsBound},
		"by the ReloadPolicy p, no restart may begin before 2026-03-01T13:00:00Z, also on request": {Windows: []v1alpha1.Window{allow("0 13 * * *", "1h")}, Requests: v1alpha1.RequestsBound},
		"by the ReloadPolicy p, no restart may begin in the foreseeable future, also on request":   {Windows: []v1alpha1.Window{{Kind: "Deny", Schedule: "* * * * *", Duration: metav1.Duration{Duration: time.Hour}}}, Requests: v1alpha1.RequestsBound},
	} {
		x := typical(t)
		x.limited("p", spec)
		if got := x.evaluate().HoldsRequests(x.now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	x := typical(t)
	x.limited("p", v1alpha1.ReloadPolicySpec{Windows: []v1alpha1.Window{allow("0 12 * * *", "1h")}, Requests: v1alpha1.RequestsBound})
	x.limited("invalid", v1alpha1.ReloadPolicySpec{Suspend: true, FailureLimit: new(int32(0)), Requests: v1alpha1.RequestsBound})
	x.limited("others", v1alpha1.ReloadPolicySpec{Suspend: true, Sources: []v1alpha1.SourcePattern{{Kind: "Secret", Name: "another"}}, Requests: v1alpha1.RequestsBound})
	if got := x.evaluate().HoldsRequests(x.now); got != "" {
		t.Errorf("in its window: %q", got)
	}
}

// Approval is for the content of that time.
func TestDecide_Approval(t *testing.T) {
	x := typical(t)
	x.annotate(policy.ApprovalAnnotation, "required")
	x.adopt()
	x.set(secret("db", "password", "2"))
	x.tick(5 * time.Second)
	waits := outcome{decide.Pending, decide.ReasonApproval, decide.None, "Secret/db"}
	d := x.want("not approved", waits)
	if want := "A restart is due when a user has approved the content " + x.evaluate().Hash + ", as the annotation configdep.io/approval asks for."; !strings.HasSuffix(d.Message, want) {
		t.Errorf("%q, want %q", d.Message, want)
	}
	decided := func(decision, hash string) {
		a := record.NewApproval(decision, hash, "ada", "it is late", metav1.NewMicroTime(x.now))
		x.annotate(record.ApprovedAnnotation, a.Text())
	}
	decided(record.Denied, x.evaluate().Hash)
	if d = x.want("denied", outcome{decide.Blocked, decide.ReasonDenied, decide.None, "Secret/db"}); !strings.HasSuffix(d.Message, " by ada. The reason is: it is late") {
		t.Errorf("%q", d.Message)
	}
	decided(record.Approved, "another")
	x.want("other content is approved", waits)
	decided("Maybe", x.evaluate().Hash)
	x.want("no decision", waits)
	decided(record.Approved, x.evaluate().Hash)
	x.want("approved", rollOut("Secret/db"))
	x.act()
	x.rollOut()
	x.wantRestarts("after the rollout")
	x.set(secret("db", "password", "3"))
	x.tick(time.Minute)
	x.want("the content changes again", waits)
}

// With the strategy notify, a change is told, and restarts nothing.
func TestDecide_Notify(t *testing.T) {
	x := typical(t)
	x.annotate(policy.StrategyAnnotation, "notify")
	x.adopt()
	x.set(secret("db", "password", "2"))
	x.want("it settles", outcome{decide.Settling, "SourceChanged", decide.None, "Secret/db"})
	x.tick(5 * time.Second)
	x.want("it is told", outcome{decide.Stale, decide.ReasonNotifyOnly, decide.Observe, "Secret/db"})
	x.request()
	x.rollOut()
	x.wantRestarts("on request")
}

// planned is what a wave is told of a workload, and what it answers.
type planned struct {
	told wave.Member
	hold *wave.Hold
}

func (p *planned) Hold(m *wave.Member) *wave.Hold {
	p.told = *m
	return p.hold
}

// A wave is told whether a workload is due, is being restarted, fails or bakes.
func TestDecide_Member(t *testing.T) {
	p := &planned{}
	x := typical(t)
	x.waves = p
	x.annotate(policy.OrderAnnotation, "-7")
	x.limited("p", v1alpha1.ReloadPolicySpec{BakeTime: &metav1.Duration{Duration: 10 * time.Minute}})
	x.limited("q", v1alpha1.ReloadPolicySpec{BakeTime: &metav1.Duration{Duration: 5 * time.Minute}})
	x.adopt()
	want := func(what string, due, inProgress, unfinished, isFailing, baked bool, sources int) {
		t.Helper()
		x.decide()
		m := &p.told
		if m.Due != due || m.InProgress != inProgress || m.Unfinished != unfinished || len(m.Fails) > 0 != isFailing || len(m.Baking) > 0 != baked || len(m.For)+len(m.Began)+len(m.Fails) != sources || m.Order != -7 || len(m.Reads) != 3 {
			t.Errorf("%s: %+v", what, *m)
		}
	}
	want("nothing is due", false, false, false, false, false, 0)
	x.set(secret("db", "other", "1"))
	want("the new content lacks a key", false, false, true, false, false, 0)
	x.set(secret("db", "password", "2"))
	want("it settles", false, false, true, false, false, 1)
	x.tick(5 * time.Second)
	want("it is due", true, false, true, false, false, 1)
	p.hold = &wave.Hold{Why: wave.Order, Source: p.told.For[0], By: p.told.WorkloadKey}
	if d := x.want("others come first", outcome{decide.Pending, decide.ReasonOrder, decide.None, "Secret/db"}); d.RecheckAt.IsZero() || !strings.Contains(d.Message, "such as Deployment web.") {
		t.Errorf("%q, again at %v", d.Message, d.RecheckAt)
	}
	p.hold.By.Namespace = "other"
	if d := x.decide(); !strings.Contains(d.Message, "such as a workload in another namespace.") || strings.Contains(d.Message, "web") {
		t.Errorf("%q", d.Message)
	}
	p.hold.Policy = limit.In(x.graph()).All()[0]
	if d := x.decide(); !strings.Contains(d.Message, "that read Secret/db have been up to date and ready for 10m0s (ReloadPolicy p), such as") {
		t.Errorf("%q", d.Message)
	}
	p.hold.Why, p.hold.Limit = wave.Budget, &limit.Budget{}
	if d := x.want("nothing may begin", outcome{decide.Pending, decide.ReasonBudget, decide.None, "Secret/db"}); !strings.HasSuffix(d.Message, "No restart may begin: 0 workloads may be restarted at a time (ReloadPolicy p).") {
		t.Errorf("%q", d.Message)
	}
	p.hold.Why = wave.Halted
	if d := x.want("others fail", outcome{decide.Blocked, decide.ReasonHalted, decide.None, "Secret/db"}); !d.Timed || d.RecheckAt.IsZero() {
		t.Errorf("other replicas show the same from this version on: %+v", d)
	}
	p.hold = nil
	for _, decision := range []string{record.Denied, record.Approved} { // denied content lets no one else pass
		x.annotate(policy.ApprovalAnnotation, "required")
		a := record.NewApproval(decision, x.evaluate().Hash, "ada", "", metav1.NewMicroTime(x.now))
		x.annotate(record.ApprovedAnnotation, a.Text())
		want(decision, decision == record.Approved, false, true, false, false, 1)
	}
	x.annotate(policy.ApprovalAnnotation, "")
	x.act()
	x.tick(time.Second)
	want("it is being restarted", false, true, true, false, false, 1)
	x.rollOut()
	ready := x.now
	for i := range x.pods {
		x.pods[i] = x.pods[i].DeepCopy()
		x.pods[i].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(ready).Rfc3339Copy()}}
		x.set(x.pods[i])
	}
	x.tick(2 * time.Second)
	want("it bakes", false, false, false, false, true, 0)
	if d := x.decide(); len(p.told.Baking) != 2 || !d.RecheckAt.Equal(ready.Add(5*time.Minute)) {
		t.Errorf("it bakes for %d policies, and is looked at again at %v", len(p.told.Baking), d.RecheckAt)
	}
	x.tick(5 * time.Minute)
	if x.decide(); len(p.told.Baking) != 1 || p.told.Baking[0].Name != "p" {
		t.Errorf("it bakes by %v", p.told.Baking)
	}
	x.tick(-5 * time.Minute)
	crashed := x.pods[0].DeepCopy()
	crashed.Status.Conditions[0].Status = corev1.ConditionFalse
	crashed.Status.ContainerStatuses[0].RestartCount++
	x.set(crashed)
	want("it fails", false, false, true, true, false, 1)
	x.set(x.pods[0])
	x.tick(10 * time.Minute)
	want("it has baked", false, false, false, false, false, 0)
	crashed.Status.Conditions[0].LastTransitionTime = metav1.NewTime(x.now)
	x.set(crashed)
	want("it fails long after the restart", false, false, false, false, false, 0)
	x.tick(-6 * time.Minute)

	x.annotate(policy.HealthyWithinAnnotation, "1m")
	slow := x.pods[0].DeepCopy()
	slow.Status.Conditions[0].Status, slow.Status.Conditions[0].LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(x.now).Rfc3339Copy()
	x.set(slow)
	want("it is not ready", false, false, false, false, false, 0)
	if d := x.decide(); d.RecheckAt.IsZero() {
		t.Error("it is not looked at again")
	}
	x.tick(time.Minute)
	want("for too long", false, false, true, true, false, 1)
	x.set(configMap("settings", "color", "red"))
	want("it is about to be restarted for something else", false, false, true, true, false, 2)
	x.annotate(policy.HoldAnnotation, "wait")
	want("it is on hold", false, false, true, true, false, 2)
	x.annotate(policy.HoldAnnotation, "")
	x.set(configMap("settings", "a", "1", "b", "1"))
	x.set(secret("db", "password", "3"))
	want("the content has changed", false, false, true, false, false, 1)
	x.remove("Secret", "db")
	want("the new content is missing", false, false, true, false, false, 0)
	x.set(secret("db", "password", "2"))
	waiting := slow.DeepCopy()
	waiting.Status.ContainerStatuses[0].RestartCount, waiting.Status.ContainerStatuses[0].State = 2, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	x.set(waiting)
	want("it crashes", false, false, true, true, false, 1)
	x.set(secret("db", "password", "3"))
	want("it will read the new content when it is started again", false, false, true, false, false, 0)
}

// A workload that has never had what it lacks lets no other workload wait, nor does one that a source does not restart.
func TestDecide_MemberThatLacksASource(t *testing.T) {
	p := &planned{}
	x := typical(t)
	x.waves = p
	x.annotate(policy.OrderAnnotation, "-7")
	x.remove("Secret", "db")
	x.act()
	x.set(configMap("settings", "color", "red"))
	x.want("it cannot start", outcome{decide.Blocked, decide.ReasonSourceMissing, decide.None, ""})
	if p.told.Unfinished {
		t.Errorf("%+v", p.told)
	}

	adopted := func() *world {
		x := typical(t)
		x.waves = p
		x.adopt()
		return x
	}
	x = adopted()
	x.edit(func(d *appsv1.Deployment) { // by mistake
		env := &d.Spec.Template.Spec.Containers[0].Env
		*env = append(*env, corev1.EnvVar{Name: "U", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}, Key: "user"}}})
	})
	x.set(secret("db", "password", "2"))
	x.want("a key that never was", outcome{decide.Blocked, decide.ReasonKeyMissing, decide.None, ""})
	if p.told.Unfinished {
		t.Errorf("%+v", p.told)
	}

	x = adopted()
	x.set(secret("db", "other", "1"))
	if x.decide(); !p.told.Unfinished {
		t.Errorf("it lacks a key that it had: %+v", p.told)
	}
	x.annotate(policy.ExcludeAnnotation, "secret/db")
	if x.decide(); p.told.Unfinished {
		t.Errorf("a source that does not restart it: %+v", p.told)
	}
}

// What is being restarted counts as such until the rollout is complete, also once it is due again, or fails with content that has changed since.
func TestDecide_MemberAgain(t *testing.T) {
	p := &planned{}
	x := typical(t)
	x.waves = p
	x.scale(2)
	x.rollOut()
	x.adopt()
	x.set(secret("db", "password", "2"))
	x.tick(time.Minute)
	x.act()
	x.rollOutSome(1)
	x.tick(time.Minute)
	x.set(secret("db", "password", "3"))
	x.tick(time.Minute)
	if x.decide(); !p.told.Due || !p.told.InProgress || len(p.told.For) != 1 || len(p.told.Began) != 1 {
		t.Errorf("due again: %+v", p.told)
	}
	for i := range x.pods {
		x.pods[i] = x.pods[i].DeepCopy()
		x.pods[i].Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
		x.set(x.pods[i])
	}
	if x.decide(); p.told.Due || len(p.told.Fails) > 0 || !p.told.InProgress || len(p.told.Began) != 1 {
		t.Errorf("its pods crash, and will read the new content: %+v", p.told)
	}
}

// Pods that are evicted are being replaced, and those that crashed before that do not fail with the new content.
func TestDecide_MemberOfEvictions(t *testing.T) {
	p := &planned{}
	x := typical(t)
	x.waves = p
	x.annotate(policy.StrategyAnnotation, "recreate")
	x.adopt()
	x.crash()
	x.tick(time.Minute)
	x.set(secret("db", "password", "2"))
	x.tick(time.Minute)
	x.act()
	if x.decide(); !p.told.InProgress || len(p.told.Fails) > 0 {
		t.Errorf("while pods are evicted: %+v", p.told)
	}
}

// A rollout that waits for a pod for too long has failed: others need not wait for room.
func TestDecide_MemberOfAFailedRollout(t *testing.T) {
	const day = 24 * time.Hour
	for since, failed := range map[time.Duration]bool{9 * time.Minute: false, 11 * time.Minute: true} {
		x, _ := setOf(t, kind.StatefulSet, true, member{revision: "1", created: day, since: since}, member{revision: "2", created: day, ready: true, since: day})
		p := &planned{}
		evaluate := func() (e *decide.Evaluation) {
			x.Read(func(known decide.Evaluator) {
				known.Waves = p
				e = known.Evaluate(known.Graph.Workload(dependency.WorkloadKey{Kind: kind.StatefulSet, Namespace: namespace, Name: "set"}))
			})
			return e
		}
		r := evaluate().Present()
		r.For = r.Hash
		last := record.NewAutomaticReload(nil, x.now.Add(-day), 0, "Secret/db")
		set := x.Stored(ingesttest.StatefulSet("set", corev1.PodSpec{})).DeepCopyObject().(*appsv1.StatefulSet)
		set.Spec.Template.Annotations = map[string]string{record.ConfigHashAnnotation: r.Hash}
		set.Annotations = map[string]string{
			policy.ReloadAnnotation: "auto", record.ConfigHashAnnotation: r.Hash, record.AppliedSourcesAnnotation: r.Text(),
			record.LastReloadAnnotation: last.Text(),
		}
		x.Set(set)
		evaluate().Decide(x.now)
		if m := &p.told; m.InProgress == failed || len(m.Fails) > 0 != failed || !m.Unfinished {
			t.Errorf("not ready for %v: %+v", since, m)
		}
	}
}
