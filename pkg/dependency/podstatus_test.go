// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A SecretProviderClass is known as long as a pod has mounted it, it changed when the driver last updated the files of a pod, and each pod has what its
// own status says.
func TestGraph_Mounted(t *testing.T) {
	g := NewGraph()
	g.SetDigester(testDigester())
	class := SourceKey{SecretProviderClass, "shop", "keys"}
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	pod := func(name string) *Pod { return &Pod{PodKey: PodKey{"shop", name}, UID: types.UID("pod-" + name)} }
	generation, version := map[string]int64{}, 0
	write := func(name, content string, minute int, update bool) {
		version++
		m := &metav1.ObjectMeta{Namespace: "shop", Name: name + "-shop-keys", CreationTimestamp: metav1.NewTime(start), ResourceVersion: strconv.Itoa(version),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: pod(name).UID}}}
		if update || generation[name] == 0 {
			generation[name]++
		}
		if m.Generation = generation[name]; m.Generation > 1 {
			at := metav1.NewTime(start.Add(time.Duration(minute) * time.Minute))
			m.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:objects":{}}}`)}}
		}
		g.SetPodStatus(FromPodStatus(m, "keys", []PodObject{{"password", content}}))
	}
	expect := func(what, name string, minute int) {
		t.Helper()
		want := Mounted{}
		if minute > 0 {
			want = Mounted{true, start.Add(time.Duration(minute) * time.Minute)}
		}
		if got := g.Mounted(pod(name), "keys"); got.Updated != want.Updated || !got.Written.Equal(want.Written) {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	if g.Source(class) != nil {
		t.Error("a class that no pod has mounted is known")
	}
	write("a", "1", 0, false)
	write("b", "1", 0, false)
	expect("mounted", "a", 0)
	if s := g.Source(class); s == nil || !s.LastChangeTime.IsZero() {
		t.Errorf("mounted: %+v", s)
	}
	write("a", "2", 5, true)
	expect("updated", "a", 5)
	expect("another pod", "b", 0)
	if got := g.Mounted(&Pod{PodKey: PodKey{"shop", "a"}, UID: "another"}, "keys"); got.Updated {
		t.Errorf("a pod that replaces another of its name: %+v, want none", got)
	}
	expect("a pod that has not mounted it", "c", 0)
	write("a", "2", 9, false) // another client wrote its metadata
	expect("only metadata", "a", 5)
	write("b", "2", 7, true)
	if s := g.Source(class); !s.LastChangeTime.Time.Equal(start.Add(7 * time.Minute)) {
		t.Errorf("last changed %v", s.LastChangeTime)
	}
	g.DeletePodStatus("shop", "b-shop-keys")
	if s := g.Source(class); !s.LastChangeTime.Time.Equal(start.Add(5 * time.Minute)) {
		t.Errorf("last changed %v", s.LastChangeTime)
	}
	g.DeletePodStatus("shop", "a-shop-keys")
	if g.Source(class) != nil {
		t.Error("a class that no pod has mounted any longer is known")
	}
}
