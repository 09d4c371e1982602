// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/decide"
)

// The lists of another tool, whose names need not be those of objects, nor possible.

const (
	configMapsAnnotation = "pod-reloader.cs.sap.com/configmaps"
	secretsAnnotation    = "pod-reloader.cs.sap.com/secrets"
)

// readLists adds what the lists of a workload name, which opt it in.
func (r *rules) readLists(annotations map[string]string) {
	for _, key := range []string{configMapsAnnotation, secretsAnnotation} {
		if text := annotations[key]; text != "" && annotations[reloadAnnotation] != "off" {
			m := vocabulary[key][text]
			if r.lists, r.remark, r.listed = r.lists|m.sources, r.remark || m.yes, r.listed+text+";"; r.mode == "off" {
				r.mode = "listed"
			}
		}
	}
}

// checkNames checks that no state promises that changes restart a workload if nothing is there whose changes do, and that states tell what lists name in vain.
func (o *oracle) checkNames(s *server, m *manifest, got *shown) {
	rules := &got.rules
	if !rules.managed() || m.bare || s.view.terminating || m.deleting || m.kind == "Job" || m.kind == "CronJob" {
		return
	}
	if rules.remark && !strings.Contains(got.Message, "can be the name of no object") {
		o.fail("%s: server %d does not say that a name is impossible: %s", workloadName(m.slot), s.id, got.Message)
	}
	if got.Reason != decide.ReasonNothingTriggers && got.Reason != decide.ReasonContentApplied || rules.agent {
		return
	}
	exists, unsure := false, false // unsure: the record tells whether what is absent counts, or it is not known what pods have mounted
	for source := range sourceNames {
		if source == class && !m.mounts {
			continue
		}
		there := source != class && s.view.sources[source].present || source == class && slices.ContainsFunc(s.podsOf(m.slot), func(p *pod) bool { return s.now(class, p).present })
		read := source != class && slices.ContainsFunc(allUses[m.template.variant], func(u use) bool { return u.source == source })
		var is mark
		if source != class {
			is = s.view.sources[source].mark
		}
		scope := rules.scope(m.template.variant, source, is)
		if unsure = unsure || scope.goes || source == class && !there; scope.goes {
			continue
		}
		exists = exists || scope.triggers && (there || read)
		if named := " " + kindNames[sourceStream(source)] + "/" + sourceNames[source] + " ("; scope.triggers && !there && !read && rules.lists.has(source) {
			if o.tally["states with a name of what does not exist"]++; !strings.Contains(got.Message, named) {
				o.fail("%s: server %d does not say that %s does not exist: %s", workloadName(m.slot), s.id, sourceNames[source], got.Message)
			}
		}
	}
	if is := got.Reason == decide.ReasonNothingTriggers; !unsure && is == exists || is == strings.Contains(got.Message, "The next change") {
		o.fail("%s: server %d shows %s (%s), and that something exists whose changes restart it is %v", workloadName(m.slot), s.id, got.Reason, got.Message, exists)
	}
}

// addLists gives workloads of a twelfth of the histories lists of names, of which some are those of sources that come and go.
func (h *history) addLists(begin int) {
	m := maker{rand.New(rand.NewPCG(h.Seed, 11)), h}
	slot := m.workload()
	s := &h.Workloads[slot]
	if m.IntN(12) > 0 || s.Borrows || s.Agents != 0 {
		return
	}
	list := func() (string, string) {
		key := pick(m, configMapsAnnotation, secretsAnnotation)
		return key, pick(m, lists[key]...)
	}
	if m.IntN(2) == 0 {
		delete(s.Annotations, reloadAnnotation)
	}
	for range 1 + m.IntN(2) {
		key, text := list()
		s.Annotations[key] = text
	}
	begin = min(begin, len(h.Operations))
	for range 3 + m.IntN(4) {
		at, source := begin+m.IntN(len(h.Operations)-begin+1), pick(m, 4, 5, m.source())
		key, text := list()
		h.Operations = slices.Insert(h.Operations, at, pick(m, operation{Do: "create source", A: source, Content: m.content()}, operation{Do: "set content", A: source, Content: m.content()},
			operation{Do: "delete source", A: source}, operation{Do: "toggle", A: slot, Annotation: key, Text: text}),
			operation{Do: "wait", Wait: pick(m, 0, 3*time.Second, time.Minute)}, pick(m, operation{Do: "set content", A: source, Content: m.content()}, operation{Do: "calm"}, operation{Do: "look"}))
	}
}
