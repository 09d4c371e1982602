// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// TestDecide_RecordLeftOnTheTemplateAlone: an owner has removed configdep's annotations from the
// workload, but not from its pod template.
func TestDecide_RecordLeftOnTheTemplateAlone(t *testing.T) {
	// rolled returns a workload that has been restarted once, so its template has a hash.
	rolled := func(t *testing.T) *world {
		t.Helper()
		x := typical(t)
		x.adopt()
		x.set(secret("db", "password", "2"))
		x.tick(time.Minute)
		if d := x.act(); d.Action != policy.RollOut {
			t.Fatalf("decision = %+v, want action RollOut", d)
		}
		x.tick(time.Hour)
		return x
	}
	drop := func(x *world) { x.annotate(policy.ConfigHashAnnotation, "", policy.AppliedSourcesAnnotation, "") }
	for name, tc := range map[string]struct {
		do   func(*world)
		want outcome
	}{
		"of the same content": {drop, restored},
		"of other content": {func(x *world) {
			drop(x)
			x.set(secret("db", "password", "3"))
		}, rollOut("Secret/db")},
		"of other content, while no process watched": {func(x *world) {
			x.away(func() {
				drop(x)
				x.set(secret("db", "password", "3"))
			})
		}, outcome{policy.Pending, "SourceChanged", policy.RollOut, policy.TriggerUnknown}},
		"of other content, but the template is newer": {func(x *world) {
			x.set(secret("db", "password", "3"))
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
			drop(x)
		}, restored},
		"made with another key": {func(x *world) {
			drop(x)
			x.set(secret("db", "password", "3"))
			x.replaceKey()
		}, outcome{policy.Pending, "NotRecorded", policy.WriteBaseline, "Secret/db"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := rolled(t)
			tc.do(x)
			x.tick(time.Minute)
			if diff := cmp.Diff(tc.want, outcomeOf(x.act()), ignoreLastTrigger(tc.want)); diff != "" {
				t.Fatalf("decision (-want +got):\n%s", diff)
			}
			x.tick(time.Hour)
			if diff := cmp.Diff(policy.InSync, x.decide().State); diff != "" {
				t.Errorf("the next decision (-want +got):\n%s", diff)
			}
		})
	}
}

// ignoreLastTrigger: in sync, a decision names the trigger of the last restart.
func ignoreLastTrigger(want outcome) cmp.Option {
	return cmp.FilterPath(func(p cmp.Path) bool {
		return p.String() == "Trigger" && want.State == policy.InSync
	}, cmp.Ignore())
}

// TestDecide_MatchedSourceThatVanishesIsAChange: a deleted source has no annotation, but the pods
// were started with its content.
func TestDecide_MatchedSourceThatVanishesIsAChange(t *testing.T) {
	marked := func(value string) *corev1.Secret {
		return annotated(secret("extra", "a", value), policy.MatchAnnotation, "true")
	}
	x := newWorld(t, podOf(optionalEnvFrom(dependency.Secret, "extra")), marked("1"))
	x.annotate(policy.ReloadAnnotation, "matched")
	x.adopt()
	for _, s := range []struct {
		what string
		do   func()
		want outcome
	}{
		{"deleted and created again at once", func() { x.remove(dependency.Secret, "extra"); x.act(); x.set(marked("1")) }, inspect("Secret/extra")},
		{"deleted and created again with other content", func() { x.remove(dependency.Secret, "extra"); x.act(); x.set(marked("2")) }, rollOut("Secret/extra")},
		{"vanishes", func() { x.remove(dependency.Secret, "extra") }, rollOut("Secret/extra")},
		{"created again", func() { x.set(marked("3")) }, rollOut("Secret/extra")},
		{"deleted once more", func() { x.remove(dependency.Secret, "extra") }, rollOut("Secret/extra")},
		{"created without the mark", func() { x.set(secret("extra", "a", "4")) }, outcome{State: policy.InSync, Reason: "NothingTriggers", Action: policy.WriteBaseline}},
		{"deleted without the mark", func() { x.remove(dependency.Secret, "extra") }, outcome{State: policy.InSync, Reason: "NothingTriggers"}},
	} {
		s.do()
		x.tick(2 * time.Hour)
		if diff := cmp.Diff(s.want, outcomeOf(x.act()), ignoreLastTrigger(s.want)); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", s.what, diff)
		}
	}
}

