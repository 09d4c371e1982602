// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	hashAnnotation       = "configdep.io/config-hash"
	appliedAnnotation    = "configdep.io/applied-sources"
	reloadAnnotation     = "configdep.io/reload"
	lastReloadAnnotation = "configdep.io/last-reload"
	recreatingAnnotation = "configdep.io/recreating"
	verifiedAnnotation   = "configdep.io/verified-at"
)

// writtenAnnotations are the annotations that the server writes.
var writtenAnnotations = []string{hashAnnotation, appliedAnnotation, lastReloadAnnotation, recreatingAnnotation,
	"configdep.io/reloaded-at", verifiedAnnotation}

// writeLimit is how often the server may write to a workload in an undisturbed phase, whatever owners do.
const writeLimit = 25

// oracle knows with which content pods were started, and judges each restart. The lock of the journal guards it.
type oracle struct {
	cells map[string]*cell // by namespace
	// undisturbed: since the last calm, a leader has seen everything, in order.
	undisturbed bool
	// revision is the last one that the journal has seen, and calmAt the revision of the last calm.
	revision   int64
	calmAt     int64
	servers    []*process // by replica
	violations []string
	tally      tally
	// hashes maps hashes to the content that they stand for, and vice versa.
	hashes map[string]string
	// formerKey is the prefix of hashes with a key that was replaced.
	formerKey string
}

// tally counts events.
type tally struct{ changes, rollouts, templates, baselines, mixed, unknowable int }

func (o *oracle) each(f func(*workload)) {
	for _, namespace := range slices.Sorted(maps.Keys(o.cells)) {
		c := o.cells[namespace]
		for _, name := range slices.Sorted(maps.Keys(c.workloads)) {
			f(c.workloads[name])
		}
	}
}

// cell is a namespace.
type cell struct {
	oracle    *oracle
	namespace string
	revision  int64     // of the last event
	at        time.Time // when it arrived
	reload    string    // the annotation of the namespace
	changes   int       // since the last calm, of any key of any source
	sources   map[string]content
	past      map[string]past
	versions  map[string]int64 // of the sources; 0: absent
	workloads map[string]*workload
}

func (c *cell) setSource(name string, now content) {
	vanished := false
	for key := range c.sources[name] {
		_, still := now[key]
		vanished = vanished || !still
	}
	same := maps.Equal(c.sources[name], now)
	if !same {
		c.changes++
	}
	c.sources[name] = now
	c.past[name] = append(c.past[name], version{c.revision, now})
	if c.versions[name] = c.revision; now == nil {
		c.versions[name] = 0
	}
	for _, w := range c.workloads {
		if w.state != nil {
			w.vanished = w.vanished || vanished && w.rules().counts(w.variant, name)
			w.look()
			if same && w.down != nil && w.rules().counts(w.variant, name) {
				// A client that sets content and writes metadata makes the content look newer.
				w.changed, w.down.absorbed = c.at, false
			}
		}
		for _, p := range w.pods {
			p.start(c)
		}
	}
}

// setReload records the annotation of the namespace.
func (c *cell) setReload(now string) {
	was := c.reload
	c.reload = now
	for _, w := range c.workloads {
		if w.state != nil && now != was {
			w.log("reload %q on the namespace", now)
			before := rulesOf(w.state.annotations, was)
			w.leaving = before.managed() && !w.managed()
			w.ruled(before)
		}
	}
}

func (c *cell) setPod(name string, now *corev1.Pod) {
	if now == nil {
		for _, w := range c.workloads {
			delete(w.pods, name)
		}
		return
	}
	w := c.workloads[now.Labels["app"]]
	if w == nil {
		return
	}
	p := w.pods[name]
	if p == nil || p.uid != string(now.UID) {
		p = &pod{uid: string(now.UID), born: c.revision, variant: variantOf(now.Annotations), waiting: true}
		w.pods[name] = p
		p.start(c)
	}
	p.identity = identity(now.Annotations, &now.Spec)
	p.phase = string(now.Status.Phase)
	if now.DeletionTimestamp != nil {
		p.phase = "terminating"
	}
	p.ready = p.phase == string(corev1.PodRunning)
}
