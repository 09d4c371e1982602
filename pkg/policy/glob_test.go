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
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
)

// TestDecide_Globs follows a workload that names sources by globs: matching sources are created, changed and deleted.
func TestDecide_Globs(t *testing.T) {
	const glob = "Secret/feature-*"
	type step struct {
		what string
		do   func(*world)
		want outcome
	}
	put := func(name, value string) func(*world) {
		return func(x *world) { x.set(secret(name, "a", value)) }
	}
	remove := func(name string) func(*world) {
		return func(x *world) { x.remove(dependency.Secret, name) }
	}
	annotate := func(pairs ...string) func(*world) {
		return func(x *world) { x.annotate(pairs...) }
	}
	for name, steps := range map[string][]step{
		"matching sources are created, changed and deleted": {
			{"the first comes", put("feature-1", "1"), rollOut(glob)},
			{"a second comes", put("feature-2", "1"), rollOut(glob)},
			{"one changes", put("feature-1", "2"), rollOut(glob)},
			{"metadata changes", func(x *world) { x.set(annotated(secret("feature-1", "a", "2"), "a", "b")) }, nothing},
			{"one goes", remove("feature-2"), rollOut(glob)},
			{"the last goes", remove("feature-1"), rollOut(glob)},
			{"the first comes again", put("feature-1", "2"), rollOut(glob)},
			{"a source that does not match is created", put("other", "1"), nothing},
		},
		"a source is deleted and created again at once": {
			{"two come", func(x *world) { put("feature-1", "1")(x); put("feature-2", "1")(x) }, rollOut(glob)},
			{"one", func(x *world) { remove("feature-1")(x); put("feature-1", "1")(x) }, inspect(glob)},
			{"one is created again, with other content", func(x *world) { remove("feature-1")(x); put("feature-1", "2")(x) }, rollOut(glob)},
		},
		"no process watches": {
			{"the first comes", func(x *world) { x.away(func() { put("feature-1", "1")(x) }) }, rollOut(glob)},
			{"a second comes", func(x *world) { x.away(func() { put("feature-2", "1")(x) }) }, rollOut(glob)},
			{"one goes", func(x *world) { x.away(func() { remove("feature-2")(x) }) }, rollOut(glob)},
			{"the last goes", func(x *world) { x.away(func() { remove("feature-1")(x) }) }, rollOut(glob)},
		},
		"the owner restarts the pods after a source was deleted": {
			{"two come", func(x *world) { put("feature-1", "1")(x); put("feature-2", "1")(x) }, rollOut(glob)},
			{"one goes, another image comes", func(x *world) {
				remove("feature-2")(x)
				x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
			}, baseline},
			{"the last goes, another image comes", func(x *world) {
				remove("feature-1")(x)
				x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:3" })
			}, baseline},
		},
		"an edit of the policy does not count as a change": {
			{"two come", func(x *world) { put("feature-1", "1")(x); put("feature-2", "1")(x) }, rollOut(glob)},
			{"another glob for the same sources is added first", annotate(policy.SourcesAnnotation, "secret/*-1,secret/feature-*"), baseline},
			{"the globs are in another order", annotate(policy.SourcesAnnotation, "secret/feature-*,secret/*-1"), nothing},
			{"a glob is repeated", annotate(policy.SourcesAnnotation, "secret/feature-*,secret/*-1,secret/feature-*"), nothing},
			{"one source is also named", annotate(policy.SourcesAnnotation, "secret/feature-*,secret/*-1,secret/feature-1"), baseline},
			{"it is no longer named", annotate(policy.SourcesAnnotation, "secret/feature-*"), baseline},
			{"one is excluded", annotate(policy.ExcludeAnnotation, "secret/feature-2"), baseline},
			{"a ConfigMap is excluded", annotate(policy.ExcludeAnnotation, "configmap/a,secret/feature-2"), nothing},
			{"the excluded one changes", put("feature-2", "2"), nothing},
			{"the excluded one goes", remove("feature-2"), nothing},
			{"the other changes", put("feature-1", "2"), rollOut(glob)},
			{"all are excluded", annotate(policy.ExcludeAnnotation, "secret/*"), baseline},
			{"none is excluded", annotate(policy.ExcludeAnnotation, ""), baseline},
			{"one goes", remove("feature-1"), rollOut(glob)},
		},
		"a source that the template uses too": {
			{"one is mounted", func(x *world) {
				x.set(secret("feature-1", "a", "1"))
				x.edit(func(d *appsv1.Deployment) { volume(dependency.Secret, "feature-1", "")(&d.Spec.Template.Spec) })
			}, baseline},
			{"its use no longer needs a restart", annotate(policy.LiveVolumesAnnotation, "true"), baseline},
			{"its use needs a restart again", annotate(policy.LiveVolumesAnnotation, ""), baseline},
			{"it changes", put("feature-1", "2"), rollOut("Secret/feature-1")},
		},
		"ignored sources": {
			{"two come", func(x *world) { put("feature-1", "1")(x); put("feature-2", "1")(x) }, rollOut(glob)},
			{"one is ignored", func(x *world) {
				x.set(annotated(secret("feature-1", "a", "1"), policy.IgnoreAnnotation, "true"))
			}, baseline},
			{"it changes", func(x *world) {
				x.set(annotated(secret("feature-1", "a", "2"), policy.IgnoreAnnotation, "true"))
			}, nothing},
			{"the other changes", put("feature-2", "2"), rollOut(glob)},
			{"it is no longer ignored", put("feature-1", "2"), baseline},
			{"it changes again", put("feature-1", "3"), rollOut(glob)},
		},
		"a source that is also named has its own name as the trigger": {
			{"one is named as well", annotate(policy.SourcesAnnotation, "secret/feature-1,secret/feature-*"), baseline},
			{"it comes", put("feature-1", "1"), rollOut("Secret/feature-1")},
			{"another comes", put("feature-2", "1"), rollOut(glob)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf())
			x.annotate(policy.ReloadAnnotation, "listed", policy.SourcesAnnotation, "secret/feature-*")
			x.adopt()
			for _, s := range steps {
				s.do(x)
				x.tick(2 * time.Hour)
				if diff := cmp.Diff(s.want, outcomeOf(x.act()), ignoreLastTrigger(s.want)); diff != "" {
					t.Fatalf("%s (-want +got):\n%s", s.what, diff)
				}
				if d := x.act(); d.State != policy.InSync || d.Action != policy.None {
					t.Fatalf("%s: the next decision = %+v, want no action", s.what, d)
				}
			}
		})
	}
}

