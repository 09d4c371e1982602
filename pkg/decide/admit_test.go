// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// admission returns an update that is about to be written: the current Deployment, with a change.
func (x *world) admission(newTemplate bool, change func(*appsv1.Deployment)) *decide.Admission {
	d := x.deployment.DeepCopy()
	change(d)
	w := workloadtest.Read(d)
	return &decide.Admission{Evaluation: x.known().Evaluate(w), Before: &decide.Written{Workload: x.deployment.Annotations, Template: x.deployment.Spec.Template.Annotations}, NewTemplate: newTemplate, Now: x.now}
}

// The action is also a label of a metric, so it must be right even if the workload stays the same.
func TestAdmission_Action(t *testing.T) {
	out := map[string]string{}
	in := map[string]string{policy.ReloadAnnotation: "auto"}
	recorded := map[string]string{policy.ReloadAnnotation: "auto", record.ConfigHashAnnotation: "v1.k.h"}
	mistake := map[string]string{policy.ReloadAnnotation: "auto", policy.SettleAnnotation: "soon"}
	for name, tt := range map[string]struct {
		before, after map[string]string // annotations; before is nil on create
		newTemplate   bool
		want          decide.AdmissionAction
	}{
		"created":                                   {nil, in, true, decide.Stamp},
		"created, opted out":                        {nil, out, true, decide.Leave},
		"created, with an invalid mode":             {nil, mistake, true, decide.Leave},
		"a new template":                            {recorded, recorded, true, decide.Stamp},
		"a new template, with an invalid mode":      {recorded, mistake, true, decide.Restore},
		"the same template":                         {recorded, recorded, false, decide.Restore},
		"opts in":                                   {out, in, false, decide.Adopt},
		"opts in, with a record":                    {map[string]string{record.ConfigHashAnnotation: "v1.k.h"}, in, false, decide.Restore},
		"stays opted in, without a record":          {in, in, false, decide.Restore},
		"opts in, after an invalid mode":            {map[string]string{policy.ReloadAnnotation: "yes"}, in, false, decide.Restore},
		"opts out":                                  {recorded, out, false, decide.Restore},
		"named by a glob, which would reveal names": {nil, map[string]string{policy.ReloadAnnotation: "auto", policy.SourcesAnnotation: "secret/a*"}, true, decide.Leave},
		"named in full, which reveals nothing":      {nil, map[string]string{policy.ReloadAnnotation: "auto", policy.SourcesAnnotation: "secret/a"}, true, decide.Stamp},
	} {
		t.Run(name, func(t *testing.T) {
			x := typical(t)
			x.edit(func(d *appsv1.Deployment) { d.Annotations = tt.before })
			a := x.admission(tt.newTemplate, func(d *appsv1.Deployment) { d.Annotations = tt.after })
			if tt.before == nil {
				a.Before = nil
			}
			if got := a.Action(); got != tt.want {
				t.Errorf("action = %q, want %q", got, tt.want)
			}
		})
	}
}

// Sources without which pods do not start are looked up even if they do not trigger.
func TestAdmission_AbsentNamesWhatPodsNeed(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations []string
		do          func(*world)
		want        []dependency.SourceKey
	}{
		"all sources exist": {do: func(*world) {}},
		"a required source is absent": {
			do:   func(x *world) { x.remove(dependency.Secret, "db") },
			want: []dependency.SourceKey{{Kind: dependency.Secret, Namespace: namespace, Name: "db"}},
		},
		"an excluded required source is absent": {
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
				t.Errorf("absent sources (-want +got):\n%s", diff)
			}
		})
	}
}

// What the webhook writes is what the controller would have recorded, so that it does nothing about it, and new pods that read other content are restarted.
func TestAdmission_DesiredAnnotations(t *testing.T) {
	write := func(x *world, change func(*appsv1.Deployment), newTemplate bool) decide.DesiredAnnotations {
		a := x.admission(newTemplate, change)
		want := a.DesiredAnnotations()
		x.edit(func(d *appsv1.Deployment) {
			change(d)
			put := func(to *metav1.ObjectMeta, annotations map[string]*string) {
				for key, value := range annotations {
					if value == nil {
						delete(to.Annotations, key)
					} else {
						metav1.SetMetaDataAnnotation(to, key, *value)
					}
				}
			}
			put(&d.ObjectMeta, want.Workload)
			put(&d.Spec.Template.ObjectMeta, want.Template)
		})
		return want
	}
	image := func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" }
	reload := func(mode string) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { metav1.SetMetaDataAnnotation(&d.ObjectMeta, policy.ReloadAnnotation, mode) }
	}
	t.Run("stamp", func(t *testing.T) {
		x := oneSecret(t)
		x.adopt()
		password("2")(x)
		write(x, image, true)
		if got := x.deployment.Spec.Template.Annotations[record.ConfigHashAnnotation]; got != x.evaluate().Hash {
			t.Errorf("hash of the template = %q, want %q", got, x.evaluate().Hash)
		}
		x.tick(time.Minute)
		x.rollOut()
		x.wantRestarts("the new pods have read it")
		password("3")(x)
		x.wantRestarts("the next change", db)
	})
	t.Run("adopt", func(t *testing.T) {
		x := oneSecret(t)
		optOut(x)
		password("2")(x)
		x.tick(time.Minute)
		if want := write(x, reload("auto"), false); want.Workload[record.AppliedSourcesAnnotation] == nil || want.Template[record.ConfigHashAnnotation] != nil {
			t.Errorf("annotations = %v, %v", want.Workload, want.Template)
		}
		if got := x.restarts(); len(got) > 0 {
			t.Errorf("restarts for %q", got)
		}
		x.want("opted in", stale(decide.ReasonOptedInStale, decide.None))
		password("3")(x)
		x.wantRestarts("the next change", db)
	})
	t.Run("restore", func(t *testing.T) {
		x := oneSecret(t)
		x.adopt()
		password("2")(x)
		x.wantRestarts("a change", db)
		before := x.deployment.DeepCopy()
		write(x, func(d *appsv1.Deployment) { // a manifest without them
			d.Annotations, d.Spec.Template.Annotations = map[string]string{policy.ReloadAnnotation: "auto"}, nil
		}, false)
		for _, key := range record.WorkloadMarks() {
			if x.deployment.Annotations[key] != before.Annotations[key] {
				t.Errorf("%s = %q, want %q", key, x.deployment.Annotations[key], before.Annotations[key])
			}
		}
		if diff := cmp.Diff(before.Spec.Template.Annotations, x.deployment.Spec.Template.Annotations); diff != "" {
			t.Errorf("annotations of the template (-want +got):\n%s", diff)
		}
		x.wantRestarts("the manifest is applied again")
	})
	t.Run("opting out", func(t *testing.T) {
		x := oneSecret(t)
		x.adopt()
		if want := write(x, reload("off"), false); len(want.Workload) > 0 {
			t.Errorf("annotations = %v, want that they stay the owner's", want.Workload)
		}
	})
}
