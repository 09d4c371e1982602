// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// A strategy that is not enabled restarts nothing, and is not replaced by another one. The workload reports it immediately,
// before any content has changed.
func TestDecide_StrategyThatIsNotAllowed(t *testing.T) {
	const own = `annotation configdep.io/strategy="recreate" is not allowed: configdep is installed without this strategy (--strategies)`
	const inherited = `annotation configdep.io/strategy="recreate" on the Namespace is not allowed: configdep is installed without this strategy (--strategies)`
	for name, tc := range map[string]struct {
		strategies          []policy.Strategy
		workload, namespace string
		want                string // the problem
		reason              string
	}{
		"all are allowed":                                           {nil, "recreate", "", "", ""},
		"the strategy is allowed":                                   {[]policy.Strategy{policy.Annotate, policy.Recreate}, "recreate", "", "", ""},
		"the strategy is not allowed":                               {[]policy.Strategy{policy.Annotate}, "recreate", "", own, policy.ReasonStrategyNotAllowed},
		"no strategy is set":                                        {[]policy.Strategy{policy.Annotate}, "", "", "", ""},
		"another strategy is set":                                   {[]policy.Strategy{policy.Annotate}, "annotation", "", "", ""},
		"the namespace sets the strategy":                           {[]policy.Strategy{policy.Annotate}, "", "recreate", inherited, policy.ReasonStrategyNotAllowed},
		"the namespace sets the strategy, the workload another one": {[]policy.Strategy{policy.Annotate}, "annotation", "recreate", "", ""},
		"an unknown strategy is still invalid":                      {[]policy.Strategy{policy.Annotate}, "reboot", "", `invalid annotation configdep.io/strategy="reboot": must be one of annotation, env-var, agent, recreate, in-place`, policy.ReasonInvalidAnnotation},
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
				if d.State != policy.InSync {
					t.Errorf("decision = %+v, want state InSync", d)
				}
				return
			}
			message := strings.ToUpper(tc.want[:1]) + tc.want[1:] + ". Automatic restarts are on hold until this is fixed."
			if diff := cmp.Diff(policy.Decision{State: policy.Blocked, Reason: tc.reason, Message: message}, d, told); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if e.Policy.RestartsBy(e.Workload) != policy.Annotate {
				t.Error("the restart evicts pods")
			}
		})
	}
}

// With a second problem, the strategy is one of several invalid annotations.
func TestDecide_StrategyThatIsNotAllowed_AmongOtherProblems(t *testing.T) {
	x := newWorld(t, podOf(envFrom(dependency.Secret, "db")), secret("db", "a", "1"))
	x.defaults.Strategies = []policy.Strategy{policy.Annotate}
	x.annotate(policy.StrategyAnnotation, "recreate", policy.SettleAnnotation, "soon")
	if d := x.decide(); d.Reason != policy.ReasonInvalidAnnotation || !strings.Contains(d.Message, "is not allowed") || !strings.Contains(d.Message, "configdep.io/settle") {
		t.Errorf("decision = %+v, want both problems", d)
	}
}
