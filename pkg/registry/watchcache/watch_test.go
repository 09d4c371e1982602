package watchcache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Where a watch begins, for clients that have seen the present state here, an older one,
// or one of another replica. The cache was filled at 100; a/1 was changed at 110 and 120,
// and b/1 created at 130, of which the last two are beyond the watermark 115.
func TestWhereAWatchBegins(t *testing.T) {
	const initial, second, third = "ADDED a/1=2@115.1", "MODIFIED a/1=2@115.1", "ADDED b/1=3@115.2"
	tests := map[string]struct {
		options WatchOptions[*configMap]
		want    []string
	}{
		"without a version, with what is there":       {WatchOptions[*configMap]{}, []string{initial, third}},
		"from any version, with what is there":        {WatchOptions[*configMap]{ResourceVersion: "0"}, []string{initial, third}},
		"what is there in a namespace":                {WatchOptions[*configMap]{Namespace: "b"}, []string{third}},
		"without what is there":                       {WatchOptions[*configMap]{SendInitialEvents: new(false)}, nil},
		"with what is there, from a version":          {WatchOptions[*configMap]{SendInitialEvents: new(true), ResourceVersion: at(100, 0, here)}, []string{initial, third}},
		"with what is there, from elsewhere":          {WatchOptions[*configMap]{SendInitialEvents: new(true), ResourceVersion: at(115, 9, elsewhere)}, []string{initial, third}},
		"after the present version":                   {WatchOptions[*configMap]{ResourceVersion: at(115, 2, here)}, nil},
		"after an older one":                          {WatchOptions[*configMap]{ResourceVersion: at(115, 1, here)}, []string{third}},
		"after a watermark of here":                   {WatchOptions[*configMap]{ResourceVersion: at(115, 0, here)}, []string{second, third}},
		"after the first":                             {WatchOptions[*configMap]{ResourceVersion: at(100, 0, here)}, []string{"MODIFIED a/1=1@110.1", second, third}},
		"after a watermark of elsewhere":              {WatchOptions[*configMap]{ResourceVersion: at(115, 0, elsewhere)}, []string{"MODIFIED a/1=2@115*", "ADDED b/1=3@115.2*"}},
		"after a watermark of nobody":                 {WatchOptions[*configMap]{ResourceVersion: at(112, 0, nobody)}, []string{"MODIFIED a/1=2@112*", "ADDED b/1=3@115.2*"}},
		"after a part of what comes here":             {WatchOptions[*configMap]{ResourceVersion: at(115, 7, elsewhere)}, []string{"MODIFIED a/1=2@115.7*", "ADDED b/1=3@115.7*"}},
		"after what has yet to come":                  {WatchOptions[*configMap]{ResourceVersion: at(125, 0, elsewhere)}, []string{"ADDED b/1=3@125~"}},
		"after a version before the sync":             {WatchOptions[*configMap]{ResourceVersion: at(99, 0, here)}, []string{"ERROR 410"}},
		"after a version before the sync, elsewhere":  {WatchOptions[*configMap]{ResourceVersion: at(99, 0, elsewhere)}, []string{"ERROR 410"}},
		"after a number that is no version":           {WatchOptions[*configMap]{ResourceVersion: "1"}, []string{"ERROR 410"}},
		"after one of a neighbour with the same tag":  {WatchOptions[*configMap]{ResourceVersion: at(112, 3, here)}, []string{"MODIFIED a/1=2@112.3*", "ADDED b/1=3@115.2*"}},
		"in a namespace":                              {WatchOptions[*configMap]{Namespace: "a", ResourceVersion: at(100, 0, here)}, []string{"MODIFIED a/1=1@110.1", second}},
		"in a namespace whose name begins another's":  {WatchOptions[*configMap]{Namespace: "a-b", ResourceVersion: at(100, 0, here)}, nil},
		"of what matches, which it does for a moment": {WatchOptions[*configMap]{ResourceVersion: at(100, 0, here), Matches: valueIs("1")}, []string{"ADDED a/1=1@110.1", "DELETED a/1=1@115.1"}},
		"of what matches no more, from elsewhere":     {WatchOptions[*configMap]{ResourceVersion: at(110, 0, elsewhere), Matches: valueIs("1")}, []string{"DELETED a/1=1@110*", "DELETED b/1=3@115.2*"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := syncedCache(here, "a/1")
				put(c, 110, "a/1", "1")
				c.Progress(115)
				late(c, 115, 120, "a/1", "2")
				late(c, 115, 130, "b/1", "3")
				r := read(t, c, tt.options)
				if slices.Contains(tt.want, "ERROR 410") {
					r.expectEnd("at first", tt.want...)
					return
				}
				events, open := r.next()
				got := showEvents(events)
				if tt.options.ResourceVersion == "" || tt.options.ResourceVersion == "0" || tt.options.SendInitialEvents != nil {
					// What is there comes with its own versions, in any order.
					slices.Sort(got)
				}
				if diff := gocmp.Diff(tt.want, got); diff != "" || !open {
					t.Errorf("open %v, events (-want +got):\n%s", open, diff)
				}
			})
		})
	}
}

