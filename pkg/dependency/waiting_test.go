// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"math/rand"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestPodsThatWaitStartWithTheLastThingThatComes: pods of a template start when the template changes, unless a
// source or key that they require is missing.
func TestPodsThatWaitStartWithTheLastThingThatComes(t *testing.T) {
	const template = 100 // the version of the template; it requires the key a of x, and y
	for name, tc := range map[string]struct {
		do   func(*watched)
		want uint64
	}{
		"nothing is missing":                                        {func(w *watched) { w.set("x", 10, "a"); w.set("y", 11); w.workload("x:a", "y") }, template},
		"an optional source is missing":                             {func(w *watched) { w.set("x", 10, "a"); w.workload("x:a", "?y"); w.set("y", 110) }, template},
		"a source is created":                                       {func(w *watched) { w.set("x", 10, "a"); w.workload("x:a", "y"); w.set("y", 110) }, 111},
		"a key is added":                                            {func(w *watched) { w.set("x", 10, "b"); w.workload("x:a"); w.set("x", 110, "a", "b") }, 111},
		"a source is created without the key":                       {func(w *watched) { w.workload("x:a"); w.set("x", 110, "b") }, template},
		"a source is created without the key, which is added later": {func(w *watched) { w.workload("x:a"); w.set("x", 110, "b"); w.set("x", 120, "a") }, 121},
		"both sources are created":                                  {func(w *watched) { w.workload("x:a", "y"); w.set("y", 110); w.set("x", 120, "a") }, 121},
		"a source changes after the start":                          {func(w *watched) { w.workload("y"); w.set("y", 110); w.set("y", 120, "b") }, 111},
		"a source is deleted and created again after the start":     {func(w *watched) { w.workload("y"); w.set("y", 110); w.remove("y", 120); w.set("y", 130) }, 111},
		"the workload is read twice in between":                     {func(w *watched) { w.workload("y"); w.workload("y"); w.set("y", 110) }, 111},
		"an optional source is deleted in between":                  {func(w *watched) { w.set("x", 10); w.workload("?x", "y"); w.remove("x", 105); w.set("y", 110) }, 111},
		"another source is deleted in between and created again": {func(w *watched) {
			w.set("x", 10, "a")
			w.workload("x:a", "y")
			w.remove("x", 105)
			w.set("y", 110)
			w.set("x", 120, "a")
		}, 121},
		"deleted after the template changed":               {func(w *watched) { w.set("y", 10); w.remove("y", 105); w.workload("y"); w.set("y", 110) }, template},
		"a list shows the source, not when it was created": {func(w *watched) { w.workload("y"); w.list("y", 110) }, template},
		"a list shows other content without the key":       {func(w *watched) { w.set("x", 10, "b"); w.workload("x:a"); w.list("x", 110, "c"); w.set("x", 120, "a") }, template},
		"a list shows that the source was written":         {func(w *watched) { w.set("x", 10); w.workload("x:a"); w.list("x", 110); w.set("x", 120, "a") }, template},
		"a list shows that, and the template comes later": {func(w *watched) {
			w.set("x", 10)
			w.list("x", 110)
			w.set("x", 115)
			w.workload("x:a")
			w.set("x", 120, "a")
		}, template},
		"a list before the template shows that": {func(w *watched) {
			w.set("x", 10)
			w.list("x", 90)
			w.workload("x:a")
			w.set("x", 110)
			w.set("x", 120, "a")
		}, 121},
		"a list shows that the source was not written": {func(w *watched) { w.set("x", 10); w.workload("x:a"); w.list("x", 10); w.set("x", 120, "a") }, 121},
		"a list shows that another source was written": {func(w *watched) {
			w.set("y", 10)
			w.workload("x:a", "y")
			w.list("y", 110)
			w.set("x", 120, "a")
		}, 121},
		"a list shows that the source was deleted": {func(w *watched) {
			w.set("x", 10)
			w.workload("x:a")
			w.g.DeleteSource(SourceKey{ConfigMap, "shop", "x"}, Change{Version: 110, Seen: seenAt, After: 50})
			w.set("x", 120, "a")
		}, template},
		"an event shows that the source was deleted": {func(w *watched) { w.set("x", 10); w.workload("x:a"); w.remove("x", 110); w.set("x", 120, "a") }, 121},
		"another source was deleted before, but its event comes later": {func(w *watched) {
			w.set("x", 10, "a")
			w.workload("x:a", "y")
			w.remove("x", 115)
			w.set("y", 110)
			w.set("x", 120, "a")
		}, template},
	} {
		w := &watched{g: NewGraph(), version: template}
		// Deletions of sources without references are forgotten.
		w.g.SetWorkload(&Workload{WorkloadKey: WorkloadKey{Job, "shop", "other"}, References: referencesOf(pod("x:a", "y"))}, Patterns{})
		tc.do(w)
		if got := w.g.Started(w.g.Workload(w.key), &Use{Type: EnvFrom, Container: "app"}); got != tc.want {
			t.Errorf("%s: pods started at %d, want %d", name, got, tc.want)
		}
	}
}

