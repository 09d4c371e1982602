// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

func ownedBy(kind string, controller bool) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "tools.example/v1", Kind: kind, Name: "owner", UID: "u", Controller: &controller}}
}

// Objects with a controller are left out, or kept as its runs, by only their metadata: the rest need not even be valid. All other objects are read.
func TestControlledObjectsAreLeftOut(t *testing.T) {
	digester := dependency.NewDigester(make([]byte, 32))
	byKind := map[string]*stream{}
	for _, s := range everything.streams(digester) {
		byKind[s.kind] = s
	}
	meta := func(owners []metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: "x", ResourceVersion: "7", OwnerReferences: owners}
	}
	set := func(owners []metav1.OwnerReference) interface{ Marshal() ([]byte, error) } {
		return &appsv1.ReplicaSet{ObjectMeta: meta(owners)}
	}
	job := func(owners []metav1.OwnerReference) interface{ Marshal() ([]byte, error) } {
		return &batchv1.Job{ObjectMeta: meta(owners)}
	}
	for name, tt := range map[string]struct {
		kind string
		o    interface{ Marshal() ([]byte, error) }
		left bool
	}{
		"a ReplicaSet of a Rollout":                        {"ReplicaSet", set(ownedBy("Rollout", true)), true},
		"a ReplicaSet alone":                               {"ReplicaSet", set(nil), false},
		"a ReplicaSet with an owner that is no controller": {"ReplicaSet", set(ownedBy("Rollout", false)), false},
		"a Job of a CronJob":                               {"Job", job(ownedBy("CronJob", true)), true},
		"a Job of a workflow":                              {"Job", job(ownedBy("Workflow", true)), false},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := tt.o.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			s := byKind[tt.kind]
			o, err := s.decode(raw)
			if err != nil {
				t.Fatal(err)
			}
			if _, shown := o.value.(*dependency.Workload); shown == tt.left || o.ResourceVersion != "7" || o.Name != "x" {
				t.Errorf("object = %+v, want it left out: %t", o, tt.left)
			}
			raw = append(raw, 2<<3|2, 2, 0xff, 0xff) // a spec that cannot be decoded
			if _, err := s.decode(raw); (err == nil) != tt.left {
				t.Errorf("with a spec that cannot be decoded: %v", err)
			}
		})
	}
	if _, err := byKind["ReplicaSet"].decode([]byte{0xff}); err == nil {
		t.Error("bytes that are not an object were decoded")
	}
	bookmark, err := (&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9"}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	o, err := byKind["ReplicaSet"].decode(bookmark)
	if diff := cmp.Diff("9", o.ResourceVersion); err != nil || diff != "" || o.value != nil || o.Name != "" {
		t.Errorf("a bookmark: %v %s", err, diff)
	}
}
