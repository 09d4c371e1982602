// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"maps"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// told is an oracle with the events of one Deployment, which reads the key a of c0 and all of s0.
type told struct {
	oracle *oracle
	cell   *cell
	of     *workload
	writes int
}

// newTold returns an oracle that has seen a Deployment opt in, be recorded and create a pod.
func newTold(t *testing.T) *told {
	t.Helper()
	o := &oracle{cells: map[string]*cell{}, hashes: map[string]string{}, servers: []*process{{}, {}}}
	c := &cell{oracle: o, namespace: t.Name(), sources: map[string]content{}, past: map[string]past{}, versions: map[string]int64{}, workloads: map[string]*workload{}}
	w := &workload{cell: c, name: "w0", kind: "Deployment", pods: map[string]*pod{}, counts: map[string]int64{}, templates: map[string]bool{}, reloads: map[string]bool{}}
	o.cells[c.namespace], c.workloads["w0"] = c, w
	p := &told{oracle: o, cell: c, of: w}
	for _, name := range sourceNames {
		p.source(name, "0")
	}
	return p
}

func (p *told) next() {
	p.oracle.revision++
	p.cell.revision = p.oracle.revision
}

func (p *told) source(name, value string) {
	p.next()
	p.cell.setSource(name, content{"a": value, "b": value, "z": value})
}

// set writes the Deployment, as the owner or as replica 0.
func (p *told) set(owner bool, image, reload, applied string) {
	p.next()
	if owner {
		p.writes++
	} else {
		proxies[0].mu.Lock()
		proxies[0].patches[p.of.path()+" "+strconv.FormatInt(p.of.state.version, 10)] = true
		proxies[0].mu.Unlock()
	}
	s := &state{pods: 1, version: p.oracle.revision, annotations: map[string]string{writeAnnotation: strconv.Itoa(p.writes), reloadAnnotation: reload}}
	if applied != "" {
		s.annotations[appliedAnnotation], s.annotations[hashAnnotation] = applied, "v1.k."+strings.TrimLeft(applied, "{")
	}
	s.template.Annotations = map[string]string{variantAnnotation: "0"}
	s.template.Spec.Containers = []corev1.Container{{Image: image}}
	p.of.set(s)
}

func (p *told) pod(name, image string) {
	p.next()
	p.cell.setPod(name, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"app": "w0"}, Annotations: map[string]string{variantAnnotation: "0"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Image: image}}},
	})
}

