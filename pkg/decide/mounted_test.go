// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
)

// vault is a world whose Deployment, with three pods, mounts the SecretProviderClass keys, of whose objects there are versions. The Secrets Store CSI driver
// writes the version that a pod has mounted, first when the pod starts.
type vault struct {
	*world

	version int
}

const keys = "SecretProviderClass/keys"

func newVault(t *testing.T, annotations ...string) *vault {
	t.Helper()
	v := &vault{newWorld(t, podOf(mountedClass("keys"))), 1}
	v.scope.PodStatuses = true
	v.annotate(annotations...)
	v.scale(3)
	v.mount()
	v.tick(time.Hour)
	v.restart()
	v.restarts()
	return v
}

func (v *vault) write(pod string) {
	v.Set(ingesttest.PodStatus(pod, "keys", "password", strconv.Itoa(v.version)))
}

// mount writes what pods that have just started have mounted.
func (v *vault) mount() {
	for _, p := range v.pods {
		if v.Stored(ingesttest.PodStatus(p.Name, "keys")) == nil {
			v.write(p.Name)
		}
	}
}

// rotate changes the objects, and lets the driver update some pods, one each 40 seconds.
func (v *vault) rotate(pods ...int) {
	v.version++
	for _, i := range pods {
		v.write(v.pods[i].Name)
		v.tick(40 * time.Second)
	}
}

// wantRestarts is that of world, with pods that mount the class.
func (v *vault) wantRestarts(what string, want int) {
	v.t.Helper()
	got := 0
	for range 10 {
		v.tick(time.Minute)
		if d := v.act(); d.Action == decide.RollOut {
			got++
			v.rollOut()
			v.mount()
		}
	}
	if d := v.decide(); got != want || d.State != decide.InSync || d.Action != decide.None {
		v.t.Errorf("%s: %d restarts, want %d; in the end: %+v", what, got, want, d)
	}
}

// One rotation makes one restart, in whatever order pods report it. Pods that start mount what is current.
func TestDecide_MountedClasses(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(*vault)
		want int
	}{
		"nothing happens":                          {func(*vault) {}, 0},
		"pods report a rotation over minutes":      {func(v *vault) { v.rotate(0, 1, 2) }, 1},
		"one pod reports a rotation":               {func(v *vault) { v.rotate(1) }, 1},
		"no pod has reported the rotation":         {func(v *vault) { v.rotate() }, 0},
		"a pod starts with the next version":       {func(v *vault) { v.rotate(); v.scale(4); v.mount() }, 0},
		"it does, and then the others are updated": {func(v *vault) { v.rotate(); v.scale(4); v.mount(); v.version--; v.rotate(0, 1, 2) }, 1},
		"only metadata is written": {func(v *vault) {
			s := ingesttest.PodStatus(v.pods[0].Name, "keys", "password", "1")
			s.SetLabels(map[string]string{"a": "b"})
			v.Set(s)
		}, 0},
		"another class": {func(v *vault) {
			v.Set(ingesttest.PodStatus(v.pods[0].Name, "others", "password", "1"))
			v.Set(ingesttest.PodStatus(v.pods[0].Name, "others", "password", "2"))
		}, 0},
		"the owner replaces the pods after a rotation": {func(v *vault) {
			v.rotate(0, 1)
			v.image("app:2")
			v.rollOut()
			v.mount()
		}, 0},
		"a container of a pod crashes later, and reads it": {func(v *vault) {
			v.scale(1)
			v.rotate(0)
			v.tick(5 * time.Minute)
			v.crash()
		}, 0},
		"containers restart in their pods before the driver has updated the others": {func(v *vault) {
			v.rotate(0)
			for range v.pods {
				v.crash()
				v.pods = append(v.pods[1:], v.pods[0])
			}
			v.tick(3 * time.Minute)
			v.version--
			v.rotate(1, 2)
		}, 1},
		"all pods are replaced, and then the store goes back": {func(v *vault) {
			v.rotate()
			for range v.pods {
				v.stop(v.pods[0].Name)
				v.start()
			}
			v.mount()
			v.version = 0
			v.rotate(0, 1, 2)
		}, 1},
		"the server was away":              {func(v *vault) { v.away(func() { v.rotate(0, 1, 2) }) }, 1},
		"the server restarts after it":     {func(v *vault) { v.rotate(0); v.restart() }, 1},
		"the key of the hash was replaced": {func(v *vault) { v.replaceKey(); v.wantRestarts("a new key", 0); v.rotate(0) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVault(t)
			tt.do(v)
			v.wantRestarts("the event", tt.want)
			v.restart()
			v.wantRestarts("another server", 0)
			v.rotate(0)
			v.wantRestarts("another rotation", 1)
		})
	}
}

