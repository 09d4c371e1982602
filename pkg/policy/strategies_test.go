// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/dependency"
)

// A strategy that is not switched on restarts nothing, and is not taken for another one: the workload says so as soon as it
// asks for it, before any content has changed.
func TestStrategyThatIsNotAllowed(t *testing.T) {
	const own = `annotation configdep.io/strategy="recreate" is not allowed: configdep is installed without this strategy (--strategies)`
	const inherited = `annotation configdep.io/strategy="recreate" on the Namespace is not allowed: configdep is installed without this strategy (--strategies)`
	for name, tc := range map[string]struct {
		strategies          []Strategy
		workload, namespace string
		want                string // the problem
		reason              string
	}{
		"all are allowed":                        {nil, "recreate", "", "", ""},
		"it is allowed":                          {[]Strategy{Annotate, Recreate}, "recreate", "", "", ""},
		"it is not":                              {[]Strategy{Annotate}, "recreate", "", own, ReasonStrategyNotAllowed},
		"none is asked for":                      {[]Strategy{Annotate}, "", "", "", ""},
		"another one is asked for":               {[]Strategy{Annotate}, "annotation", "", "", ""},
		"the namespace asks for it":              {[]Strategy{Annotate}, "", "recreate", inherited, ReasonStrategyNotAllowed},
		"the namespace does, the workload not":   {[]Strategy{Annotate}, "annotation", "recreate", "", ""},
		"one that nobody knows is still invalid": {[]Strategy{Annotate}, "reboot", "", `invalid annotation configdep.io/strategy="reboot": must be one of annotation, recreate`, ReasonInvalidAnnotation},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(envFrom(dependency.Secret, "db")), secret("db", "a", "1"))
			x.adopt()
			x.defaults.Strategies = tc.strategies
			if tc.workload != "" {
				x.annotate(StrategyAnnotation, tc.workload)
			}
			if tc.namespace != "" {
				x.namespaceAnnotations(map[string]string{StrategyAnnotation: tc.namespace})
			}
			e, d := x.evaluate(), x.decide()
			if got := strings.Join(e.Policy.Problems, "; "); got != tc.want {
				t.Errorf("the problem is %q, want %q", got, tc.want)
			}
			if tc.want == "" {
				if d.State != InSync {
					t.Errorf("%+v", d)
				}
				return
			}
			message := strings.ToUpper(tc.want[:1]) + tc.want[1:] + ". Automatic restarts are on hold until this is fixed."
			if diff := cmp.Diff(Decision{State: Blocked, Reason: tc.reason, Message: message}, d); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if e.Policy.RestartsBy() != Annotate {
				t.Error("its pods are evicted")
			}
		})
	}
}

// With a second problem it is one of several invalid annotations.
func TestStrategyThatIsNotAllowed_AmongOtherProblems(t *testing.T) {
	x := newWorld(t, podOf(envFrom(dependency.Secret, "db")), secret("db", "a", "1"))
	x.defaults.Strategies = []Strategy{Annotate}
	x.annotate(StrategyAnnotation, "recreate", SettleAnnotation, "soon")
	if d := x.decide(); d.Reason != ReasonInvalidAnnotation || !strings.Contains(d.Message, "is not allowed") || !strings.Contains(d.Message, "configdep.io/settle") {
		t.Errorf("%+v", d)
	}
}
