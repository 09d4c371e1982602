package configdependency

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/storage"

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

// Clients tell an empty list from none: "items" is [], not null.
func TestAnEmptyListHasItems(t *testing.T) {
	o, err := newCluster(t).rest.List(in(""), nil)
	if err != nil {
		t.Fatal(err)
	}
	if list := o.(*v1alpha1.ConfigDependencyList); list.Items == nil || len(list.Items) != 0 || list.ResourceVersion != "100" {
		t.Errorf("list %+v", list)
	}
}

func token(t *testing.T, key string, revision int64) string {
	t.Helper()
	out, err := storage.EncodeContinue(key, "/", revision)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestListRequestsThatAreRefused(t *testing.T) {
	c := newCluster(t, workload(dependency.Pod, "a", "1", nil))
	good := token(t, "/a/pod.1", 100)
	raw := func(json string) string { return base64.RawURLEncoding.EncodeToString([]byte(json)) }
	unsupported := fields.OneTermEqualSelector("spec.replicas", "1")
	tests := map[string]struct {
		options metainternalversion.ListOptions
		refused func(error) bool
	}{
		"a token that is no token":               {metainternalversion.ListOptions{Continue: "x y"}, apierrors.IsBadRequest},
		"a token of another version":             {metainternalversion.ListOptions{Continue: raw(`{"v":"meta.k8s.io/v2","rv":1,"start":"a/b"}`)}, apierrors.IsBadRequest},
		"a token without a version of the list":  {metainternalversion.ListOptions{Continue: raw(`{"v":"meta.k8s.io/v1","start":"a/b"}`)}, apierrors.IsBadRequest},
		"a token with a negative version":        {metainternalversion.ListOptions{Continue: raw(`{"v":"meta.k8s.io/v1","rv":-1,"start":"a/b"}`)}, apierrors.IsBadRequest},
		"a token without a place":                {metainternalversion.ListOptions{Continue: raw(`{"v":"meta.k8s.io/v1","rv":100}`)}, apierrors.IsBadRequest},
		"a token with half a place":              {metainternalversion.ListOptions{Continue: token(t, "/a", 100)}, apierrors.IsBadRequest},
		"a token of another resource":            {metainternalversion.ListOptions{Continue: token(t, "/registry/a/b", 100)}, apierrors.IsBadRequest},
		"a token that climbs":                    {metainternalversion.ListOptions{Continue: raw(`{"v":"meta.k8s.io/v1","rv":100,"start":"../a/b"}`)}, apierrors.IsBadRequest},
		"a version with a token":                 {metainternalversion.ListOptions{Continue: good, ResourceVersion: "100"}, apierrors.IsBadRequest},
		"a version that is no number":            {metainternalversion.ListOptions{ResourceVersion: "abc"}, apierrors.IsBadRequest},
		"a negative version":                     {metainternalversion.ListOptions{ResourceVersion: "-1"}, apierrors.IsBadRequest},
		"a version that is no 63-bit number":     {metainternalversion.ListOptions{ResourceVersion: "9223372036854775808"}, apierrors.IsBadRequest},
		"exactly a version that is gone":         {metainternalversion.ListOptions{ResourceVersion: "99", ResourceVersionMatch: metav1.ResourceVersionMatchExact}, apierrors.IsResourceExpired},
		"a field that cannot be selected":        {metainternalversion.ListOptions{FieldSelector: unsupported}, apierrors.IsBadRequest},
		"a field that cannot be selected, twice": {metainternalversion.ListOptions{FieldSelector: fields.AndSelectors(fields.OneTermEqualSelector("metadata.name", "x"), unsupported)}, apierrors.IsBadRequest},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o, err := c.rest.List(in(""), &tt.options)
			if !tt.refused(err) {
				t.Errorf("got %v, %v", o, err)
			}
		})
	}
}