func valueIs(v string) func(*configMap) bool {
	return func(o *configMap) bool { return o.value == v }
}

// What an object is to a client depends on whether it has matched before.
func TestWhatAnEventIsToWhoSelects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1")
		r := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(100, 0, here), Matches: func(o *configMap) bool { return strings.Contains(o.value, "x") }})
		put(c, 101, "a/1", "y")
		r.expect("it did not match and does not")
		put(c, 102, "a/1", "x1")
		r.expect("it begins to match", "ADDED a/1=x1@102.1")
		put(c, 103, "a/1", "x2")
		r.expect("it goes on to", "MODIFIED a/1=x2@103.1")
		put(c, 104, "a/1", "x2")
		r.expect("nothing in it has changed, but a neighbour may have shown something else", "MODIFIED a/1=x2@104.1")
		put(c, 105, "a/1", "y")
		r.expect("it ceases to: the object as it was, in the version of the change", "DELETED a/1=x2@105.1")
		drop(c, 106, "a/1")
		r.expect("it goes without having matched")
		put(c, 107, "a/1", "x3")
		r.expect("it comes back", "ADDED a/1=x3@107.1")
		drop(c, 108, "a/1")
		r.expect("it goes: the object as it was, in the version of the deletion", "DELETED a/1=x3@108.1")
		drop(c, 109, "a/1")
		r.expect("it goes though it is not there")
	})
}

// What time alone has caused is told to everybody, whatever they have seen elsewhere.
func TestWhatTimeAloneHasCausedIsAlwaysSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1")
		own := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(100, 0, here)})
		foreign := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(150, 0, elsewhere)})
		put(c, 110, "a/1", "1")
		c.Apply(110, []Change[*configMap]{{Key: "a/1", Object: newObject("a/1", "late"), Cause: Always}})
		own.expect("one that began here", "MODIFIED a/1=1@110.1", "MODIFIED a/1=late@110.2")
		foreign.expect("one that is ahead", "MODIFIED a/1=late@150~")
		put(c, 120, "a/1", "2")
		foreign.expect("what was told may have been old in another respect, so all that follows is", "MODIFIED a/1=2@150~")
	})
}

// It has no revision to tell whether a client has seen it. So it is remembered for as long as
// nothing else happens to the object, and a client from elsewhere is shown that.
func TestWhatTimeAloneHasCausedIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1", "a/2")
		c.MinEvents, c.MaxEvents = 1, 4
		c.Progress(150)
		for _, key := range []string{"a/1", "a/2"} {
			c.Apply(150, []Change[*configMap]{{Key: key, Object: newObject(key, "late"), Cause: Always}})
		}
		put(c, 151, "a/2", "x")
		for i := range uint64(8) {
			put(c, 152+i, "b/1", "x")
		}
		if _, events, _ := c.Stats(); events > 8 {
			t.Fatalf("%d events are kept", events)
		}
		read(t, c, WatchOptions[*configMap]{Namespace: "a", ResourceVersion: at(159, 0, elsewhere)}).expect("when it has been dropped", "MODIFIED a/1=late@159.1*")
		put(c, 160, "a/1", "y")
		read(t, c, WatchOptions[*configMap]{Namespace: "a", ResourceVersion: at(160, 0, elsewhere)}).expect("when something has happened to it")
	})
}

// A client that does not read loses its watch when what it has not read is forgotten, and
// nobody else does. When it comes back with the last version that it has got, it is sent
// everything that it missed, or told to list again.
func TestASlowReaderLosesOnlyItsOwnWatch(t *testing.T) {
	for _, kept := range []int{8, 64, 300} {
		t.Run(fmt.Sprintf("with %d events kept", kept), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := syncedCache(here, "a/1")
				c.MinEvents, c.MaxEvents = 1, kept
				from := WatchOptions[*configMap]{ResourceVersion: at(100, 0, here)}
				slow, quick := read(t, c, from), read(t, c, from)
				var all []string
				apply := func(n int) {
					t.Helper()
					for range n {
						revision := uint64(101 + len(all))
						put(c, revision, "a/1", fmt.Sprint(revision))
						all = append(all, fmt.Sprintf("MODIFIED a/1=%d@%d.1", revision, revision))
						quick.expect("who reads", all[len(all)-1])
					}
				}
				apply(1000)
				events, open := slow.next()
				got := showEvents(events)
				if open || len(got) == 0 || !slices.Equal(got, all[:len(got)]) {
					t.Fatalf("who does not read: open %v, %v", open, got)
				}
				last := unwrapped(events[len(events)-1].Object).ResourceVersion
				again := read(t, c, WatchOptions[*configMap]{ResourceVersion: last})
				if missed := all[len(got):]; len(missed) <= kept {
					again.expect("everything that was missed", missed...)
				} else {
					again.expectEnd("too much to be remembered", "ERROR 410")
				}
				apply(10)
			})
		})
	}
}

