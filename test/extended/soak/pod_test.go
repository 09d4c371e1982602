// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// pod is what is known about a pod.
type pod struct {
	uid      string
	identity string // of its template
	variant  int
	born     int64 // the revision of its creation
	stormy   bool  // it was created while something disturbed servers
	phase    string
	read     map[string]*read // by source
}

// read is what a pod may have read of a source.
type read struct {
	// texts are those of the source from the creation of the pod until it ran. It has read one of them.
	texts map[string]bool
	// unclear: something that it requires was missing in that time. Its kubelet would have waited, but the simulated one does not.
	unclear bool
	// stale is the revision of the change since which the source differs from all texts; 0: it does not. Vanished is the revision at which
	// something of the source was last removed, and written that of the last write before. A removal leaves no trace in the source.
	stale, vanished, written int64
}

// runs reports whether the pod has started and is not being deleted.
func (p *pod) runs() bool { return p.phase == string(corev1.PodRunning) }

// look handles the current content of a source.
func (p *pod) look(name string, now content, at, vanished int64) {
	r := p.read[name]
	if r == nil {
		r = &read{texts: map[string]bool{}}
		p.read[name] = r
	}
	text, complete := readingOf(p.variant, name, now)
	if p.phase == string(corev1.PodPending) || p.phase == "" {
		r.texts[text], r.unclear = true, r.unclear || !complete
	}
	if vanished > 0 {
		r.vanished, r.written = at, vanished
	}
	switch {
	case !complete: // the absence of what it requires is no content
	case r.texts[text]:
		r.stale = 0
	case r.stale == 0:
		r.stale = at
	}
}

// isStale reports whether the pod has certainly read other content than the current one.
func (p *pod) isStale(name string) bool { r := p.read[name]; return !r.unclear && r.stale > 0 }

// isCurrent reports whether it has certainly read the current content.
func (p *pod) isCurrent(name string) bool {
	r := p.read[name]
	return !r.unclear && r.stale == 0 && len(r.texts) == 1
}

func variantOf(annotations map[string]string) int {
	n, err := strconv.Atoi(annotations[variantAnnotation])
	if err != nil {
		panic(err) // all templates have the annotation
	}
	return n
}

func identityOf(s *state) string { return identity(s.template.Annotations, &s.template.Spec) }

func identity(annotations map[string]string, spec *corev1.PodSpec) string {
	return fmt.Sprint(annotations, spec.Containers[0].Image)
}
