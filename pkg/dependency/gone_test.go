// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Forgetting deleted sources makes changes look later and more numerous than they were, never the reverse.
func TestGraph_ForgetsDeletionsInDoubt(t *testing.T) { withSeeds(t, 20, forgetsInDoubt) }

func forgetsInDoubt(t *testing.T, r *rand.Rand) {
	t.Helper()
	all, bounded := NewGraph(), newGraph(bounds{goneBytes: r.Intn(4000), deletions: r.Intn(3), deletionNamespaces: 1 + r.Intn(2)})
	graphs := []*Graph{all, bounded}
	names, keys, several := []string{"a", "b", "c"}, []string{"x", "y"}, r.Intn(2) == 0
	for _, g := range graphs {
		g.SetSeveralCounters(several)
	}
	lost := 0
	for step := range 1000 {
		version := uint64(step + 1)
		key := SourceKey{ConfigMap, pick(r, "ns1", "ns2", "ns3"), pick(r, names...)}
		at := Arrival{Live: r.Intn(5) > 0, Seen: day.Add(time.Duration(step) * time.Minute), Order: version}
		switch r.Intn(5) {
		case 0, 1:
			content := map[string]byte{}
			for _, k := range keys {
				if v := r.Intn(3); v > 0 {
					content[k] = byte(v)
				}
			}
			for _, g := range graphs {
				s := &Source{SourceKey: key, ResourceVersion: strconv.Itoa(step + 1)}
				for _, k := range keys {
					if v := content[k]; v != 0 {
						s.Keys = append(s.Keys, KeyDigest{Key: k, Digest: Digest{v}})
					}
				}
				s.After(g.Source(key), g.DeletedBefore(key), at)
				g.SetSource(s)
			}
		case 2, 3:
			for _, g := range graphs {
				g.DeleteSource(key, Change{Version: version, Seen: at.Seen, Order: version})
			}
		default:
			reads := []string{}
			for _, name := range names {
				if r.Intn(2) == 0 {
					reads = append(reads, "?"+name)
				}
			}
			for _, g := range graphs {
				w := &Workload{WorkloadKey: WorkloadKey{Deployment, key.Namespace, "web"}, StartVersion: version, References: referencesOf(pod(reads...))}
				g.SetWorkload(w, Patterns{})
			}
		}
		for namespace, c := range bounded.goneContents {
			if c.bytes > bounded.bounds.goneBytes || len(c.elements) == 0 {
				t.Fatalf("step %d: %d bytes kept of %d deleted sources in %s", step, c.bytes, len(c.elements), namespace)
			}
		}
		since := Moment{uint64(r.Intn(step + 1)), uint64(r.Intn(step + 1))}
		for _, namespace := range []string{"ns1", "ns2", "ns3"} {
			w := all.Workload(WorkloadKey{Deployment, namespace, "web"})
			if w == nil {
				continue
			}
			for i := range w.References {
				reference, key := &w.References[i], SourceKey{ConfigMap, namespace, w.References[i].Name}
				want, got := all.LastWritten(namespace, reference), bounded.LastWritten(namespace, reference)
				if got.Version < want.Version || got.Order < want.Order {
					t.Fatalf("step %d: %v was last written at %v, got %v", step, key, want, got)
				}
				want, got = new(all.UnusedDeletion(key)).Moment(), new(bounded.UnusedDeletion(key)).Moment()
				if got.Version < want.Version || got.Order < want.Order {
					t.Fatalf("step %d: %v was last deleted unused at %v, got %v", step, key, want, got)
				}
				if all.missingSince(key) > bounded.missingSince(key) {
					t.Fatalf("step %d: %v has been missing since %d, got %d", step, key, all.missingSince(key), bounded.missingSince(key))
				}
				first, last, times, _ := all.ChangedSince(key, since)
				first2, last2, times2, _ := bounded.ChangedSince(key, since)
				if min(times, 2) > times2 || !last.Equal(last2) || !first2.IsZero() && !first2.Equal(first) {
					t.Fatalf("step %d: since %v, %v changed %d times from %v to %v, got %d from %v to %v", step, since, key, times, first, last, times2, first2, last2)
				}
				was, _ := all.First(key)
				switch was2, known := bounded.First(key); {
				case !known:
					lost++
				case string(AppendContent(nil, reference, was)) != string(AppendContent(nil, reference, was2)):
					t.Fatalf("step %d: the first content of %v was %v, got %v", step, key, was, was2)
				}
				if s := all.Source(key); s != nil && s.Undated(s.LastWritten(reference)) && !bounded.Source(key).Undated(bounded.LastWritten(namespace, reference)) {
					t.Fatalf("step %d: the last change of %v is dated, want it undated", step, key)
				}
			}
		}
	}
	if lost == 0 && bounded.bounds.goneBytes < 1000 {
		t.Error("no content was forgotten")
	}
}

