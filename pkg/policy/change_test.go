// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// typical is a Deployment that reads one key of a Secret, all of a ConfigMap, and an
// optional Secret that is absent.
func typical(t *testing.T) *world {
	t.Helper()
	return newWorld(t, podOf(
		env(dependency.Secret, "db", "password"),
		envFrom(dependency.ConfigMap, "settings"),
		optionalEnvFrom(dependency.Secret, "extra"),
	), secret("db", "password", "1", "unread", "1"), configMap("settings", "a", "1", "b", "1"))
}

// TestDecide_WhatIsAChange starts with a workload whose record is up to date, and expects each
// event to cause a restart, a new record or nothing, and no further action.
func TestDecide_WhatIsAChange(t *testing.T) {
	for name, tc := range map[string]struct {
		before []string // annotations when the workload was adopted
		do     func(*world)
		want   outcome
	}{
		"content of a key that is read": {
			do:   func(x *world) { x.set(secret("db", "password", "2", "unread", "1")) },
			want: rollOut("Secret/db"),
		},
		"content of a key that is not read": {
			do:   func(x *world) { x.set(secret("db", "password", "1", "unread", "2")) },
			want: nothing,
		},
		"a key that is not read is added": {
			do:   func(x *world) { x.set(secret("db", "password", "1", "unread", "1", "more", "1")) },
			want: nothing,
		},
		"a key is added, and all are read": {
			do:   func(x *world) { x.set(configMap("settings", "a", "1", "b", "1", "c", "1")) },
			want: rollOut("ConfigMap/settings"),
		},
		"a key is removed, and all are read": {
			do:   func(x *world) { x.set(configMap("settings", "a", "1")) },
			want: rollOut("ConfigMap/settings"),
		},
		"metadata of a source": {
			do:   func(x *world) { x.set(annotated(configMap("settings", "a", "1", "b", "1"), "example.com/by", "me")) },
			want: nothing,
		},
		"content changes and changes back": {
			do: func(x *world) {
				x.set(configMap("settings", "a", "2", "b", "1"))
				x.set(configMap("settings", "a", "1", "b", "1"))
			},
			want: inspect("ConfigMap/settings"),
		},
		"content changes and changes back, and containers were started in between": {
			do: func(x *world) {
				x.mixed = []string{"ConfigMap/settings"}
				x.set(configMap("settings", "a", "2", "b", "1"))
				x.set(configMap("settings", "a", "1", "b", "1"))
				x.act()
			},
			want: rollOut("ConfigMap/settings"),
		},
		"a key is removed and added again": {
			do: func(x *world) {
				x.set(configMap("settings", "a", "1"))
				x.set(configMap("settings", "a", "1", "b", "1"))
			},
			want: inspect("ConfigMap/settings"),
		},
		"an optional source is created and deleted": {
			do: func(x *world) {
				x.set(secret("extra", "a", "1"))
				x.remove(dependency.Secret, "extra")
			},
			want: inspect("Secret/extra"),
		},
		"deleted and created again with the same content": {
			do: func(x *world) {
				x.remove(dependency.ConfigMap, "settings")
				x.set(configMap("settings", "a", "1", "b", "1"))
			},
			want: nothing,
		},
		"deleted and created again with other content": {
			do: func(x *world) {
				x.remove(dependency.ConfigMap, "settings")
				x.set(configMap("settings", "a", "2", "b", "1"))
			},
			want: rollOut("ConfigMap/settings"),
		},
		"an optional source is created": {
			do:   func(x *world) { x.set(secret("extra", "a", "1")) },
			want: rollOut("Secret/extra"),
		},
		"an optional source is created without content": {
			do:   func(x *world) { x.set(secret("extra")) },
			want: nothing,
		},
		"two sources": {
			do: func(x *world) {
				x.set(secret("db", "password", "2"))
				x.set(configMap("settings", "a", "2"))
			},
			want: rollOut("ConfigMap/settings"),
		},
		"a source that is not used": {
			do:   func(x *world) { x.set(secret("other", "a", "1")) },
			want: nothing,
		},

		"a change of the policy: a source is excluded": {
			do:   func(x *world) { x.annotate(policy.ExcludeAnnotation, "secret/db") },
			want: baseline,
		},
		"a change of the policy: a source is no longer excluded": {
			before: []string{policy.ExcludeAnnotation, "secret/db"},
			do:     func(x *world) { x.annotate(policy.ExcludeAnnotation, "") },
			want:   baseline,
		},
		"a change of the policy: a source that exists is named": {
			do: func(x *world) {
				x.set(secret("other", "a", "1"))
				x.annotate(policy.SourcesAnnotation, "secret/other")
			},
			want: baseline,
		},
		"a change of the policy: a source is no longer named": {
			before: []string{policy.SourcesAnnotation, "secret/other"},
			do:     func(x *world) { x.annotate(policy.SourcesAnnotation, "") },
			want:   baseline,
		},
		"a change of the policy: a glob is added": {
			do:   func(x *world) { x.annotate(policy.SourcesAnnotation, "secret/d*") },
			want: baseline, // the record shows that the glob matches no other source
		},
		"a change of the policy: another mode": {
			do:   func(x *world) { x.annotate(policy.ReloadAnnotation, "matched") },
			want: baseline,
		},
		"a change of the policy: the mode of the namespace": {
			before: []string{policy.ReloadAnnotation, "listed"},
			do: func(x *world) {
				x.namespaceAnnotations(map[string]string{policy.ReloadAnnotation: "auto"})
				x.annotate(policy.ReloadAnnotation, "")
			},
			want: baseline,
		},
		"a change of the policy: kinds": {
			do:   func(x *world) { x.annotate(policy.KindsAnnotation, "secret") },
			want: baseline,
		},
		"a change of the policy: all kinds": {
			before: []string{policy.KindsAnnotation, "secret"},
			do:     func(x *world) { x.annotate(policy.KindsAnnotation, "") },
			want:   baseline,
		},
		"a change of the policy: settle, interval, strategy": {
			do: func(x *world) {
				x.annotate(policy.SettleAnnotation, "5s", policy.MinIntervalAnnotation, "1m", policy.StrategyAnnotation, "recreate")
			},
			want: nothing,
		},
		"a change of the policy: made invalid and fixed": {
			do: func(x *world) {
				x.annotate(policy.ExcludeAnnotation, "db")
				x.annotate(policy.ExcludeAnnotation, "")
			},
			want: nothing,
		},
		"a source is ignored from now on": {
			do: func(x *world) {
				x.set(annotated(configMap("settings", "a", "1", "b", "1"), policy.IgnoreAnnotation, "true"))
			},
			want: baseline,
		},
		"a source is ignored, and changes": {
			do:   func(x *world) { x.set(annotated(configMap("settings", "a", "2"), policy.IgnoreAnnotation, "true")) },
			want: baseline,
		},
		"one change counts although another source is excluded at the same time": {
			do: func(x *world) {
				x.set(secret("db", "password", "2"))
				x.annotate(policy.ExcludeAnnotation, "configmap/settings")
			},
			want: rollOut("Secret/db"),
		},

		"the template begins to use a source": {
			do: func(x *world) {
				x.set(secret("other", "a", "1"))
				x.edit(func(d *appsv1.Deployment) { envFrom(dependency.Secret, "other")(&d.Spec.Template.Spec) })
			},
			want: baseline,
		},
		"the template stops using a source": {
			do:   func(x *world) { x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Env = nil }) },
			want: baseline,
		},
		"the template reads another key": {
			do: func(x *world) {
				x.edit(func(d *appsv1.Deployment) { env(dependency.Secret, "db", "unread")(&d.Spec.Template.Spec) })
			},
			want: baseline,
		},
		"the image": {
			do: func(x *world) {
				x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
			},
			want: nothing,
		},
		"content, and then the image: the new pods have read the content": {
			do: func(x *world) {
				x.set(secret("db", "password", "2"))
				x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
			},
			want: baseline,
		},
		"the image, and then content": {
			do: func(x *world) {
				x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
				x.set(secret("db", "password", "2"))
			},
			want: rollOut("Secret/db"),
		},
		"content, the image, and other content: only the latter is unread": {
			do: func(x *world) {
				x.set(secret("db", "password", "2"))
				x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
				x.set(configMap("settings", "a", "2"))
			},
			want: rollOut("ConfigMap/settings"),
		},
		"replicas and labels": {
			do:   func(x *world) { x.edit(func(d *appsv1.Deployment) { d.Labels = map[string]string{"a": "b"} }) },
			want: nothing,
		},

		"opted out, and in again": {
			do: func(x *world) {
				x.annotate(policy.ReloadAnnotation, "off")
				x.annotate(policy.ReloadAnnotation, "auto")
			},
			want: nothing,
		},
		"opted out, and in again after content has changed": {
			do: func(x *world) {
				x.annotate(policy.ReloadAnnotation, "off")
				x.set(secret("db", "password", "2"))
				x.annotate(policy.ReloadAnnotation, "auto")
			},
			want: rollOut("Secret/db"),
		},
		"opted out, restarted by the owner, and in again": {
			do: func(x *world) {
				x.annotate(policy.ReloadAnnotation, "off")
				x.set(secret("db", "password", "2"))
				x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
				x.annotate(policy.ReloadAnnotation, "auto")
			},
			want: baseline,
		},

		"the key of the hash is replaced": {
			do:   func(x *world) { x.replaceKey() },
			want: adoption,
		},
		"the process restarts": {
			do:   func(x *world) { x.restart() },
			want: nothing,
		},
		"content changes while no process watches": {
			do:   func(x *world) { x.away(func() { x.set(secret("db", "password", "2")) }) },
			want: rollOut("Secret/db"),
		},
		"an optional source is created while no process watches": {
			do:   func(x *world) { x.away(func() { x.set(secret("extra", "a", "1")) }) },
			want: rollOut("Secret/extra"),
		},

		"the record of sources is invalid, the content is the same": {
			do:   func(x *world) { x.annotate(policy.AppliedSourcesAnnotation, "{") },
			want: baseline,
		},
		"the record of sources is invalid, and content changes": {
			do: func(x *world) {
				x.annotate(policy.AppliedSourcesAnnotation, "[1]")
				x.set(secret("db", "password", "2"))
			},
			want: rollOut(policy.TriggerUnknown),
		},
		"the hash is invalid: it cannot be compared": {
			do:   func(x *world) { x.annotate(policy.ConfigHashAnnotation, "garbage") },
			want: adoption,
		},
		"the record is removed, as by an owner that replaces all annotations": {
			do:   func(x *world) { x.annotate(policy.ConfigHashAnnotation, "", policy.AppliedSourcesAnnotation, "") },
			want: restored,
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := typical(t)
			x.annotate(tc.before...)
			x.adopt()
			tc.do(x)
			x.tick(time.Minute) // everything has settled
			if diff := cmp.Diff(tc.want, outcomeOf(x.act())); diff != "" {
				t.Fatalf("decision (-want +got):\n%s", diff)
			}
			x.tick(time.Hour)
			if d := x.decide(); d.State != policy.InSync || d.Action != policy.None {
				t.Errorf("the next decision = %+v, want state InSync and no action", d)
			}
			// The record must show later changes.
			if e := x.evaluate(); e.Policy.Mode == policy.Auto && e.Policy.Kinds == nil && len(e.Policy.Exclude) == 0 {
				x.set(secret("db", "password", "3", "unread", "1"))
				x.tick(time.Minute)
				if usesPassword := len(x.deployment.Spec.Template.Spec.Containers[0].Env) > 0; usesPassword {
					if diff := cmp.Diff(rollOut("Secret/db"), outcomeOf(x.decide())); diff != "" {
						t.Errorf("another change (-want +got):\n%s", diff)
					}
				}
			}
		})
	}
}

// TestDecide_LiveVolumesToggledIsNoChange: the toggle changes which keys count of a source that is
// read both by a variable and by a volume.
func TestDecide_LiveVolumesToggledIsNoChange(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "s", "a"), volume(dependency.Secret, "s", "")), secret("s", "a", "1", "b", "1"))
	x.adopt()
	for _, value := range []string{"true", "false", "true"} {
		x.annotate(policy.LiveVolumesAnnotation, value)
		if diff := cmp.Diff(baseline, outcomeOf(x.act())); diff != "" {
			t.Errorf("live-volumes=%s (-want +got):\n%s", value, diff)
		}
		if diff := cmp.Diff(nothing, outcomeOf(x.act())); diff != "" {
			t.Errorf("live-volumes=%s: the next decision (-want +got):\n%s", value, diff)
		}
	}
}