// The hash does not tell of a class, so that a restart for one which a user undoes, as by kubectl rollout undo, is not repeated. The message says so.
func TestDecide_AnUndoneRestartForAClass(t *testing.T) {
	v := newVault(t)
	v.rotate(0, 1, 2)
	v.wantRestarts("the first rotation", 1)
	before := v.deployment.Spec.Template
	v.rotate(0, 1, 2)
	v.tick(time.Minute)
	if d := v.act(); d.Action != decide.RollOut {
		t.Fatalf("decision = %+v", d)
	}
	v.edit(func(d *appsv1.Deployment) { d.Spec.Template = before })
	v.edit(v.count)
	v.tick(time.Hour)
	d := v.decide()
	if want := ". The workload was restarted for it, and not all pods were replaced: the rollout may have been undone. Create a Reload to restart the workload."; d.State != decide.Stale || d.Action != decide.None || !strings.HasSuffix(d.Message, want) {
		t.Errorf("decision = %+v, want the message to end with %q", d, want)
	}
}

// What has been rotated when a workload opts in is adopted.
func TestDecide_MountedClassesAreAdopted(t *testing.T) {
	v := newVault(t, policy.ReloadAnnotation, "off")
	v.rotate(0)
	v.tick(time.Hour)
	v.want("rotated", outcome{State: decide.Unknown, Reason: "FilesChanged"})
	optIn(v.world)
	for range 3 {
		if d := v.act(); d.Action == decide.RollOut {
			t.Errorf("opting in: decision = %+v", d)
		}
		v.tick(time.Hour)
	}
	v.rotate(1)
	v.wantRestarts("the next rotation", 1)
}

// A workload is restarted because of a class only if annotations say so.
func TestPolicy_MountedClassesCount(t *testing.T) {
	const list = "secretproviderclass.reloader.stakater.com/reload"
	for name, tt := range map[string]struct {
		annotations []string
		want        bool
	}{
		"auto":                       {nil, true},
		"of other kinds":             {[]string{policy.KindsAnnotation, "configmap,secret"}, false},
		"of this kind":               {[]string{policy.KindsAnnotation, "secretproviderclass"}, true},
		"excluded by a pattern":      {[]string{policy.ExcludeAnnotation, "secretproviderclass/k*"}, false},
		"files that are read again":  {[]string{policy.LiveVolumesAnnotation, "true"}, false},
		"listed":                     {[]string{policy.ReloadAnnotation, "listed", policy.SourcesAnnotation, "secretproviderclass/keys"}, true},
		"listed by a pattern":        {[]string{policy.ReloadAnnotation, "listed", policy.SourcesAnnotation, "secretproviderclass/k*"}, true},
		"another is listed":          {[]string{policy.ReloadAnnotation, "listed", policy.SourcesAnnotation, "secretproviderclass/x*"}, false},
		"Reloader: auto":             {[]string{policy.ReloadAnnotation, "", "reloader.stakater.com/auto", "true"}, true},
		"Reloader: auto for classes": {[]string{policy.ReloadAnnotation, "", "secretproviderclass.reloader.stakater.com/auto", "true"}, true},
		"Reloader: auto for others":  {[]string{policy.ReloadAnnotation, "", "secret.reloader.stakater.com/auto", "true"}, false},
		"Reloader: an expression":    {[]string{policy.ReloadAnnotation, "", list, "k.*s"}, true},
		"Reloader: another":          {[]string{policy.ReloadAnnotation, "", list, "k"}, false},
		"Reloader: excluded": {[]string{
			policy.ReloadAnnotation, "", "reloader.stakater.com/auto", "true", "secretproviderclasses.exclude.reloader.stakater.com/reload", "keys",
		}, false},
		"wave": {[]string{policy.ReloadAnnotation, "", "wave.pusher.com/update-on-config-change", "true"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVault(t, tt.annotations...)
			v.rotate(0, 1)
			v.tick(time.Minute)
			if d := v.act(); (d.Action == decide.RollOut) != tt.want {
				t.Errorf("decision = %+v, want a restart: %v", d, tt.want)
			}
			e := v.evaluate()
			i := slices.IndexFunc(e.Sources, func(s decide.Source) bool { return decide.IDOf(s.Kind, s.Name) == keys })
			if s := e.Sources[i]; s.Triggers != tt.want || !s.Observed || len(e.Globs) > 0 {
				t.Errorf("the source: triggers %t, %s, observed %t; globs %v", s.Triggers, s.Reason, s.Observed, e.Globs)
			}
		})
	}
}