// A workload may be read later than the deletion of a source that its pods have read, if no other workload uses
// the source at that time. Pods wait only for sources that were missing before the template changed.
func TestGraph_StartedAfterUnusedDeletions(t *testing.T) {
	const template, come = 100, 110 // the versions of the template, and of the creation of y, which the template requires
	another := &Workload{WorkloadKey: WorkloadKey{Job, "shop", "other"}, References: referencesOf(pod("y"))}
	for name, tt := range map[string]struct {
		do   func(*watched)
		want uint64
	}{
		"never existed":                    {func(*watched) {}, come + 1},
		"deleted before":                   {func(w *watched) { w.set("y", 10); w.remove("y", 90) }, come + 1},
		"deleted after":                    {func(w *watched) { w.set("y", 10); w.remove("y", 105) }, template},
		"another source was deleted after": {func(w *watched) { w.set("x", 10); w.remove("x", 105) }, come + 1},
		"deleted after, while another workload used it": {func(w *watched) {
			w.g.SetWorkload(another, Patterns{})
			w.set("y", 10)
			w.remove("y", 105)
			w.g.DeleteWorkload(another.WorkloadKey)
		}, template},
		"deleted after, before many other deletions": {func(w *watched) {
			w.set("y", 10)
			w.remove("y", 105)
			w.comeAndGo(maxDeletions, 106)
		}, template},
		"deleted before, before many other deletions": {func(w *watched) {
			w.set("y", 10)
			w.remove("y", 90)
			w.comeAndGo(maxDeletions, 91)
		}, come + 1},
		"may have existed before the first lists": {func(w *watched) { w.g.SetSince(Moment{Version: template}) }, template},
		"missing in the first lists":              {func(w *watched) { w.g.SetSince(Moment{Version: template - 1}) }, come + 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := &watched{g: NewGraph(), version: template}
			tt.do(w)
			w.workload("y")
			w.set("y", come)
			if got := w.g.Started(w.g.Workload(w.key), &Use{Type: EnvFrom, Container: "app"}); got != tt.want {
				t.Errorf("pods started at %d, want %d", got, tt.want)
			}
		})
	}
}

// The results are the same however late workloads are updated about the sources for which they wait, and so they
// are in snapshots.
func TestGraph_TellsWaitingLater(t *testing.T) { withSeeds(t, 10, tellsWaitingLater) }

func tellsWaitingLater(t *testing.T, r *rand.Rand) {
	t.Helper()
	b := bounds{deletionNamespaces: 1}
	later := newGraph(b)
	b.told = 1000
	atOnce := newGraph(b)
	names, templates := []string{"a", "b", "c"}, map[string]corev1.PodSpec{} // by graph and workload
	opened, behind := 0, 0
	describe := func(g *Graph) string {
		var out strings.Builder
		g.EachWorkload(func(w *Workload) {
			if x := g.extra.get(w.WorkloadKey); x != nil {
				fmt.Fprintln(&out, w.Name, x.patterns)
			}
			for i := range w.References {
				for j := range w.References[i].Uses {
					fmt.Fprint(&out, w.Name, " ", w.References[i].Name, " ", g.Started(w, &w.References[i].Uses[j]), "\n")
				}
			}
		})
		return out.String()
	}
	type taken struct {
		snapshot *Graph
		want     string
	}
	var snapshots []taken
	for step := range 600 {
		version := uint64(step + 10)
		seen, live, order := pick(r, version, version-uint64(r.Intn(5))), r.Intn(5) > 0, uint64(step+1)
		key := SourceKey{ConfigMap, pick(r, "ns1", "ns2"), pick(r, names...)}
		name, content := fmt.Sprint("w-", r.Intn(6)), pick(r, "x", "y")
		var uses []string
		for range 1 + r.Intn(3) {
			uses = append(uses, pick(r, "", "?")+pick(r, names...)+pick(r, "", ":x"))
		}
		var patterns Patterns
		if r.Intn(2) == 0 {
			patterns.Sources = []Pattern{{Kind: ConfigMap, Name: pick(r, names...) + "*"}}
		}
		do := r.Intn(10)
		for _, g := range []*Graph{later, atOnce} {
			switch do {
			case 0, 1, 2:
				s := &Source{SourceKey: key, ResourceVersion: fmt.Sprint(seen), Keys: []KeyDigest{{Key: content, Digest: Digest{byte(version)}}}}
				s.After(g.Source(key), g.DeletedBefore(key), Arrival{Live: live, Seen: seenAt, Order: order})
				g.SetSource(s)
			case 3, 4:
				g.DeleteSource(key, Change{Version: seen, Exact: live, Seen: seenAt, Order: order})
			case 5:
				g.DeleteWorkload(WorkloadKey{Deployment, key.Namespace, name})
			default:
				o := &appsv1.Deployment{}
				o.Namespace, o.Name, o.ResourceVersion = key.Namespace, name, fmt.Sprint(seen)
				before := g.Told(WorkloadKey{Deployment, o.Namespace, o.Name})
				if o.Spec.Template.Spec = *pod(uses...); before != nil && do > 7 { // the template stays the same
					o.Spec.Template.Spec = templates[fmt.Sprintf("%p %v", g, before.WorkloadKey)]
				}
				w := readDeployment(o)
				w.After(before, Arrival{Live: true, Order: order})
				templates[fmt.Sprintf("%p %v", g, w.WorkloadKey)] = o.Spec.Template.Spec
				g.SetWorkload(w, patterns)
			}
		}
		if r.Intn(3) == 0 {
			later.TellWaiting(r.Intn(3))
		}
		want := describe(atOnce)
		if got := describe(later); got != want {
			t.Fatalf("step %d (-want +got):\n%s", step, cmp.Diff(want, got))
		}
		if len(later.arrivals) > 0 {
			behind++
		}
		if r.Intn(20) == 0 {
			snapshots = append(snapshots, taken{later.Snapshot(), want})
		}
		atOnce.EachWorkload(func(w *Workload) {
			for _, g := range w.gates {
				if g.start > w.StartVersion {
					opened++
				}
			}
		})
	}
	for _, s := range snapshots {
		if got := describe(s.snapshot); got != s.want {
			t.Fatalf("snapshot (-want +got):\n%s", cmp.Diff(s.want, got))
		}
	}
	for later.TellWaiting(1) {
	}
	later.EachWorkload(func(w *Workload) {
		if diff := cmp.Diff(fmt.Sprint(atOnce.Workload(w.WorkloadKey).gates), fmt.Sprint(w.gates)); diff != "" {
			t.Errorf("in the end, workload %v (-want +got):\n%s", w.WorkloadKey, diff)
		}
	})
	if opened == 0 || behind == 0 {
		t.Errorf("%d gates were opened, and in %d steps workloads had updates to come", opened, behind)
	}
}

