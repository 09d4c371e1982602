// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// admission returns an update that is about to be written: the Deployment as it is, but for
// what change does.
func (x *world) admission(newTemplate bool, change func(*appsv1.Deployment)) *policy.Admission {
	d := x.deployment.DeepCopy()
	change(d)
	w := workloadtest.Read(d)
	return &policy.Admission{Evaluation: x.known().Evaluate(w), Before: &policy.Written{x.deployment.Annotations, x.deployment.Spec.Template.Annotations}, NewTemplate: newTemplate}
}

// The action is a label of a metric, so that it is more than what becomes of the workload.
func TestAdmission_Action(t *testing.T) {
	out := map[string]string{}
	in := map[string]string{policy.ReloadAnnotation: "auto"}
	recorded := map[string]string{policy.ReloadAnnotation: "auto", policy.ConfigHashAnnotation: "v1.k.h"}
	mistake := map[string]string{policy.ReloadAnnotation: "auto", policy.SettleAnnotation: "soon"}
	for name, tt := range map[string]struct {
		before, after map[string]string // annotations; no before: it is created
		newTemplate   bool
		want          policy.AdmissionAction
	}{
		"created":                                 {nil, in, true, policy.Stamp},
		"created, and out":                        {nil, out, true, policy.Leave},
		"created, with a mistake":                 {nil, mistake, true, policy.Leave},
		"a new template":                          {recorded, recorded, true, policy.Stamp},
		"a new template, and a mistake":           {recorded, mistake, true, policy.Restore},
		"the same template":                       {recorded, recorded, false, policy.Restore},
		"it opts in":                              {out, in, false, policy.Adopt},
		"it opts in, and has a record":            {map[string]string{policy.ConfigHashAnnotation: "v1.k.h"}, in, false, policy.Restore},
		"it was in, and has no record":            {in, in, false, policy.Restore},
		"it had tried to opt in, with a mistake":  {map[string]string{policy.ReloadAnnotation: "yes"}, in, false, policy.Restore},
		"it opts out":                             {recorded, out, false, policy.Restore},
		"globs would tell which names there are":  {nil, map[string]string{policy.ReloadAnnotation: "auto", policy.SourcesAnnotation: "secret/a*"}, true, policy.Leave},
		"a name tells nothing that is not public": {nil, map[string]string{policy.ReloadAnnotation: "auto", policy.SourcesAnnotation: "secret/a"}, true, policy.Stamp},
	} {
		t.Run(name, func(t *testing.T) {
			x := typical(t)
			x.edit(func(d *appsv1.Deployment) { d.Annotations = tt.before })
			a := x.admission(tt.newTemplate, func(d *appsv1.Deployment) { d.Annotations = tt.after })
			if tt.before == nil {
				a.Before = nil
			}
			if got := a.Action(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A source that does not trigger is looked up as well if pods do not start without it.
func TestAdmission_AbsentNamesWhatPodsNeed(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations []string
		do          func(*world)
		want        []dependency.SourceKey
	}{
		"all are there": {do: func(*world) {}},
		"a required one is absent": {
			do:   func(x *world) { x.remove(dependency.Secret, "db") },
			want: []dependency.SourceKey{{Kind: dependency.Secret, Namespace: namespace, Name: "db"}},
		},
		"a required one that is excluded is absent": {
			annotations: []string{policy.ExcludeAnnotation, "secret/db"},
			do:          func(x *world) { x.remove(dependency.Secret, "db") },
			want:        []dependency.SourceKey{{Kind: dependency.Secret, Namespace: namespace, Name: "db"}},
		},
		"a key is absent": {
			annotations: []string{policy.ExcludeAnnotation, "secret/db"},
			do:          func(x *world) { x.set(secret("db", "user", "u")) },
			want:        []dependency.SourceKey{{Kind: dependency.Secret, Namespace: namespace, Name: "db"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			tt.do(x)
			a := x.admission(true, func(d *appsv1.Deployment) {
				for i := 0; i < len(tt.annotations); i += 2 {
					d.Annotations[tt.annotations[i]] = tt.annotations[i+1]
				}
			})
			if diff := cmp.Diff(tt.want, a.Absent()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