// A template may name sources that are created and deleted with any content: the memory for their content is
// bounded, and other namespaces do not lose theirs.
func TestGraph_ForgetsContentOfDeletedSources(t *testing.T) {
	g := NewGraph()
	comeAndGo := func(namespace, name string, keys int) *Reference {
		reference := Reference{Kind: ConfigMap, Name: name, Uses: []Use{{Type: EnvFrom, Container: "app", Optional: true}}}
		g.SetWorkload(&Workload{WorkloadKey: WorkloadKey{Deployment, namespace, name}, References: []Reference{reference}}, Patterns{})
		s := &Source{SourceKey: SourceKey{ConfigMap, namespace, name}}
		for i := range keys {
			s.Keys = append(s.Keys, KeyDigest{Key: fmt.Sprintf("%06d", i)})
		}
		g.SetSource(s)
		g.DeleteSource(s.SourceKey, Change{Version: 7, Seen: day, Order: 7})
		return &reference
	}
	few := comeAndGo("other", "few", 2)
	comeAndGo("shop", "first", 10)
	for i := range 100 {
		comeAndGo("shop", fmt.Sprint("large-", i), 1000)
	}
	comeAndGo("shop", "huge", 100_000)
	kept := 0
	g.gone.each(func(gone goneSource) {
		if gone.Namespace == "shop" {
			kept += gone.contentBytes(1 << 30)
		}
	})
	if most := maxGoneBytes + 102*700; kept > most || kept == 0 {
		t.Errorf("%d bytes kept, want at most %d", kept, most)
	}
	if n := len(g.Deleted(SourceKey{ConfigMap, "other", "few"}).Keys); n != 2 {
		t.Errorf("%d keys kept of a source in another namespace", n)
	}
	for _, name := range []string{"first", "huge", "large-0", "large-99"} {
		reference := *few
		reference.Name = name
		if got, want := g.LastWritten("shop", &reference), (Moment{7, 7}); got != want {
			t.Errorf("last write of %s = %v, want %v", name, got, want)
		}
	}
	var workloads []WorkloadKey
	g.EachWorkloadIn("shop", func(w *Workload) { workloads = append(workloads, w.WorkloadKey) })
	for _, key := range workloads {
		g.DeleteWorkload(key)
	}
	if n := g.gone.len(); n != 1 || len(g.goneContents) != 1 {
		t.Errorf("after their workloads were deleted, %d sources and contents in %d namespaces are kept", n, len(g.goneContents))
	}
}

// The time at which an unused source was deleted is known, however many sources come and go in other namespaces.
func TestGraph_DeletionsElsewhere(t *testing.T) {
	w := &watched{g: NewGraph(), version: 100}
	w.set("y", 10)
	w.remove("y", 90)
	for i := range 10 * maxDeletions {
		key := SourceKey{ConfigMap, fmt.Sprint("other-", i%10), fmt.Sprint("x-", i)}
		w.g.SetSource(&Source{SourceKey: key})
		w.g.DeleteSource(key, Change{Version: uint64(200 + i), Seen: seenAt})
	}
	w.workload("x", "y")
	if got := w.g.missingSince(SourceKey{ConfigMap, "shop", "y"}); got != 90 {
		t.Errorf("y missing since %d, want 90", got)
	}
	if got := w.g.missingSince(SourceKey{ConfigMap, "shop", "x"}); got != 0 {
		t.Errorf("x missing since %d, want 0 because x never existed", got)
	}
	// A deletion is not forgotten while a workload refers to the source.
	w.comeAndGo(2*maxDeletions, 300)
	if got := w.g.missingSince(SourceKey{ConfigMap, "shop", "y"}); got != 90 {
		t.Errorf("after other deletions, y missing since %d, want 90", got)
	}
	w.workload("x")
	w.comeAndGo(2*maxDeletions, 400)
	w.workload("x", "y")
	if got := w.g.missingSince(SourceKey{ConfigMap, "shop", "y"}); got != 401 {
		t.Errorf("after a time without a workload that refers to y, y missing since %d, want 401", got)
	}
	// With very many namespaces, the deletions in some of them are forgotten.
	for i := range maxDeletionNamespaces {
		key := SourceKey{ConfigMap, fmt.Sprint("many-", i), "x"}
		w.g.SetSource(&Source{SourceKey: key})
		w.g.DeleteSource(key, Change{Version: 500, Seen: seenAt})
	}
	if n := w.g.deletions.Len(); n != maxDeletionNamespaces {
		t.Errorf("deletions of %d namespaces are kept", n)
	}
	w.workload("x", "y", "z")
	if got := w.g.missingSince(SourceKey{ConfigMap, "shop", "z"}); got < 401 {
		t.Errorf("z missing since %d, want no earlier than 401", got)
	}
}

