// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"maps"
	"math/rand"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// pages follows continue tokens to the end, each to a cluster that next returns.
func pages(t *testing.T, next func(page int) *cluster, namespace string, options metainternalversion.ListOptions) (names []string, versions []string) {
	t.Helper()
	for page := range 1000 {
		list := next(page).list(t, namespace, &options)
		if options.Limit > 0 && int64(len(list.Items)) > options.Limit {
			t.Fatalf("a page of %d items with limit %d", len(list.Items), options.Limit)
		}
		names = append(names, listNames(t, list)...)
		versions = append(versions, list.ResourceVersion)
		if list.Continue == "" {
			return names, versions
		}
		if len(list.Items) == 0 {
			t.Fatal("an empty page with a continue token")
		}
		options.Continue = list.Continue
	}
	t.Fatal("the list does not end")
	return nil, nil
}

// checkVersions fails unless all pages have the version of the first, of which everything
// up to a revision has been seen: from there a client that watches misses nothing.
func checkVersions(t *testing.T, versions []string, revision uint64) {
	t.Helper()
	if slices.ContainsFunc(versions, func(v string) bool { return v != versions[0] || revisionOf(t, v) != revision }) {
		t.Fatalf("the pages have the versions %v, the first was read at revision %d", versions, revision)
	}
}

func randomWorkload(r *rand.Rand) ingesttest.Object {
	return workload(
		pick(r, kind.Deployment, kind.CronJob, kind.Pod),
		pick(r, "a", "a-b", "ab", "b", "c"),
		pick(r, "a", "b", "a-b", "a.b", "ab", "abc", "b0", "z"),
		map[string]string{"app": pick(r, "x", "y", "z")},
		pick(r, "Secret/db", "ConfigMap/db", "Secret/other"),
	)
}

// randomQuery returns a namespace or none, and selectors or none, with what they select.
func randomQuery(r *rand.Rand) (namespace string, options metainternalversion.ListOptions, selected func(ingesttest.Object) bool) {
	namespace = pick(r, "", "", "a", "a-b", "b", "nowhere")
	selects := func(w *dependency.Workload) bool { return namespace == "" || w.Namespace == namespace }
	and := func(f func(*dependency.Workload) bool) {
		before := selects
		selects = func(w *dependency.Workload) bool { return before(w) && f(w) }
	}
	if r.Intn(3) == 0 {
		options.LabelSelector = labels.SelectorFromSet(labels.Set{"app": "x"})
		and(func(w *dependency.Workload) bool { return w.Labels["app"] == "x" })
	}
	switch r.Intn(4) {
	case 0:
		options.FieldSelector = fields.OneTermEqualSelector(v1alpha1.FieldSource, "Secret/db")
		and(func(w *dependency.Workload) bool {
			return w.References[0].Name == "db" && w.References[0].Kind == dependency.Secret
		})
	case 1:
		options.FieldSelector = fields.OneTermNotEqualSelector(v1alpha1.FieldWorkloadKind, "Pod")
		and(func(w *dependency.Workload) bool { return w.Kind != kind.Pod })
	}
	return namespace, options, func(o ingesttest.Object) bool { return selects(workloadtest.Read(o)) }
}

// population is the workloads of a cluster.
type population map[dependency.WorkloadKey]ingesttest.Object

func randomPopulation(r *rand.Rand, most int) population {
	p := population{}
	for range r.Intn(most) {
		w := randomWorkload(r)
		p[keyOf(w)] = w
	}
	return p
}

func (p population) workloads() []ingesttest.Object { return slices.Collect(maps.Values(p)) }

// names returns the keys of what is selected in the order of a list: that of the strings,
// as the keys of etcd have, so that what is in a-b comes before what is in a.
func (p population) names(selects func(ingesttest.Object) bool) (out []string) {
	for key, w := range p {
		if selects(w) {
			out = append(out, key.Namespace+"/"+key.ViewName())
		}
	}
	slices.Sort(out)
	return out
}

// Paging gives what one request would have given, for any limit, namespace and selector.
func TestPagesAreTheWholeList(t *testing.T) { withSeeds(t, 1, pagesAreTheWholeList) }

func pagesAreTheWholeList(t *testing.T, r *rand.Rand) {
	t.Helper()
	paged := 0
	for range 500 {
		p := randomPopulation(r, 60)
		c := newCluster(t, p.workloads()...)
		namespace, options, selects := randomQuery(r)
		want := p.names(selects)
		all, versions := pages(t, func(int) *cluster { return c }, namespace, options)
		if diff := cmp.Diff(want, all); diff != "" {
			t.Fatalf("the list (-want +got):\n%s", diff)
		}
		checkVersions(t, versions, 100)
		options.Limit = int64(1 + r.Intn(10))
		got, versions := pages(t, func(page int) *cluster {
			if page > 0 {
				paged++
			}
			return c
		}, namespace, options)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("pages of %d in namespace %q (-want +got):\n%s", options.Limit, namespace, diff)
		}
		checkVersions(t, versions, 100)
	}
	if paged < 500 {
		t.Errorf("only %d pages were followed by another", paged)
	}
}