// The same for any pace, with a client that does as reflectors do: what it holds in the end
// is right, and it lists again only when it is told to.
func TestAClientOfAnyPaceConverges(t *testing.T) {
	for range 200 {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			c := syncedCache(here, "a/1", "a/2", "a/3")
			c.MinEvents, c.MaxEvents = 1, 8+random.IntN(60)
			l := list(t, c, ListOptions[*configMap]{})
			held := map[string]string{}
			keep := func(l *List[*configMap]) string {
				clear(held)
				for _, o := range l.Items {
					held[o.Name] = o.value
				}
				return l.ResourceVersion
			}
			version := keep(l)
			r := read(t, c, WatchOptions[*configMap]{ResourceVersion: version})
			take := func(most int) {
				for range most {
					synctest.Wait()
					select {
					case e, open := <-r.ResultChan():
						switch {
						case !open:
							r = read(t, c, WatchOptions[*configMap]{ResourceVersion: version})
						case e.Type == watch.Error:
							if err := apierrors.FromObject(e.Object); !apierrors.IsResourceExpired(err) {
								t.Fatalf("seed %d: %v", seed, err)
							}
							version = keep(list(t, c, ListOptions[*configMap]{}))
							r = read(t, c, WatchOptions[*configMap]{ResourceVersion: version})
						case e.Type == watch.Deleted:
							delete(held, unwrapped(e.Object).Name)
							version = unwrapped(e.Object).ResourceVersion
						default:
							held[unwrapped(e.Object).Name] = unwrapped(e.Object).value
							version = unwrapped(e.Object).ResourceVersion
						}
					default:
						return
					}
				}
			}
			for revision := uint64(101); revision < 300; revision++ {
				key := []string{"a/1", "a/2", "a/3"}[random.IntN(3)]
				if random.IntN(3) == 0 {
					drop(c, revision, key)
				} else {
					put(c, revision, key, fmt.Sprint(revision))
				}
				if random.IntN(20) == 0 {
					take(random.IntN(40))
				}
			}
			take(10_000)
			want := map[string]string{}
			for _, o := range list(t, c, ListOptions[*configMap]{}).Items {
				want[o.Name] = o.value
			}
			if diff := gocmp.Diff(want, held); diff != "" {
				t.Fatalf("seed %d: what the client holds (-want +got):\n%s", seed, diff)
			}
		})
	}
}

// A watch that nothing concerns is not a slow one, however much happens elsewhere.
func TestAWatchOfAQuietNamespaceSurvivesWhatHappensElsewhere(t *testing.T) {
	for name, options := range map[string]WatchOptions[*configMap]{
		"of a namespace":       {Namespace: "quiet"},
		"of a name":            {Namespace: "quiet", Name: "1"},
		"of a selector":        {Matches: func(o *configMap) bool { return o.Namespace == "quiet" }},
		"that began elsewhere": {Namespace: "quiet", ResourceVersion: at(100, 0, elsewhere)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := syncedCache(here, "busy/1")
				c.MinEvents, c.MaxEvents = 2*catchUp, 2*catchUp
				if options.ResourceVersion == "" {
					options.ResourceVersion = at(100, 0, here)
				}
				options.AllowBookmarks = true
				r := read(t, c, options)
				revision := uint64(100)
				for range 20 {
					for range catchUp {
						revision++
						put(c, revision, "busy/1", "x")
					}
					synctest.Wait() // in the time of so many events it has its turn
				}
				if _, events, _ := c.Stats(); events != c.MaxEvents {
					t.Fatalf("%d events are kept: this test is of more than that", events)
				}
				r.expect("nothing has happened")
				pass(bookmarkPeriod)
				events, _ := r.next()
				if len(events) != 1 || events[0].Type != watch.Bookmark {
					t.Fatalf("after a minute: %v", showEvents(events))
				}
				if v, err := parseVersion(unwrapped(events[0].Object).ResourceVersion); err != nil || v.watermark() != revision {
					t.Errorf("a bookmark %s at revision %d", show(v.String()), revision)
				}
				put(c, revision+1, "quiet/1", "y")
				if events, open := r.next(); !open || len(events) != 1 || events[0].Type != watch.Added {
					t.Errorf("something happens: %v, open %v", showEvents(events), open)
				}
			})
		})
	}
}