// A glob that replaces a name is new to the record, but an earlier change of the named source still
// counts.
func TestDecide_GlobNamesWhatChangedBefore(t *testing.T) {
	for changed, want := range map[string]outcome{
		"counted": rollOut("ConfigMap/*"),
		"other":   baseline,
	} {
		t.Run(changed, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"), configMap("counted", "a", "1"), configMap("other", "a", "1"))
			x.annotate(policy.SourcesAnnotation, "configmap/counted")
			x.adopt()
			x.set(configMap(changed, "a", "2"))
			x.annotate(policy.SourcesAnnotation, "configmap/*")
			x.tick(time.Minute)
			if diff := cmp.Diff(want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// The same applies if the source counted because the template reads all of it, and then only counts by the glob.
func TestDecide_GlobNamesWhatWasReadBefore(t *testing.T) {
	for key, want := range map[string]outcome{
		"":  rollOut("ConfigMap/*"),
		"a": baseline, // other keys count as well: no restart because of them
	} {
		t.Run("key "+key, func(t *testing.T) {
			pod := podOf(volume(dependency.ConfigMap, "files", ""))
			if key != "" {
				pod.Volumes[0].ConfigMap.Items = []corev1.KeyToPath{{Key: key, Path: key}}
			}
			x := newWorld(t, pod, configMap("files", "a", "1"))
			x.adopt()
			x.set(configMap("files", "a", "2"))
			x.annotate(policy.SourcesAnnotation, "configmap/*", policy.LiveVolumesAnnotation, "true")
			x.tick(time.Minute)
			if diff := cmp.Diff(want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// Of a glob, the 256 sources that changed last are checked. Sources that counted before an edit of the annotations are
// checked as well: they may have changed before as many others that count only now.
func TestDecide_MoreSourcesOfAGlobThanAreLookedAt(t *testing.T) {
	for name, c := range map[string]struct {
		sources string // before the edit
		want    outcome
	}{
		"a source that a glob named before": {"configmap/a*", rollOut("ConfigMap/*")},
		"a source that was named before":    {"configmap/a", rollOut("ConfigMap/*")},
		"a source that another glob named":  {"configmap/b*", baseline},
		"a source that was not named":       {"secret/*", baseline},
	} {
		t.Run(name, func(t *testing.T) {
			sources := []ingesttest.Object{secret("db", "a", "1"), configMap("a", "a", "1"), configMap("b", "a", "1")}
			for i := range 300 {
				sources = append(sources, configMap(fmt.Sprint("c-", i), "a", "1"))
			}
			x := newWorld(t, podOf(envFrom(dependency.Secret, "db")), sources...)
			x.annotate(policy.SourcesAnnotation, c.sources)
			x.adopt()
			x.set(configMap("a", "a", "2"))
			for i := range 300 {
				x.set(configMap(fmt.Sprint("c-", i), "a", "2"))
			}
			x.annotate(policy.SourcesAnnotation, "configmap/*")
			x.tick(time.Minute)
			if diff := cmp.Diff(c.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// If more sources have changed than are checked, it is not known whether an earlier one counts, or whether all changes were
// seen as events.
func TestDecide_TooManySourcesOfAGlobToKnow(t *testing.T) {
	ignored := func(name, value string) *corev1.ConfigMap {
		o := configMap(name, "a", value)
		o.Annotations = map[string]string{policy.IgnoreAnnotation: "true"}
		return o
	}
	for n, want := range map[int]outcome{10: baseline, 300: rollOut("ConfigMap/*")} {
		sources := []ingesttest.Object{secret("db", "a", "1")}
		for i := range n {
			sources = append(sources, ignored(fmt.Sprint("c-", i), "1"))
		}
		x := newWorld(t, podOf(envFrom(dependency.Secret, "db")), sources...)
		x.adopt()
		x.annotate(policy.SourcesAnnotation, "configmap/*")
		for i := range n {
			x.set(ignored(fmt.Sprint("c-", i), "2"))
		}
		for i := range n {
			x.set(configMap(fmt.Sprint("c-", i), "a", "2"))
		}
		x.tick(time.Minute)
		if diff := cmp.Diff(want, outcomeOf(x.decide())); diff != "" {
			t.Errorf("%d ConfigMaps of a glob: decision (-want +got):\n%s", n, diff)
		}
		e := x.evaluate()
		e.GlobsChanged(func(times int, live bool) {
			if times != min(n, 256) || live != (n <= 256) {
				t.Errorf("%d ConfigMaps of a glob: %d changes, all seen as events: %v", n, times, live)
			}
		})
	}
}

// While an annotation is invalid, restarts are on hold. Sources that were recorded before count as soon as the annotation is
// valid again, even if the template now reads other keys or the source now belongs to a glob.
func TestDecide_ChangeWhileAnAnnotationWasInvalid(t *testing.T) {
	readOther := func(x *world) {
		x.edit(func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].EnvFrom = nil
			env(dependency.Secret, "db", "a")(&d.Spec.Template.Spec)
		})
	}
	for name, c := range map[string]struct {
		sources         string
		before, changed func(*world)
		want            outcome
	}{
		"by the template": {changed: func(x *world) { x.set(secret("db", "a", "2")) }, want: rollOut("Secret/db")},
		"of a glob":       {sources: "configmap/*", changed: func(x *world) { x.set(configMap("c", "a", "2")) }, want: rollOut("ConfigMap/*")},
		"what was not recorded": {sources: "configmap/c",
			before:  func(x *world) { x.annotate(policy.SourcesAnnotation, "") },
			changed: func(x *world) { x.set(configMap("c", "a", "2")) }, want: baseline},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(envFrom(dependency.Secret, "db")), secret("db", "a", "1"), configMap("c", "a", "1"))
			x.annotate(policy.SourcesAnnotation, c.sources)
			if c.before != nil {
				c.before(x)
			}
			x.adopt()
			x.annotate(policy.ReloadAnnotation, "sometimes")
			readOther(x)
			x.restart() // forgets which sources counted before
			x.tick(time.Minute)
			c.changed(x)
			x.annotate(policy.ReloadAnnotation, "auto", policy.SourcesAnnotation, c.sources)
			x.tick(time.Minute)
			if diff := cmp.Diff(c.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// A source that the template names does not belong to a glob that matches it, even after its deletion.
func TestDecide_GlobIsNotConcernedByWhatTheTemplateNames(t *testing.T) {
	x := newWorld(t, podOf(optionalEnv(dependency.ConfigMap, "c0", "unset"), env(dependency.Secret, "db", "password")), secret("db", "password", "1"), configMap("c0", "a", "1"))
	x.annotate(policy.SourcesAnnotation, "configmap/c*")
	x.adopt()
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
	x.tick(time.Minute)
	x.remove(dependency.ConfigMap, "c0")
	x.tick(time.Minute)
	if d := x.decide(); d.State != policy.InSync {
		t.Errorf("decision = %+v, want state InSync", d)
	}
}
