// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// How containers see keys is part of the scope: a template that begins to show a binary key does not
// change content.
func TestScope_ToldByWhatIsSeen(t *testing.T) {
	use := func(how dependency.UseType, keys ...string) dependency.Use {
		return dependency.Use{Type: how, Container: "app", Keys: keys}
	}
	for name, tt := range map[string]struct {
		a, b []dependency.Use
		same bool
	}{
		"variables and files": {[]dependency.Use{use(dependency.EnvFrom)}, []dependency.Use{use(dependency.Volume)}, false},
		"variables, and then files as well": {[]dependency.Use{use(dependency.EnvFrom)},
			[]dependency.Use{use(dependency.EnvFrom), use(dependency.Volume)}, false},
		"files, and then variables as well": {[]dependency.Use{use(dependency.Volume)},
			[]dependency.Use{use(dependency.EnvFrom), use(dependency.Volume)}, false},
		"keys are swapped": {[]dependency.Use{use(dependency.Env, "a"), use(dependency.Volume, "b")},
			[]dependency.Use{use(dependency.Env, "b"), use(dependency.Volume, "a")}, false},
		"files of two kinds": {[]dependency.Use{use(dependency.Volume)}, []dependency.Use{use(dependency.Projected)}, true},
		"another variable":   {[]dependency.Use{use(dependency.Env, "a")}, []dependency.Use{use(dependency.Env, "a"), use(dependency.Env, "a")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, same := range map[dependency.SourceKind]bool{dependency.ConfigMap: tt.same, dependency.Secret: true} {
				a, b := dependency.Reference{Kind: kind, Uses: tt.a}, dependency.Reference{Kind: kind, Uses: tt.b}
				if name == "keys are swapped" && kind == dependency.Secret {
					continue // both read both
				}
				if got := policy.ScopeOf(&a) == policy.ScopeOf(&b); got != same {
					t.Errorf("%s: scopes = %s and %s, want the same: %v", kind, policy.ScopeOf(&a), policy.ScopeOf(&b), same)
				}
			}
		})
	}
}

func TestDecide_TemplateThatBeginsToShowABinaryKey(t *testing.T) {
	cm := configMap("settings", "a", "1")
	cm.BinaryData = map[string][]byte{"b": {1}}
	x := newWorld(t, podOf(envFrom(dependency.ConfigMap, "settings")), cm)
	x.SeparateCounters()
	x.adopt()
	x.edit(func(d *appsv1.Deployment) { volume(dependency.ConfigMap, "settings", "")(&d.Spec.Template.Spec) })
	if diff := cmp.Diff(baseline, outcomeOf(x.decide())); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

// Content may have differed from the record since before this process started. Then the time of
// the first change is not known.
func TestDecide_OtherContentSinceBeforeTheStart(t *testing.T) {
	for name, tt := range map[string]struct {
		before string
		known  bool
	}{"other content": {"2", false}, "the same": {"1", true}} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			x.edit(func(d *appsv1.Deployment) { d.Spec.Paused = true })
			x.away(func() { x.set(secret("db", "password", tt.before)) })
			x.tick(time.Hour)
			x.set(secret("db", "password", "3"))
			x.tick(time.Minute)
			x.set(secret("db", "password", "1"))
			got := x.decide().Excursions
			if len(got) != 1 || got[0].From.IsZero() == tt.known {
				t.Errorf("excursions = %+v, want one whose beginning is known: %v", got, tt.known)
			}
		})
	}
}

// The deletion of a source that no template named has no date. The change settles from the write of the
// template that names the source.
func TestDecide_SettlesFromTheTemplate(t *testing.T) {
	pod := podOf(env(dependency.Secret, "db", "password"), optionalEnv(dependency.ConfigMap, "more", "key"))
	x := newWorld(t, pod, secret("db", "password", "1"), configMap("more", "key", "1"))
	x.SeparateCounters()
	x.adopt()
	without := podOf(env(dependency.Secret, "db", "password"))
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec = without })
	x.remove(dependency.ConfigMap, "more")
	x.tick(time.Minute)
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec = pod })
	if d := x.decide(); d.State != policy.Settling {
		t.Errorf("decision = %+v, want state Settling", d)
	}
	x.tick(time.Minute)
	if diff := cmp.Diff(rollOut("ConfigMap/more"), outcomeOf(x.decide())); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