// Where a class is only named and no pod has mounted it, nothing is known of it.
func TestEvaluate_ClassesThatAreNotMounted(t *testing.T) {
	v := newVault(t)
	for _, p := range v.pods {
		v.Delete(ingesttest.PodStatus(p.Name, "keys"))
	}
	if s := v.evaluate().Sources[0]; s.Kind != dependency.SecretProviderClass || s.Observed || s.Triggers || s.Reason != policy.ReasonNotObserved || s.Missing {
		t.Errorf("source = %+v", s)
	}
	if d := v.decide(); d.State != decide.InSync {
		t.Errorf("decision = %+v", d)
	}
	v.wantRestarts("later", 0)
}

// The driver makes a Secret of a class once a pod mounts it, and deletes it with the last one. New pods can start without it.
func TestDecide_SecretsThatADriverMakes(t *testing.T) {
	made := func(value string) func(*world) {
		return func(x *world) { x.set(secret("made", "key", value)) }
	}
	gone := func(x *world) { x.remove(dependency.Secret, "made") }
	change := func(x *world) { x.set(secret("db", "key", "2")) }
	up := func(x *world) {
		made("1")(x)
		x.tick(2 * time.Second)
		x.scale(1)
	}
	for name, tt := range map[string]struct {
		do   []func(*world)
		want []string
	}{
		"the first pod makes it":                   {[]func(*world){up}, nil},
		"the first pod makes it, and it changes":   {[]func(*world){up, made("2")}, []string{"Secret/made"}},
		"other content changes while it is absent": {[]func(*world){up, gone, change}, []string{"Secret/db"}},
		"it goes while pods run":                   {[]func(*world){up, gone}, nil},
		"it comes back as it was":                  {[]func(*world){up, gone, made("1")}, nil},
		"it comes back with other content":         {[]func(*world){up, gone, made("2")}, []string{"Secret/made"}},
		"it does while no process runs": {
			[]func(*world){up, gone, func(x *world) { x.away(func() { made("2")(x) }) }}, []string{"Secret/made"},
		},
		"it comes back as it was while no process runs": {
			[]func(*world){up, gone, func(x *world) { x.away(func() { made("1")(x) }) }}, nil,
		},
		"the first pod makes it while no process runs, and its container starts at once": {
			[]func(*world){func(*world) {}, func(x *world) { x.away(func() { made("1")(x); x.scale(1) }) }}, nil,
		},
		"all pods go, and others make it again": {[]func(*world){up, func(x *world) { x.scale(0) }, gone, func(x *world) { made("2")(x); x.tick(2 * time.Second); x.scale(1) }}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "key"), env(dependency.Secret, "made", "key"), mountedClass("keys")), secret("db", "key", "1"))
			x.scale(0)
			x.restart()
			var got []string
			for _, f := range tt.do {
				got = append(got, x.restarts()...)
				if d := x.decide(); d.State == decide.Blocked || d.State == decide.Failed {
					t.Errorf("decision = %+v", d)
				}
				f(x)
				x.tick(time.Hour)
			}
			if got = append(got, x.restarts()...); !slices.Equal(got, tt.want) {
				t.Errorf("restarts = %q, want %q", got, tt.want)
			}
			x.restart()
			if got := x.restarts(); len(got) > 0 {
				t.Errorf("another process restarts for %q", got)
			}
		})
	}
}

