// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

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

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// beginInPlace returns the workload after the patch that begins a restart of pods in place.
func beginInPlace(t *testing.T, w *dependency.Workload, last record.LastReload, pods ...types.UID) *dependency.Workload {
	t.Helper()
	p := policy.Policy{Mode: policy.Auto, Strategy: record.InPlace}
	data, err := p.RestartPatch(w, &record.Restart{Present: record.Record{Hash: "v1.a.b"}, Last: last, Pods: pods})
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
	return &dependency.Workload{Marks: record.MarksOf(patch.Metadata.Annotations)}
}

func TestInPlace_NamesThePods(t *testing.T) {
	last := record.LastReload{Time: metav1.NewMicroTime(epoch)}
	w := beginInPlace(t, &dependency.Workload{UID: "w", ResourceVersion: "1"}, last, "b", "a", "a")
	if record.UnderWay(w) != record.InPlace || record.Recreate.UnderWay(w) || !record.LastReloadOf(w).Evicted {
		t.Errorf("annotations = %+v", w.Marks)
	}
	pods, valid := record.PodsInPlaceOf(w)
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
	again, valid := record.PodsInPlaceOf(&dependency.Workload{Marks: record.MarksOf(patch.Metadata.Annotations)})
	if !valid || again.ID != pods.ID || again.Total != 2 || again.Has("a") || !again.Has("b") || again.Failed != "Pod b is lost." || again.Refused != "Pod a is refused." {
		t.Errorf("pods = %+v, %v", again, valid)
	}
	if of, _ := record.PodsInPlaceOf(beginInPlace(t, &dependency.Workload{}, last)); of.Total != 0 || of.Left != nil {
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
		of, _ := record.PodsInPlaceOf(beginInPlace(t, &w, record.LastReload{Time: metav1.NewMicroTime(at)}))
		if other := seen[of.ID]; other != "" || of.ID == "" {
			t.Errorf("%s: the ID %q is that of %q", name, of.ID, other)
		}
		seen[of.ID] = name
	}
}

// What can be named is limited; so is what is shown.
func TestInPlace_Bounds(t *testing.T) {
	p := policy.Policy{Mode: policy.Auto, Strategy: record.InPlace}
	w := &dependency.Workload{}
	pods := make([]types.UID, record.MaxPods+1)
	for i := range pods {
		pods[i] = types.UID(fmt.Sprint("pod-", i))
	}
	if s := p.StrategyOf(w, &record.Restart{Pods: pods}); s != record.Annotate {
		t.Errorf("with too many pods: %s", s.Name())
	}
	if s := p.StrategyOf(w, &record.Restart{Pods: pods[1:]}); s != record.InPlace {
		t.Errorf("with as many pods as possible: %s", s.Name())
	}
	if s := p.StrategyOf(w, &record.Restart{Unfit: "pod a has no restarter"}); s != record.Annotate {
		t.Errorf("with a pod that has no restarter: %s", s.Name())
	}
	long := beginInPlace(t, w, record.LastReload{Time: metav1.NewMicroTime(epoch)}, pods[1:]...)
	if n := len(long.Marks.Recreating); n > 128<<10 {
		t.Errorf("the annotation has %d bytes", n)
	}
	if of, valid := record.PodsInPlaceOf(long); !valid || of.Total > record.MaxPods || !of.Has(pods[1]) {
		t.Error("the longest list is not valid")
	}
	value, err := json.Marshal(map[string]any{"restart": "0123456789abcdef", "pods": "", "total": 1, "failed": strings.Repeat("x", 9999)})
	if err != nil {
		t.Fatal(err)
	}
	if of, _ := record.PodsInPlaceOf(&dependency.Workload{Marks: dependency.Marks{Recreating: string(value)}}); len(of.Failed) != 512 {
		t.Errorf("a text of another client is shown with %d bytes", len(of.Failed))
	}
	value = bytes.Replace(value, []byte(`"failed"`), []byte(`"refused"`), 1)
	if of, _ := record.PodsInPlaceOf(&dependency.Workload{Marks: dependency.Marks{Recreating: string(value)}}); len(of.Refused) != 1024 {
		t.Errorf("a text of another client is shown with %d bytes", len(of.Refused))
	}
	name := strings.Repeat("n", 253)
	if got := record.RefusedOf(name, errors.New(strings.Repeat("a\nb", 9999))); len(got) > 1024 || strings.Contains(got, "\n") || !strings.HasPrefix(got, "Pod "+name+" cannot be told to restart: a ba b") {
		t.Errorf("an answer is recorded as %q", got)
	}
}

// A workload that cannot be restarted in place says so in whatever state, and only while it asks for that.
func TestDecide_SaysThatItIsNotRestartedInPlace(t *testing.T) {
	const says = " Restarts are rollouts and not in place, because its pod template has no restarter."
	x := newWorld(t, podOf(envFrom(dependency.Secret, "db")), secret("db", "a", "1"))
	x.annotate(policy.StrategyAnnotation, "in-place")
	x.adopt()
	check := func(state decide.State, want bool) {
		t.Helper()
		if d := x.decide(); d.State != state || strings.HasSuffix(d.Message, says) != want {
			t.Errorf("decision = %+v, want state %s, and that it says so: %v", d, state, want)
		}
	}
	check(decide.InSync, true)
	x.set(secret("db", "a", "2"))
	check(decide.Settling, true)
	x.tick(time.Minute)
	check(decide.Pending, true)
	if e := x.evaluate(); e.Policy.RestartsBy(e.Workload) != record.Annotate {
		t.Error("it is not restarted by a rollout")
	}
	x.annotate(policy.SettleAnnotation, "soon")
	check(decide.Blocked, false)
	x.annotate(policy.SettleAnnotation, "", policy.ReloadAnnotation, "off")
	check(decide.Stale, false)
	x.annotate(policy.ReloadAnnotation, "auto", policy.StrategyAnnotation, "annotation")
	check(decide.Pending, false)
}

// The kubelet keeps an immutable source for a pod that stays, even if it is created again with other content.
func TestDecide_ImmutableSourcesAreNotReadInPlace(t *testing.T) {
	x := newWorld(t, podOf(envFrom(dependency.Secret, "db")), secret("db", "a", "1"))
	x.edit(inPlace)
	x.rollOut()
	x.annotate(policy.StrategyAnnotation, "in-place")
	x.tick(time.Minute)
	x.adopt()
	if e := x.evaluate(); e.Policy.RestartsBy(e.Workload) != record.InPlace {
		t.Fatal("it is not restarted in place")
	}
	again := secret("db", "a", "2")
	again.Immutable = new(true)
	x.set(again)
	if e := x.evaluate(); e.Policy.RestartsBy(e.Workload) != record.Annotate {
		t.Error("it is restarted in place")
	}
	if d := x.decide(); !strings.Contains(d.Message, "not in place, because Secret/db is immutable, and the kubelet keeps its old content for pods that stay.") {
		t.Errorf("message = %q", d.Message)
	}
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
				if len(p.Problems) > 0 || p.Strategy != record.InPlace {
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
		x.annotate(record.RecreatingAnnotation, value)
		d := x.decide()
		state, reason := decide.RollingOut, record.ReasonRestartingInPlace
		if strings.Contains(value, "failed") || strings.Contains(value, "refused") {
			state, reason = decide.Failed, decide.ReasonRestartFailed
		}
		if d.State != state || d.Reason != reason || d.Action != decide.Continue || !strings.HasPrefix(d.Message, want) {
			t.Errorf("%s: decision = %+v, want %s, %s, %q", value, d, state, reason, want)
		}
	}
}
