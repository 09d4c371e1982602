// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// beginInPlace returns the workload after the patch that begins a restart of pods in place.
func beginInPlace(t *testing.T, w *dependency.Workload, last policy.LastReload, pods ...types.UID) *dependency.Workload {
	t.Helper()
	p := policy.Policy{Mode: policy.Auto, Strategy: policy.InPlace}
	data, err := p.RestartPatch(w, &policy.Restart{Present: policy.Record{Hash: "v1.a.b"}, Last: last, Pods: pods})
	if err != nil {
		t.Fatal(err)
	}
	var patch struct {
		Metadata metav1.ObjectMeta
		Spec     any
	}
	if err := json.Unmarshal(data, &patch); err != nil {
		t.Fatal(err)
	}
	if patch.Spec != nil {
		t.Errorf("the patch changes the specification: %s", data)
	}
	return &dependency.Workload{Marks: policy.MarksOf(patch.Metadata.Annotations)}
}

func TestInPlace_NamesThePods(t *testing.T) {
	last := policy.LastReload{Time: metav1.NewMicroTime(epoch)}
	w := beginInPlace(t, &dependency.Workload{UID: "w", ResourceVersion: "1"}, last, "b", "a", "a")
	if policy.UnderWay(w) != policy.InPlace || policy.Recreate.UnderWay(w) || !policy.LastReloadOf(w).Evicted {
		t.Errorf("annotations = %+v", w.Marks)
	}
	pods, valid := policy.PodsInPlaceOf(w)
	if !valid || pods.Total != 2 || len(pods.Left) != 2 || !pods.Has("a") || !pods.Has("b") || pods.Has("c") || pods.Failed != "" {
		t.Errorf("pods = %+v, %v", pods, valid)
	}
	kept := pods.Keep([]types.UID{"b"}, "Pod b is lost.", "Pod a is refused.")
	data, err := kept.ProgressPatch(w)
	if err != nil {
		t.Fatal(err)
	}
	var patch struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(data, &patch); err != nil {
		t.Fatal(err)
	}
	again, valid := policy.PodsInPlaceOf(&dependency.Workload{Marks: policy.MarksOf(patch.Metadata.Annotations)})
	if !valid || again.ID != pods.ID || again.Total != 2 || again.Has("a") || !again.Has("b") || again.Failed != "Pod b is lost." || again.Refused != "Pod a is refused." {
		t.Errorf("pods = %+v, %v", again, valid)
	}
	if of, _ := policy.PodsInPlaceOf(beginInPlace(t, &dependency.Workload{}, last)); of.Total != 0 || of.Left != nil {
		t.Errorf("without pods: %+v", of)
	}
}

// Each restart has another ID, also with the same content at the same moment.
func TestInPlace_EachRestartHasAnotherID(t *testing.T) {
	seen := map[string]string{}
	for name, w := range map[string]dependency.Workload{
		"a": {UID: "w", ResourceVersion: "1"}, "another version": {UID: "w", ResourceVersion: "2"}, "another workload": {UID: "v", ResourceVersion: "1"},
		"at another time": {UID: "w", ResourceVersion: "1"},
	} {
		at := epoch
		if name == "at another time" { // after a restore of etcd, versions repeat
			at = at.Add(time.Microsecond)
		}
		of, _ := policy.PodsInPlaceOf(beginInPlace(t, &w, policy.LastReload{Time: metav1.NewMicroTime(at)}))
		if other := seen[of.ID]; other != "" || of.ID == "" {
			t.Errorf("%s: the ID %q is that of %q", name, of.ID, other)
		}
		seen[of.ID] = name
	}
}

