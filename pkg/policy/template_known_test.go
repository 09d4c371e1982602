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

// How containers see keys is part of the scope: a template that begins to show a binary key is no
// change of content.
func TestScope_ToldByWhatIsSeen(t *testing.T) {
	use := func(how dependency.UseType, keys ...string) dependency.Use {
		return dependency.Use{Type: how, Container: "app", Keys: keys}
	}
	for name, tt := range map[string]struct {
		a, b []dependency.Use
		same bool
	}{
		"variables and files": {[]dependency.Use{use(dependency.EnvFrom)}, []dependency.Use{use(dependency.Volume)}, false},
		"variables, and files besides": {[]dependency.Use{use(dependency.EnvFrom)},
			[]dependency.Use{use(dependency.EnvFrom), use(dependency.Volume)}, false},
		"files, and variables besides": {[]dependency.Use{use(dependency.Volume)},
			[]dependency.Use{use(dependency.EnvFrom), use(dependency.Volume)}, false},
		"keys change places": {[]dependency.Use{use(dependency.Env, "a"), use(dependency.Volume, "b")},
			[]dependency.Use{use(dependency.Env, "b"), use(dependency.Volume, "a")}, false},
		"files of two kinds": {[]dependency.Use{use(dependency.Volume)}, []dependency.Use{use(dependency.Projected)}, true},
		"another variable":   {[]dependency.Use{use(dependency.Env, "a")}, []dependency.Use{use(dependency.Env, "a"), use(dependency.Env, "a")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, same := range map[dependency.SourceKind]bool{dependency.ConfigMap: tt.same, dependency.Secret: true} {
				a, b := dependency.Reference{Kind: kind, Uses: tt.a}, dependency.Reference{Kind: kind, Uses: tt.b}
				if name == "keys change places" && kind == dependency.Secret {
					continue // both read both
				}
				if got := policy.ScopeOf(&a) == policy.ScopeOf(&b); got != same {
					t.Errorf("%s: %s and %s, want the same: %v", kind, policy.ScopeOf(&a), policy.ScopeOf(&b), same)
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

// Content may have been other than recorded since before this process began to look. When it
// changed first is then not known.
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
				t.Errorf("got %+v, want one whose beginning is known: %v", got, tt.known)
			}
		})
	}
}

// A source that went while no template named it has left no date behind. Its change settles from the
// template that names it.
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
		t.Errorf("%+v, want Settling", d)
	}
	x.tick(time.Minute)
	if diff := cmp.Diff(rollOut("ConfigMap/more"), outcomeOf(x.decide())); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

// Pods of a template that comes back in the middle of a rollout may have read a source that went meanwhile. That is
// not forgotten when more sources go than are remembered, and it is not suspected when those go elsewhere.
func TestDecide_SourceThatWentAmongMany(t *testing.T) {
	for name, tt := range map[string]struct {
		churn string // where it is
		there bool   // the source was there
		want  outcome
	}{
		"in its namespace": {namespace, true, inspect("ConfigMap/more")},
		"elsewhere":        {"elsewhere", true, inspect("ConfigMap/more")},
		"it never was, and others went in its namespace": {namespace, false, inspect("ConfigMap/more")},
		"it never was, and others went elsewhere":        {"elsewhere", false, baseline},
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

// The removal of a key is dated by no field manager: times do not tell that a template came later.
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
// events is not known. Times do not tell it either.
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

// What had changed when the workload opted in restarts nothing when a template begins to read it, also
// where revisions do not tell that its pods have read that. What changes later does.
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
			x.set(secret("db", "password", "1", "user", "1")) // nothing dates that a key is removed
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

// What changed between a record and younger pods is no part of an excursion that came after they had started.
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
		t.Errorf("%+v", d)
	}
}
