package policy

import (
	"maps"
	"slices"
	"strings"
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

// TestWhatIsAChange does something to a workload whose record is up to date, and expects
// a restart, a new record, or nothing at all; and nothing after that.
func TestWhatIsAChange(t *testing.T) {
	for name, tc := range map[string]struct {
		before []string // annotations in force when the workload was adopted
		do     func(*world)
		want   outcome
	}{
		"content of a key that is read": {
			do:   func(x *world) { x.set(secret("db", "password", "2", "unread", "1")) },
			want: rollOut("Secret/db"),
		},
		"content of a key that nobody reads": {
			do:   func(x *world) { x.set(secret("db", "password", "1", "unread", "2")) },
			want: nothing,
		},
		"a key that nobody reads comes": {
			do:   func(x *world) { x.set(secret("db", "password", "1", "unread", "1", "more", "1")) },
			want: nothing,
		},
		"a key comes, and all are read": {
			do:   func(x *world) { x.set(configMap("settings", "a", "1", "b", "1", "c", "1")) },
			want: rollOut("ConfigMap/settings"),
		},
		"a key goes, and all are read": {
			do:   func(x *world) { x.set(configMap("settings", "a", "1")) },
			want: rollOut("ConfigMap/settings"),
		},
		"metadata of a source": {
			do:   func(x *world) { x.set(annotated(configMap("settings", "a", "1", "b", "1"), "example.com/by", "me")) },
			want: nothing,
		},
		"content there and back": {
			do: func(x *world) {
				x.set(configMap("settings", "a", "2", "b", "1"))
				x.set(configMap("settings", "a", "1", "b", "1"))
			},
			want: inspect("ConfigMap/settings"),
		},
		"content there and back, and some containers were started meanwhile": {
			do: func(x *world) {
				x.mixed = []string{"ConfigMap/settings"}
				x.set(configMap("settings", "a", "2", "b", "1"))
				x.set(configMap("settings", "a", "1", "b", "1"))
				x.act()
			},
			want: rollOut("ConfigMap/settings"),
		},
		"a key goes and comes back": {
			do: func(x *world) {
				x.set(configMap("settings", "a", "1"))
				x.set(configMap("settings", "a", "1", "b", "1"))
			},
			want: inspect("ConfigMap/settings"),
		},
		"an optional source comes and goes": {
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
		"an optional source appears": {
			do:   func(x *world) { x.set(secret("extra", "a", "1")) },
			want: rollOut("Secret/extra"),
		},
		"an optional source appears without content": {
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
			do:   func(x *world) { x.annotate(ExcludeAnnotation, "secret/db") },
			want: baseline,
		},
		"a change of the policy: one is not excluded any more": {
			before: []string{ExcludeAnnotation, "secret/db"},
			do:     func(x *world) { x.annotate(ExcludeAnnotation, "") },
			want:   baseline,
		},
		"a change of the policy: a source that exists is named": {
			do: func(x *world) {
				x.set(secret("other", "a", "1"))
				x.annotate(SourcesAnnotation, "secret/other")
			},
			want: baseline,
		},
		"a change of the policy: one is named no more": {
			before: []string{SourcesAnnotation, "secret/other"},
			do:     func(x *world) { x.annotate(SourcesAnnotation, "") },
			want:   baseline,
		},
		"a change of the policy: a glob is added": {
			do:   func(x *world) { x.annotate(SourcesAnnotation, "secret/d*") },
			want: baseline, // it is remembered that it names nothing besides
		},
		"a change of the policy: another mode": {
			do:   func(x *world) { x.annotate(ReloadAnnotation, "matched") },
			want: baseline,
		},
		"a change of the policy: the mode of the namespace": {
			before: []string{ReloadAnnotation, "listed"},
			do: func(x *world) {
				x.namespaceAnnotations(map[string]string{ReloadAnnotation: "auto"})
				x.annotate(ReloadAnnotation, "")
			},
			want: baseline,
		},
		"a change of the policy: kinds": {
			do:   func(x *world) { x.annotate(KindsAnnotation, "secret") },
			want: baseline,
		},
		"a change of the policy: all kinds": {
			before: []string{KindsAnnotation, "secret"},
			do:     func(x *world) { x.annotate(KindsAnnotation, "") },
			want:   baseline,
		},
		"a change of the policy: settle, interval, strategy": {
			do: func(x *world) {
				x.annotate(SettleAnnotation, "5s", MinIntervalAnnotation, "1m", StrategyAnnotation, "recreate")
			},
			want: nothing,
		},
		"a change of the policy: spoilt and mended": {
			do: func(x *world) {
				x.annotate(ExcludeAnnotation, "db")
				x.annotate(ExcludeAnnotation, "")
			},
			want: nothing,
		},
		"a source is ignored from now on": {
			do: func(x *world) {
				x.set(annotated(configMap("settings", "a", "1", "b", "1"), dependency.IgnoreAnnotation, "true"))
			},
			want: baseline,
		},
		"a source is ignored, and changes": {
			do:   func(x *world) { x.set(annotated(configMap("settings", "a", "2"), dependency.IgnoreAnnotation, "true")) },
			want: baseline,
		},
		"one change counts although another source is excluded at the same time": {
			do: func(x *world) {
				x.set(secret("db", "password", "2"))
				x.annotate(ExcludeAnnotation, "configmap/settings")
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
		"the template ceases to use a source": {
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
		"content, and then the image: the new pods have read it": {
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
		"content, the image, and other content: only that is unread": {
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
				x.annotate(ReloadAnnotation, "off")
				x.annotate(ReloadAnnotation, "auto")
			},
			want: nothing,
		},
		"opted out, and in again after content has changed": {
			do: func(x *world) {
				x.annotate(ReloadAnnotation, "off")
				x.set(secret("db", "password", "2"))
				x.annotate(ReloadAnnotation, "auto")
			},
			want: rollOut("Secret/db"),
		},
		"opted out, restarted by the owner, and in again": {
			do: func(x *world) {
				x.annotate(ReloadAnnotation, "off")
				x.set(secret("db", "password", "2"))
				x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
				x.annotate(ReloadAnnotation, "auto")
			},
			want: baseline,
		},

		"the key of the hash is replaced": {
			do:   func(x *world) { x.replaceKey() },
			want: adoption,
		},
		"the process begins anew": {
			do:   func(x *world) { x.restart() },
			want: nothing,
		},
		"content changes while nobody looks": {
			do:   func(x *world) { x.away(func() { x.set(secret("db", "password", "2")) }) },
			want: rollOut("Secret/db"),
		},
		"an optional source appears while nobody looks": {
			do:   func(x *world) { x.away(func() { x.set(secret("extra", "a", "1")) }) },
			want: rollOut("Secret/extra"),
		},

		"the record of sources is spoilt, the content is the same": {
			do:   func(x *world) { x.annotate(AppliedSourcesAnnotation, "{") },
			want: baseline,
		},
		"the record of sources is spoilt, and content changes": {
			do: func(x *world) {
				x.annotate(AppliedSourcesAnnotation, "[1]")
				x.set(secret("db", "password", "2"))
			},
			want: rollOut(TriggerUnknown),
		},
		"the hash is spoilt: it cannot be compared": {
			do:   func(x *world) { x.annotate(ConfigHashAnnotation, "garbage") },
			want: adoption,
		},
		"the record is removed, as by an owner who rewrites everything": {
			do:   func(x *world) { x.annotate(ConfigHashAnnotation, "", AppliedSourcesAnnotation, "") },
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
				t.Fatalf("(-want +got):\n%s", diff)
			}
			x.tick(time.Hour)
			if d := x.decide(); d.State != InSync || d.Action != None {
				t.Errorf("after that: %+v", d)
			}
			// And it is a record that changes are told by.
			if e := x.evaluate(); e.Policy.Mode == Auto && e.Policy.Kinds == nil && len(e.Policy.Exclude) == 0 {
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

// TestLiveVolumesToggledIsNoChange: a source that is read both by a variable and by a
// volume counts with other keys then.
func TestLiveVolumesToggledIsNoChange(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "s", "a"), volume(dependency.Secret, "s", "")), secret("s", "a", "1", "b", "1"))
	x.adopt()
	for _, value := range []string{"true", "false", "true"} {
		x.annotate(LiveVolumesAnnotation, value)
		if diff := cmp.Diff(baseline, outcomeOf(x.act())); diff != "" {
			t.Errorf("live-volumes=%s (-want +got):\n%s", value, diff)
		}
		if diff := cmp.Diff(nothing, outcomeOf(x.act())); diff != "" {
			t.Errorf("live-volumes=%s, after that (-want +got):\n%s", value, diff)
		}
	}
}

// TestRecordLeftOnTheTemplateAlone: an owner has removed what stood on the workload, but
// not from its pod template.
func TestRecordLeftOnTheTemplateAlone(t *testing.T) {
	// rolled is a workload that has been restarted once, so that its template has a hash.
	rolled := func(t *testing.T) *world {
		t.Helper()
		x := typical(t)
		x.adopt()
		x.set(secret("db", "password", "2"))
		x.tick(time.Minute)
		if d := x.act(); d.Action != RollOut {
			t.Fatalf("got %+v", d)
		}
		x.tick(time.Hour)
		return x
	}
	drop := func(x *world) { x.annotate(ConfigHashAnnotation, "", AppliedSourcesAnnotation, "") }
	for name, tc := range map[string]struct {
		do   func(*world)
		want outcome
	}{
		"of the same content": {drop, restored},
		"of other content": {func(x *world) {
			drop(x)
			x.set(secret("db", "password", "3"))
		}, rollOut("Secret/db")},
		"of other content, while nobody looked": {func(x *world) {
			x.away(func() {
				drop(x)
				x.set(secret("db", "password", "3"))
			})
		}, outcome{Pending, "SourceChanged", RollOut, TriggerUnknown}},
		"of other content, but the template is newer": {func(x *world) {
			x.set(secret("db", "password", "3"))
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
			drop(x)
		}, restored},
		"made with another key": {func(x *world) {
			drop(x)
			x.set(secret("db", "password", "3"))
			x.replaceKey()
		}, outcome{Pending, "NotRecorded", WriteBaseline, "Secret/db"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := rolled(t)
			tc.do(x)
			x.tick(time.Minute)
			if diff := cmp.Diff(tc.want, outcomeOf(x.act()), ignoreLastTrigger(tc.want)); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
			x.tick(time.Hour)
			if diff := cmp.Diff(InSync, x.decide().State); diff != "" {
				t.Errorf("after that (-want +got):\n%s", diff)
			}
		})
	}
}

// ignoreLastTrigger: in sync, a decision names the trigger of the last restart.
func ignoreLastTrigger(want outcome) cmp.Option {
	return cmp.FilterPath(func(p cmp.Path) bool {
		return p.String() == "Trigger" && want.State == InSync
	}, cmp.Ignore())
}

// TestMatchedSourceThatVanishesIsAChange: an absent source carries no annotation, but the
// pods were started with the content that it had.
func TestMatchedSourceThatVanishesIsAChange(t *testing.T) {
	marked := func(value string) *corev1.Secret {
		return annotated(secret("extra", "a", value), dependency.MatchAnnotation, "true")
	}
	x := newWorld(t, podOf(optionalEnvFrom(dependency.Secret, "extra")), marked("1"))
	x.annotate(ReloadAnnotation, "matched")
	x.adopt()
	for _, s := range []struct {
		what string
		do   func()
		want outcome
	}{
		{"vanishes and comes again at once", func() { x.remove(dependency.Secret, "extra"); x.act(); x.set(marked("1")) }, inspect("Secret/extra")},
		{"vanishes and comes with other content", func() { x.remove(dependency.Secret, "extra"); x.act(); x.set(marked("2")) }, rollOut("Secret/extra")},
		{"vanishes", func() { x.remove(dependency.Secret, "extra") }, rollOut("Secret/extra")},
		{"comes again", func() { x.set(marked("3")) }, rollOut("Secret/extra")},
		{"vanishes once more", func() { x.remove(dependency.Secret, "extra") }, rollOut("Secret/extra")},
		{"comes without the mark", func() { x.set(secret("extra", "a", "4")) }, outcome{State: InSync, Reason: "NothingTriggers", Action: WriteBaseline}},
		{"vanishes without the mark", func() { x.remove(dependency.Secret, "extra") }, outcome{State: InSync, Reason: "NothingTriggers"}},
	} {
		s.do()
		x.tick(2 * time.Hour)
		if diff := cmp.Diff(s.want, outcomeOf(x.act()), ignoreLastTrigger(s.want)); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", s.what, diff)
		}
	}
}

// TestRemovedKeyIsNeverTakenForRead: the API server notes the removal of a key for no
// field manager, so that the content seems to have been written before the template. The
// managed fields are those of a real one.
func TestRemovedKeyIsNeverTakenForRead(t *testing.T) {
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
	set := func(cm *corev1.ConfigMap) { // with its own managed fields
		fields := cm.ManagedFields
		x.set(cm)
		cm.ManagedFields = fields
		x.read(cm)
	}
	set(write(map[string]string{"a": "1", "b": "1"}, "owner"))
	x.now = time.Now().Add(time.Hour) // that of the managed fields cannot be chosen
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
	x.restart() // so that no version tells which came first
	x.adopt()

	t.Run("seen", func(t *testing.T) {
		cm := write(map[string]string{"a": "1"}, "kubectl-edit")
		set(cm)
		if written := x.graph.Source(keyOf(cm)).LastChanged; !x.workload().TemplateWritten.After(written.Time) {
			t.Fatalf("the removal has left a time: %v", written)
		}
		x.tick(time.Minute)
		if diff := cmp.Diff(rollOut("ConfigMap/settings"), outcomeOf(x.decide())); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("while nobody looked", func(t *testing.T) {
		x.restart()
		if diff := cmp.Diff(rollOut("ConfigMap/settings"), outcomeOf(x.decide())); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestMissingNamesEachSourceAndKey(t *testing.T) {
	x := newWorld(t, podOf(
		env(dependency.Secret, "db", "user"), env(dependency.Secret, "db", "password"), env(dependency.Secret, "db", "host"),
		envFrom(dependency.ConfigMap, "gone"), optionalEnvFrom(dependency.ConfigMap, "optional"), unmounted(dependency.Secret, "tls"),
	), secret("db", "host", "h"))
	got, absent := x.evaluate().Missing()
	if diff := cmp.Diff([]string{"ConfigMap gone is missing", "Secret db lacks password, user"}, got); diff != "" || !absent {
		t.Errorf("absent %v (-want +got):\n%s", absent, diff)
	}
	x.set(configMap("gone"))
	x.set(secret("tls"))
	if got, absent := x.evaluate().Missing(); len(got) != 1 || absent {
		t.Errorf("absent %v, %v", absent, got)
	}
}

// TestStaleIsKnownInEveryMode: a Reload with mode IfStale asks, of workloads that nothing
// restarts by itself too.
func TestStaleIsKnownInEveryMode(t *testing.T) {
	x := typical(t)
	x.annotate(ReloadAnnotation, "off")
	check := func(what string, want []string, wantKnown bool) {
		t.Helper()
		ids, known := x.evaluate().Stale()
		if diff := cmp.Diff(want, ids); diff != "" || known != wantKnown {
			t.Errorf("%s: known %v (-want +got):\n%s", what, known, diff)
		}
	}
	check("nothing is recorded", nil, false)
	e := x.evaluate()
	x.patch(e.Policy.RestartPatch(e.Workload, &Restart{Present: e.Present(), Last: Requested(nil, x.now, "me", ""), Always: true}))
	check("just restarted", nil, true)
	x.set(secret("db", "password", "2"))
	x.set(secret("extra", "a", "1"))
	check("two have changed", []string{"Secret/db", "Secret/extra"}, true)
	x.replaceKey()
	check("the key has been replaced", nil, false)
}

// TestRecordHoldsOneEntryForEachSource, and one for each glob, so that it stays small; and
// no entry tells names of keys or content.
func TestRecordHoldsOneEntryForEachSource(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), envFrom(dependency.ConfigMap, "settings"), optionalEnvFrom(dependency.Secret, "extra")),
		secret("db", "password", "hunter2"), configMap("settings", "a", "1", "b", "1"),
		secret("feature-1", "a", "1"), secret("feature-2", "a", "1", "b", "1"))
	x.annotate(SourcesAnnotation, "secret/feature-*,configmap/none-*")
	r := x.evaluate().Present()
	got := map[string]string{}
	for id, entry := range r.Sources {
		scope, rest, _ := strings.Cut(entry, ".")
		if digest, keys, found := strings.Cut(rest, "."); found && len(digest) == 16 {
			rest = keys + " keys"
		}
		got[id] = scope + " " + rest
	}
	want := map[string]string{
		"Secret/db": "90a6b2c8 1 keys", "ConfigMap/settings": "* 2 keys", "Secret/extra": "* 0 keys",
		"Secret/feature-*": "glob 3 keys", "ConfigMap/none-*": "glob ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if text := r.sources(); strings.Contains(text, "password") || strings.Contains(text, "hunter2") {
		t.Errorf("the record tells too much: %s", text)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(r.Sources))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestHashDoesNotDependOnThePlaceOfUse: two workloads that read the same content have the
// same hash, whatever their names and containers are.
func TestHashDoesNotDependOnThePlaceOfUse(t *testing.T) {
	a := newWorld(t, podOf(env(dependency.Secret, "db", "password"), env(dependency.Secret, "db", "user")), secret("db", "password", "1", "user", "u", "more", "m"))
	b := newWorld(t, podOf(volume(dependency.Secret, "db", "user"), env(dependency.Secret, "db", "password")), secret("db", "password", "1", "user", "u"))
	if a.evaluate().Hash != b.evaluate().Hash {
		t.Error("the hashes differ")
	}
	b.set(secret("db", "password", "1", "user", "v"))
	if a.evaluate().Hash == b.evaluate().Hash {
		t.Error("the hashes are equal")
	}
}
