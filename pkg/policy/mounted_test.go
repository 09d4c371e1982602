// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/seeds"
)

// vault is a world in which pods mount a SecretProviderClass, with the Secrets Store CSI driver.
type vault struct {
	*world
	version int // of the object in the store
}

// newVault returns one in which the pods web-1 to web-3, of the Deployment, and other have mounted the first version, and the
// Deployment has opted in.
func newVault(t *testing.T) *vault {
	t.Helper()
	v := unrecordedVault(t)
	v.adopt()
	return v
}

func unrecordedVault(t *testing.T) *vault {
	t.Helper()
	v := &vault{newWorld(t, podOf(mountedClass("keys"))), 1}
	v.scope.PodStatuses = true
	for _, pod := range []string{"web-1", "web-2", "web-3", "other"} {
		v.mount(pod)
	}
	v.restart()
	return v
}

func (v *vault) rotate() { v.version++ }

// write is a write of the driver, with the current content.
func (v *vault) write(pod string) { v.writeVersion(pod, v.version) }

func (v *vault) mount(pods ...string) {
	for _, pod := range pods {
		v.write(pod)
	}
}

// update updates the files of pods, one each 40 seconds.
func (v *vault) update(pods ...string) {
	for _, pod := range pods {
		v.write(pod)
		v.tick(40 * time.Second)
	}
}

func (v *vault) writeVersion(pod string, version int) {
	v.Set(ingesttest.PodStatus(pod, "keys", "password", strconv.Itoa(version)))
}

func (v *vault) unmount(pods ...string) {
	for _, pod := range pods {
		v.Delete(ingesttest.PodStatus(pod, "keys"))
	}
}

// settle carries out what is decided, and returns how often that was a restart.
func (v *vault) settle() (restarts int) {
	v.t.Helper()
	for range 10 {
		v.tick(time.Minute)
		switch d := v.act(); {
		case d.Action == policy.None && d.RecheckAt.IsZero():
			return restarts
		case d.Action == policy.RollOut:
			restarts++
		}
	}
	v.t.Fatalf("it does not settle: %+v", v.decide())
	return 0
}

// replace replaces pods by new ones, as a rollout does.
func (v *vault) replace(pods ...string) {
	for _, pod := range pods {
		v.unmount(pod)
		v.mount(pod + "x")
	}
}

func (v *vault) image(image string) {
	v.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = image })
}

