// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// encoder counts how often each object is encoded.
type encoder map[string]int

// encode returns an event as it is sent. The version comes twice, as in a table.
func (c encoder) encode(t *testing.T, e watch.Event) string {
	t.Helper()
	encode := func(o runtime.Object, w io.Writer) error {
		object := o.(*configMap)
		c[string(e.Type)+" "+object.Namespace+"/"+object.Name]++
		_, err := fmt.Fprintf(w, "%s %s/%s=%s@%s,%s", e.Type, object.Namespace, object.Name, object.value, object.ResourceVersion, object.ResourceVersion)
		object.value, object.ResourceVersion = "changed", "changed" // as encoding sets the type
		return err
	}
	shared, ok := e.Object.(runtime.CacheableObject)
	if !ok {
		var b bytes.Buffer
		if err := encode(e.Object.DeepCopyObject(), &b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	id := runtime.Identifier(e.Type)
	var b bytes.Buffer
	spliced := runtime.NewSpliceBuffer()
	for _, w := range []io.Writer{&b, spliced} {
		if err := shared.CacheEncode(id, encode, w); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(b.Bytes(), spliced.Bytes()) {
		t.Errorf("written as %q and as %q", b.Bytes(), spliced.Bytes())
	}
	return b.String()
}

func total(c encoder) (n int) {
	for _, more := range c {
		n += more
	}
	return n
}

func manyKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%c/%04d", 'a'+i%2, i)
	}
	return keys
}

// Watches that begin at the same time, with what there is, encode each object once for all of them,
// whatever they select; and nothing of that is kept afterwards.
func TestBeginning_SharesEncodings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := manyKeys(300)
		c := syncedCache(here, keys...)
		options := []WatchOptions[*configMap]{
			{}, {}, {}, {SendInitialEvents: new(true)},
			{Matches: func(o *configMap) bool { return o.Name < "0200" }},
		}
		var readers []*reader
		for _, o := range options {
			readers = append(readers, read(t, c, o))
		}
		synctest.Wait()
		late := read(t, c, WatchOptions[*configMap]{})
		put(c, 150, "a/0000", "new") // for those who begin later
		options, readers = append(options, WatchOptions[*configMap]{}, WatchOptions[*configMap]{}), append(readers, late, read(t, c, WatchOptions[*configMap]{}))
		encoded := encoder{}
		for i, r := range readers {
			events, open := r.next()
			got := map[string]string{}
			for _, e := range events {
				key := c.Key(unwrapped(e.Object))
				text := encoded.encode(t, e)
				if e.Type == watch.Added && got[key] != "" {
					t.Errorf("reader %d gets %s twice", i, key)
				}
				got[key] = text
			}
			want := map[string]string{}
			for _, key := range keys {
				if o := newObject(key, ""); options[i].Matches == nil || options[i].Matches(o) {
					want[key] = fmt.Sprintf("ADDED %s=0@%s,%[2]s", key, at(100, 0, here))
				}
			}
			want["a/0000"] = fmt.Sprintf("MODIFIED a/0000=new@%s,%[1]s", at(150, 1, here))
			if i == len(readers)-1 {
				want["a/0000"] = fmt.Sprintf("ADDED a/0000=new@%s,%[1]s", at(150, 1, here))
			}
			if diff := gocmp.Diff(want, got); diff != "" || !open {
				t.Errorf("reader %d: open %v, what it has got in the end (-want +got):\n%s", i, open, diff)
			}
		}
		// The first may have begun before there was another one.
		if n := total(encoded); n > len(keys)+chunkSize+3 {
			t.Errorf("%d objects for %d watches have been encoded %d times", len(keys), len(readers), n)
		}
		if b := &c.beginning; b.watches != 0 || b.groups != nil || b.open != nil || b.objects != 0 || b.bytes != 0 {
			t.Errorf("something is left: %d watches, %d groups, %d chunks of %d bytes", b.watches, len(b.groups), len(b.open), b.bytes)
		}
	})
}