// A new glob may belong to a workload that was read after the matching sources were deleted.
func TestMatched_EachGoneBeforeItsFirstWorkload(t *testing.T) {
	remove := func(g *Graph, kind SourceKind, name string, ignored bool, version uint64) {
		key := SourceKey{kind, "shop", name}
		g.SetSource(&Source{SourceKey: key, SourceMarks: SourceMarks{Ignored: ignored}})
		g.DeleteSource(key, Change{Version: version, Order: version, Seen: seenAt})
	}
	gone := func(g *Graph) (all []string) {
		pattern := Pattern{ConfigMap, "x-*"}
		w := &Workload{WorkloadKey: WorkloadKey{Deployment, "shop", "w"}}
		g.SetWorkload(w, Patterns{Sources: []Pattern{pattern}})
		g.Matched("shop", pattern, nil, nil).EachGone(func(name string, change Change) bool {
			all = append(all, fmt.Sprint(name, " ", change.Version))
			return true
		})
		return all
	}
	g := NewGraph()
	user := &Workload{WorkloadKey: WorkloadKey{Deployment, "shop", "user"}, References: []Reference{{Kind: ConfigMap, Name: "x-used"}}}
	g.SetWorkload(user, Patterns{})
	remove(g, ConfigMap, "x-1", false, 10)
	remove(g, ConfigMap, "x-used", false, 11)
	remove(g, ConfigMap, "x-ignored", true, 12)
	remove(g, Secret, "x-1", false, 13)
	remove(g, ConfigMap, "y", false, 14)
	if got, want := gone(g), []string{"x-used 11", "x-1 10"}; !slices.Equal(got, want) {
		t.Errorf("deletions = %q, want %q", got, want)
	}

	g = newGraph(bounds{deletions: 1, deletionNamespaces: 1, globWork: MaxGlobWork})
	remove(g, ConfigMap, "x-1", false, 10)
	remove(g, ConfigMap, "x-2", false, 11)
	if got, want := gone(g), []string{"x-2 11", " 10"}; !slices.Equal(got, want) {
		t.Errorf("with room for one deletion: deletions = %q, want %q", got, want)
	}

	g = newGraph(bounds{deletions: 1, deletionNamespaces: 1, globWork: MaxGlobWork})
	remove(g, ConfigMap, "x-1", false, 10)
	other := SourceKey{ConfigMap, "other", "y"}
	g.SetSource(&Source{SourceKey: other})
	g.DeleteSource(other, Change{Version: 11, Order: 11, Seen: seenAt})
	if got, want := gone(g), []string{" 10"}; !slices.Equal(got, want) {
		t.Errorf("with room for one namespace: deletions = %q, want %q", got, want)
	}
}

// A source that is created again while no workload refers to it may have had any key until its deletion.
func TestGraph_DeletedBefore(t *testing.T) {
	g := NewGraph()
	key := SourceKey{ConfigMap, "shop", "x"}
	if was := g.DeletedBefore(key); was != nil {
		t.Errorf("DeletedBefore of a source that never existed = %+v", was)
	}
	set := func(uid types.UID, version string, keys ...string) *Source {
		var contents []KeyDigest
		for _, k := range keys {
			contents = append(contents, KeyDigest{Key: k})
		}
		meta := &metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: uid, ResourceVersion: version}
		s := NewSource(NewDigester([]byte("key")), ConfigMap, meta, SourceMarks{}, contents)
		s.After(g.Source(key), g.DeletedBefore(key), Arrival{Live: true, Seen: seenAt, Order: 1})
		g.SetSource(s)
		return s
	}
	reads := &Reference{Kind: ConfigMap, Name: "x", Uses: []Use{{Type: Env, Keys: []string{"gone"}}}}
	if at := set("1", "10", "gone").LastWritten(reads); at.Version != 10 {
		t.Errorf("last write = %d, want 10", at.Version)
	}
	g.DeleteSource(key, Change{Version: 20, Seen: seenAt})
	if at := set("2", "30").LastWritten(reads); at.Version != 20 {
		t.Errorf("after a deletion and creation: last write = %d, want 20", at.Version)
	}

	// A deletion is not forgotten while a workload refers to the source.
	g.DeleteSource(key, Change{Version: 40, Seen: seenAt})
	user := &Workload{WorkloadKey: WorkloadKey{Deployment, "shop", "user"}, References: []Reference{*reads}}
	g.SetWorkload(user, Patterns{})
	for i := range maxDeletions + 1 {
		other := SourceKey{ConfigMap, "shop", fmt.Sprint("other-", i)}
		g.SetSource(&Source{SourceKey: other})
		g.DeleteSource(other, Change{Version: 50, Seen: seenAt})
	}
	if at := set("3", "60").LastWritten(reads); at.Version != 40 {
		t.Errorf("deleted before a workload referred to it: last write = %d, want 40", at.Version)
	}
}
