// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"fmt"
	"runtime"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// BenchmarkGlobs measures a change of one source in a namespace of n workloads, each of which has two
// sources of its own and globs besides: those that all have, which match everything, or others for each. It
// ends when all is rendered.
func BenchmarkGlobs(b *testing.B) {
	for _, globs := range []string{"secret/*,configmap/*", "secret/*%d*"} {
		for _, n := range []int{100, 200, 400, 800, 1600, 3200} {
			b.Run(fmt.Sprintf("%s/%d", globs, n), func(b *testing.B) {
				before := heap()
				c := newLive(b, n, true)
				for i, o := range c.first {
					if d, ok := o.(*appsv1.Deployment); ok {
						sources := globs
						if globs == "secret/*%d*" {
							sources = fmt.Sprintf(globs, i)
						}
						d.Annotations = map[string]string{"configdep.io/reload": "auto", "configdep.io/sources": sources}
						settings := "settings-" + d.Name
						d.Spec.Template.Spec.Containers[0].EnvFrom = append(d.Spec.Template.Spec.Containers[0].EnvFrom, corev1.EnvFromSource{
							ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: settings}},
						})
						cm := &corev1.ConfigMap{Data: map[string]string{"k": "1"}}
						cm.Namespace, cm.Name, cm.ResourceVersion = "ns", settings, "10"
						c.first = append(c.first, cm)
					}
				}
				c.sync()
				synced := heap()
				version := 100
				for b.Loop() {
					version++
					c.must(c.replay.Set(c.secret("shared", version)))
					c.rendered()
				}
				b.ReportMetric(float64(synced-before)/1e6, "MB-synced")
				b.ReportMetric(float64(heap()-before)/1e6, "MB-after")
				runtime.KeepAlive(c)
			})
		}
	}
}

// heap returns how many bytes are in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