func TestListRequestsThatAreAnswered(t *testing.T) {
	c := newCluster(t, workload(dependency.Pod, "a", "1", nil), workload(dependency.Pod, "b", "1", nil))
	after := token(t, "/a/pod.1", 100)
	tests := map[string]struct {
		namespace string
		options   metainternalversion.ListOptions
		want      []string
	}{
		"from the present state":                       {"", metainternalversion.ListOptions{}, []string{"a/pod.1", "b/pod.1"}},
		"from any state":                               {"", metainternalversion.ListOptions{ResourceVersion: "0"}, []string{"a/pod.1", "b/pod.1"}},
		"not older than a version that has been seen":  {"", metainternalversion.ListOptions{ResourceVersion: "50", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}, []string{"a/pod.1", "b/pod.1"}},
		"exactly the present version":                  {"", metainternalversion.ListOptions{ResourceVersion: "100", ResourceVersionMatch: metav1.ResourceVersionMatchExact}, []string{"a/pod.1", "b/pod.1"}},
		"the next page":                                {"", metainternalversion.ListOptions{Continue: after}, []string{"b/pod.1"}},
		"the next page, from any state":                {"", metainternalversion.ListOptions{Continue: after, ResourceVersion: "0"}, []string{"b/pod.1"}},
		"the next page after an object that has gone":  {"", metainternalversion.ListOptions{Continue: token(t, "/a/pod.0", 100)}, []string{"a/pod.1", "b/pod.1"}},
		"a page of another namespace that comes later": {"b", metainternalversion.ListOptions{Continue: token(t, "/a/pod.0", 100)}, []string{"b/pod.1"}},
		"a page of a namespace that came before":       {"a", metainternalversion.ListOptions{Continue: token(t, "/b/pod.0", 100)}, nil},
		"a namespace without workloads":                {"aa", metainternalversion.ListOptions{}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o, err := c.rest.List(in(tt.namespace), &tt.options)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, listNames(t, o)); diff != "" {
				t.Errorf("items (-want +got):\n%s", diff)
			}
			if got := o.(*v1alpha1.ConfigDependencyList).ResourceVersion; got != "100" {
				t.Errorf("version %s", got)
			}
		})
	}
}

