// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// rolledBack returns a workload that reads a Secret that changed in the middle of a rollout, which
// its owner then rolled back: some pods may never have been replaced. The function with changes the
// workload in the same write.
func rolledBack(t *testing.T, with func(*appsv1.Deployment)) *world {
	t.Helper()
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), envFrom(dependency.ConfigMap, "settings")),
		secret("db", "password", "1"), configMap("settings", "a", "1"))
	x.adopt()
	x.edit(func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Image, d.Generation = "app:2", 2
	})
	x.tick(time.Minute)
	x.set(secret("db", "password", "2"))
	x.tick(time.Minute)
	x.edit(func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Image, d.Generation = "", 3
		d.Status.ObservedGeneration = 3
		with(d)
	})
	return x
}

// TestDecide_RestartComesBack: the template of a restart is replaced, and comes back before its pods are replaced. The pods
// have read what changed before the restart, and may not have read what changed later.
func TestDecide_RestartComesBack(t *testing.T) {
	set := func(value string) func(*world) {
		return func(x *world) { x.set(secret("db", "password", value)); x.tick(time.Minute) }
	}
	for name, tt := range map[string]struct {
		before, between func(*world)
		want            outcome
	}{
		"content has changed often before": {both(set("2"), set("3")), func(*world) {}, outcome{policy.InSync, nothing.Reason, policy.None, "Secret/db"}},
		"content changes meanwhile":        {both(set("2"), set("3")), set("4"), inspect("Secret/db")},
		"the record is written again": {both(set("2"), set("3")), func(x *world) {
			e := x.evaluate()
			x.patch(policy.VerifiedPatch(e.Workload, e.Present(), x.now))
		}, inspect("Secret/db")},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			tt.before(x)
			if d := x.act(); d.Action != policy.RollOut {
				t.Fatalf("decision = %+v, want action RollOut", d)
			}
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image, d.Generation = "app:2", 2 })
			x.tick(time.Minute)
			tt.between(x)
			x.edit(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image, d.Generation = "", 3
				d.Status.ObservedGeneration = 3
			})
			x.tick(time.Minute)
			if !x.workload().StartUnsure {
				t.Fatal("the pods are considered newer than the template")
			}
			if diff := cmp.Diff(tt.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecide_Rollback(t *testing.T) {
	want := []policy.Excursion{{ID: "Secret/db", To: epoch.Add(2 * time.Minute), Containers: []string{"app"}, OlderPods: true, Witnessed: true}}
	t.Run("pods may be older", func(t *testing.T) {
		x := rolledBack(t, func(*appsv1.Deployment) {})
		if diff := cmp.Diff(want, x.decide().Excursions, cmpopts.IgnoreUnexported(policy.Excursion{})); diff != "" {
			t.Errorf("excursions (-want +got):\n%s", diff)
		}
		x.act()
		if d := x.decide(); d.State != policy.InSync || d.Action != policy.None {
			t.Errorf("once looked up: decision = %+v, want state InSync and no action", d)
		}
	})
	t.Run("pods may be older, with several counters", func(t *testing.T) {
		x := rolledBack(t, func(*appsv1.Deployment) {})
		x.SeparateCounters()
		if diff := cmp.Diff(want, x.evaluate().Doubts(), cmpopts.IgnoreUnexported(policy.Excursion{})); diff != "" {
			t.Errorf("doubts (-want +got):\n%s", diff)
		}
		x.set(configMap("settings", "a", "2")) // a later change
		if diff := cmp.Diff(want, x.evaluate().Doubts(), cmpopts.IgnoreUnexported(policy.Excursion{})); diff != "" {
			t.Errorf("doubts after a later change (-want +got):\n%s", diff)
		}
	})
	t.Run("pods are found to be older", func(t *testing.T) {
		x := rolledBack(t, func(*appsv1.Deployment) {})
		x.mixed = []string{"Secret/db"}
		x.act()
		x.tick(time.Minute)
		if diff := cmp.Diff(rollOut("Secret/db"), outcomeOf(x.decide())); diff != "" {
			t.Errorf("decision (-want +got):\n%s", diff)
		}
	})
	t.Run("pods are found to be older, after they had waited for a source", func(t *testing.T) {
		x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
		x.adopt()
		x.edit(func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Image, d.Generation = "app:2", 2
		})
		x.set(secret("db", "other", "1"))
		x.edit(func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Image, d.Generation, d.Status.ObservedGeneration = "", 3, 3
		})
		x.set(secret("db", "password", "2"))
		x.mixed = []string{"Secret/db"}
		x.act() // the version of the record follows that of the content, with which pods may have started
		x.tick(time.Minute)
		if diff := cmp.Diff(rollOut("Secret/db"), outcomeOf(x.decide())); diff != "" {
			t.Errorf("decision (-want +got):\n%s", diff)
		}
	})
	t.Run("a record that comes with the template does not apply to older pods", func(t *testing.T) {
		present := newWorld(t, podOf(env(dependency.Secret, "db", "password"), envFrom(dependency.ConfigMap, "settings")),
			secret("db", "password", "2"), configMap("settings", "a", "1")).evaluate().Present()
		x := rolledBack(t, func(d *appsv1.Deployment) {
			d.Annotations[policy.ConfigHashAnnotation], d.Annotations[policy.AppliedSourcesAnnotation] = present.Hash, present.SourcesJSON()
		})
		if diff := cmp.Diff(want, x.decide().Excursions, cmpopts.IgnoreUnexported(policy.Excursion{})); diff != "" {
			t.Errorf("excursions (-want +got):\n%s", diff)
		}
	})
	t.Run("a template with the hash was written when the content existed", func(t *testing.T) {
		x := rolledBack(t, func(*appsv1.Deployment) {})
		e := x.evaluate()
		e.Workload.Marks.TemplateHash = e.Hash
		if e.InDoubt() {
			t.Error("InDoubt = true before another replica has written a record")
		}
		// Another replica has since recorded what it had read.
		there := newWorld(t, podOf(env(dependency.Secret, "db", "password"), envFrom(dependency.ConfigMap, "settings")),
			secret("db", "password", "1"), configMap("settings", "a", "1"))
		x.patch(policy.VerifiedPatch(x.workload(), there.evaluate().Present(), x.now))
		e = x.evaluate()
		e.Workload.Marks.TemplateHash = e.Hash
		if e.InDoubt() {
			t.Error("InDoubt = true after another replica has written a record")
		}
	})
	t.Run("content that changed before all pods had another template", func(t *testing.T) {
		x := rolledBack(t, func(*appsv1.Deployment) {})
		at := x.graph().Source(dependency.SourceKey{Kind: dependency.Secret, Namespace: namespace, Name: "db"}).Change.Moment()
		for name, tt := range map[string]struct {
			after dependency.Moment
			want  bool
		}{
			"content changed later":           {dependency.Moment{Version: at.Version - 1, Order: at.Order - 1}, true},
			"content had changed by then":     {at, false},
			"pods never had another template": {dependency.Moment{}, true},
			"content had changed long before": {dependency.Moment{Version: at.Version + 1, Order: at.Order + 1}, false},
		} {
			e := x.evaluate()
			e.Workload.PodsAfter = tt.after
			if e.InDoubt() != tt.want {
				t.Errorf("%s: InDoubt = %t, want %t", name, !tt.want, tt.want)
			}
		}
	})
	// The record may have just been written by another replica that knows these pods.
	t.Run("after an inspection, an older record that comes back causes another one", func(t *testing.T) {
		x := rolledBack(t, func(*appsv1.Deployment) {})
		hash, sources := x.deployment.Annotations[policy.ConfigHashAnnotation], x.deployment.Annotations[policy.AppliedSourcesAnnotation]
		x.act()
		x.annotate(policy.ConfigHashAnnotation, hash, policy.AppliedSourcesAnnotation, sources)
		if d := x.decide(); d.Reason != policy.ReasonVerifying || d.Action != policy.Inspect {
			t.Errorf("decision = %+v, want reason Verifying and action Inspect", d)
		}
		x.act()
		if d := x.decide(); d.State != policy.InSync || d.Action != policy.None {
			t.Errorf("once looked up again: decision = %+v, want state InSync and no action", d)
		}
	})
	for name, recorded := range map[string]bool{"a record tells of it": true, "nothing is recorded": false} {
		t.Run("a source is deleted while the template does not name it, and "+name, func(t *testing.T) {
			x := newWorld(t, podOf(optionalEnvFrom(dependency.Secret, "extra")), secret("extra", "a", "1"))
			x.adopt()
			pod := x.deployment.Spec.Template.Spec
			x.edit(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec, d.Generation = podOf(), 2
				if !recorded {
					delete(d.Annotations, policy.ConfigHashAnnotation)
					delete(d.Annotations, policy.AppliedSourcesAnnotation)
				}
			})
			x.tick(time.Minute)
			x.remove(dependency.Secret, "extra")
			went := x.now
			x.tick(time.Minute)
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec, d.Generation = pod, 3 })
			want := []policy.Excursion{{ID: "Secret/extra", To: went, Containers: []string{"app"}, OlderPods: true, Witnessed: true}}
			if diff := cmp.Diff(want, x.decide().Excursions, cmpopts.IgnoreUnexported(policy.Excursion{})); diff != "" {
				t.Errorf("excursions (-want +got):\n%s", diff)
			}
		})
	}
	// The removal of a key has no date, nor has the deletion of a source of a glob that no process saw.
	for name, tt := range map[string]struct {
		id  string
		off func(*world)
	}{
		"a key":  {"Secret/extra", func(x *world) { x.broken(func() { x.set(secret("extra", "a", "1")) }) }},
		"a glob": {"Secret/more-*", func(x *world) { x.remove(dependency.Secret, "more-1"); x.restart() }},
	} {
		t.Run("unseen, "+name, func(t *testing.T) {
			x := newWorld(t, podOf(optionalEnvFrom(dependency.Secret, "extra")), secret("extra", "a", "1", "b", "1"), secret("more-1", "k", "1"))
			x.annotate(policy.SourcesAnnotation, "secret/more-*")
			x.adopt()
			x.deployment.Generation, x.deployment.Status.ObservedGeneration = 1, 1
			tt.off(x)
			x.tick(time.Minute)
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image, d.Generation = "app:2", 2 })
			x.tick(time.Minute)
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image, d.Generation = "", 3 })
			got := x.decide()
			if len(got.Excursions) != 1 || got.Excursions[0].ID != tt.id || got.Excursions[0].To.IsZero() {
				t.Errorf("decision = %+v, want one excursion of %s with an end", got, tt.id)
			}
		})
	}
	t.Run("opting in adopts earlier changes if nothing is recorded", func(t *testing.T) {
		x := rolledBack(t, func(d *appsv1.Deployment) { d.Annotations = map[string]string{} })
		x.annotate(policy.ReloadAnnotation, "auto")
		if diff := cmp.Diff(adoption, outcomeOf(x.decide())); diff != "" {
			t.Errorf("decision (-want +got):\n%s", diff)
		}
	})
	t.Run("opting in again adopts nothing", func(t *testing.T) {
		x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
		x.adopt()
		x.annotate(policy.ReloadAnnotation, "off")
		x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image, d.Generation = "app:2", 2 })
		x.set(secret("db", "password", "2"))
		x.set(secret("db", "password", "1"))
		x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image, d.Generation = "", 3 })
		x.tick(time.Minute)
		x.annotate(policy.ReloadAnnotation, "auto")
		if diff := cmp.Diff(inspect("Secret/db"), outcomeOf(x.decide())); diff != "" {
			t.Errorf("decision (-want +got):\n%s", diff)
		}
	})
	t.Run("later changes are known to be unread", func(t *testing.T) {
		x := rolledBack(t, func(*appsv1.Deployment) {})
		x.act()
		x.set(secret("db", "password", "3"))
		x.tick(time.Minute)
		if e := x.evaluate(); e.InDoubt() {
			t.Errorf("doubts = %+v, want none", e.Doubts())
		}
		if diff := cmp.Diff(rollOut("Secret/db"), outcomeOf(x.decide())); diff != "" {
			t.Errorf("decision (-want +got):\n%s", diff)
		}
	})
}