// A watch by name is told of its object alone, and does not even wake for others.
func TestAWatchOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1", "a/10", "a-b/1", "b/1")
		r := read(t, c, WatchOptions[*configMap]{Namespace: "a", Name: "1"})
		r.expect("at first", "ADDED a/1=0@100")
		waits := func() <-chan struct{} {
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.wake["a/1"]
		}
		before := waits()
		if before == nil {
			t.Fatal("the watch does not wait for its object")
		}
		for i, key := range []string{"a/10", "a/0", "b/1", "a-b/1"} {
			put(c, 101+uint64(i), key, "x")
		}
		drop(c, 110, "a/10")
		c.Progress(120)
		if waits() != before {
			t.Error("the watch has woken for other objects")
		}
		r.expect("others")
		put(c, 121, "a/1", "x")
		r.expect("its own", "MODIFIED a/1=x@121.1")
		if waits() == before {
			t.Error("the watch has not woken for its object")
		}
		drop(c, 122, "a/1")
		r.expect("its own", "DELETED a/1=x@122.1")
		read(t, c, WatchOptions[*configMap]{Namespace: "a", Name: "1"}).expect("it has gone")
	})
}

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
						o.(*configMap).value = "spoilt" // as encoding sets the type
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
				o.value, o.ResourceVersion = "spoilt", "spoilt"
			}
		}
		b, _ := read(t, c, WatchOptions[*configMap]{Namespace: "b", ResourceVersion: at(100, 0, here)}).next()
		if _, ok := b[len(b)-1].Object.(runtime.CacheableObject); !ok || len(b) != shareEncoded {
			t.Errorf("%d events, the last of them a %T", len(b), b[len(b)-1].Object)
		}
	})
}

// While versions of other replicas mean nothing, they are expired, and clients list again.
// Those of this replica are exact as ever.
func TestAloneVersionsOfOthersAreExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1")
		own := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(100, 0, here)})
		initial := read(t, c, WatchOptions[*configMap]{})
		initial.expect("at first", "ADDED a/1=0@100")
		foreign := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(105, 0, elsewhere)})
		shared := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(100, 0, nobody)})
		foreign.expect("at first")
		shared.expect("at first")
		c.SetAlone(true)
		foreign.expectEnd("one that began elsewhere")
		shared.expectEnd("one that began with pages")
		own.expect("one that began here")
		late(c, 100, 110, "a/1", "x")
		own.expect("it goes on", "MODIFIED a/1=x@100.1")
		initial.expect("it goes on", "MODIFIED a/1=x@100.1")

		for _, version := range []string{at(100, 0, elsewhere), at(105, 0, elsewhere), at(100, 0, nobody), at(100, 9, here)} {
			read(t, c, WatchOptions[*configMap]{ResourceVersion: version}).expectEnd("a watch from "+show(version), "ERROR 410")
			read(t, c, WatchOptions[*configMap]{ResourceVersion: version, SendInitialEvents: new(true)}).expectEnd("all since "+show(version), "ERROR 410")
			if o, _, err := c.Get(t.Context(), "a/1", version); !apierrors.IsResourceExpired(err) {
				t.Errorf("get from %s: %v, %v", show(version), o, err)
			}
			if l, err := c.List(t.Context(), ListOptions[*configMap]{ResourceVersion: version}); !apierrors.IsResourceExpired(err) {
				t.Errorf("list from %s: %v, %v", show(version), l, err)
			}
			if l, err := c.List(t.Context(), ListOptions[*configMap]{Continue: tokenOf(t, version, "a/0")}); !apierrors.IsResourceExpired(err) {
				t.Errorf("page of %s: %v, %v", show(version), l, err)
			}
		}
		for version, want := range map[string]string{"": "x", "0": "x", at(100, 0, here): "0", at(100, 1, here): "x"} {
			if o, _, err := c.Get(t.Context(), "a/1", version); err != nil || o.value != "x" {
				t.Errorf("get from %s: %v, %v", show(version), o, err)
			}
			for name, o := range map[string]ListOptions[*configMap]{
				"exactly": {ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact},
				"page of": {Continue: tokenOf(t, version, "a/0")},
			} {
				if version == "" || version == "0" {
					continue // these are the present state, whatever it is
				}
				if l, err := c.List(t.Context(), o); err != nil || l.Items[0].value != want {
					t.Errorf("%s %s: %v, %v", name, show(version), l, err)
				}
			}
		}
		read(t, c, WatchOptions[*configMap]{ResourceVersion: at(100, 0, here)}).expect("a watch from here", "MODIFIED a/1=x@100.1")

		c.SetAlone(false)
		own.expect("they mean something again")
		read(t, c, WatchOptions[*configMap]{ResourceVersion: at(105, 0, elsewhere)}).expect("a watch from elsewhere", "MODIFIED a/1=x@105~")
	})
}

// A stream that was lost and listed anew may have left out what a neighbour has shown, so
// that watches which began there end. Those of this replica know what it has shown.
func TestAGapEndsWatchesThatBeganElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1")
		own := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(100, 0, here)})
		foreign := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(105, 0, elsewhere)})
		ahead := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(120, 0, elsewhere)})
		c.Gap(120)
		c.Apply(110, []Change[*configMap]{{Key: "a/1", Object: newObject("a/1", "x"), Cause: 120}})
		foreign.expectEnd("one that may have seen what is missing")
		own.expect("one that began here", "MODIFIED a/1=x@110.1")
		ahead.expect("one that has seen it all")
		read(t, c, WatchOptions[*configMap]{ResourceVersion: at(119, 0, elsewhere)}).expectEnd("a version before the gap", "ERROR 410")
		read(t, c, WatchOptions[*configMap]{ResourceVersion: at(120, 0, elsewhere)}).expect("a version after the gap")
		put(c, 130, "a/1", "y")
		own.expect("one that began here", "MODIFIED a/1=y@130.1")
		ahead.expect("one that has seen it all", "MODIFIED a/1=y@130.1*")
	})
}

