// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/kind"
)

// list lists in a namespace, or in all.
func (c *cluster) list(t testing.TB, namespace string, options *metainternalversion.ListOptions) *v1alpha1.ConfigDependencyList {
	t.Helper()
	o, err := c.rest.List(in(namespace), options)
	if err != nil {
		t.Fatal(err)
	}
	return o.(*v1alpha1.ConfigDependencyList)
}

// Clients tell an empty list from none: "items" is [], not null.
func TestAnEmptyListHasItems(t *testing.T) {
	list := newCluster(t).list(t, "", nil)
	if list.Items == nil || len(list.Items) != 0 || revisionOf(t, list.ResourceVersion) != 100 {
		t.Errorf("list %+v", list)
	}
}

// The same options are refused whether they are those of a list or of a watch.
func TestRequestsThatAreRefused(t *testing.T) {
	unsupported := fields.OneTermEqualSelector("spec.replicas", "1")
	tests := map[string]metainternalversion.ListOptions{
		"a version that is no number":            {ResourceVersion: "abc"},
		"a field that cannot be selected":        {FieldSelector: unsupported},
		"a field that cannot be selected, twice": {FieldSelector: fields.AndSelectors(fields.OneTermEqualSelector("metadata.name", "x"), unsupported)},
	}
	c := newCluster(t, workload(kind.Pod, "a", "1", nil))
	for name, options := range tests {
		t.Run(name, func(t *testing.T) {
			if o, err := c.rest.List(in(""), &options); !apierrors.IsBadRequest(err) {
				t.Errorf("list: %v, %v", o, err)
			}
			if w, err := c.rest.Watch(in(""), &options); !apierrors.IsBadRequest(err) {
				t.Errorf("watch: %v, %v", w, err)
			}
		})
	}
	t.Run("a token that is no token", func(t *testing.T) {
		if o, err := c.rest.List(in(""), &metainternalversion.ListOptions{Continue: "x y"}); !apierrors.IsBadRequest(err) {
			t.Errorf("list: %v, %v", o, err)
		}
	})
}

// Until the index has synced nothing is known, which is not the same as nothing there.
func TestBeforeTheFirstSyncNothingIsAnswered(t *testing.T) {
	other := newCluster(t, workload(kind.Pod, "ns", "1", nil), workload(kind.Pod, "ns", "2", nil))
	token := other.list(t, "ns", &metainternalversion.ListOptions{Limit: 1}).Continue
	c := unsynced(t, workload(kind.Pod, "ns", "1", nil))
	requests := map[string]func() error{
		"list": func() error { _, err := c.rest.List(in("ns"), nil); return err },
		"list from any state": func() error {
			_, err := c.rest.List(in("ns"), &metainternalversion.ListOptions{ResourceVersion: "0"})
			return err
		},
		"page": func() error {
			_, err := c.rest.List(in("ns"), &metainternalversion.ListOptions{Continue: token})
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
	c.sync(t)
	for name, request := range requests {
		if err := request(); err != nil {
			t.Errorf("%s after the sync: %v", name, err)
		}
	}
}

func TestGet(t *testing.T) {
	c := newCluster(t, workload(kind.Deployment, "ns", "web", nil))
	o, err := c.rest.Get(in("ns"), "deployment.web", &metav1.GetOptions{ResourceVersion: c.list(t, "ns", nil).ResourceVersion})
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
	for name, want := range map[string]string{
		"web":              `: names are KIND.NAME, such as deployment.web; did you mean deployment.web?`,
		"deploy.web":       `: names are KIND.NAME, such as deployment.web; did you mean deployment.web?`,
		"Deployment.web":   `: names are KIND.NAME, such as deployment.web; did you mean deployment.web?`,
		"deployments.apps": `: names are KIND.NAME, such as deployment.web`,
		"webs":             `: names are KIND.NAME, such as deployment.web`,
		"statefulset.web":  ``,
	} {
		if _, err := c.rest.Get(in("ns"), name, &metav1.GetOptions{}); err == nil || err.Error() != fmt.Sprintf("configdependencies.configdep.io %q not found", name)+want {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := c.rest.Get(in("ns"), "deployment.web", &metav1.GetOptions{ResourceVersion: "x"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a version that is no number: error %v", err)
	}
}

// A change is shown with its own version, and what it does not concern keeps its own.
func TestVersionsOfObjects(t *testing.T) {
	c := newCluster(t, workload(kind.Pod, "ns", "1", nil), workload(kind.Pod, "ns", "2", nil))
	first := c.list(t, "ns", nil)
	c.set(workload(kind.Pod, "ns", "2", map[string]string{"l": "v"}))
	c.progress(110)
	list := c.list(t, "ns", nil)
	got := []string{fmt.Sprint(revisionOf(t, list.ResourceVersion))}
	for _, item := range list.Items {
		got = append(got, fmt.Sprintf("%s@%d", item.Name, revisionOf(t, item.ResourceVersion)))
	}
	if diff := cmp.Diff([]string{"110", "pod.1@100", "pod.2@101"}, got); diff != "" {
		t.Errorf("revisions in the versions (-want +got):\n%s", diff)
	}
	if before, after := first.Items[0].ResourceVersion, list.Items[0].ResourceVersion; before != after {
		t.Errorf("what was not changed had the version %s and has %s", before, after)
	}
}

// example is what an Example has in the place of a test.
type example struct{ testing.TB }

func (example) Helper()                  {}
func (example) Cleanup(func())           {}
func (example) Context() context.Context { return context.Background() }

func ExampleREST_List() {
	c := newCluster(example{},
		workload(kind.Deployment, "shop", "web", nil, "Secret/db"),
		workload(kind.CronJob, "shop", "report", nil, "Secret/db"),
		workload(kind.Deployment, "shop", "search", nil, "ConfigMap/synonyms"),
	)
	defer end(c.views)
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
