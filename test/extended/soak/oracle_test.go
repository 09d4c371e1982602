// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	hashAnnotation       = "configdep.io/config-hash"
	appliedAnnotation    = "configdep.io/applied-sources"
	reloadAnnotation     = "configdep.io/reload"
	lastReloadAnnotation = "configdep.io/last-reload"
	recreatingAnnotation = "configdep.io/recreating"
)

// writtenAnnotations are the annotations that the server writes.
var writtenAnnotations = []string{hashAnnotation, appliedAnnotation, lastReloadAnnotation, recreatingAnnotation, "configdep.io/reloaded-at"}

// oracle knows with which content pods were started, and judges each restart and each claim of the API. The lock of the journal guards it.
type oracle struct {
	cells map[string]*cell // by namespace
	// undisturbed: since the last calm, no request has failed, and no server has ended.
	undisturbed bool
	violations  []string
	tally       tally
}

// tally counts events.
type tally struct{ changes, restarts, templates, records, claims, stale, unknown int }

func (o *oracle) each(f func(*workload)) {
	for _, namespace := range slices.Sorted(maps.Keys(o.cells)) {
		c := o.cells[namespace]
		for _, name := range slices.Sorted(maps.Keys(c.workloads)) {
			f(c.workloads[name])
		}
	}
}

// begin records that changes which belong together are about to be made, and together that they are complete: within the settle time, or while
// no server runs.
func (o *oracle) begin()    { o.each(func(w *workload) { w.before = w.changes }) }
func (o *oracle) together() { o.each((*workload).together) }

func (w *workload) together() { w.changes = min(w.changes, w.before+1) }

// rekeyed records that the key of the hash is about to be replaced. Then no record can be compared.
func (o *oracle) rekeyed() {
	o.each(func(w *workload) {
		if w.state != nil {
			w.recorded, w.former = 0, w.state.annotations[appliedAnnotation]
		}
	})
}

// calm begins the next phase.
func (o *oracle) calm() {
	o.each(func(w *workload) {
		w.changes, w.restarts, w.writes, w.leaving = 0, 0, 0, false
		if !w.starts {
			w.changes = 1 // pods that start although something is missing, which only simulated ones do, are in doubt
		}
		w.log("calm")
	})
}

// cell is a namespace.
type cell struct {
	oracle    *oracle
	namespace string
	revision  int64     // of the last event
	at        time.Time // when it arrived
	reload    string    // the annotation of the namespace
	sources   map[string]content
	versions  map[string]int64 // of the sources; 0: absent
	workloads map[string]*workload
}

func (c *cell) setSource(name string, now content) {
	var vanished int64 // before the removal of something, the last write
	for _, w := range c.workloads {
		w.know()
	}
	for key := range c.sources[name] {
		if _, still := now[key]; !still {
			vanished = c.versions[name]
		}
	}
	c.sources[name] = now
	if c.versions[name] = c.revision; now == nil {
		c.versions[name] = 0
	}
	for _, w := range c.workloads {
		if w.state != nil {
			w.look()
		}
		for _, p := range w.pods {
			p.look(name, now, c.revision, vanished)
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
			w.leaving = before.managed() && !w.rules().managed()
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
		p = &pod{uid: string(now.UID), born: c.revision, stormy: !c.oracle.undisturbed, variant: variantOf(now.Annotations), read: map[string]*read{}}
		w.pods[name] = p
		for _, source := range sourceNames {
			p.look(source, c.sources[source], c.revision, 0)
		}
		w.log("pod %s is created", name)
	}
	p.identity = identity(now.Annotations, &now.Spec)
	if p.phase = string(now.Status.Phase); now.DeletionTimestamp != nil {
		p.phase = "terminating"
	}
}

// violation is a finding of the oracle, after which waiting is useless.
type violations []string

func (v violations) Error() string { return strings.Join(v, "; ") }