// A client that has seen the deletion of an object on one replica goes on at another that
// is behind, and there the object is still shown as changed. Should it go back before the
// deletion has come there too, nobody would tell it again; so it has to list.
func TestWhoWasShownAnOlderStateCannotGoOnElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead, behind := syncedCache(here, "a/1", "a/2"), syncedCache(elsewhere, "a/1", "a/2")
		drop(ahead, 120, "a/1")
		version := list(t, ahead, ListOptions[*configMap]{}).ResourceVersion

		late(behind, 100, 130, "a/1", "x") // a stream is ahead of that with the deletion
		r := read(t, behind, WatchOptions[*configMap]{ResourceVersion: version})
		events, open := r.next()
		if !open || len(events) != 1 || unwrapped(events[0].Object).value != "x" {
			t.Fatalf("open %v, %v", open, showEvents(events))
		}
		shown := unwrapped(events[0].Object).ResourceVersion
		if before(shown, version) {
			t.Errorf("version %s after %s", show(shown), show(version))
		}
		for _, c := range []*Cache[*configMap]{ahead, behind} {
			read(t, c, WatchOptions[*configMap]{ResourceVersion: shown}).expectEnd("from what it was shown", "ERROR 410")
		}

		c := behind
		c.Apply(120, []Change[*configMap]{{Key: "a/1", Cause: 130}})
		put(c, 131, "a/2", "y")
		events, open = r.next()
		if !open || len(events) != 2 || events[0].Type != watch.Deleted {
			t.Fatalf("open %v, %v", open, showEvents(events))
		}
		// Now it has seen everything up to a version again.
		caughtUp := unwrapped(events[1].Object).ResourceVersion
		put(ahead, 140, "a/2", "z")
		read(t, ahead, WatchOptions[*configMap]{ResourceVersion: caughtUp}).expect("when it has caught up", "MODIFIED a/2=z@140.1*")
	})
}

// As soon as such a client has seen everything again, a bookmark gives it a version with
// which it can go on, though nothing else happens.
func TestWhoHasCaughtUpIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1")
		r := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(120, 0, elsewhere), AllowBookmarks: true})
		late(c, 100, 130, "a/1", "x")
		r.expect("while it lags behind", "MODIFIED a/1=x@120~")
		c.Progress(119)
		r.expect("when it still does")
		c.Progress(120)
		r.expect("when it has caught up", "BOOKMARK 120.1*")
		c.Progress(125)
		r.expect("and not again")
	})
}

// When everything is read anew, nothing is known of what was before.
func TestReplaceAndResetEndAllWatches(t *testing.T) {
	for name, again := range map[string]func(*Cache[*configMap]){
		"reset":   func(c *Cache[*configMap]) { c.Reset() },
		"replace": func(c *Cache[*configMap]) { c.Replace([]*configMap{newObject("a/1", "0")}, 200, 200) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, version := range []string{"", at(100, 0, here), at(105, 0, elsewhere)} {
					c := syncedCache(here, "a/1")
					r := read(t, c, WatchOptions[*configMap]{ResourceVersion: version})
					r.next()
					again(c)
					r.expectEnd("from " + show(version))
					if version == "" {
						continue
					}
					if name == "reset" {
						if w, err := c.Watch(t.Context(), WatchOptions[*configMap]{ResourceVersion: version}); !apierrors.IsServiceUnavailable(err) {
							t.Errorf("until it has synced: %v, %v", w, err)
						}
						continue
					}
					read(t, c, WatchOptions[*configMap]{ResourceVersion: version}).expectEnd("again from "+show(version), "ERROR 410")
				}
			})
		})
	}
}

// whatComes reads a watch for a time and tells when what came, in seconds since the start.
func whatComes(r *reader, d time.Duration) (out []string) {
	start := time.Now()
	over := time.NewTimer(d)
	defer over.Stop()
	for {
		select {
		case e, open := <-r.ResultChan():
			if !open {
				return append(out, fmt.Sprintf("%s: end", time.Since(start)))
			}
			out = append(out, fmt.Sprintf("%s: %s", time.Since(start), showEvents([]watch.Event{e})[0]))
		case <-over.C:
			return out
		}
	}
}

