// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BenchmarkDeleteSource measures the deletion of sources that match a glob, one after the other, beside deleted
// sources that templates name.
func BenchmarkDeleteSource(b *testing.B) {
	for _, named := range []int{0, 12_000} {
		b.Run(fmt.Sprint(named, " that templates name are gone"), func(b *testing.B) {
			g := NewGraph()
			g.SetWorkload(&Workload{WorkloadKey: WorkloadKey{Deployment, "shop", "globs"}}, Patterns{Sources: []Pattern{{ConfigMap, "*"}}})
			remove := func(kind SourceKind, name string, version int) {
				key := SourceKey{kind, "shop", name}
				g.SetSource(&Source{SourceKey: key})
				g.DeleteSource(key, Change{Version: uint64(version)})
			}
			for i := range named {
				name := fmt.Sprint("s-", i)
				g.SetWorkload(&Workload{
					WorkloadKey: WorkloadKey{Deployment, "shop", name}, References: []Reference{{Kind: Secret, Name: name}},
				}, Patterns{})
				remove(Secret, name, 1)
			}
			for i := 0; b.Loop(); i++ {
				remove(ConfigMap, fmt.Sprint("lock-", i), 2+i)
			}
		})
	}
}

// BenchmarkSetSource measures a change of a source that n workloads use, in a graph with a snapshot; with and
// without workloads that wait for the source.
func BenchmarkSetSource(b *testing.B) {
	for _, n := range []int{0, 2500, 5000, 10_000, 20_000} {
		for _, waiting := range []bool{false, true} {
			if waiting && n == 0 {
				continue
			}
			b.Run(fmt.Sprintf("users=%d/waiting=%v", n, waiting), func(b *testing.B) {
				g := NewGraph()
				s := &Source{SourceKey: SourceKey{Secret, "shop", "db"}}
				for i := range n {
					w := &Workload{
						WorkloadKey: WorkloadKey{Deployment, "shop", fmt.Sprint("w-", i)},
						References:  []Reference{{Kind: Secret, Name: "db", Uses: []Use{{Type: Volume}}}},
					}
					if waiting {
						w.StartVersion = 1
					}
					g.SetWorkload(w, Patterns{})
				}
				for i := range 50_000 {
					g.SetSource(&Source{SourceKey: SourceKey{ConfigMap, fmt.Sprint("ns-", i%100), fmt.Sprint("c-", i)}})
				}
				original := g
				for i := 0; b.Loop(); i++ {
					if waiting {
						g = original.Snapshot()
					}
					_ = g.Snapshot()
					next := *s
					next.Change = Change{Version: uint64(i + 2), Exact: true}
					g.SetSource(&next)
				}
			})
		}
	}
}

// BenchmarkSetWorkloadOfManyContainers measures adding a template with n containers, each with a variable from a
// Secret that exists or is missing, then adding that Secret, and computing when each container started.
func BenchmarkSetWorkloadOfManyContainers(b *testing.B) {
	for _, n := range []int{100, 200, 400, 800} {
		pod := &corev1.PodSpec{}
		for i := range n {
			pod.Containers = append(pod.Containers, corev1.Container{Name: fmt.Sprint("c-", i), Env: []corev1.EnvVar{{
				Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: "db"}, Key: "k"}},
			}}})
		}
		for _, missing := range []bool{false, true} {
			b.Run(fmt.Sprintf("containers=%d/missing=%v", n, missing), func(b *testing.B) {
				for b.Loop() {
					g := NewGraph()
					db := &Source{SourceKey: SourceKey{Secret, "shop", "db"}, Keys: []KeyDigest{{Key: "k"}}, Change: Change{Version: 1}}
					if !missing {
						g.SetSource(db)
					}
					w := readDeployment(&appsv1.Deployment{
						ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", ResourceVersion: "2"},
						Spec:       appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: *pod}},
					})
					w.StartVersion = 2
					g.SetWorkload(w, Patterns{})
					if missing {
						db.Change = Change{Version: 3, Exact: true}
						g.SetSource(db)
					}
					for i := range w.References[0].Uses {
						g.Started(w, &w.References[0].Uses[i])
					}
				}
			})
		}
	}
}