// Pods of a template that comes back in the middle of a rollout may have read a source that was deleted meanwhile. This
// is not forgotten if more sources are deleted than are remembered, and not assumed if those are deleted elsewhere.
func TestDecide_SourceThatWentAmongMany(t *testing.T) {
	for name, tt := range map[string]struct {
		churn string // the namespace of the other sources
		there bool   // the source existed
		want  outcome
	}{
		"it existed, and others were deleted in its namespace": {namespace, true, inspect("ConfigMap/more")},
		"elsewhere": {"elsewhere", true, inspect("ConfigMap/more")},
		"it never existed, and others were deleted in its namespace": {namespace, false, inspect("ConfigMap/more")},
		"it never existed, and others were deleted elsewhere":        {"elsewhere", false, baseline},
	} {
		t.Run(name, func(t *testing.T) {
			template := func(generation, observed int64, parts ...part) func(*appsv1.Deployment) {
				return func(d *appsv1.Deployment) {
					d.Generation, d.Status.ObservedGeneration = generation, observed
					d.Spec.Template.Spec = podOf(append(parts, env(dependency.Secret, "db", "password"))...)
				}
			}
			more := optionalEnv(dependency.ConfigMap, "more", "key")
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), more), secret("db", "password", "1"))
			if tt.there {
				x.set(configMap("more", "key", "1"))
			}
			x.edit(template(1, 1, more))
			x.restart()
			x.adopt()
			x.edit(template(2, 1))
			x.tick(time.Minute)
			x.act()
			if tt.there {
				x.remove(dependency.ConfigMap, "more")
			}
			for i := range 2000 {
				churn := configMap(fmt.Sprint("churn-", i))
				churn.Namespace = tt.churn
				x.set(churn)
				x.Delete(churn)
			}
			x.tick(time.Minute)
			x.edit(template(3, 3, more))
			x.tick(time.Minute)
			if diff := cmp.Diff(tt.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// No field manager dates the removal of a key, so times do not tell that a template came later.
func TestDecide_KeyRemovedAfterTheTemplateBeganToReadIt(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.ConfigMap, "settings", "a")), configMap("settings", "a", "1", "b", "1"))
	x.SeparateCounters()
	x.adopt()
	x.edit(func(d *appsv1.Deployment) {
		d.Spec.Template.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}
		envFrom(dependency.ConfigMap, "settings")(&d.Spec.Template.Spec)
	})
	x.set(configMap("settings", "a", "1"))
	x.tick(time.Minute)
	if diff := cmp.Diff(rollOut("ConfigMap/settings"), outcomeOf(x.decide())); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

// Both the template and the content may change while the first lists are read, when the order of
// events is not known. Times do not tell the order either.
func TestDecide_ChangesBeforeEverythingWasRead(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.adopt()
	x.restartWhile(func() {
		x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
		x.set(secret("db", "password", "2"))
	})
	x.tick(time.Minute)
	if diff := cmp.Diff(rollOut("Secret/db"), outcomeOf(x.decide())); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

// A change before the workload opted in restarts nothing when a template begins to read the source, even
// if revisions do not tell that its pods have read it. A later change does.
func TestDecide_TemplateBeginsToReadWhatChangedBeforeOptingIn(t *testing.T) {
	for name, tt := range map[string]struct {
		later bool
		want  outcome
	}{
		"before it opted in": {false, baseline},
		"after that":         {true, rollOut("Secret/db")},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1", "user", "1", "host", "1"))
			x.SeparateCounters()
			x.annotate(policy.ReloadAnnotation, "off")
			x.set(secret("db", "password", "1", "user", "1")) // the removal of a key has no date
			x.annotate(policy.ReloadAnnotation, "auto")
			x.adopt()
			if tt.later {
				x.set(secret("db", "password", "1"))
			}
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec = podOf(envFrom(dependency.Secret, "db")) })
			x.tick(time.Minute)
			if diff := cmp.Diff(tt.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// A change between a record and newer pods is not part of an excursion after the start of the pods.
func TestDecide_ExcursionBeginsAfterThePods(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "0"))
	x.adopt()
	x.set(secret("db", "password", "1"))
	x.tick(time.Hour)
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
	pod := x.now // it reads 1
	x.tick(time.Hour)
	x.set(secret("db", "password", "2"))
	x.set(secret("db", "password", "1"))
	x.tick(time.Hour)
	if d := x.looked(pod); d.Action != policy.WriteVerified {
		t.Errorf("decision = %+v, want action WriteVerified", d)
	}
}