// Whatever comes, changes or goes between the pages, they are the list as it was when the
// first was read: nothing is missing, nothing is listed twice, and nothing is newer.
func TestPagesAreTheListOfTheFirst(t *testing.T) { withSeeds(t, 1, pagesAreTheListOfTheFirst) }

func pagesAreTheListOfTheFirst(t *testing.T, r *rand.Rand) {
	t.Helper()
	changed := 0
	for range 300 {
		p := randomPopulation(r, 40)
		c := newCluster(t, p.workloads()...)
		for range r.Intn(5) { // so that the list does not begin at the sync
			w := randomWorkload(r)
			p[keyOf(w)] = w
			c.set(w)
		}
		revision := c.Version
		namespace, options, selects := randomQuery(r)
		options.Limit = int64(1 + r.Intn(5))
		got, versions := pages(t, func(page int) *cluster {
			if page > 0 {
				changed += c.changeSome(r)
			}
			return c
		}, namespace, options)
		if diff := cmp.Diff(p.names(selects), got); diff != "" {
			t.Fatalf("pages of %d in namespace %q (-as of the first +got):\n%s", options.Limit, namespace, diff)
		}
		checkVersions(t, versions, revision)
	}
	if changed < 500 {
		t.Errorf("only %d changes were made between pages", changed)
	}
}

// changeSome makes up to three changes and returns how many.
func (c *cluster) changeSome(r *rand.Rand) int {
	n := r.Intn(4)
	for range n {
		if w := randomWorkload(r); r.Intn(2) == 0 && c.Stored(w) != nil {
			c.remove(w)
		} else {
			c.set(w)
		}
	}
	return n
}

// An object on a page is what it was when the first was read, and not only its name.
func TestAPageShowsNothingThatIsNewer(t *testing.T) {
	c := newCluster(t, workload(kind.Pod, "ns", "1", nil), workload(kind.Pod, "ns", "2", map[string]string{"app": "old"}))
	first := c.list(t, "ns", &metainternalversion.ListOptions{Limit: 1})
	before := c.list(t, "ns", nil).Items[1]
	c.set(workload(kind.Pod, "ns", "2", map[string]string{"app": "new"}))
	second := c.list(t, "ns", &metainternalversion.ListOptions{Limit: 1, Continue: first.Continue})
	if diff := cmp.Diff([]v1alpha1.ConfigDependency{before}, second.Items); diff != "" {
		t.Errorf("the second page (-as of the first +got):\n%s", diff)
	}
	// Nor is a selector applied to what it has become.
	old := metainternalversion.ListOptions{Continue: first.Continue, LabelSelector: labels.SelectorFromSet(labels.Set{"app": "old"})}
	if got := listNames(t, c.list(t, "ns", &old)); !slices.Equal(got, []string{"ns/pod.2"}) {
		t.Errorf("selected by the label that it had: %v", got)
	}
}

// write is a change of the cluster that two replicas apply.
type write struct {
	revision uint64
	workload ingesttest.Object
	gone     bool
}

// neighbours are two replicas that apply the same writes: those of one kind in their
// order, but those of different kinds in any, each at its own pace.
type neighbours struct {
	revision uint64
	clusters [2]*cluster
	waiting  [2]map[dependency.WorkloadKind][]write
	seen     [2]map[dependency.WorkloadKind]uint64 // the revision of the last write or bookmark
}

func newNeighbours(t *testing.T, workloads []ingesttest.Object) *neighbours {
	t.Helper()
	n := &neighbours{revision: 100}
	for i := range n.clusters {
		n.clusters[i] = newCluster(t, workloads...)
		n.waiting[i] = map[dependency.WorkloadKind][]write{}
		n.seen[i] = map[dependency.WorkloadKind]uint64{kind.Deployment: 100, kind.CronJob: 100, kind.Pod: 100}
	}
	return n
}

func (n *neighbours) write(w ingesttest.Object, gone bool) {
	n.revision++
	for i := range n.waiting {
		kind := keyOf(w).Kind
		n.waiting[i][kind] = append(n.waiting[i][kind], write{n.revision, w, gone})
	}
}

