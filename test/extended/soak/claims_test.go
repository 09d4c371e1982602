// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
)

// watchClaims compares what a replica says with what pods have read, all the time, until the context is done.
func (s *stage) watchClaims(ctx context.Context, replica int) error {
	client, err := versioned.NewForConfig(directly(server.Replicas[replica]))
	if err != nil {
		return err
	}
	for pause(ctx, 200*time.Millisecond) {
		_, _, _ = s.list(ctx, client) // it may not run
	}
	return nil
}

// list returns the views of a replica, by namespace and name, and whether all could be judged. It judges those of cells in which nothing has happened that the replica may not
// have seen: it has seen everything up to the watermark in the version.
func (s *stage) list(ctx context.Context, client versioned.Interface) (views map[string]*v1alpha1.ConfigDependency, all bool, err error) {
	list, err := client.ConfigdepV1alpha1().ConfigDependencies("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, false, err
	}
	if err := s.journal.catchUp(ctx); err != nil {
		return nil, false, err
	}
	version := dependency.ParseVersion(list.ResourceVersion)
	watermark := int64(version >> 23)
	if version>>62 != 0 { // revisions cannot be compared
		watermark = 0
	}
	views, all = map[string]*v1alpha1.ConfigDependency{}, true
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	for i := range list.Items {
		v := &list.Items[i]
		views[v.Namespace+"/"+v.Name] = v
		_, name, _ := strings.Cut(v.Name, ".")
		c := s.oracle.cells[v.Namespace]
		if c == nil || c.revision > watermark {
			all = all && c == nil
			continue
		}
		if w := c.workloads[name]; w != nil && w.state != nil {
			w.judge(v)
		}
	}
	return views, all, nil
}

// judge judges a view of the current state.
func (w *workload) judge(v *v1alpha1.ConfigDependency) {
	w.cell.oracle.tally.claims++
	stale, notCurrent, running, names := 0, 0, 0, []string{}
	for name, p := range w.pods {
		if !p.runs() {
			continue
		}
		running++
		isStale, isCurrent := false, p.variant == w.variant // others are judged by what the template reads now
		for _, source := range sourceNames {
			if w.isStale(p, source) {
				isStale = true
				names = append(names, name+" by "+source)
			}
			if (useOf(p.variant, source) != nil || matches(w.rules().sources, source)) && !p.isCurrent(source) {
				isCurrent = false
			}
		}
		if isStale {
			stale++
		}
		if !isCurrent {
			notCurrent++
		}
	}
	shown := v.Status.Pods
	switch {
	case w.wrong:
	case v.Status.State == v1alpha1.StateInSync && stale > 0:
		w.violation("InSync (%s) although pods run with old content: %v; %+v, %+v", v.Status.Reason, names, shown, v.Status.Sources)
	case int(shown.Current) > running-stale:
		w.violation("%s: %d of %d pods are said to be current although some run with old content: %v", v.Status.State, shown.Current, shown.Total, names)
	case int(shown.Stale) > notCurrent:
		w.violation("%s (%s): %d pods are said to be stale, but only %d may be: %s", v.Status.State, v.Status.Reason, shown.Stale, notCurrent, v.Status.Message)
	}
	if v.Status.State == v1alpha1.StateStale {
		w.cell.oracle.tally.stale++
	}
	if v.Status.State == v1alpha1.StateUnknown {
		w.cell.oracle.tally.unknown++
	}
}

// isStale reports whether a pod runs with old content of a source that counts, and any replica must know: a process that began to read after
// something was removed knows it only from a record.
func (w *workload) isStale(p *pod, source string) bool {
	if !w.rules().counts(w.variant, source) || p.variant != w.variant || !p.isStale(source) {
		return false
	}
	if useOf(w.variant, source) == nil && w.cell.sources[source] == nil {
		return false // a glob only matches what exists
	}
	r := p.read[source]
	// The record tells of a removal, but not whether it came after a later write.
	return r.vanished == 0 || w.recorded > r.written && w.recorded < r.vanished && w.rules().triggers(w.variant, source)
}

// names reports whether the record is about a source, and about what the template reads of it now. Otherwise pods tell alone, also after nothing was read for a
// while.
func (w *workload) names(source string) bool {
	return w.of == w.variant && strings.Contains(w.state.annotations[appliedAnnotation], "/"+source+`"`)
}

// unrestarted judges whether the workload should have been restarted: pods run with content from before a change after the record.
func (w *workload) unrestarted() {
	for name, p := range w.pods {
		for _, source := range sourceNames {
			if r := p.read[source]; w.isStale(p, source) && w.rules().triggers(w.variant, source) && w.recorded > 0 && r.stale > w.recorded && w.names(source) && w.starts {
				w.violation("pod %s, of r%d, was not restarted after %s changed at r%d; it has read %v", name, p.born, source, r.stale, r.texts)
			}
		}
	}
}

// adopted reports whether a pod is older than the record, so that it may have old content that restarts nothing.
func (w *workload) adopted() bool {
	for _, p := range w.pods {
		if w.recorded == 0 || p.born < w.recorded {
			return true
		}
	}
	return false
}