// If the start of the pods is not known, the record is not considered older than the pods.
func TestDecide_RecordOfSeveralCounters(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.adopt()
	x.away(func() { x.set(secret("db", "password", "2")) })
	x.SeparateCounters()
	x.tick(time.Minute)
	if diff := cmp.Diff(rollOut("Secret/db"), outcomeOf(x.decide())); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

// Content is compared with the record, so a record that another client has changed is written
// again.
func TestDecide_RecordIsWrittenAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(*world)
		want outcome
	}{
		"the record has other keys": {
			func(x *world) { x.annotate(policy.AppliedSourcesAnnotation, `{"Secret/db":"*.0123456789abcdef.1"}`) }, baseline,
		},
		"the hash is invalid, and content has changed and changed back": {
			func(x *world) {
				x.annotate(policy.ConfigHashAnnotation, "garbage")
				x.set(secret("db", "password", "2"))
				x.set(secret("db", "password", "1"))
			}, rollOut("Secret/db"),
		},
		"another client restores an older record, of content that the pods have read": {
			func(x *world) {
				hash, sources := x.deployment.Annotations[policy.ConfigHashAnnotation], x.deployment.Annotations[policy.AppliedSourcesAnnotation]
				x.set(secret("db", "password", "2"))
				x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
				x.act()
				x.annotate(policy.ConfigHashAnnotation, hash, policy.AppliedSourcesAnnotation, sources)
			}, baseline,
		},
		"a Deployment is paused with another template": {
			func(x *world) {
				x.edit(func(d *appsv1.Deployment) { d.Spec.Paused = true })
				x.edit(func(d *appsv1.Deployment) { envFrom(dependency.ConfigMap, "settings")(&d.Spec.Template.Spec) })
			}, nothing,
		},
		"a Deployment is paused with another template, and has no record": {
			func(x *world) {
				x.annotate(policy.ReloadAnnotation, "off")
				x.annotate(policy.ConfigHashAnnotation, "", policy.AppliedSourcesAnnotation, "")
				x.edit(func(d *appsv1.Deployment) { d.Spec.Paused = true })
				x.edit(func(d *appsv1.Deployment) { envFrom(dependency.ConfigMap, "settings")(&d.Spec.Template.Spec) })
				x.annotate(policy.ReloadAnnotation, "auto")
			}, adoption,
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"), configMap("settings", "a", "1"))
			x.adopt()
			tt.do(x)
			x.tick(time.Minute)
			if diff := cmp.Diff(tt.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// Changes before the first lists were complete, or while the image could not be pulled, are
// distinguished from those that pods cannot have read.
func TestDecide_ChangeWithoutARecord(t *testing.T) {
	unrecorded := func() *world {
		x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
		x.tick(time.Minute)
		return x
	}
	change := func(x *world) { x.set(secret("db", "password", "2")) }
	x := unrecorded()
	change(x)
	x.tick(time.Minute)
	if diff := cmp.Diff(rollOut("Secret/db"), outcomeOf(x.decide())); diff != "" {
		t.Errorf("the Secret has changed: decision (-want +got):\n%s", diff)
	}
	// A key may have been removed, which has no date, so times tell nothing.
	x.edit(func(d *appsv1.Deployment) { d.ManagedFields = x.Managed(`{"f:spec":{"f:template":{}}}`) })
	x.tick(time.Minute)
	if diff := cmp.Diff(rollOut("Secret/db"), outcomeOf(x.decide())); diff != "" {
		t.Errorf("the manager of the template writes again: decision (-want +got):\n%s", diff)
	}
	x = unrecorded()
	x.restartWhile(func() { change(x) })
	x.tick(time.Minute)
	if diff := cmp.Diff(adoption, outcomeOf(x.decide())); diff != "" {
		t.Errorf("whether the Deployment or the change came first is not known: decision (-want +got):\n%s", diff)
	}
}

// Pods wait for missing sources, and read all others once these exist, even if their image has to be pulled.
func TestDecide_PodsThatWaitedAndPullSecrets(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), envFrom(dependency.ConfigMap, "settings"), pullSecret("db")),
		secret("db", "password", "1"), configMap("settings", "a", "1"))
	x.adopt()
	x.remove(dependency.ConfigMap, "settings")
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
	x.tick(time.Minute)
	x.set(secret("db", "password", "2"))
	x.tick(time.Minute)
	x.set(configMap("settings", "a", "1"))
	x.tick(time.Minute)
	if diff := cmp.Diff(baseline, outcomeOf(x.decide())); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

// Changes of the sources of a glob are distinguished from others even if no replica was watching.
func TestDecide_GlobsWhileNoProcessLooks(t *testing.T) {
	const glob = "Secret/feature-*"
	for name, tt := range map[string]struct {
		do   func(*world)
		want outcome
	}{
		"one is ignored": {func(x *world) {
			x.set(annotated(secret("feature-1", "a", "1"), policy.IgnoreAnnotation, "true"))
		}, baseline},
		"the template reads one": {func(x *world) {
			x.edit(func(d *appsv1.Deployment) { envFrom(dependency.Secret, "feature-1")(&d.Spec.Template.Spec) })
		}, baseline},
		"one without keys comes": {func(x *world) { x.set(secret("feature-3")) }, rollOut(glob)},
	} {
		for where, away := range map[string]bool{"": false, ", while no replica looks": true} {
			t.Run(name+where, func(t *testing.T) {
				x := newWorld(t, podOf(), secret("feature-1", "a", "1"), secret("feature-2", "a", "1"))
				x.annotate(policy.ReloadAnnotation, "listed", policy.SourcesAnnotation, "secret/feature-*")
				x.adopt()
				x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
				if away {
					x.away(func() { tt.do(x) })
				} else {
					tt.do(x)
				}
				x.tick(time.Minute)
				if diff := cmp.Diff(tt.want, outcomeOf(x.decide())); diff != "" {
					t.Errorf("decision (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// A template with an earlier hash comes back in the middle of a rollout, and the record is lost: pods from before may
// still run.
func TestDecide_HashAloneComesBack(t *testing.T) {
	for value, want := range map[string]outcome{"1": {policy.InSync, nothing.Reason, policy.WriteBaseline, ""}, "2": inspect("Secret/db")} {
		x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
		x.adopt()
		hash := x.evaluate().Hash
		image := func(image string, annotations map[string]string) {
			x.edit(func(d *appsv1.Deployment) {
				d.Generation++
				d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"}
				d.Spec.Template.Spec.Containers[0].Image, d.Spec.Template.Annotations = image, annotations
				if annotations != nil { // the rollout of the other template has only begun
					d.Status.ObservedGeneration = d.Generation
				}
			})
		}
		image("", map[string]string{policy.ConfigHashAnnotation: hash})
		x.away(func() {
			x.set(secret("db", "password", value))
			x.tick(time.Minute)
			image("app:2", nil)
		})
		x.tick(time.Minute)
		image("", map[string]string{policy.ConfigHashAnnotation: hash})
		x.tick(time.Minute)
		if diff := cmp.Diff(want, outcomeOf(x.decide())); diff != "" {
			t.Errorf("content %s (-want +got):\n%s", value, diff)
		}
	}
}