func TestDecide_MountedClasses(t *testing.T) {
	all := []string{"web-1", "web-2", "web-3"}
	for name, tt := range map[string]struct {
		do   func(*vault)
		want int
	}{
		"nothing happens":                         {func(*vault) {}, 0},
		"pods report a rotation over minutes":     {func(v *vault) { v.rotate(); v.update(all...); v.update("other") }, 1},
		"a rotation that one pod has reported":    {func(v *vault) { v.rotate(); v.update("other") }, 1},
		"the rotation of another object as well":  {func(v *vault) { v.rotate(); v.update("other"); v.rotate(); v.update("other") }, 1},
		"a rotation that no pod has reported":     {func(v *vault) { v.rotate() }, 0},
		"pods that start with the same version":   {func(v *vault) { v.mount("web-4", "web-5") }, 0},
		"a pod that starts with the next version": {func(v *vault) { v.rotate(); v.mount("web-4") }, 0},
		"the same, and then others are updated":   {func(v *vault) { v.rotate(); v.mount("web-4"); v.update(all...) }, 1},
		"pods that go":                            {func(v *vault) { v.unmount(all...) }, 0},
		"all pods go, and come with another version": {func(v *vault) {
			v.unmount(append(all, "other")...)
			v.rotate()
			v.mount(all...)
		}, 0},
		"a rotation is reported, and the pod is gone": {func(v *vault) { v.rotate(); v.update("other"); v.unmount("other"); v.update(all...) }, 1},
		"a pod that has not mounted anything yet": {func(v *vault) {
			s := ingesttest.PodStatus("web-4", "keys", "password", "2")
			s.Object["status"].(map[string]any)["mounted"] = false
			v.Set(s)
			v.Set(ingesttest.PodStatus("web-5", "keys"))
		}, 0},
		"a pod that no longer has anything mounted": {func(v *vault) { v.Set(ingesttest.PodStatus("web-3", "keys")) }, 0},
		"another class": {func(v *vault) {
			v.Set(ingesttest.PodStatus("web-1", "others", "password", "1"))
			v.Set(ingesttest.PodStatus("web-1", "others", "password", "2"))
		}, 0},
		"only metadata is written": {func(v *vault) {
			s := ingesttest.PodStatus("web-1", "keys", "password", "1")
			s.SetLabels(map[string]string{"a": "b"})
			v.Set(s)
		}, 0},
		"another object is added": {func(v *vault) { v.Set(ingesttest.PodStatus("web-1", "keys", "password", "1", "user", "1")) }, 1},
		"the owner changes the template after the rotation": {func(v *vault) {
			v.rotate()
			v.update("web-1")
			v.image("app:2")
		}, 0},
		"the server was away while it was rotated": {func(v *vault) {
			v.away(func() { v.rotate(); v.update("web-1") })
			v.update("web-2", "web-3")
		}, 1},
		"the server was away, and no pod that has been updated is left": {func(v *vault) {
			v.away(func() { v.rotate(); v.update("other"); v.unmount("other"); v.mount("web-4") })
			v.settle()
			v.update("web-1")
		}, 1},
		"the server is started while pods disagree, after the restart": {func(v *vault) {
			v.rotate()
			v.update("other")
			v.settle() // the restart
			v.replace("web-1", "web-2")
			v.restart()
			v.replace("web-3")
		}, 0},
		"the driver is upgraded, and for a time there are no statuses": {func(v *vault) {
			v.unmount(append(all, "other")...)
			v.settle()
			v.restart()
			v.settle()
			v.rotate()
			for _, pod := range all {
				v.writeVersion(pod, v.version-1)
			}
			v.update("web-1")
		}, 1},
		"the definition goes and comes while it is rotated": {func(v *vault) {
			v.withdraw()
			v.settle()
			v.rotate()
			v.update("web-1")
			v.serve()
			v.update("web-2")
		}, 1},
		"the key of the hash is replaced":        {func(v *vault) { v.replaceKey() }, 0},
		"the key is replaced, and it is rotated": {func(v *vault) { v.replaceKey(); v.settle(); v.rotate(); v.update(all...) }, 1},
		"the key is replaced while it is rotated": {func(v *vault) {
			v.rotate()
			v.update("web-1")
			v.rekey(7, func(*world) {}, func(*world) {})
			v.update("web-2")
		}, 1},
		"the key is replaced after it was rotated": {func(v *vault) {
			v.rotate()
			v.update("web-1")
			if n := v.settle(); n != 1 {
				v.t.Errorf("%d restarts", n)
			}
			v.replace(all...)
			v.rekey(7, func(*world) {}, func(*world) {})
		}, 0},
		"the key is replaced, and a pod returns to what is recorded": {func(v *vault) {
			v.rekey(7, func(*world) {}, func(*world) {})
			v.writeVersion("web-4", 2)
			v.update("web-4")
		}, 0},
		"the key is replaced while pods have only mounted what is next": {func(v *vault) {
			v.rotate()
			v.replace(append(all, "other")...)
			v.rekey(7, func(*world) {}, func(*world) {})
			if n := v.settle(); n != 0 {
				v.t.Errorf("%d restarts", n)
			}
			v.rotate()
			v.update("web-1x")
		}, 1},
		// Each pod has credentials of its own, so each mount is another version.
		"versions that no two pods share": {func(v *vault) {
			for range 5 {
				v.rotate()
				v.mount("web-4")
				v.unmount("web-4")
			}
			v.restart()
			v.rotate()
			v.mount("web-4")
		}, 0},
		// A job that is complete keeps what it had. It must not be taken for the current content.
		"what a pod had that is not updated any longer": {func(v *vault) {
			v.rotate()
			v.update("other") // for the last time
			if n := v.settle(); n != 1 {
				v.t.Errorf("%d restarts", n)
			}
			v.replace(all...)
			v.rotate()
			v.update("web-1x")
			if n := v.settle(); n != 1 {
				v.t.Errorf("%d restarts", n)
			}
			v.replace("web-1x", "web-2x", "web-3x")
			v.settle()
			v.verified = new(true)
			v.restart()
		}, 0},
		"a mount from an old cache": {func(v *vault) {
			v.rotate()
			v.update("web-1")
			v.writeVersion("web-4", 1)
			v.update("web-4", "web-2")
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVault(t)
			tt.do(v)
			got := v.settle()
			if got != tt.want {
				t.Errorf("%d restarts, want %d", got, tt.want)
			}
			if d := v.decide(); d.State != policy.InSync || d.Stale {
				t.Errorf("in the end: %+v", d)
			}
			v.restart()
			if again := v.settle(); again != 0 {
				t.Errorf("%d restarts after the start of another server", again)
			}
		})
	}
}

