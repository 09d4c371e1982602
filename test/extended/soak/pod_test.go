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
	born     int64   // the revision of its creation
	waiting  bool    // for a source or a key
	read     reading // at its start
	at       int64   // the revision of its start
	// adopted is the revision at which the content of a source last counted as what it was started with.
	adopted map[string]int64
	phase   string
	ready   bool
}

// start lets a pod read the current content, as soon as it has everything that it requires.
func (p *pod) start(c *cell) {
	if p.waiting {
		read, starts := consume(p.variant, c.sources)
		p.read, p.waiting, p.at, p.adopted = read, !starts, c.revision, map[string]int64{}
	}
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