// TestOracle_ForgivesOnlyWhatNobodyCouldKnow shows the oracle events that are rare in a control plane.
func TestOracle_ForgivesOnlyWhatNobodyCouldKnow(t *testing.T) {
	const record = `{"ConfigMap/c0":"x.1.1"}`
	optedIn := func(p *told) {
		p.set(true, "1", "auto", "")
		p.pod("old", "1")
		p.set(false, "1", "auto", record)
	}
	optsInLate := func(p *told) {
		p.set(true, "1", "off", "")
		p.pod("old", "1")
		p.set(true, "1", "auto", "")
	}
	rolledBack := func(p *told) {
		optedIn(p)
		p.source("c0", "1")
		p.set(true, "2", "auto", record)
		p.pod("new", "2")
		p.set(true, "1", "auto", record)
		p.cell.setPod("new", nil)
		p.set(false, "1", "auto", record+" ")
	}
	removed := func(p *told, between func()) {
		optedIn(p)
		p.set(true, "1", "auto", "")
		between()
		p.set(false, "1", "auto", record)
	}
	const stale, mixed, left = "was started with", "no reason", "which were to be evicted"
	abandoned := func(p *told, evicting string) {
		optedIn(p)
		p.annotate(reloadAnnotation, "off", recreatingAnnotation, evicting)
		p.annotate(hashAnnotation, "v1.k.abandoned", appliedAnnotation, "", recreatingAnnotation, "")
	}
	for name, tc := range map[string]struct {
		play func(*told)
		want string // a part of the violations; empty: none
	}{
		"content changes and nothing is restarted": {func(p *told) { optedIn(p); p.source("c0", "1") }, stale},
		"ignored content changes":                  {func(p *told) { optedIn(p); p.source("s1", "1") }, ""},
		"content changes before the workload opts in": {func(p *told) {
			p.set(true, "1", "off", "")
			p.pod("old", "1")
			p.source("c0", "1")
			p.set(true, "1", "auto", "")
		}, ""},
		"content changes between opting in and the record": {func(p *told) { optsInLate(p); p.source("c0", "1"); p.set(false, "1", "auto", record) }, stale},
		"content changes between opting in and the record, and the process began after that": {func(p *told) {
			optsInLate(p)
			p.source("c0", "1")
			p.oracle.began(0)
			p.set(false, "1", "auto", record)
		}, ""},
		"content changes between opting in and the record, and another process began after that": {func(p *told) {
			optsInLate(p)
			p.source("c0", "1")
			p.oracle.began(1)
			p.set(false, "1", "auto", record)
		}, stale},
		"the process began before content changed": {func(p *told) {
			optsInLate(p)
			p.oracle.began(0)
			p.source("c0", "1")
			p.set(false, "1", "auto", record)
		}, stale},
		"content changes after the record was removed":                                   {func(p *told) { removed(p, func() { p.source("c0", "1") }) }, stale},
		"content changes after the record was removed, and the process began after that": {func(p *told) { removed(p, func() { p.source("c0", "1"); p.oracle.began(0) }) }, ""},
		"content changes after the record was removed, both during a broken watch": {func(p *told) {
			optedIn(p)
			p.oracle.gap(0)
			p.set(true, "1", "auto", "")
			p.source("c0", "1")
			p.set(false, "1", "auto", record)
		}, ""},
		"a rollback leaves a pod":                          {rolledBack, stale},
		"a rollback, and the leader began after that":      {func(p *told) { rolledBack(p); p.oracle.began(0) }, stale},
		"a rollback, and all replicas began after that":    {func(p *told) { rolledBack(p); p.oracle.began(0); p.oracle.began(1) }, ""},
		"a rollback, and another replica began after that": {func(p *told) { rolledBack(p); p.oracle.began(1) }, stale},
		"pods are recorded to differ without a reason":     {func(p *told) { optedIn(p); p.mixed() }, mixed},
		"content changed and changed back":                 {func(p *told) { optedIn(p); p.source("c0", "1"); p.source("c0", "0"); p.mixed() }, ""},
		"a template is restored with the record from before the workload opted out": {func(p *told) {
			optedIn(p)
			p.set(true, "1", "off", record)
			p.source("c0", "1")
			p.set(true, "1", "auto", record)
			p.set(true, "2", "auto", record+" ")
			p.pod("new", "2")
			p.set(true, "1", "auto", record)
			p.mixed()
			p.cell.setPod("old", nil) // the restart that follows
		}, ""},
		"a template is restored with a record of the current content": {func(p *told) {
			optedIn(p)
			p.set(true, "2", "auto", record+" ")
			p.pod("new", "2")
			p.set(true, "1", "auto", record)
			p.mixed()
		}, mixed},
		"a restart is still due after a template is restored": {func(p *told) {
			optedIn(p)
			p.source("c0", "1")
			p.source("c0", "0")
			p.mixed()
			p.set(true, "2", "auto", mixedRecord)
			p.set(true, "1", "auto", mixedRecord)
			p.restart()
		}, ""},
		"content changes before the workload opts out, and new pods read it": {func(p *told) {
			p.oracle.undisturbed = true
			optedIn(p)
			p.source("c0", "1")
			p.cell.setPod("old", nil)
			p.pod("new", "1")
			p.set(true, "1", "off", record)
			p.oracle.calm(0)
			p.set(true, "1", "auto", record)
			p.restart()
		}, ""},
		"content does not change before the workload opts out": {func(p *told) {
			p.oracle.undisturbed = true
			optedIn(p)
			p.set(true, "1", "off", record)
			p.oracle.calm(0)
			p.set(true, "1", "auto", record)
			p.restart()
		}, "restarted 1 times for 0 changes"},
		"no restart is due after a new template": {func(p *told) {
			optedIn(p)
			p.source("c0", "1")
			p.source("c0", "0")
			p.mixed()
			p.set(true, "2", "auto", mixedRecord)
			p.cell.setPod("old", nil)
			p.restart()
		}, "nothing that it reads has changed"},
		"the record says that pods to evict are left": {func(p *told) {
			abandoned(p, "a,b")
			p.oracle.calm(0)
			p.annotate(reloadAnnotation, "auto")
			p.restart()
		}, ""},
		"the record says that pods to evict are left, but none are":    {func(p *told) { abandoned(p, "") }, left},
		"pods are recorded to differ in a source, but another changed": {func(p *told) { optedIn(p); p.source("s0", "1"); p.source("s0", "0"); p.mixed() }, mixed},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTold(t)
			tc.play(p)
			p.oracle.calm(0)
			if got := strings.Join(p.oracle.violations, "\n"); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("violations = %q, want %q; the oracle has seen:\n%s", got, tc.want, strings.Join(p.of.trace, "\n"))
			}
		})
	}
}

const mixedRecord = `{"ConfigMap/c0":"x.mixed."}`

// restart makes replica 0 restart the Deployment, while nothing disturbs the server.
func (p *told) restart() {
	p.oracle.undisturbed = true
	next := *p.of.state
	p.next()
	next.version, next.annotations, next.template = p.oracle.revision, maps.Clone(next.annotations), *next.template.DeepCopy()
	next.annotations[hashAnnotation], next.annotations[appliedAnnotation] = "v1.k.2", `{"ConfigMap/c0":"x.2.1"}`
	next.annotations[lastReloadAnnotation], next.template.Annotations[hashAnnotation] = "{}", "v1.k.2"
	p.of.set(&next)
}

// annotate changes annotations of the workload.
func (p *told) annotate(pairs ...string) {
	next := *p.of.state
	p.next()
	next.version, next.annotations = p.oracle.revision, maps.Clone(next.annotations)
	for i := 0; i < len(pairs); i += 2 {
		if next.annotations[pairs[i]] = pairs[i+1]; pairs[i+1] == "" {
			delete(next.annotations, pairs[i])
		}
	}
	p.of.set(&next)
}

// mixed makes replica 0 record that pods differ in c0.
func (p *told) mixed() {
	before := *p.of.state
	p.next()
	before.annotations = map[string]string{
		writeAnnotation: strconv.Itoa(p.writes), reloadAnnotation: "auto", hashAnnotation: "v1.k.mixed", appliedAnnotation: mixedRecord,
	}
	before.version = p.oracle.revision
	p.of.set(&before)
}
