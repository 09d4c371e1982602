// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"slices"
	"time"
)

// MountsClass reports whether the pods of a workload mount a SecretProviderClass. With secretObjects, its driver makes Secrets of it, but only once a pod
// mounts it, and deletes them with the last one. What a class says is not read.
func (w *Workload) MountsClass() bool {
	return slices.ContainsFunc(w.References, func(r Reference) bool { return r.Kind == SecretProviderClass && !r.Optional() })
}

// Mounted is what is known about the files that a pod has mounted of a SecretProviderClass.
type Mounted struct {
	// Updated: the driver has replaced them since the pod started, at Written.
	Updated bool
	Written time.Time
}

// Mounted returns what a pod has mounted of a SecretProviderClass. The Secrets Store CSI driver names its object after the pod, the namespace and the class,
// and makes the pod its owner: a pod of a StatefulSet has the name of one that is gone.
func (g *Graph) Mounted(p *Pod, class string) (m Mounted) {
	if s := g.PodStatus(p.Namespace, p.Name+"-"+p.Namespace+"-"+class); s != nil && s.updated && (s.Pod == "" || s.Pod == p.UID) {
		m = Mounted{true, time.Unix(s.written, 0)}
	}
	return m
}
