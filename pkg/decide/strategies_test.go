// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// A strategy that is not enabled restarts nothing, and is not replaced by another one. The workload reports it immediately,
// before any content has changed.
func TestDecide_StrategyThatIsNotAllowed(t *testing.T) {
	const own = `annotation configdep.io/strategy="recreate" is not allowed: configdep is installed without this strategy (--strategies)`
	const inherited = `annotation configdep.io/strategy="recreate" on the Namespace is not allowed: configdep is installed without this strategy (--strategies)`
	for name, tc := range map[string]struct {
		strategies          []record.Strategy
		workload, namespace string
		want                string // the problem
		reason              string
	}{
		"all are allowed":                                           {nil, "recreate", "", "", ""},
		"the strategy is allowed":                                   {[]record.Strategy{record.Annotate, record.Recreate}, "recreate", "", "", ""},
		"the strategy is not allowed":                               {[]record.Strategy{record.Annotate}, "recreate", "", own, decide.ReasonStrategyNotAllowed},
		"no strategy is set":                                        {[]record.Strategy{record.Annotate}, "", "", "", ""},
		"another strategy is set":                                   {[]record.Strategy{record.Annotate}, "annotation", "", "", ""},
		"the namespace sets the strategy":                           {[]record.Strategy{record.Annotate}, "", "recreate", inherited, decide.ReasonStrategyNotAllowed},
		"the namespace sets the strategy, the workload another one": {[]record.Strategy{record.Annotate}, "annotation", "recreate", "", ""},
		"an unknown strategy is still invalid":                      {[]record.Strategy{record.Annotate}, "reboot", "", `invalid annotation configdep.io/strategy="reboot": must be one of annotation, env-var, agent, notify, recreate, in-place`, decide.ReasonInvalidAnnotation},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(envFrom(dependency.Secret, "db")), secret("db", "a", "1"))
			x.adopt()
			x.defaults.Strategies = tc.strategies
			if tc.workload != "" {
				x.annotate(policy.StrategyAnnotation, tc.workload)
			}
			if tc.namespace != "" {
				x.namespaceAnnotations(map[string]string{policy.StrategyAnnotation: tc.namespace})
			}
			e, d := x.evaluate(), x.decide()
			if got := strings.Join(e.Policy.Problems, "; "); got != tc.want {
				t.Errorf("problem = %q, want %q", got, tc.want)
			}
			if tc.want == "" {
				if d.State != decide.InSync {
					t.Errorf("decision = %+v, want state InSync", d)
				}
				return
			}
			message := strings.ToUpper(tc.want[:1]) + tc.want[1:] + ". Automatic restarts are on hold until this is fixed."
			if diff := cmp.Diff(decide.Decision{State: decide.Blocked, Reason: tc.reason, Message: message}, d, told); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if e.Policy.RestartsBy(e.Workload) != record.Annotate {
				t.Error("the restart evicts pods")
			}
		})
	}
}

// With a second problem, the strategy is one of several invalid annotations.
func TestDecide_StrategyThatIsNotAllowed_AmongOtherProblems(t *testing.T) {
	x := newWorld(t, podOf(envFrom(dependency.Secret, "db")), secret("db", "a", "1"))
	x.defaults.Strategies = []record.Strategy{record.Annotate}
	x.annotate(policy.StrategyAnnotation, "recreate", policy.SettleAnnotation, "soon")
	if d := x.decide(); d.Reason != decide.ReasonInvalidAnnotation || !strings.Contains(d.Message, "is not allowed") || !strings.Contains(d.Message, "configdep.io/settle") {
		t.Errorf("decision = %+v, want both problems", d)
	}
}