// What can be named is limited; so is what is shown.
func TestInPlace_Bounds(t *testing.T) {
	p := policy.Policy{Mode: policy.Auto, Strategy: policy.InPlace}
	w := &dependency.Workload{}
	pods := make([]types.UID, policy.MaxPods+1)
	for i := range pods {
		pods[i] = types.UID(fmt.Sprint("pod-", i))
	}
	if s := p.StrategyOf(w, &policy.Restart{Pods: pods}); s != policy.Annotate {
		t.Errorf("with too many pods: %s", s.Name())
	}
	if s := p.StrategyOf(w, &policy.Restart{Pods: pods[1:]}); s != policy.InPlace {
		t.Errorf("with as many pods as possible: %s", s.Name())
	}
	if s := p.StrategyOf(w, &policy.Restart{Unfit: "pod a has no restarter"}); s != policy.Annotate {
		t.Errorf("with a pod that has no restarter: %s", s.Name())
	}
	long := beginInPlace(t, w, policy.LastReload{Time: metav1.NewMicroTime(epoch)}, pods[1:]...)
	if n := len(long.Marks.Recreating); n > 128<<10 {
		t.Errorf("the annotation has %d bytes", n)
	}
	if of, valid := policy.PodsInPlaceOf(long); !valid || of.Total > policy.MaxPods || !of.Has(pods[1]) {
		t.Error("the longest list is not valid")
	}
	value, err := json.Marshal(map[string]any{"restart": "0123456789abcdef", "pods": "", "total": 1, "failed": strings.Repeat("x", 9999)})
	if err != nil {
		t.Fatal(err)
	}
	if of, _ := policy.PodsInPlaceOf(&dependency.Workload{Marks: dependency.Marks{Recreating: string(value)}}); len(of.Failed) != 512 {
		t.Errorf("a text of another client is shown with %d bytes", len(of.Failed))
	}
	value = bytes.Replace(value, []byte(`"failed"`), []byte(`"refused"`), 1)
	if of, _ := policy.PodsInPlaceOf(&dependency.Workload{Marks: dependency.Marks{Recreating: string(value)}}); len(of.Refused) != 1024 {
		t.Errorf("a text of another client is shown with %d bytes", len(of.Refused))
	}
	name := strings.Repeat("n", 253)
	if got := policy.RefusedOf(name, errors.New(strings.Repeat("a\nb", 9999))); len(got) > 1024 || strings.Contains(got, "\n") || !strings.HasPrefix(got, "Pod "+name+" cannot be told to restart: a ba b") {
		t.Errorf("an answer is recorded as %q", got)
	}
}

func TestTold_SurvivesTheAnnotations(t *testing.T) {
	told := policy.Told{Since: epoch, Again: epoch.Add(time.Minute), Restarts: map[string]int32{"app": 2}}
	for times, value := range map[int]string{1: "abc", 2: "abc-2", 12: "abc-12"} {
		var patch struct{ Metadata metav1.ObjectMeta }
		if err := json.Unmarshal(told.PodPatch("u", "7", "abc", times), &patch); err != nil {
			t.Fatal(err)
		}
		a := patch.Metadata.Annotations
		if a[policy.RestartAnnotation] != value || patch.Metadata.UID != "u" || patch.Metadata.ResourceVersion != "7" {
			t.Errorf("patch = %+v, want the value %q", patch, value)
		}
		if got, n := policy.ToldOf(a, "abc"); n != times || !got.Since.Equal(told.Since) || !got.Again.Equal(told.Again) || got.Restarts["app"] != 2 {
			t.Errorf("told = %+v, %d times, want %+v, %d times", got, n, told, times)
		}
		if _, n := policy.ToldOf(a, "abd"); n != 0 {
			t.Errorf("told of another restart %d times", n)
		}
	}
	for _, a := range []map[string]string{
		nil, {policy.RestartAnnotation: "abc"}, {policy.RestartAnnotation: "abc", policy.RestartingAnnotation: "x"},
		{policy.RestartAnnotation: "abc", policy.RestartingAnnotation: "{}"},
	} {
		if _, n := policy.ToldOf(a, "abc"); n != 0 {
			t.Errorf("%v: told %d times", a, n)
		}
	}
	const since = `{"since":"2026-03-01T12:00:00Z"}`
	if _, n := policy.ToldOf(map[string]string{policy.RestartAnnotation: "abc--5", policy.RestartingAnnotation: since}, "abc"); n != 1 {
		t.Errorf("of an odd value: told %d times, want 1", n)
	}
}

