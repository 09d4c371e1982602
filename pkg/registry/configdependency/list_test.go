package configdependency

import (
	"context"
	"encoding/base64"
	"fmt"
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
	"k8s.io/apiserver/pkg/storage"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
)

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