// comeAndGo creates n sources at a version, and deletes them at the next one.
func (w *watched) comeAndGo(n int, version uint64) {
	for i := range n {
		name := fmt.Sprint("other-", i)
		w.set(name, version)
		w.remove(name, version+1)
	}
}

// watched is a graph to which a Deployment and ConfigMaps are added.
type watched struct {
	g       *Graph
	version uint64 // of the Deployment
	key     WorkloadKey
}

func (w *watched) workload(uses ...string) {
	o := &appsv1.Deployment{}
	o.Namespace, o.Name, o.ResourceVersion = "shop", "web", fmt.Sprint(w.version)
	o.Spec.Template.Spec = *pod(uses...)
	d := readDeployment(o)
	d.After(w.g.Workload(d.WorkloadKey), Arrival{Live: true})
	w.g.SetWorkload(d, Patterns{})
	w.key = d.WorkloadKey
	w.version++
}

func (w *watched) set(name string, version uint64, keys ...string) {
	w.put(name, version, true, keys...)
}

func (w *watched) list(name string, version uint64, keys ...string) {
	w.put(name, version, false, keys...)
}

func (w *watched) put(name string, version uint64, live bool, keys ...string) {
	s := &Source{SourceKey: SourceKey{ConfigMap, "shop", name}, ResourceVersion: strconv.FormatUint(version, 10)}
	for _, key := range keys {
		s.Keys = append(s.Keys, KeyDigest{Key: key, Digest: Digest{byte(version)}})
	}
	previous := w.g.Source(s.SourceKey)
	s.After(previous, w.g.DeletedBefore(s.SourceKey), Arrival{Live: live, Seen: seenAt})
	w.g.SetSource(s)
}

func (w *watched) remove(name string, version uint64) {
	w.g.DeleteSource(SourceKey{ConfigMap, "shop", name}, Change{Version: version, Seen: seenAt})
}

// pod returns a template that reads ConfigMaps: NAME all keys, NAME:KEY one key, ?NAME all keys, optionally.
func pod(uses ...string) *corev1.PodSpec {
	c := corev1.Container{Name: "app"}
	for _, use := range uses {
		name, key := use, ""
		if i := len(use) - 2; i > 0 && use[i] == ':' {
			name, key = use[:i], use[i+1:]
		}
		optional := name[0] == '?'
		if optional {
			name = name[1:]
		}
		ref := corev1.LocalObjectReference{Name: name}
		if key == "" {
			c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref, Optional: &optional}})
			continue
		}
		c.Env = append(c.Env, corev1.EnvVar{Name: "A", ValueFrom: &corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref, Key: key, Optional: &optional}}})
	}
	return &corev1.PodSpec{Containers: []corev1.Container{c}}
}

// seenAt is the time of changes in tests for which only versions matter.
var seenAt = time.Unix(1, 0)