// A version that this replica has not seen yet may come from another one: the request
// waits for it, and no longer than clients of kube-apiserver are used to. The error says
// that it is this, because clients such as reflectors then list anew.
func TestAVersionFromTheFuture(t *testing.T) {
	ask := map[string]func(context.Context, *cluster) error{
		"list": func(ctx context.Context, c *cluster) error {
			_, err := c.rest.List(ctx, &metainternalversion.ListOptions{ResourceVersion: "101"})
			return err
		},
		"page": func(ctx context.Context, c *cluster) error {
			_, err := c.rest.List(ctx, &metainternalversion.ListOptions{Continue: token(t, "/a/b", 101)})
			return err
		},
		"get": func(ctx context.Context, c *cluster) error {
			_, err := c.rest.Get(ctx, "pod.1", &metav1.GetOptions{ResourceVersion: "101"})
			return err
		},
	}
	for name, request := range ask {
		t.Run(name+" of a version that comes", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, workload(dependency.Pod, "ns", "1", nil))
				answer := make(chan error, 1)
				go func() { answer <- request(in("ns"), c) }()
				synctest.Wait()
				select {
				case err := <-answer:
					t.Fatalf("answered before the version was seen: %v", err)
				default:
				}
				c.views.Progressed(101)
				if err := <-answer; err != nil {
					t.Error(err)
				}
			})
		})
		t.Run(name+" of a version that does not come", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				err := request(in("ns"), newCluster(t, workload(dependency.Pod, "ns", "1", nil)))
				if took := time.Since(start); took != 3*time.Second {
					t.Errorf("waited %s", took)
				}
				if !storage.IsTooLargeResourceVersion(err) {
					t.Fatalf("error %v", err)
				}
				if seconds, ok := apierrors.SuggestsClientDelay(err); !ok || seconds != 1 {
					t.Errorf("retry after %d seconds, %v", seconds, ok)
				}
				if code := err.(apierrors.APIStatus).Status().Code; code != 504 {
					t.Errorf("code %d", code)
				}
			})
		})
		t.Run(name+" of a client that does not wait", func(t *testing.T) {
			ctx, cancel := context.WithCancel(in("ns"))
			cancel()
			if err := request(ctx, newCluster(t)); !storage.IsTooLargeResourceVersion(err) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// Until the index has synced nothing is known, which is not the same as nothing there.
func TestBeforeTheFirstSyncNothingIsAnswered(t *testing.T) {
	c := unsynced(t)
	c.setWorkload(workload(dependency.Pod, "ns", "1", nil))
	requests := map[string]func() error{
		"list": func() error { _, err := c.rest.List(in("ns"), nil); return err },
		"list from any state": func() error {
			_, err := c.rest.List(in("ns"), &metainternalversion.ListOptions{ResourceVersion: "0"})
			return err
		},
		"page": func() error {
			_, err := c.rest.List(in("ns"), &metainternalversion.ListOptions{Continue: token(t, "/a/b", 1)})
			return err
		},
		"get":    func() error { _, err := c.rest.Get(in("ns"), "pod.1", &metav1.GetOptions{}); return err },
		"lookup": func() error { _, err := c.views.Lookup("ns", "pod.1"); return err },
	}
	for name, request := range requests {
		err := request()
		if !apierrors.IsServiceUnavailable(err) {
			t.Errorf("%s: error %v", name, err)
		}
		if seconds, ok := apierrors.SuggestsClientDelay(err); !ok || seconds != 1 {
			t.Errorf("%s: retry after %d seconds, %v", name, seconds, ok)
		}
	}
	c.views.Synced(c.graph, 1)
	for name, request := range requests {
		if err := request(); err != nil {
			t.Errorf("%s after the sync: %v", name, err)
		}
	}
}

func TestGet(t *testing.T) {
	c := newCluster(t, workload(dependency.Deployment, "ns", "web", nil))
	o, err := c.rest.Get(in("ns"), "deployment.web", &metav1.GetOptions{ResourceVersion: "100"})
	if err != nil {
		t.Fatal(err)
	}
	if got := o.(*v1alpha1.ConfigDependency).Spec.WorkloadRef.Name; got != "web" {
		t.Errorf("got the view of %s", got)
	}
	for name, request := range map[string][2]string{
		"another namespace": {"other", "deployment.web"},
		"another kind":      {"ns", "statefulset.web"},
		"upper case":        {"ns", "Deployment.web"},
		"another name":      {"ns", "deployment.webs"},
	} {
		_, err := c.rest.Get(in(request[0]), request[1], &metav1.GetOptions{})
		if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), strconv.Quote(request[1])) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := c.rest.Get(in("ns"), "deployment.web", &metav1.GetOptions{ResourceVersion: "x"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a version that is no number: error %v", err)
	}
}

// A change is shown with its own version, and what it does not concern keeps its own.
func TestVersionsOfObjects(t *testing.T) {
	c := newCluster(t, workload(dependency.Pod, "ns", "1", nil), workload(dependency.Pod, "ns", "2", nil))
	c.set(workload(dependency.Pod, "ns", "2", map[string]string{"l": "v"}))
	c.views.Progressed(110)
	o, err := c.rest.List(in("ns"), nil)
	if err != nil {
		t.Fatal(err)
	}
	list := o.(*v1alpha1.ConfigDependencyList)
	got := []string{list.ResourceVersion}
	for _, item := range list.Items {
		got = append(got, item.Name+"@"+item.ResourceVersion)
	}
	if diff := cmp.Diff([]string{"110", "pod.1@100", "pod.2@101"}, got); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
}

// FuzzContinueToken: whatever a client sends in the place of a token is refused as a bad
// request, or is answered with what comes after a place.
func FuzzContinueToken(f *testing.F) {
	for _, seed := range []string{
		"", "x", "e30", "bnVsbA", "====",
		base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":100,"start":"a/pod.1"}`)),
		base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":100,"start":"/a/pod.1\u0000"}`)),
		base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":9223372036854775807,"start":"a/pod.1"}`)),
		base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":-1,"start":"a/pod.1"}`)),
		base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":100,"start":"a//pod.1"}`)),
	} {
		f.Add(seed)
	}
	c := newCluster(f, workload(dependency.Pod, "a", "1", nil), workload(dependency.Pod, "b", "1", nil), workload(dependency.Pod, "b", "2", nil))
	all := []string{"a/pod.1", "b/pod.1", "b/pod.2"}
	impatient, cancel := context.WithCancel(in(""))
	cancel()
	f.Fuzz(func(t *testing.T, token string) {
		o, err := c.rest.List(impatient, &metainternalversion.ListOptions{Continue: token})
		switch {
		case apierrors.IsBadRequest(err) || storage.IsTooLargeResourceVersion(err):
		case err != nil:
			t.Errorf("error %v", err)
		default:
			if got := listNames(t, o); len(got) > 3 || !slices.Equal(got, all[3-len(got):]) {
				t.Errorf("items %v are no end of %v", got, all)
			}
		}
	})
}

// FuzzPlaceOf: a place that is accepted is written as it was read.
func FuzzPlaceOf(f *testing.F) {
	for _, seed := range []string{"", "/", "//", "///", "/a", "/a/b", "/a/b/", "a/b", "/a/b/c", "/a/deployment.web\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, k string) {
		place, err := placeOf(k)
		if err != nil {
			return
		}
		if place.Namespace == "" || place.Name == "" || key(place) != k {
			t.Errorf("%q was read as %q", k, key(place))
		}
	})
}

func ExampleREST_List() {
	c := newCluster(nil,
		workload(dependency.Deployment, "shop", "web", nil, "Secret/db"),
		workload(dependency.CronJob, "shop", "report", nil, "Secret/db"),
		workload(dependency.Deployment, "shop", "search", nil, "ConfigMap/synonyms"),
	)
	list, err := c.rest.List(in("shop"), &metainternalversion.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(v1alpha1.FieldSource, "Secret/db"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, item := range list.(*v1alpha1.ConfigDependencyList).Items {
		fmt.Println(item.Name)
	}
	// Output:
	// cronjob.report
	// deployment.web
}