// apply applies the next write of a kind to a replica or, if there is none, a bookmark. Other resources are read as far as
// all kinds of workloads are.
func (n *neighbours) apply(i int, kind dependency.WorkloadKind) {
	c, revision := n.clusters[i], n.revision
	if queue := n.waiting[i][kind]; len(queue) > 0 {
		next := queue[0]
		n.waiting[i][kind], revision = queue[1:], next.revision
		c.Version = revision - 1
		if next.gone {
			c.Delete(next.workload)
		} else {
			c.Set(next.workload)
		}
	}
	n.seen[i][kind] = revision
	c.progress(slices.Min(slices.Collect(maps.Values(n.seen[i]))))
}

// applySome applies some writes in any order.
func (n *neighbours) applySome(r *rand.Rand) {
	for range r.Intn(10) {
		n.apply(r.Intn(2), pick(r, kind.Deployment, kind.CronJob, kind.Pod))
	}
}

// reach lets a replica apply everything up to a revision.
func (n *neighbours) reach(i int, revision uint64) {
	for kind, seen := range n.seen[i] {
		for ; seen < revision; seen = n.seen[i][kind] {
			n.apply(i, kind)
		}
	}
}

// The pages of a list may come from replicas that have applied the same changes in another
// order. What was there all the time is listed once, and nothing twice.
func TestPagesFromTwoReplicasMissNothingThatWasThereAllTheTime(t *testing.T) {
	withSeeds(t, 1, pagesFromTwoReplicas)
}

func pagesFromTwoReplicas(t *testing.T, r *rand.Rand) {
	t.Helper()
	switched := 0
	for range 300 {
		p := randomPopulation(r, 40)
		n := newNeighbours(t, p.workloads())
		change := func() ingesttest.Object {
			w := randomWorkload(r)
			key := keyOf(w)
			gone := p[key] != nil && r.Intn(2) == 0
			if n.write(w, gone); gone {
				delete(p, key)
			} else {
				p[key] = w
			}
			return w
		}
		namespace, options, selects := randomQuery(r)
		options.Limit = int64(1 + r.Intn(5))
		always := map[dependency.WorkloadKey]bool{} // selected in every state that a replica may show
		for key, w := range p {
			always[key] = selects(w)
		}
		touch := func(times int) {
			for range times {
				w := change()
				key := keyOf(w)
				always[key] = always[key] && p[key] != nil && selects(w)
			}
		}
		touch(r.Intn(5))
		n.applySome(r)
		var revision uint64
		last := -1
		got, versions := pages(t, func(page int) *cluster {
			i := r.Intn(2)
			if page == 0 {
				revision = slices.Min(slices.Collect(maps.Values(n.seen[i])))
			} else {
				touch(r.Intn(4))
				n.applySome(r)
				n.reach(i, revision) // else the request waits for it
			}
			if last >= 0 && last != i {
				switched++
			}
			last = i
			return n.clusters[i]
		}, namespace, options)
		count := map[string]int{}
		for _, name := range got {
			if count[name]++; count[name] > 1 {
				t.Fatalf("%s is listed twice: %v", name, got)
			}
		}
		for key, there := range always {
			if name := key.Namespace + "/" + key.ViewName(); there && count[name] != 1 {
				t.Fatalf("%s was there all the time and is not listed: %v", name, got)
			}
		}
		checkVersions(t, versions, revision)
	}
	if switched < 100 {
		t.Errorf("only %d pages came from another replica than the one before", switched)
	}
}

func TestRemainingItemCount(t *testing.T) {
	c := newCluster(t,
		workload(kind.Pod, "a", "1", nil), workload(kind.Pod, "a", "2", nil),
		workload(kind.Pod, "b", "1", nil), workload(kind.Pod, "b", "2", nil), workload(kind.Pod, "b", "3", nil),
	)
	tests := map[string]struct {
		namespace string
		options   metainternalversion.ListOptions
		want      *int64
	}{
		"without a limit there is nothing left":          {"", metainternalversion.ListOptions{}, nil},
		"of all namespaces":                              {"", metainternalversion.ListOptions{Limit: 2}, new(int64(3))},
		"of one namespace":                               {"b", metainternalversion.ListOptions{Limit: 1}, new(int64(2))},
		"the limit is the number of all":                 {"a", metainternalversion.ListOptions{Limit: 2}, nil},
		"a limit beyond it":                              {"a", metainternalversion.ListOptions{Limit: 5}, nil},
		"it is not counted what a selector would select": {"", metainternalversion.ListOptions{Limit: 1, FieldSelector: fields.OneTermEqualSelector(v1alpha1.FieldWorkloadKind, "Pod")}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			list := c.list(t, tt.namespace, &tt.options)
			if diff := cmp.Diff(tt.want, list.RemainingItemCount); diff != "" {
				t.Errorf("remaining items (-want +got):\n%s", diff)
			}
		})
	}
}