func (v *vault) withdraw() { v.WithdrawStream(ingest.PodStatuses) }
func (v *vault) serve()    { v.ServeStream(ingest.PodStatuses) }

// What has been rotated when a workload opts in is adopted, and the record says so.
func TestDecide_MountedClassesAreAdopted(t *testing.T) {
	v := unrecordedVault(t)
	v.annotate(policy.ReloadAnnotation, "off")
	v.rotate()
	v.update("web-1")
	v.annotate(policy.ReloadAnnotation, "auto")
	v.adopt()
	if n := v.settle(); n != 0 {
		t.Errorf("%d restarts", n)
	}
	v.update("web-2", "web-3", "other")
	if n := v.settle(); n != 0 {
		t.Errorf("%d restarts for other reports of what was adopted", n)
	}
	v.rotate()
	v.update("web-2")
	if n := v.settle(); n != 1 {
		t.Errorf("%d restarts for the next rotation", n)
	}
}

// The number of restarts is that of rotations, in whatever order pods report them, start and go, and however often the server is
// started.
func TestDecide_OneRestartForEachRotation(t *testing.T) {
	seeds.Each(t, 50, func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 1))
		v := newVault(t)
		v.verified = new(true) // the template changes only with the restarts
		old := map[string]bool{"web-1": true, "web-2": true, "web-3": true, "other": true}
		names := func(is bool) (names []string) {
			for name, stale := range old {
				if stale == is {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			return names
		}
		restarts, rotations := 0, 0
		for next := 4; rotations < 6; {
			v.rotate()
			rotations++
			for name := range old {
				old[name] = true
			}
			reported := false
			for len(names(true)) > 0 {
				pods := names(true)
				pod := pods[random.IntN(len(pods))]
				switch random.IntN(6) {
				case 0:
					next++
					v.mount(fmt.Sprint("web-", next))
					old[fmt.Sprint("web-", next)] = false
				case 1: // the last pod that is older goes only after the rotation was seen
					if reported || len(pods) > 1 {
						v.unmount(pod)
						delete(old, pod)
					}
				case 2:
					v.restart()
					if seed%4 == 0 {
						v.SeparateCounters()
					}
				default:
					v.update(pod)
					old[pod], reported = false, true
				}
				v.tick(time.Second)
				n := v.settle()
				restarts += n
				if n > 0 { // the rollout replaces the pods of the workload
					for _, pod := range slices.Concat(names(true), names(false)) {
						if pod != "other" && random.IntN(2) == 0 {
							v.unmount(pod)
							delete(old, pod)
							next++
							v.mount(fmt.Sprint("web-", next))
							old[fmt.Sprint("web-", next)] = false
						}
					}
				}
			}
			if restarts != rotations {
				t.Fatalf("%d restarts after %d rotations", restarts, rotations)
			}
		}
	})
}