// Clients that allow it are told about every minute from where they can go on, so that
// they need not list again after a quiet hour.
func TestBookmarksEveryMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1", "b/1")
		with := read(t, c, WatchOptions[*configMap]{Namespace: "a", ResourceVersion: at(100, 0, here), AllowBookmarks: true})
		foreign := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(100, 0, elsewhere), AllowBookmarks: true})
		without := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(100, 0, here)})
		var others []watch.Event
		last := time.Now()
		for i := range uint64(60) {
			revision := 200 + i
			put(c, revision, "b/1", "x")
			if i == 30 {
				late(c, revision, 500, "b/1", "ahead")
			}
			e := <-with.ResultChan()
			want := fmt.Sprintf("BOOKMARK %d.1", revision)
			if i == 30 {
				want = fmt.Sprintf("BOOKMARK %d.2", revision)
			}
			if got := showEvents([]watch.Event{e}); !slices.Equal(got, []string{want}) {
				t.Fatalf("got %v, want %s", got, want)
			}
			if after := time.Since(last); after < 54*time.Second || after > time.Minute {
				t.Errorf("a bookmark after %s", after)
			}
			last = time.Now()
			events, _ := foreign.next()
			others = append(others, events...)
			again := read(t, c, WatchOptions[*configMap]{Namespace: "a", ResourceVersion: unwrapped(e.Object).ResourceVersion})
			again.expect("from a bookmark")
			again.Stop()
		}
		if events, open := without.next(); !open || len(events) != 61 || slices.ContainsFunc(events, func(e watch.Event) bool { return e.Type == watch.Bookmark }) {
			t.Errorf("who does not allow bookmarks: open %v, %v", open, showEvents(events))
		}
		others = slices.DeleteFunc(others, func(e watch.Event) bool { return e.Type != watch.Bookmark })
		if len(others) < 55 {
			t.Errorf("who began elsewhere: %d bookmarks", len(others))
		}
		for _, e := range others {
			if v, err := parseVersion(unwrapped(e.Object).ResourceVersion); err != nil || v.tag() != nobody {
				t.Errorf("who began elsewhere: version %s", show(v.String()))
			}
		}
	})
}

// A bookmark promises that nothing up to it has yet to come.
func TestABookmarkDoesNotOvertakeEvents(t *testing.T) {
	for range 200 {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			c := syncedCache(here, "a/1", "b/1")
			r := read(t, c, WatchOptions[*configMap]{Namespace: "a", ResourceVersion: at(100, 0, here), AllowBookmarks: true})
			var last version
			take := func() {
				for synctest.Wait(); ; synctest.Wait() {
					select {
					case e := <-r.ResultChan():
						v, err := parseVersion(unwrapped(e.Object).ResourceVersion)
						if err != nil || v < last || v == last && e.Type != watch.Bookmark {
							t.Fatalf("seed %d: %v after %s, %v", seed, showEvents([]watch.Event{e}), show(last.String()), err)
						}
						last = v
					default:
						return
					}
				}
			}
			for revision := uint64(101); revision < 160; revision++ {
				put(c, revision, []string{"a/1", "b/1"}[random.IntN(2)], "x")
				if random.IntN(3) == 0 {
					c.Progress(revision)
				}
				pass(time.Duration(random.IntN(20)) * time.Second)
				if random.IntN(4) == 0 {
					take()
				}
			}
			take()
		})
	}
}

// Nor when an event comes in the very moment of the bookmark.
func TestABookmarkInTheMomentOfAnEvent(t *testing.T) {
	for range 500 {
		synctest.Test(t, func(t *testing.T) {
			c := syncedCache(here, "a/1")
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			r := readFor(ctx, t, c, WatchOptions[*configMap]{ResourceVersion: at(100, 0, here), AllowBookmarks: true})
			synctest.Wait()
			// The time is that of the bubble, so that nobody waits. Unlike pass, it does not let
			// the watch have its turn: the timer of the bookmark and the event race.
			time.Sleep(28 * time.Second) //nolint:forbidigo // see above
			put(c, 110, "a/1", "x")
			events, _ := r.next()
			got := showEvents(events)
			if !slices.Equal(got, []string{"MODIFIED a/1=x@110.1", "BOOKMARK 110.1"}) && !slices.Equal(got, []string{"BOOKMARK 100", "MODIFIED a/1=x@110.1"}) {
				t.Fatalf("what came: %v", got)
			}
		})
	}
}

