// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/configdep/configdep/pkg/kind"
)

// encodeEvent writes an event as the handlers of the generic API server do. What they ask
// of an object that many watches send is named by the format.
func encodeEvent(r *REST, format string, e watch.Event) ([]byte, error) {
	var out bytes.Buffer
	encode := func(o runtime.Object, w io.Writer) error {
		var inner []byte
		switch format {
		case "json":
			var err error
			if inner, err = runtime.Encode(encoder, o); err != nil {
				return err
			}
		case "table":
			table, err := r.ConvertToTable(in(""), o, &metav1.TableOptions{})
			if err != nil {
				return err
			}
			m, err := meta.Accessor(table.Rows[0].Object.Object)
			if err != nil {
				return err
			}
			partial := meta.AsPartialObjectMetadata(m)
			partial.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
			table.Rows[0].Object.Object = partial
			if inner, err = json.Marshal(table); err != nil {
				return err
			}
		}
		return json.NewEncoder(w).Encode(metav1.WatchEvent{Type: string(e.Type), Object: runtime.RawExtension{Raw: inner}})
	}
	var err error
	if shared, ok := e.Object.(runtime.CacheableObject); ok {
		err = shared.CacheEncode(runtime.Identifier(format+string(e.Type)), encode, &out)
	} else {
		err = encode(e.Object, &out)
	}
	return out.Bytes(), err
}

// Several watches send the same event, and each handler does with its object what it likes:
// it sets the type, converts it to a table, or changes all of it. None sees that of another,
// and nor do those who read the object afterwards. The race detector looks on.
func TestWhatAWatchDoesWithAnObjectIsNotSeenByOthers(t *testing.T) {
	c := newCluster(t, workload(kind.Deployment, "ns", "web", map[string]string{"i": "0"}, "Secret/db"))
	const changes = 300
	from := &metainternalversion.ListOptions{ResourceVersion: c.list(t, "ns", nil).ResourceVersion}
	var wg sync.WaitGroup
	for range 2 {
		for _, format := range []string{"json", "table", "overwrite"} {
			w, err := c.rest.Watch(in("ns"), from)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(w.Stop)
			wg.Go(func() {
				for i := range changes {
					e, open := <-w.ResultChan()
					if !open {
						t.Error("the watch has ended")
						return
					}
					if format == "overwrite" {
						if got := plain(e.Object).Labels["i"]; got != fmt.Sprint(i+1) {
							t.Errorf("event %d has label %q", i, got)
						}
						overwrite(plain(e.Object))
						continue
					}
					raw, err := encodeEvent(c.rest, format, e)
					if err != nil {
						t.Error(err)
						return
					}
					// Two labels tell that it is this event and that it was not changed.
					for _, want := range []string{`"type":"MODIFIED"`, fmt.Sprintf(`"i":"%d"`, i+1), `"name":"deployment.web"`} {
						if !strings.Contains(string(raw), want) {
							t.Errorf("event %d as %s has no %s: %s", i, format, want, raw)
							return
						}
					}
				}
			})
		}
	}
	for i := range changes {
		c.set(workload(kind.Deployment, "ns", "web", map[string]string{"i": fmt.Sprint(i + 1)}, "Secret/db"))
	}
	wg.Wait()
	o, err := c.views.Lookup("ns", "deployment.web")
	if err != nil {
		t.Fatal(err)
	}
	want := c.render(workload(kind.Deployment, "ns", "web", nil), number(t, o.ResourceVersion))
	if diff := cmp.Diff(want, o); diff != "" {
		t.Errorf("what is served (-want +got):\n%s", diff)
	}
}

// The same for the objects that a watch begins with, and for those that it sends as deleted.
func TestWhatAWatchBeginsWithIsACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, workload(kind.Deployment, "ns", "web", map[string]string{"app": "web"}, "Secret/db"))
		before := c.list(t, "ns", nil)
		options := &metainternalversion.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{"app": "web"})}
		one, other := c.watch(t, "ns", options), c.watch(t, "ns", options)
		_, o := one.only()
		overwrite(o)
		if _, o := other.only(); !cmp.Equal(&before.Items[0], o) {
			t.Errorf("the other watch begins with (-want +got):\n%s", cmp.Diff(&before.Items[0], o))
		}
		if after := c.list(t, "ns", nil); !cmp.Equal(before, after) {
			t.Errorf("what is served has changed (-before +after):\n%s", cmp.Diff(before, after))
		}
		c.set(workload(kind.Deployment, "ns", "web", nil, "Secret/db"))
		_, o = one.only()
		overwrite(o)
		if typ, o := other.only(); typ != watch.Deleted || o.Name != "deployment.web" || o.Labels["app"] != "web" {
			t.Errorf("the other watch gets %s %+v", typ, o)
		}
	})
}