// Of a pod, it is known of which restart it was told last, and no time is believed that has yet to come.
func TestTold_LastAndUntil(t *testing.T) {
	const id = "0123456789abcdef"
	at := func(value string) map[string]string {
		return map[string]string{policy.RestartAnnotation: value, policy.RestartingAnnotation: `{"since":"2026-03-01T12:00:00Z","again":"2026-03-01T12:03:00Z","restarts":{"app":2}}`}
	}
	for value, want := range map[string]bool{id: true, id + "-3": true, "by hand": false, "": false, "0123": false} {
		if got, told := policy.ToldLast(at(value)); told != want || want && got.Restarts["app"] != 2 {
			t.Errorf("%q: %+v, %v, want %v", value, got, told, want)
		}
	}
	if _, told := policy.ToldLast(map[string]string{policy.RestartAnnotation: id}); told {
		t.Error("a pod that nothing was written of has been told")
	}
	since, again := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC), time.Date(2026, time.March, 1, 12, 3, 0, 0, time.UTC)
	told := policy.Told{Since: since, Again: again, Restarts: map[string]int32{"app": 2}}
	for now, want := range map[time.Time]bool{again: false, again.Add(time.Hour): false, again.Add(-time.Second): true, since.Add(-time.Second): true} {
		got := told.Until(now)
		if told.Ahead(now) != want || got.Ahead(now) || got.Restarts["app"] != 2 || !want && (!got.Since.Equal(since) || !got.Again.Equal(again)) {
			t.Errorf("at %v: ahead = %v, then %+v", now, told.Ahead(now), got)
		}
	}
	if got := told.Until(since.Add(time.Minute)); !got.Since.Equal(since) || !got.Again.Equal(since.Add(time.Minute)) {
		t.Errorf("told = %+v, want that only one time changes", got)
	}
}

// A workload that cannot be restarted in place says so in whatever state, and only while it asks for that.
func TestDecide_SaysThatItIsNotRestartedInPlace(t *testing.T) {
	const says = " Restarts are rollouts and not in place, because its pod template has no restarter."
	x := newWorld(t, podOf(envFrom(dependency.Secret, "db")), secret("db", "a", "1"))
	x.annotate(policy.StrategyAnnotation, "in-place")
	x.adopt()
	check := func(state policy.State, want bool) {
		t.Helper()
		if d := x.decide(); d.State != state || strings.HasSuffix(d.Message, says) != want {
			t.Errorf("decision = %+v, want state %s, and that it says so: %v", d, state, want)
		}
	}
	check(policy.InSync, true)
	x.set(secret("db", "a", "2"))
	check(policy.Settling, true)
	x.tick(time.Minute)
	check(policy.Pending, true)
	if e := x.evaluate(); e.Policy.RestartsBy(e.Workload) != policy.Annotate {
		t.Error("it is not restarted by a rollout")
	}
	x.annotate(policy.SettleAnnotation, "soon")
	check(policy.Blocked, false)
	x.annotate(policy.SettleAnnotation, "", policy.ReloadAnnotation, "off")
	check(policy.Stale, false)
	x.annotate(policy.ReloadAnnotation, "auto", policy.StrategyAnnotation, "annotation")
	check(policy.Pending, false)
}

