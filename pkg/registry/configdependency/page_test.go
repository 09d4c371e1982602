package configdependency

import (
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
)

// pages follows continue tokens to the end. between is called after each page but the last.
func pages(t *testing.T, c *cluster, namespace string, options metainternalversion.ListOptions, between func()) (names []string, versions []string) {
	t.Helper()
	for range 1000 {
		o, err := c.rest.List(in(namespace), &options)
		if err != nil {
			t.Fatalf("page with token %q: %v", options.Continue, err)
		}
		list := o.(*v1alpha1.ConfigDependencyList)
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
		between()
	}
	t.Fatal("the list does not end")
	return nil, nil
}

func randomWorkload(r *rand.Rand) *dependency.Workload {
	return workload(
		pick(r, dependency.Deployment, dependency.CronJob, dependency.Pod),
		pick(r, "a", "a-b", "ab", "b", "c"),
		pick(r, "a", "b", "a-b", "a.b", "ab", "abc", "b0", "z"),
		map[string]string{"app": pick(r, "x", "y", "z")},
		pick(r, "Secret/db", "ConfigMap/db", "Secret/other"),
	)
}

// randomQuery returns a namespace or none, and selectors or none, with what they select.
func randomQuery(r *rand.Rand) (namespace string, options metainternalversion.ListOptions, selects func(*dependency.Workload) bool) {
	namespace = pick(r, "", "", "a", "a-b", "b", "nowhere")
	selects = func(w *dependency.Workload) bool { return namespace == "" || w.Namespace == namespace }
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
		and(func(w *dependency.Workload) bool { return w.Kind != dependency.Pod })
	}
	return namespace, options, selects
}

// Paging gives what one request would have given, for any limit, namespace and selector.
func TestPagesAreTheWholeList(t *testing.T) {
	r := random(t)
	paged := 0
	for range 500 {
		var workloads []*dependency.Workload
		for range r.Intn(60) {
			w := randomWorkload(r)
			if !slices.ContainsFunc(workloads, func(o *dependency.Workload) bool { return o.WorkloadKey == w.WorkloadKey }) {
				workloads = append(workloads, w)
			}
		}
		c := newCluster(t, workloads...)
		namespace, options, selects := randomQuery(r)
		var want []string
		for _, w := range workloads {
			if selects(w) {
				want = append(want, w.Namespace+"/"+w.ViewName())
			}
		}
		slices.SortFunc(want, func(a, b string) int { // by namespace, then by name
			an, aname, _ := strings.Cut(a, "/")
			bn, bname, _ := strings.Cut(b, "/")
			if an != bn {
				return strings.Compare(an, bn)
			}
			return strings.Compare(aname, bname)
		})

		all, _ := pages(t, c, namespace, options, nil)
		if diff := cmp.Diff(want, all); diff != "" {
			t.Fatalf("the list (-want +got):\n%s", diff)
		}
		options.Limit = int64(1 + r.Intn(10))
		got, versions := pages(t, c, namespace, options, func() { paged++ })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("pages of %d in namespace %q (-want +got):\n%s", options.Limit, namespace, diff)
		}
		if slices.ContainsFunc(versions, func(v string) bool { return v != "100" }) {
			t.Fatalf("the pages have the versions %v", versions)
		}
	}
	if paged < 500 {
		t.Errorf("only %d pages were followed by another", paged)
	}
}

// While objects come, change and go between the pages, what was there all the time is
// listed once, and nothing twice.
func TestPagesMissNothingThatWasThereAllTheTime(t *testing.T) {
	r := random(t)
	for range 300 {
		present := map[dependency.WorkloadKey]*dependency.Workload{}
		var workloads []*dependency.Workload
		for range 40 {
			w := randomWorkload(r)
			present[w.WorkloadKey] = w
		}
		for _, w := range present {
			workloads = append(workloads, w)
		}
		c := newCluster(t, workloads...)
		namespace, options, selects := randomQuery(r)
		options.Limit = int64(1 + r.Intn(5))
		always := map[dependency.WorkloadKey]bool{} // selected since the first page
		for key, w := range present {
			always[key] = selects(w)
		}
		got, versions := pages(t, c, namespace, options, func() {
			for range r.Intn(4) {
				w := randomWorkload(r)
				if r.Intn(2) == 0 {
					c.remove(w.WorkloadKey)
					always[w.WorkloadKey] = false
					continue
				}
				c.set(w)
				always[w.WorkloadKey] = always[w.WorkloadKey] && selects(w)
			}
		})
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
		// A client that watches from the version of the list must see every change that
		// was made after the first page.
		if slices.ContainsFunc(versions, func(v string) bool { return v != "100" }) {
			t.Fatalf("the pages have the versions %v, the first was read at 100", versions)
		}
	}
}

func TestRemainingItemCount(t *testing.T) {
	c := newCluster(t,
		workload(dependency.Pod, "a", "1", nil), workload(dependency.Pod, "a", "2", nil),
		workload(dependency.Pod, "b", "1", nil), workload(dependency.Pod, "b", "2", nil), workload(dependency.Pod, "b", "3", nil),
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
			o, err := c.rest.List(in(tt.namespace), &tt.options)
			if err != nil {
				t.Fatal(err)
			}
			list := o.(*v1alpha1.ConfigDependencyList)
			if diff := cmp.Diff(tt.want, list.RemainingItemCount); diff != "" {
				t.Errorf("remaining items (-want +got):\n%s", diff)
			}
		})
	}
}