// Each run of a CronJob makes the Secret, and it goes with the run. That starts no other run.
func TestDecide_SecretsThatADriverMakesForRuns(t *testing.T) {
	x := newRerunWorld(t, annotations{reloaderAuto: "true"})
	x.defaults.ReloadOnCreate, x.defaults.ReloadOnDelete = true, true
	x.restart()
	x.cronJob(func(o *batchv1.CronJob) {
		pod := &o.Spec.JobTemplate.Spec.Template.Spec
		env(dependency.Secret, "made", "key")(pod)
		mountedClass("keys")(pod)
	})
	runs := func(what string, want int) {
		t.Helper()
		got := 0
		for range 5 {
			x.now = x.now.Add(time.Minute)
			d := x.act("cronjob")
			if d.Action == decide.RollOut {
				got++
			}
			if d.State == decide.Blocked {
				t.Errorf("%s: decision = %+v", what, d)
			}
		}
		if got != want {
			t.Errorf("%s: %d runs, want %d", what, got, want)
		}
	}
	runs("opted in", 0)
	x.Set(secret("made", "key", "1"))
	runs("a run makes it", 0)
	x.Delete(secret("made"))
	runs("the run ends", 0)
	x.Set(secret("made", "key", "1"))
	runs("the next run makes it", 0)
	x.Delete(secret("made"))
	runs("that ends", 0)
	x.change("a", "2", "b", "2")
	runs("other content changes", 1)
	x.Set(secret("made", "key", "1"))
	runs("that run makes it", 0)
	x.Set(secret("made", "key", "2"))
	runs("it changes", 1)
}

// Only a Secret as a whole, of a workload whose pods mount a class, can come in that way.
func TestDecide_SecretsThatNoDriverMakes(t *testing.T) {
	for name, tt := range map[string]struct {
		pod     corev1.PodSpec
		blocked bool
	}{
		"a class":                     {podOf(env(dependency.Secret, "x", "key"), mountedClass("keys")), false},
		"as files":                    {podOf(mountedClass("keys"), volume(dependency.Secret, "x", "")), false},
		"no class":                    {podOf(env(dependency.Secret, "x", "key")), true},
		"a class that is not mounted": {podOf(env(dependency.Secret, "x", "key"), csi("", "keys")), true},
		"a ConfigMap":                 {podOf(env(dependency.ConfigMap, "x", "key"), mountedClass("keys")), true},
		"a key":                       {podOf(env(dependency.Secret, "db", "other"), mountedClass("keys")), true},
		"what the driver needs to mount": {podOf(env(dependency.Secret, "x", "key"), mountedClass("keys"), func(p *corev1.PodSpec) {
			p.Volumes[0].CSI.NodePublishSecretRef = &corev1.LocalObjectReference{Name: "x"}
		}), true},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, tt.pod, secret("db", "key", "1"))
			if d := x.decide(); (d.State == decide.Blocked) != tt.blocked || (d.Message != "" && strings.Contains(d.Message, "cannot start")) != tt.blocked {
				t.Errorf("decision = %+v, want it to be blocked: %t", d, tt.blocked)
			}
		})
	}
}