// What is not known to be possible for a kind is refused.
func TestNewPolicy_InPlaceOfCustomResources(t *testing.T) {
	for name, tc := range map[string]struct {
		traits dependency.Traits
		want   string
	}{
		"its pods are known":       {dependency.Traits{}, ""},
		"its pods cannot be found": {dependency.Traits{UnknownPods: true}, "its pods cannot be looked up"},
		"pods are found by labels": {dependency.Traits{PodsByLabels: true}, "it is not certain which pods belong to it"},
		"only reported":            {dependency.Traits{Restart: &dependency.Restart{EventOnly: true}}, "its changes are only reported"},
		"a rollout keeps its pods": {dependency.Traits{KeepsPods: "it is updated in place"}, "pods without a restarter could not be restarted by a rollout, because it is updated in place"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.traits.Rollable, tc.traits.Custom = true, true
			if tc.traits.Restart == nil {
				tc.traits.Restart = &dependency.Restart{Template: []string{"spec", "template"}}
			}
			p := policy.NewPolicy(policy.Annotated{Workload: map[string]string{policy.ReloadAnnotation: "auto", policy.StrategyAnnotation: "in-place"}, Traits: tc.traits}, policy.Defaults{})
			if tc.want == "" {
				if len(p.Problems) > 0 || p.Strategy != policy.InPlace {
					t.Errorf("policy = %+v", p)
				}
				return
			}
			if !slices.ContainsFunc(p.Problems, func(s string) bool { return strings.HasSuffix(s, tc.want) }) {
				t.Errorf("problems = %q, want %q", p.Problems, tc.want)
			}
		})
	}
}

// inPlace gives a Deployment a restarter.
func inPlace(d *appsv1.Deployment) {
	pod := &d.Spec.Template.Spec
	pod.InitContainers = []corev1.Container{{
		Name: "restarter", RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		RestartPolicyRules: []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}},
		VolumeMounts:       []corev1.VolumeMount{{Name: "restart", MountPath: "/etc/configdep"}},
	}}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "restart", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{Path: "restart", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['configdep.io/restart']"}}},
	}}})
}

// A restart that is under way is shown as it is, and needs no memory.
func TestDecide_ProgressInPlace(t *testing.T) {
	for value, want := range map[string]string{
		`{"restart":"0123456789abcdef","pods":"01234567","total":1}`:                                                         "0 of 1 pod has been restarted in place. ",
		`{"restart":"0123456789abcdef","pods":"01234567","total":2}`:                                                         "1 of 2 pods has been restarted in place. ",
		`{"restart":"0123456789abcdef","pods":"01234567","total":4}`:                                                         "3 of 4 pods have been restarted in place. ",
		`{"restart":"0123456789abcdef","pods":"01234567,01234568","total":2,"failed":"Pod a is lost."}`:                      "Pod a is lost. 0 of 2 pods have been restarted in place. ",
		`{"restart":"0123456789abcdef","pods":"01234567,01234568","total":2,"refused":"Pod a is refused."}`:                  "Pod a is refused. 0 of 2 pods have been restarted in place. Telling the remaining pods is retried, with increasing delays.",
		`{"restart":"0123456789abcdef","pods":"01234567","total":1,"failed":"Pod a is lost.","refused":"Pod a is refused."}`: "Pod a is lost. ",
		`{"restart":"other","pods":"01234567","total":4}`:                                                                    "Pods are restarted in place one by one, ",
	} {
		x := newWorld(t, podOf(envFrom(dependency.Secret, "db")), secret("db", "a", "1"))
		x.edit(func(d *appsv1.Deployment) { inPlace(d) })
		x.tick(time.Minute)
		x.rollOut()
		x.annotate(policy.StrategyAnnotation, "in-place")
		x.adopt()
		x.annotate(policy.RecreatingAnnotation, value)
		d := x.decide()
		state, reason := policy.RollingOut, policy.ReasonRestartingInPlace
		if strings.Contains(value, "failed") || strings.Contains(value, "refused") {
			state, reason = policy.Failed, policy.ReasonRestartFailed
		}
		if d.State != state || d.Reason != reason || d.Action != policy.Continue || !strings.HasPrefix(d.Message, want) {
			t.Errorf("%s: decision = %+v, want %s, %s, %q", value, d, state, reason, want)
		}
	}
}
