// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
)

// Many watches send the same event, and it is encoded once for each format, also when all
// of them began at another replica.
func TestAnEventIsEncodedOnce(t *testing.T) {
	t.Run("from a version of this replica", func(t *testing.T) { testEncodedOnce(t, at(100, 0, here), "") })
	t.Run("from a version of another", func(t *testing.T) { testEncodedOnce(t, at(100, 0, elsewhere), "*") })
}

// testEncodedOnce watches from a version. What is sent has versions with a mark.
func testEncodedOnce(t *testing.T, version, mark string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1", "a/2")
		from := WatchOptions[*configMap]{ResourceVersion: version}
		readers := []*reader{read(t, c, from), read(t, c, from), read(t, c, WatchOptions[*configMap]{Namespace: "a", ResourceVersion: version})}
		put(c, 110, "a/1", "x")
		put(c, 120, "a/3", "y")
		drop(c, 130, "a/2")
		encoded := map[string]int{}
		var want []string
		for i, r := range readers {
			events, _ := r.next()
			var got []string
			for _, e := range events {
				shared, ok := e.Object.(runtime.CacheableObject)
				if !ok {
					t.Fatalf("reader %d gets a %T", i, e.Object)
				}
				for _, format := range []string{"json", "yaml"} {
					encode := func(o runtime.Object, w io.Writer) error {
						text := fmt.Sprintf("%s %s %s", format, e.Type, showObject(o.(*configMap)))
						encoded[text]++
						o.(*configMap).value = "changed" // as encoding sets the type
						_, err := io.WriteString(w, text)
						return err
					}
					var plainly bytes.Buffer
					splice := runtime.NewSpliceBuffer()
					if err := errors.Join(shared.CacheEncode(runtime.Identifier(format), encode, &plainly), shared.CacheEncode(runtime.Identifier(format), encode, splice)); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(plainly.Bytes(), splice.Bytes()) {
						t.Errorf("written as %q and as %q", plainly.Bytes(), splice.Bytes())
					}
					got = append(got, plainly.String())
				}
			}
			if i == 0 {
				want = got
			}
			if diff := gocmp.Diff(want, got); diff != "" || len(got) != 6 {
				t.Errorf("reader %d (-the first +it):\n%s", i, diff)
			}
		}
		if diff := gocmp.Diff(map[string]int{
			"json MODIFIED a/1=x@110.1" + mark: 1, "yaml MODIFIED a/1=x@110.1" + mark: 1,
			"json ADDED a/3=y@120.1" + mark: 1, "yaml ADDED a/3=y@120.1" + mark: 1,
			"json DELETED a/2=0@130.1" + mark: 1, "yaml DELETED a/2=0@130.1" + mark: 1,
		}, encoded); diff != "" {
			t.Errorf("how often what was encoded (-want +got):\n%s", diff)
		}
	})
}

// An error of an encoder is told to all who use its result, and not to others.
func TestAnEventThatCannotBeEncoded(t *testing.T) {
	c := syncedCache(here)
	e := event[*configMap]{object: newObject("a/1", "x"), version: newVersion(110, 1, here)}
	shared := c.encodeOnce(&e)
	broken := errors.New("broken")
	for range 2 {
		if err := shared.CacheEncode("x", func(runtime.Object, io.Writer) error { return broken }, io.Discard); !errors.Is(err, broken) {
			t.Errorf("error %v", err)
		}
	}
	var out bytes.Buffer
	fine := func(_ runtime.Object, w io.Writer) error { _, err := io.WriteString(w, "fine"); return err }
	if err := shared.CacheEncode("y", fine, &out); err != nil || out.String() != "fine" {
		t.Errorf("another format: %q, %v", out.String(), err)
	}
	// Who looks at the metadata of an event finds it.
	if shared.GetName() != "1" || shared.GetObjectKind() == nil {
		t.Errorf("metadata %v", shared.Object)
	}
	if o, ok := shared.DeepCopyObject().(*configMap); !ok || o.value != "x" {
		t.Errorf("a copy %+v", o)
	}
}

// The encodings of older events are let go. Who is that far behind gets them all the same,
// and what it does with one is not seen by the next.
func TestAnEventThatIsNoLongerEncodedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1")
		put(c, 101, "a/1", "old")
		drop(c, 102, "a/1")
		for i := range uint64(shareEncoded) {
			put(c, 103+i, "b/1", fmt.Sprint(i))
		}
		for range 2 {
			r := read(t, c, WatchOptions[*configMap]{Namespace: "a", ResourceVersion: at(100, 0, here)})
			events, _ := r.next()
			if diff := gocmp.Diff([]string{"MODIFIED a/1=old@101.1", "DELETED a/1=old@102.1"}, showEvents(events)); diff != "" {
				t.Fatalf("events (-want +got):\n%s", diff)
			}
			for _, e := range events {
				o, ok := e.Object.(*configMap)
				if !ok {
					t.Fatalf("a %T: this test is of events that are encoded for each watch", e.Object)
				}
				o.value, o.ResourceVersion = "changed", "changed"
			}
		}
		b, _ := read(t, c, WatchOptions[*configMap]{Namespace: "b", ResourceVersion: at(100, 0, here)}).next()
		if _, ok := b[len(b)-1].Object.(runtime.CacheableObject); !ok || len(b) != shareEncoded {
			t.Errorf("%d events, the last of them a %T", len(b), b[len(b)-1].Object)
		}
	})
}
