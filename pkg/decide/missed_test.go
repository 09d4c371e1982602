// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// A restart by evictions names the pods that are known when it begins. One that was not is restarted after it, whether it is certain or in doubt that it has
// read old content.
func TestDecide_PodThatEvictionsMiss(t *testing.T) {
	for name, started := range map[string]time.Duration{"certain": -30 * time.Second, "in doubt": 0} {
		t.Run(name, func(t *testing.T) {
			x := oneSecret(t)
			x.annotate(policy.StrategyAnnotation, "recreate")
			x.scale(2)
			x.tick(time.Minute)
			x.adopt()
			first := x.pods[0]
			x.stop(x.pods[1].Name)
			x.tick(started)
			missed := x.start() // in the place of the second
			x.tick(-started)
			password("2")(x)
			x.tick(time.Minute)
			e, d := x.evaluate(), x.decide()
			if d.Action != decide.RollOut {
				t.Fatalf("decision = %+v", d)
			}
			x.patch(e.Policy.RestartPatch(e.Workload, &record.Restart{
				Present: e.Present(), Last: record.NewAutomaticReload(record.LastReloadOf(e.Workload), x.now, 0, d.Trigger), Changed: e.Changed(&d),
				Pods: []types.UID{first.UID},
			}))
			x.stop(first.Name)
			x.start()
			x.patch(record.EndPatch(x.workload()))
			x.tick(10 * time.Minute)
			if d := x.decide(); d.Action != decide.RollOut {
				t.Errorf("%s was missed, and the decision is %+v", missed.Name, d)
			}
		})
	}
}
