// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package gitops tests what tools that wait for objects make of ConfigDependencies: kstatus, which Flux and others use, and Argo CD.
package gitops

import (
	"os"
	"testing"

	lua "github.com/yuin/gopher-lua"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/render"
)

// expected is what tools say of a state of a workload that has opted in, and of one that has not.
var expected = map[v1alpha1.State]struct {
	kstatus        status.Status
	argo, optedOut string
}{
	v1alpha1.StateInSync:     {status.CurrentStatus, "Healthy", "Healthy"},
	v1alpha1.StateSettling:   {status.InProgressStatus, "Progressing", "Progressing"},
	v1alpha1.StatePending:    {status.InProgressStatus, "Progressing", "Progressing"},
	v1alpha1.StateRollingOut: {status.InProgressStatus, "Progressing", "Progressing"},
	v1alpha1.StateUnknown:    {status.InProgressStatus, "Suspended", "Suspended"},
	v1alpha1.StateStale:      {status.FailedStatus, "Degraded", "Suspended"},
	v1alpha1.StateBlocked:    {status.FailedStatus, "Degraded", "Degraded"},
	v1alpha1.StateFailed:     {status.FailedStatus, "Degraded", "Degraded"},
}

// shown returns the object of a workload in a state, as the server renders it.
func shown(t *testing.T, state v1alpha1.State, mode policy.Mode) *unstructured.Unstructured {
	t.Helper()
	w := &dependency.Workload{WorkloadKey: dependency.WorkloadKey{Kind: kind.Deployment, Namespace: "shop", Name: "web"}, Created: metav1.Now()}
	g := dependency.NewGraph()
	g.SetDigester(dependency.NewDigester(make([]byte, 32)))
	e := decide.Evaluator{Graph: g}.Evaluate(w)
	e.Policy.Mode = mode
	d := decide.Decision{State: decide.State(state), Reason: "Reason", Message: "A message.", Pods: &decide.Judgement{}}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(render.ConfigDependency(kind.Table(kind.BuiltIn()), e, d))
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

// Flux and other tools take a workload for ready in the state InSync alone, and for failed if it will not get there by itself.
func TestKstatus(t *testing.T) {
	for _, state := range v1alpha1.States {
		got, err := status.Compute(shown(t, state, policy.Auto))
		if err != nil {
			t.Fatal(err)
		}
		if want := expected[state].kstatus; got.Status != want {
			t.Errorf("%s: %s (%s), want %s", state, got.Status, got.Message, want)
		}
	}
}

func TestHealthOfArgoCD(t *testing.T) {
	script, err := os.ReadFile("../../artifacts/argo-cd/health.lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range v1alpha1.States {
		for mode, want := range map[policy.Mode]string{policy.Auto: expected[state].argo, policy.Off: expected[state].optedOut} {
			if got := health(t, string(script), shown(t, state, mode).Object); got != want {
				t.Errorf("%s, mode %s: %s, want %s", state, mode, got, want)
			}
		}
	}
	if got := health(t, string(script), map[string]any{}); got != "Progressing" {
		t.Errorf("an object without a status: %s", got)
	}
}

// health runs a script as Argo CD does, and returns the status.
func health(t *testing.T, script string, object map[string]any) string {
	t.Helper()
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	l.SetGlobal("obj", value(l, object))
	if err := l.DoString(script); err != nil {
		t.Fatal(err)
	}
	result, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script returns %v", l.Get(-1))
	}
	return lua.LVAsString(result.RawGetString("status"))
}

// value returns JSON as a value of Lua.
func value(l *lua.LState, of any) lua.LValue {
	switch of := of.(type) {
	case map[string]any:
		t := l.NewTable()
		for k, v := range of {
			t.RawSetString(k, value(l, v))
		}
		return t
	case []any:
		t := l.NewTable()
		for _, v := range of {
			t.Append(value(l, v))
		}
		return t
	case string:
		return lua.LString(of)
	case bool:
		return lua.LBool(of)
	case int64:
		return lua.LNumber(of)
	case float64:
		return lua.LNumber(of)
	default:
		return lua.LNil
	}
}