// A workload is restarted because of a class only if annotations say so.
func TestPolicy_MountedClassesCount(t *testing.T) {
	const class = "SecretProviderClass/keys"
	for name, tt := range map[string]struct {
		annotations []string
		want        int
	}{
		"auto":                       {nil, 1},
		"of other kinds":             {[]string{policy.KindsAnnotation, "configmap,secret"}, 0},
		"of this kind":               {[]string{policy.KindsAnnotation, "secretproviderclass"}, 1},
		"excluded":                   {[]string{policy.ExcludeAnnotation, "secretproviderclass/keys"}, 0},
		"excluded by a pattern":      {[]string{policy.ExcludeAnnotation, "secretproviderclass/k*"}, 0},
		"files that are read again":  {[]string{policy.LiveVolumesAnnotation, "true"}, 0},
		"listed":                     {[]string{policy.ReloadAnnotation, "listed", policy.SourcesAnnotation, "secretproviderclass/keys"}, 1},
		"listed by a pattern":        {[]string{policy.ReloadAnnotation, "listed", policy.SourcesAnnotation, "secretproviderclass/k*"}, 1},
		"another is listed":          {[]string{policy.ReloadAnnotation, "listed", policy.SourcesAnnotation, "secretproviderclass/x*"}, 0},
		"Reloader: auto":             {[]string{policy.ReloadAnnotation, "", "reloader.stakater.com/auto", "true"}, 1},
		"Reloader: auto for classes": {[]string{policy.ReloadAnnotation, "", "secretproviderclass.reloader.stakater.com/auto", "true"}, 1},
		"Reloader: auto for others":  {[]string{policy.ReloadAnnotation, "", "secret.reloader.stakater.com/auto", "true"}, 0},
		"Reloader: a list":           {[]string{policy.ReloadAnnotation, "", "secretproviderclass.reloader.stakater.com/reload", "x,keys"}, 1},
		"Reloader: an expression":    {[]string{policy.ReloadAnnotation, "", "secretproviderclass.reloader.stakater.com/reload", "k.*s"}, 1},
		"Reloader: another":          {[]string{policy.ReloadAnnotation, "", "secretproviderclass.reloader.stakater.com/reload", "k"}, 0},
		"Reloader: excluded": {[]string{
			policy.ReloadAnnotation, "", "reloader.stakater.com/auto", "true", "secretproviderclasses.exclude.reloader.stakater.com/reload", "keys",
		}, 0},
		"wave": {[]string{policy.ReloadAnnotation, "", "wave.pusher.com/update-on-config-change", "true"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := unrecordedVault(t)
			v.annotate(tt.annotations...)
			v.settle()
			v.rotate()
			v.update("web-1", "web-2")
			if got := v.settle(); got != tt.want {
				t.Errorf("%d restarts, want %d", got, tt.want)
			}
			v.replace("web-1", "web-2", "web-3")
			if got := v.settle(); got != 0 {
				t.Errorf("%d restarts after the rollout", got)
			}
			for _, s := range v.evaluate().Sources {
				if id := string(s.Kind) + "/" + s.Name; id == class && (s.Triggers != (tt.want > 0) || !s.Observed) {
					t.Errorf("the source: triggers %t, %s, observed %t", s.Triggers, s.Reason, s.Observed)
				}
			}
		})
	}
}

// A pattern names the classes that the pods mount, each by itself, so that what pods have only mounted is no change either.
func TestPolicy_PatternsOfClasses(t *testing.T) {
	const list = "secretproviderclass.reloader.stakater.com/reload"
	for name, tt := range map[string]struct {
		annotations []string
		by          string
	}{
		"a glob":        {[]string{policy.ReloadAnnotation, "listed", policy.SourcesAnnotation, "secretproviderclass/k*,secret/db"}, policy.SourcesAnnotation},
		"an expression": {[]string{policy.ReloadAnnotation, "", list, "k.*s,db"}, list},
	} {
		t.Run(name, func(t *testing.T) {
			v := unrecordedVault(t)
			v.annotate(tt.annotations...)
			v.settle()
			e := v.evaluate()
			i := slices.IndexFunc(e.Sources, func(s policy.Source) bool { return s.Name == "keys" })
			if s := e.Sources[i]; !s.Triggers || s.DeclaredBy != tt.by || len(e.Globs) > 0 {
				t.Errorf("source = %+v, globs = %+v", s, e.Globs)
			}
			if len(e.Sources) != 2 {
				t.Errorf("sources = %+v", e.Sources)
			}
			v.rotate()
			v.replace("web-1", "web-2", "web-3", "other")
			if n := v.settle(); n != 0 {
				t.Errorf("%d restarts for pods that start", n)
			}
			v.rotate()
			v.update("web-1x")
			if n := v.settle(); n != 1 {
				t.Errorf("%d restarts for a rotation", n)
			}
		})
	}
}

// Where a class is only named and no pod has mounted it, nothing is known of it, and a record of it is kept.
func TestEvaluate_ClassesThatAreNotMounted(t *testing.T) {
	v := newVault(t)
	before := v.evaluate()
	v.unmount("web-1", "web-2", "web-3", "other")
	e := v.evaluate()
	if s := e.Sources[0]; s.Kind != dependency.SecretProviderClass || s.Observed || s.Triggers || s.Reason != policy.ReasonNotObserved || s.Missing {
		t.Errorf("source = %+v", s)
	}
	if diff := cmp.Diff(before.Present(), e.Present()); diff != "" {
		t.Errorf("what is recorded (-before +after):\n%s", diff)
	}
	if d := v.decide(); d.Action != policy.None || d.State != policy.InSync {
		t.Errorf("decision = %+v", d)
	}
}