// Shortly before a watch ends, the client is told from where to go on.
func TestABookmarkBeforeTheDeadline(t *testing.T) {
	tests := map[string]struct {
		timeout time.Duration
		options WatchOptions[*configMap]
		want    []string
	}{
		"of a watch of half a minute":      {30 * time.Second, WatchOptions[*configMap]{AllowBookmarks: true}, []string{"28s: BOOKMARK 150", "30s: end"}},
		"that nobody has asked for":        {30 * time.Second, WatchOptions[*configMap]{}, []string{"30s: end"}},
		"of a watch that is too short":     {2 * time.Second, WatchOptions[*configMap]{AllowBookmarks: true}, []string{"2s: end"}},
		"that began elsewhere":             {30 * time.Second, WatchOptions[*configMap]{AllowBookmarks: true, ResourceVersion: at(160, 2, elsewhere)}, []string{"28s: BOOKMARK 160.2*", "30s: end"}},
		"of a namespace without any event": {30 * time.Second, WatchOptions[*configMap]{AllowBookmarks: true, Namespace: "b"}, []string{"28s: BOOKMARK 150", "30s: end"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := syncedCache(here, "a/1")
				ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
				defer cancel()
				if tt.options.ResourceVersion == "" {
					tt.options.ResourceVersion = at(100, 0, here)
				}
				r := readFor(ctx, t, c, tt.options)
				synctest.Wait()
				c.Progress(150)
				if diff := gocmp.Diff(tt.want, whatComes(r, time.Hour)); diff != "" {
					t.Errorf("what came (-want +got):\n%s", diff)
				}
			})
		})
	}
	t.Run("of a long watch", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			got := whatComes(readFor(ctx, t, syncedCache(here), WatchOptions[*configMap]{AllowBookmarks: true}), time.Hour)
			if n := len(got); n < 6 || n > 7 || !slices.Equal(got[n-2:], []string{"4m58s: BOOKMARK 100", "5m0s: end"}) {
				t.Errorf("what came: %v", got)
			}
		})
	})
}

// The end of the initial events is told with an annotation, but only to clients that have
// asked for initial events, and allow bookmarks.
func TestTheEndOfInitialEvents(t *testing.T) {
	const end = " map[k8s.io/initial-events-end:true]"
	tests := map[string]struct {
		options WatchOptions[*configMap]
		want    []string
	}{
		"asked for":                          {WatchOptions[*configMap]{SendInitialEvents: new(true), AllowBookmarks: true}, []string{"0s: ADDED a/1=0@100", "0s: BOOKMARK 100" + end}},
		"asked for where nothing is":         {WatchOptions[*configMap]{SendInitialEvents: new(true), AllowBookmarks: true, Namespace: "b"}, []string{"0s: BOOKMARK 100" + end}},
		"asked for, from a version":          {WatchOptions[*configMap]{SendInitialEvents: new(true), AllowBookmarks: true, ResourceVersion: at(50, 0, elsewhere)}, []string{"0s: ADDED a/1=0@100", "0s: BOOKMARK 100" + end}},
		"asked for, from one of a neighbour": {WatchOptions[*configMap]{SendInitialEvents: new(true), AllowBookmarks: true, ResourceVersion: at(100, 9, elsewhere)}, []string{"0s: ADDED a/1=0@100", "0s: BOOKMARK 100.9*" + end}},
		"without bookmarks":                  {WatchOptions[*configMap]{SendInitialEvents: new(true)}, []string{"0s: ADDED a/1=0@100"}},
		"as they come without a version":     {WatchOptions[*configMap]{AllowBookmarks: true}, []string{"0s: ADDED a/1=0@100"}},
		"not wanted":                         {WatchOptions[*configMap]{SendInitialEvents: new(false), AllowBookmarks: true}, nil},
		"not wanted, from a version":         {WatchOptions[*configMap]{SendInitialEvents: new(false), AllowBookmarks: true, ResourceVersion: at(100, 0, here)}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := read(t, syncedCache(here, "a/1"), tt.options)
				if diff := gocmp.Diff(tt.want, whatComes(r, 50*time.Second)); diff != "" {
					t.Errorf("what came (-want +got):\n%s", diff)
				}
				for _, later := range whatComes(r, 5*time.Minute) {
					if strings.Contains(later, "map[") || !tt.options.AllowBookmarks {
						t.Errorf("later: %s", later)
					}
				}
			})
		})
	}
	t.Run("after a version that has yet to come", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := syncedCache(here, "a/1")
			begun := make(chan *reader)
			go func() {
				begun <- read(t, c, WatchOptions[*configMap]{SendInitialEvents: new(true), AllowBookmarks: true, ResourceVersion: at(110, 3, elsewhere)})
			}()
			put(c, 105, "a/1", "x")
			pass(time.Second)
			put(c, 112, "a/2", "y")
			r := <-begun
			r.expect("when the version has come", "ADDED a/1=x@105.1", "ADDED a/2=y@112.1", "BOOKMARK 112.1"+end)
		})
	})
}

// What time has done is not told again and again: one who comes from elsewhere is shown once
// what has become of it, if that may be news, and nothing of what was before.
func TestWhatTimeHasDoneIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1", "a/2", "a/3")
		byTime := func(key, value string) {
			c.Apply(c.watermark, []Change[*configMap]{{Key: key, Object: newObject(key, value), Cause: Always}})
		}
		byTime("a/1", "settled")
		byTime("a/2", "settled")
		put(c, 110, "a/1", "rolling")
		put(c, 111, "a/1", "done")
		drop(c, 112, "a/2")
		put(c, 113, "a/2", "again")
		byTime("a/3", "settled")
		put(c, 114, "a/3", "later")
		byTime("a/3", "overdue")
		for range 2 {
			read(t, c, WatchOptions[*configMap]{ResourceVersion: at(115, 0, elsewhere)}).expect("one who has seen all inputs", "MODIFIED a/3=overdue@115~")
			read(t, c, WatchOptions[*configMap]{ResourceVersion: at(114, 0, elsewhere)}).expect("one who has seen all inputs, and is not ahead", "MODIFIED a/3=overdue@114.2*")
			pass(c.History + time.Second) // however long ago it is
		}
		read(t, c, WatchOptions[*configMap]{ResourceVersion: at(113, 0, elsewhere)}).expect("who has yet to see the last",
			"MODIFIED a/3=overdue@114.2*")
	})
}

