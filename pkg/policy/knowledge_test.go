package policy

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// What is read after a record was decided on is not known to it, even if it was written before
// something that was: watches bring it in any order.
func TestDecide_WhatIsReadAfterTheDecision(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), optionalEnv(dependency.Secret, "late", "key")), secret("db", "password", "1"))
	x.adopt()
	decided := x.graph.Order()
	x.set(secret("db", "password", "2"))
	x.set(secret("db", "password", "1"))
	x.annotate(VerifiedAnnotation, "now") // the record is written again
	w := *x.workload()
	w.RecordedAt = dependency.Moment{Version: x.version, Order: x.order}
	e := Evaluate(x.graph, x.digester, &w, x.defaults)
	if diff := cmp.Diff(inspect("Secret/db"), outcomeOf(e.Decide(Observed{Now: x.now, Decided: decided}))); diff != "" {
		t.Errorf("decided on before (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(nothing, outcomeOf(e.Decide(Observed{Now: x.now, Decided: x.graph.Order()}))); diff != "" {
		t.Errorf("decided on after (-want +got):\n%s", diff)
	}
}

// A source that came to count while the record was on its way, no matter which process wrote it.
func TestDecide_SourceThatCountsAgainWhileTheRecordIsWritten(t *testing.T) {
	x := newWorld(t, podOf(optionalEnv(dependency.Secret, "db", "password"), env(dependency.Secret, "other", "key")),
		annotated(secret("db", "password", "1"), dependency.IgnoreAnnotation, "true"), secret("other", "key", "1"))
	x.adopt()
	decided := x.graph.Order()
	x.remove(dependency.Secret, "db")
	x.set(secret("db", "password", "2"))
	w := *x.workload()
	w.RecordedAt = dependency.Moment{Version: x.version + 1, Order: x.order + 1}
	e := Evaluate(x.graph, x.digester, &w, x.defaults)
	x.tick(time.Minute)
	for name, order := range map[string]uint64{"this process": decided, "another": 0} {
		if diff := cmp.Diff(rollOut("Secret/db"), outcomeOf(e.Decide(Observed{Now: x.now, Decided: order}))); diff != "" {
			t.Errorf("%s decided on the record (-want +got):\n%s", name, diff)
		}
	}
}

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
				if got := scopeOf(&a) == scopeOf(&b); got != same {
					t.Errorf("%s: %s and %s, want the same: %v", kind, scopeOf(&a), scopeOf(&b), same)
				}
			}
		})
	}
}

