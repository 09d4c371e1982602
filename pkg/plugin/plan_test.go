// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// The plans of several namespaces are shown as one.
func TestInTurn(t *testing.T) {
	of := func(namespace string, positions ...int64) *v1alpha1.ConfigDependencyPlan {
		one := &v1alpha1.ConfigDependencyPlan{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
		for _, p := range positions {
			r := v1alpha1.PlannedRestart{Name: fmt.Sprint("deployment.w", p), Position: p, StartTime: new(metav1.Now())}
			if p < 0 {
				r.Position, r.StartTime = 0, nil // it is on hold
			}
			one.Restarts = append(one.Restarts, r)
		}
		return one
	}
	var got []string
	all := inTurn([]*v1alpha1.ConfigDependencyPlan{of("a", 0, 2, 4, -1), of("b", 0, 1, 3, -2)})
	for i := range all {
		got = append(got, all[i].Namespace+" "+all[i].workload())
	}
	if want := "[a deployment/w0 b deployment/w0 b deployment/w1 a deployment/w2 b deployment/w3 a deployment/w4 a deployment/w-1 b deployment/w-2]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}