// Scopes that nobody watches any more are let go, however many were asked for.
func TestScopesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1")
		for i := range 100 {
			ctx, stop := context.WithCancel(t.Context())
			for _, o := range []WatchOptions[*configMap]{{Namespace: "a", Name: strconv.Itoa(i)}, {Namespace: strconv.Itoa(i)}} {
				if _, err := c.Watch(ctx, o); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			stop()
		}
		synctest.Wait()
		if len(c.wake) != 0 {
			t.Errorf("%d scopes are still waited for", len(c.wake))
		}
	})
}

// Before a replica goes, its watches end one after the other, and clients go on elsewhere
// from the last bookmark. Who comes in spite of it is served.
func TestFarewell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1")
		put(c, 110, "a/1", "x")
		var with, without []*reader
		for range 20 {
			with = append(with, read(t, c, WatchOptions[*configMap]{ResourceVersion: at(110, 1, here), AllowBookmarks: true}))
			without = append(without, read(t, c, WatchOptions[*configMap]{ResourceVersion: at(110, 1, here)}))
		}
		c.Progress(112)
		c.Farewell(10 * time.Second)
		late := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(110, 1, here)})
		synctest.Wait()
		if _, _, open := c.Stats(); open < 30 {
			t.Errorf("at once, only %d watches are open", open)
		}
		pass(5 * time.Second)
		if _, _, open := c.Stats(); open < 5 || open > 39 {
			t.Errorf("after half of the time, %d watches are open", open)
		}
		pass(5 * time.Second)
		neighbour := syncedCache(elsewhere, "a/1")
		put(neighbour, 110, "a/1", "x")
		for _, r := range with {
			events, open := r.next()
			if diff := gocmp.Diff([]string{"BOOKMARK 112"}, showEvents(events)); diff != "" || open {
				t.Fatalf("open %v, events (-want +got):\n%s", open, diff)
			}
			again := read(t, neighbour, WatchOptions[*configMap]{ResourceVersion: unwrapped(events[0].Object).ResourceVersion})
			again.expect("from there elsewhere")
			again.Stop()
		}
		for _, r := range without {
			r.expectEnd("who wants no bookmarks")
		}
		put(c, 120, "a/1", "y")
		late.expect("who came later", "MODIFIED a/1=y@120.1")
		if _, _, open := c.Stats(); open != 1 {
			t.Errorf("%d watches are open", open)
		}
	})
}

// Nothing of a watch goes on after its context is done or Stop was called, whether or not
// anybody reads; at the end of a bubble no goroutine may be left.
func TestTheEndOfAWatch(t *testing.T) {
	for name, options := range map[string]WatchOptions[*configMap]{
		"that waits":                      {ResourceVersion: at(100, 0, here), AllowBookmarks: true},
		"whose events nobody reads":       {ResourceVersion: at(100, 0, here)},
		"whose first events nobody reads": {},
		"that awaits a version":           {ResourceVersion: at(200, 0, elsewhere), SendInitialEvents: new(true), AllowBookmarks: true},
		"that began elsewhere":            {ResourceVersion: at(105, 0, elsewhere)},
		"that has expired":                {ResourceVersion: at(1, 0, here)},
	} {
		for how, end := range map[string]func(context.CancelFunc, watch.Interface){
			"the context": func(cancel context.CancelFunc, _ watch.Interface) { cancel() },
			"Stop":        func(_ context.CancelFunc, w watch.Interface) { w.Stop() },
			"Stop, twice": func(_ context.CancelFunc, w watch.Interface) { w.Stop(); w.Stop() },
		} {
			t.Run("of one "+name+", by "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var keys []string
					for i := range 300 {
						keys = append(keys, fmt.Sprintf("a/%d", i))
					}
					c := syncedCache(here, keys...)
					ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // it must not end with the test
					defer cancel()
					w, err := c.Watch(ctx, options)
					if err != nil {
						t.Fatal(err)
					}
					if name == "whose events nobody reads" {
						for i := range uint64(300) {
							put(c, 101+i, "a/1", "x")
						}
					}
					synctest.Wait()
					end(cancel, w)
					synctest.Wait()
					n := 0
					for range w.ResultChan() { // it is closed
						n++
					}
					if n > 100 {
						t.Errorf("%d events came after the end", n)
					}
					put(c, 1000, "a/1", "y")
				})
			})
		}
	}
}