func TestDecide_TemplateThatBeginsToShowABinaryKey(t *testing.T) {
	cm := configMap("settings", "a", "1")
	cm.BinaryData = map[string][]byte{"b": {1}}
	x := newWorld(t, podOf(envFrom(dependency.ConfigMap, "settings")), cm)
	x.graph.SetSeveralCounters(true)
	x.adopt()
	x.edit(func(d *appsv1.Deployment) { volume(dependency.ConfigMap, "settings", "")(&d.Spec.Template.Spec) })
	if diff := cmp.Diff(baseline, outcomeOf(x.decide())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An owner goes back in the middle of a rollout to a template whose pods may never have stopped,
// and the record that comes with it tells that they have read something else than what is there.
func TestDecide_RecordThatComesBackWithOlderPods(t *testing.T) {
	for name, record := range map[string]func(*world) (hash, sources string){
		"mixed": func(x *world) (hash, sources string) {
			x.patch(x.evaluate().MixedPatch([]string{"Secret/db"}))
			hash, sources = x.workload().Record()
			x.tick(time.Minute)
			x.deployment.Generation = 2 // the rollout is under way
			x.act()
			return hash, sources
		},
		"of other content": func(x *world) (hash, sources string) {
			hash, sources = x.workload().Record()
			x.away(func() { x.set(secret("db", "password", "2")) })
			x.tick(time.Minute)
			x.deployment.Generation = 2 // the rollout is under way
			x.act()
			return hash, sources
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			hash, sources := record(x)
			x.edit(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image, d.Generation = "app:2", 3
			})
			x.tick(time.Minute)
			x.edit(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image, d.Spec.Template.Annotations = "", nil
				d.Generation, d.Status.ObservedGeneration = 4, 4
				d.Annotations = maps.Clone(d.Annotations)
				d.Annotations[ConfigHashAnnotation], d.Annotations[AppliedSourcesAnnotation] = hash, sources
			})
			if diff := cmp.Diff(inspect("Secret/db").Action, x.decide().Action); diff != "" {
				t.Fatalf("%+v: (-want +got):\n%s", x.decide(), diff)
			}
			x.act()
			if d := x.decide(); d.State != InSync || d.Action != None {
				t.Errorf("once looked up: %+v", d)
			}
		})
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
	x.graph.SetSeveralCounters(true)
	x.adopt()
	without := podOf(env(dependency.Secret, "db", "password"))
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec = without })
	x.remove(dependency.ConfigMap, "more")
	x.tick(time.Minute)
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec = pod })
	if d := x.decide(); d.State != Settling {
		t.Errorf("%+v, want Settling", d)
	}
	x.tick(time.Minute)
	if diff := cmp.Diff(rollOut("ConfigMap/more"), outcomeOf(x.decide())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
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
				x.version++
				key := dependency.SourceKey{Kind: dependency.ConfigMap, Namespace: tt.churn, Name: fmt.Sprint("churn-", i)}
				x.graph.SetSource(&dependency.Source{SourceKey: key})
				x.graph.DeleteSource(key, dependency.Change{Version: x.version, Seen: x.now, Order: x.arrival().Order})
			}
			x.tick(time.Minute)
			x.edit(template(3, 3, more))
			x.tick(time.Minute)
			if diff := cmp.Diff(tt.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The removal of a key is dated by no field manager: times do not tell that a template came later.
func TestDecide_KeyRemovedAfterTheTemplateBeganToReadIt(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.ConfigMap, "settings", "a")), configMap("settings", "a", "1", "b", "1"))
	x.graph.SetSeveralCounters(true)
	x.adopt()
	x.edit(func(d *appsv1.Deployment) {
		d.Spec.Template.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}
		envFrom(dependency.ConfigMap, "settings")(&d.Spec.Template.Spec)
	})
	x.set(configMap("settings", "a", "1"))
	x.tick(time.Minute)
	if diff := cmp.Diff(rollOut("ConfigMap/settings"), outcomeOf(x.decide())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Both the template and the content may change while the first lists are read, when the order of
// events is not known. Times do not tell it either.
func TestDecide_ChangesBeforeEverythingWasRead(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.adopt()
	x.live = false
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
	x.set(secret("db", "password", "2"))
	x.graph.SetSince(dependency.Moment{Version: x.version, Order: x.order})
	x.live = true
	x.tick(time.Minute)
	if diff := cmp.Diff(rollOut("Secret/db"), outcomeOf(x.decide())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDecide_RecordWrittenAgain: what a record says of pods holds from when it was last written, also
// if another client had removed it and it was the same before those pods. Who wrote it knows that even if it did not
// see that it was removed.
func TestDecide_RecordWrittenAgain(t *testing.T) {
	removed := func(x *world) {
		x.annotate(ConfigHashAnnotation, "", AppliedSourcesAnnotation, "")
		if diff := cmp.Diff(restored, outcomeOf(x.act())); diff != "" {
			x.t.Fatalf("(-want +got):\n%s", diff)
		}
	}
	for name, tt := range map[string]struct {
		do      func(*world)
		written bool // it is known that we did
		want    outcome
	}{
		"not":                          {func(*world) {}, false, rollOut("Secret/db")},
		"unseen, by us":                {func(*world) {}, true, inspect("Secret/db")},
		"removed, and written by us":   {removed, true, inspect("Secret/db")},
		"removed, and by another":      {removed, false, inspect("Secret/db")},
		"removed, and written since":   {both(removed, func(x *world) { x.annotate(SettleAnnotation, "1s") }), false, inspect("Secret/db")},
		"removed again":                {both(removed, func(x *world) { x.annotate(ConfigHashAnnotation, "") }), false, inspect("Secret/db")},
		"removed, and not written yet": {func(x *world) { x.annotate(ConfigHashAnnotation, "", AppliedSourcesAnnotation, "") }, false, rollOut("Secret/db")},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(optionalEnv(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
			tt.do(x)
			o := Observed{Decided: x.graph.Order()}
			if tt.written {
				o.Written = x.version
			}
			x.remove(dependency.Secret, "db")
			x.set(secret("db", "password", "1"))
			x.tick(time.Minute)
			o.Now = x.now
			if diff := cmp.Diff(tt.want, outcomeOf(x.evaluate().Decide(o))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestDecide_BareHashOfAnEarlierTemplate: where the owner changes the template and removes the record,
// the hash that is left on the template says what pods from before read. Those that are there may
// have been started while content was different.
func TestDecide_BareHashOfAnEarlierTemplate(t *testing.T) {
	for _, several := range []bool{false, true} {
		x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
		x.graph.SetSeveralCounters(several)
		x.adopt()
		hash := x.evaluate().Hash
		x.edit(func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations = map[string]string{ConfigHashAnnotation: hash}
		})
		x.set(secret("db", "password", "2"))
		x.edit(func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Image = "app:2"
			d.Annotations = map[string]string{ReloadAnnotation: "auto"}
		})
		x.set(secret("db", "password", "1"))
		x.tick(time.Minute)
		if diff := cmp.Diff(inspect("Secret/db"), outcomeOf(x.decide())); diff != "" {
			t.Errorf("several counters: %v (-want +got):\n%s", several, diff)
		}
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
			x.graph.SetSeveralCounters(true)
			x.annotate(ReloadAnnotation, "off")
			x.set(secret("db", "password", "1", "user", "1")) // nothing dates that a key is removed
			x.annotate(ReloadAnnotation, "auto")
			x.adopt()
			if tt.later {
				x.set(secret("db", "password", "1"))
			}
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec = podOf(envFrom(dependency.Secret, "db")) })
			x.tick(time.Minute)
			if diff := cmp.Diff(tt.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A replica that was cut off finds other content in a list, of a version that is newer than the record of the leader,
// because the metadata was written after that. The record tells of the change, so that it is no later one; unless the
// replica had been reading beyond the record, or has seen more changes.
func TestDecide_ListShowsWhatTheRecordTells(t *testing.T) {
	set := func(value string) func(*world) {
		return func(x *world) { x.set(secret("db", "password", value)) }
	}
	again := func(x *world) { x.set(annotated(secret("db", "password", "2"), "a", "b")) }
	recordOf := func(value string) func(*world) {
		return func(x *world) {
			there := newWorld(x.t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", value))
			x.patch(BaselinePatch(x.workload(), there.evaluate().Present()))
		}
	}
	cutOff := func(fs ...func(*world)) func(*world) {
		return func(x *world) { x.broken(func() { both(fs...)(x) }) }
	}
	for name, tt := range map[string]struct {
		do   func(*world)
		want outcome
	}{
		"cut off before the record":            {cutOff(set("2"), recordOf("2"), again), nothing},
		"and there was another change":         {both(set("3"), cutOff(recordOf("2"), set("2"), again)), nothing},
		"it is recorded, and changes twice":    {both(recordOf("2"), set("3"), cutOff(set("2"), again)), inspect("Secret/db")},
		"the record was of a leader that lags": {both(recordOf("2"), cutOff(set("2"), again)), inspect("Secret/db")},
		"with several counters":                {both(func(x *world) { x.graph.SetSeveralCounters(true) }, cutOff(set("2"), recordOf("2"), again)), nothing},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			tt.do(x)
			x.tick(time.Minute)
			if diff := cmp.Diff(tt.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The same of a source that a list does not show any more, by name and of a glob.
func TestDecide_ListLacksWhatTheRecordTells(t *testing.T) {
	for name, sources := range map[string]string{"by name": "secret/more", "of a glob": "secret/m*"} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"), secret("more", "k", "1"))
			x.annotate(SourcesAnnotation, sources)
			x.adopt()
			x.broken(func() {
				x.remove(dependency.Secret, "more")
				x.restart()
				x.patch(BaselinePatch(x.workload(), x.evaluate().Present()))
				x.version++ // of something else
			})
			x.tick(time.Minute)
			if diff := cmp.Diff(nothing, outcomeOf(x.decide())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			x.set(secret("more", "k", "1"))
			x.tick(time.Minute)
			if d := x.decide(); d.Action != RollOut {
				t.Errorf("it comes back: %s", d.Action)
			}
		})
	}
}

// looked returns what is decided when a container has been found to run since a time.
func (x *world) looked(since time.Time) Decision {
	x.t.Helper()
	d := x.decide()
	if d.Action != Inspect {
		return d
	}
	pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}},
	}}}}
	found, err := InspectPods(d.Excursions, func(look func(*corev1.Pod)) error { look(pod); return nil })
	if err != nil {
		x.t.Fatal(err)
	}
	found.Of, found.StartedBy = d.Excursions, x.workload().StartedBy
	return x.evaluate().Decide(Observed{Now: x.now, StaleSince: x.staleSince, Inspected: found})
}

// A record that came back with its template, or was written by a replica that lagged, says other content than there was.
// When content becomes what it says, pods that are older than that have read something else.
func TestDecide_RecordThatComesTrue(t *testing.T) {
	for name, before := range map[string]func(*world){
		"an undo": func(x *world) {
			template, annotations := x.deployment.Spec.Template.DeepCopy(), maps.Clone(x.deployment.Annotations)
			x.set(secret("db", "password", "2"))
			x.tick(time.Minute)
			if d := x.act(); d.Action != RollOut {
				x.t.Fatalf("%+v", d)
			}
			x.tick(time.Hour)
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template, d.Annotations = *template, annotations })
		},
		"a replica that lags": func(x *world) {
			present := x.evaluate().Present()
			x.edit(func(d *appsv1.Deployment) { d.Spec.Paused = true })
			x.set(secret("db", "password", "2"))
			x.patch(BaselinePatch(x.workload(), Record{Hash: present.Hash + "0", Sources: present.Sources})) // it is written once more
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			before(x)
			x.tick(10 * time.Minute)
			pod := x.now // it reads 2
			x.tick(10 * time.Minute)
			x.set(secret("db", "password", "1"))
			x.tick(10 * time.Minute)
			if d := x.looked(pod); d.Action != WriteMixed {
				t.Errorf("%+v", d)
			}
			if d := x.looked(x.now); d.Action != WriteVerified {
				t.Errorf("of a younger pod: %+v", d)
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
	if d := x.looked(pod); d.Action != WriteVerified {
		t.Errorf("%+v", d)
	}
}
