// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import "time"

// Mounted is what is known about the files that a pod has mounted of a SecretProviderClass.
type Mounted struct {
	// Updated: the driver has replaced them since the pod started, at Written.
	Updated bool
	Written time.Time
}

// Mounted returns what a pod has mounted of a SecretProviderClass. The Secrets Store CSI driver names its object after the pod, the namespace and the class.
func (g *Graph) Mounted(p *Pod, class string) (m Mounted) {
	if s := g.PodStatus(p.Namespace, p.Name+"-"+p.Namespace+"-"+class); s != nil && s.updated {
		m = Mounted{true, time.Unix(s.written, 0)}
	}
	return m
}