// TestDecide_MatchedSourceThatWasAbsentWhenItWasRecorded: the source counted at that time, and does not count while it exists
// without the mark.
func TestDecide_MatchedSourceThatWasAbsentWhenItWasRecorded(t *testing.T) {
	for name, tt := range map[string]struct {
		source *corev1.Secret
		want   outcome
	}{
		"it was marked":     {annotated(secret("extra", "a", "1"), policy.MatchAnnotation, "true"), rollOut("Secret/extra")},
		"it was not marked": {secret("extra", "a", "1"), outcome{State: policy.InSync, Reason: "NothingTriggers", Action: policy.WriteBaseline}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(optionalEnvFrom(dependency.Secret, "extra")))
			x.adopt()
			x.annotate(policy.ReloadAnnotation, "matched")
			x.set(tt.source)
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
			x.remove(dependency.Secret, "extra")
			x.tick(time.Hour)
			if diff := cmp.Diff(tt.want, outcomeOf(x.act())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDecide_MatchedSourceThatIsCreatedAgainBeforeItIsRecorded: the source counted before it was deleted, so its creation is a
// change.
func TestDecide_MatchedSourceThatIsCreatedAgainBeforeItIsRecorded(t *testing.T) {
	marked := func(value string) *corev1.Secret {
		return annotated(secret("extra", "a", value), policy.MatchAnnotation, "true")
	}
	for name, tt := range map[string]struct {
		before *corev1.Secret
		want   outcome
	}{
		"it was marked":     {marked("1"), rollOut("Secret/extra")},
		"it was not marked": {secret("extra", "a", "1"), baseline},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(), tt.before)
			x.annotate(policy.ReloadAnnotation, "matched")
			x.adopt()
			x.edit(func(d *appsv1.Deployment) { optionalEnvFrom(dependency.Secret, "extra")(&d.Spec.Template.Spec) })
			x.tick(time.Minute)
			x.remove(dependency.Secret, "extra")
			x.set(marked("2"))
			x.tick(time.Hour)
			if diff := cmp.Diff(tt.want, outcomeOf(x.act())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDecide_RemovedKeyIsNeverTakenForRead: the API server attributes the removal of a key to no
// field manager, so the content seems to have been written before the template. The managed
// fields are computed by the library of the API server.
func TestDecide_RemovedKeyIsNeverTakenForRead(t *testing.T) {
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	manager := managedfieldstest.NewTestFieldManager(managedfields.NewDeducedTypeConverter(), kind)
	write := func(data map[string]string, by string) *corev1.ConfigMap {
		cm := &corev1.ConfigMap{Data: data}
		cm.APIVersion, cm.Kind = kind.ToAPIVersionAndKind()
		cm.Name = "settings"
		if err := manager.Update(cm.DeepCopy(), by); err != nil {
			t.Fatal(err)
		}
		cm.ManagedFields = manager.Live().(metav1.Object).GetManagedFields()
		return cm
	}
	x := newWorld(t, podOf(envFrom(dependency.ConfigMap, "settings")))
	x.set(write(map[string]string{"a": "1", "b": "1"}, "owner"))
	x.now = time.Now().Add(time.Hour) // the managed fields have the real time
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
	x.restart() // so that versions do not tell which came first
	x.adopt()

	t.Run("seen", func(t *testing.T) {
		cm := write(map[string]string{"a": "1"}, "kubectl-edit")
		x.set(cm)
		if written := x.graph().Source(dependency.SourceKey{Kind: dependency.ConfigMap, Namespace: namespace, Name: cm.Name}).LastChanged; !x.workload().TemplateWritten.After(written.Time) {
			t.Fatalf("the removal of the key has a date: %v", written)
		}
		x.tick(time.Minute)
		if diff := cmp.Diff(rollOut("ConfigMap/settings"), outcomeOf(x.decide())); diff != "" {
			t.Errorf("decision (-want +got):\n%s", diff)
		}
	})
	t.Run("while no process watched", func(t *testing.T) {
		x.restart()
		if diff := cmp.Diff(rollOut("ConfigMap/settings"), outcomeOf(x.decide())); diff != "" {
			t.Errorf("decision (-want +got):\n%s", diff)
		}
	})
}