// So do watches that come from another replica, of what has become of objects meanwhile, although
// each sends it in versions that follow from where its client was.
func TestBeginning_SharesEncodingsOfNews(t *testing.T) {
	for name, watermark := range map[string]uint64{"": 1_000_000, "at a low revision": 100} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keys := manyKeys(300)
				c := newTestCache(here)
				c.MaxEvents = 1000
				c.Replace(nil, nil, watermark, watermark)
				for i, key := range keys {
					put(c, watermark+10+uint64(i), key, "x")
				}
				drop(c, watermark+400, "a/0000")
				froms := []version{newVersion(watermark, 3, elsewhere), newVersion(watermark, 7, elsewhere), newVersion(watermark+1, 0, elsewhere), newVersion(watermark+9, 1, elsewhere)}
				var readers []*reader
				for _, v := range froms {
					readers = append(readers, read(t, c, WatchOptions[*configMap]{ResourceVersion: v.String()}))
				}
				encoded := encoder{}
				for i, r := range readers {
					events, _ := r.next()
					last := froms[i]
					got := map[string]bool{}
					for at, e := range events {
						o := unwrapped(e.Object)
						v, err := parseVersion(o.ResourceVersion)
						if err != nil || v <= last || at < len(events)-1 && v.watermark() != froms[i].watermark() || at == len(events)-1 && v.watermark() != c.latest.Load().version.watermark() {
							t.Fatalf("reader %d gets %s after %s, %v", i, show(o.ResourceVersion), show(last.String()), err)
						}
						last = v
						typ := watch.Added
						if o.Name == "0000" {
							typ = watch.Deleted
						}
						if want := fmt.Sprintf("%s %s=x@%s,%[3]s", typ, c.Key(o), v); want != encoded.encode(t, e) {
							t.Fatalf("reader %d gets %q, want %q", i, encoded.encode(t, e), want)
						}
						got[c.Key(o)] = true
						if shared, ok := e.Object.(interface{ GetResourceVersion() string }); ok && shared.GetResourceVersion() != v.String() {
							t.Errorf("the version of metadata is %s", shared.GetResourceVersion())
						}
						if copied := e.Object.DeepCopyObject().(*configMap); copied.ResourceVersion != v.String() || copied.value != "x" {
							t.Errorf("a copy of %s is %s", v, showObject(copied))
						}
					}
					if diff := gocmp.Diff(slices.Sorted(slices.Values(keys)), slices.Sorted(maps.Keys(got))); diff != "" || len(events) != len(keys) {
						t.Errorf("reader %d: %d events, of (-want +got):\n%s", i, len(events), diff)
					}
				}
				if n := total(encoded); watermark > 1000 && n > len(keys)+chunkSize+2*len(readers) {
					t.Errorf("%d objects for %d watches have been encoded %d times", len(keys), len(readers), n)
				}
			})
		})
	}
}

// However many objects there are, encodings of few are kept; and a client that is slower than others
// is sent all the same.
func TestBeginning_HasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := manyKeys(2000)
		c := newTestCache(here)
		size := func(_, _ *configMap) int { return shareBeginningBytes / 500 }
		c.Size, c.beginning.config.Size = size, size
		objects := make([]*configMap, len(keys))
		for i, key := range keys {
			objects[i] = newObject(key, "0")
		}
		c.Replace(objects, nil, 100, 100)
		slow, quick := read(t, c, WatchOptions[*configMap]{}), read(t, c, WatchOptions[*configMap]{})
		open := func() (chunks, bytes int) {
			c.beginning.mu.Lock()
			defer c.beginning.mu.Unlock()
			return len(c.beginning.open), c.beginning.bytes
		}
		take := func(r *reader, n int, names map[string]bool) {
			for range n {
				synctest.Wait()
				names[c.Key(unwrapped((<-r.ResultChan()).Object))] = true
				if chunks, bytes := open(); bytes > shareBeginningBytes || chunks > 500/chunkSize+1 {
					t.Fatalf("%d chunks of %d bytes are open", chunks, bytes)
				}
			}
		}
		quickly, slowly := map[string]bool{}, map[string]bool{}
		take(slow, 100, slowly)
		take(quick, 1500, quickly)
		synctest.Wait()
		if _, bytes := open(); bytes < shareBeginningBytes/2 {
			t.Fatalf("%d bytes are kept: this test is of more", bytes)
		}
		take(slow, 1900, slowly)
		take(quick, 500, quickly)
		if len(quickly) != len(keys) || len(slowly) != len(keys) {
			t.Errorf("%d and %d objects of %d have come", len(quickly), len(slowly), len(keys))
		}
		for _, r := range []*reader{slow, quick} {
			r.expect("and not again")
		}
		synctest.Wait()
		if c.beginning.watches != 0 || c.beginning.bytes != 0 {
			t.Errorf("%d watches begin, and %d bytes are kept", c.beginning.watches, c.beginning.bytes)
		}
	})
}
