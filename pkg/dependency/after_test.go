// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/test/seeds"
)

// sawAt reads a Deployment of an image at a version, as the next thing after previous.
func sawAt(previous *Workload, uid, version, image string, live bool) *Workload {
	o := &appsv1.Deployment{}
	o.Namespace, o.Name, o.UID, o.ResourceVersion = "shop", "web", types.UID(uid), version
	o.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: image}}
	w := readDeployment(o)
	w.After(previous, Arrival{Live: live})
	return w
}

func TestBoundsOfAChangeOfTheTemplate(t *testing.T) {
	first := sawAt(nil, "a", "10", "1", false)
	for name, tc := range map[string]struct {
		got  *Workload
		want uint64
	}{
		"found in the first list: not known":          {first, 0},
		"made before our eyes":                        {sawAt(nil, "a", "10", "1", true), 10},
		"another template":                            {sawAt(first, "a", "20", "2", true), 20},
		"the same template":                           {sawAt(first, "a", "20", "1", true), 0},
		"another one in a later list: after the last": {sawAt(first, "a", "20", "2", false), 11},
		"the same one in a later list":                {sawAt(first, "a", "20", "1", false), 0},
		"kept as long as it stays":                    {sawAt(sawAt(first, "a", "20", "2", true), "a", "30", "2", true), 20},
		"deleted and made again, seen":                {sawAt(first, "b", "20", "1", true), 20},
		"deleted and made again while none watched":   {sawAt(first, "b", "20", "1", false), 11},
		"made while no process watched":               {sawAt(nil, "a", "20", "1", false), 0},
		"a version that is no number says nothing":    {sawAt(nil, "a", "x20", "1", true), 0},
		"nor does the one before it":                  {sawAt(sawAt(nil, "a", "x", "1", false), "a", "20", "2", false), 1},
		"back to what was before is a change as well": {sawAt(sawAt(first, "a", "20", "2", true), "a", "30", "1", true), 30},
	} {
		if tc.got.StartVersion != tc.want {
			t.Errorf("%s: %d, want %d", name, tc.got.StartVersion, tc.want)
		}
	}
}

// TestWorkload_StartUnsure plays changes of a template in the middle of a rollout. Only a restart of our
// own makes a template that was never there before: what owners set, and what they go back to,
// may have pods already.
func TestWorkload_StartUnsure(t *testing.T) {
	saw := func(previous *Workload, version, reloadedAt string) *Workload {
		o := &appsv1.Deployment{}
		o.Namespace, o.Name, o.UID, o.ResourceVersion = "shop", "web", "a", version
		o.Spec.Template.Annotations = map[string]string{"version": version}
		if reloadedAt != "" {
			o.Spec.Template.Annotations[reloadedAtAnnotation] = reloadedAt
		}
		w := readDeployment(o)
		w.After(previous, Arrival{Live: previous != nil})
		return w
	}
	const first, second, third = "2026-03-01T12:00:00Z", "2026-03-01T12:00:00.5Z", "2026-03-01T12:00:01Z"
	rolled := saw(saw(nil, "10", first), "20", second)
	for name, tc := range map[string]struct {
		got  *Workload
		want bool
	}{
		"restarted by us":                       {rolled, false},
		"restarted once more":                   {saw(rolled, "30", third), false},
		"changed by the owner":                  {saw(rolled, "30", second), true},
		"replaced by the owner":                 {saw(rolled, "30", ""), true},
		"gone back to the restart before":       {saw(rolled, "30", first), true},
		"gone back, and forth again":            {saw(saw(rolled, "30", first), "40", second), true},
		"gone back, and restarted by us":        {saw(saw(rolled, "30", first), "40", third), false},
		"the time of the restart is no time":    {saw(rolled, "30", "later"), true},
		"replaced by the owner, then restarted": {saw(saw(rolled, "30", ""), "40", third), false},
	} {
		if tc.got.StartUnsure != tc.want {
			t.Errorf("%s: unsure: %t, want %t", name, tc.got.StartUnsure, tc.want)
		}
	}
}

// TestPausedDeploymentStartsPodsWhenItIsResumed, if its template is another by then.
func TestPausedDeploymentStartsPodsWhenItIsResumed(t *testing.T) {
	saw := func(previous *Workload, version, image string, paused, live bool) *Workload {
		w := sawAt(nil, "a", version, image, false)
		w.Paused = paused
		w.After(previous, Arrival{Live: live})
		return w
	}
	running := saw(nil, "10", "1", false, true)
	paused := saw(running, "20", "1", true, true)
	changed := saw(paused, "30", "2", true, true)
	for name, tc := range map[string]struct {
		got  *Workload
		want uint64
	}{
		"paused":                                {paused, 10},
		"another template":                      {changed, 10},
		"resumed with it":                       {saw(changed, "40", "2", false, true), 40},
		"paused with another template at once":  {saw(running, "20", "2", true, true), 10},
		"another template and back, resumed":    {saw(saw(changed, "40", "1", true, true), "50", "1", false, true), 10},
		"made paused, resumed":                  {saw(saw(nil, "10", "1", true, true), "20", "1", false, true), 20},
		"found paused, resumed: it had no pods": {saw(saw(nil, "10", "1", true, false), "20", "1", false, true), 20},
	} {
		if tc.got.StartVersion != tc.want {
			t.Errorf("%s: the pods started at %d, want %d", name, tc.got.StartVersion, tc.want)
		}
	}
}

// TestAnyChangeOfATemplateIsNoticed: whatever makes new pods.
func TestAnyChangeOfATemplateIsNoticed(t *testing.T) {
	base := func() *appsv1.Deployment {
		o := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "a", ResourceVersion: "10"}}
		o.Spec.Template.Labels = map[string]string{"a": "1", "b": "2", "c": "3"}
		o.Spec.Template.Annotations = map[string]string{"a": "1", "b": "2", "c": "3"}
		o.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app"}}
		return o
	}
	for name, tc := range map[string]struct {
		change func(*appsv1.Deployment)
		want   uint64
	}{
		"nothing":      {func(*appsv1.Deployment) {}, 0},
		"a label":      {func(o *appsv1.Deployment) { o.Spec.Template.Labels["a"] = "2" }, 20},
		"annotation":   {func(o *appsv1.Deployment) { o.Spec.Template.Annotations["d"] = "4" }, 20},
		"a variable":   {func(o *appsv1.Deployment) { o.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A"}} }, 20},
		"grace period": {func(o *appsv1.Deployment) { o.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64) }, 20},
		"replicas":     {func(o *appsv1.Deployment) { o.Spec.Replicas = new(int32) }, 0},
		"metadata":     {func(o *appsv1.Deployment) { o.Labels = map[string]string{"a": "b"} }, 0},
		"status":       {func(o *appsv1.Deployment) { o.Status.Replicas = 2 }, 0},
		"paused":       {func(o *appsv1.Deployment) { o.Spec.Paused = true }, 0},
	} {
		previous := readDeployment(base())
		o := base()
		o.ResourceVersion = "20"
		tc.change(o)
		w := readDeployment(o)
		w.After(previous, Arrival{Live: true})
		if w.StartVersion != tc.want {
			t.Errorf("%s: %d, want %d", name, w.StartVersion, tc.want)
		}
	}
}

func TestWhenContentChanged(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	at := func(previous *Source, version, content string, seen time.Time, live bool) *Source {
		s := &Source{SourceKey: SourceKey{Secret, "shop", "db"}, ResourceVersion: version}
		if content != "" {
			s.Keys = []KeyDigest{{Key: "a", Digest: Digest{content[0]}}}
		}
		s.After(previous, nil, Arrival{Live: live, Seen: seen})
		return s
	}
	first := at(nil, "10", "1", time.Time{}, false)
	for name, tc := range map[string]struct {
		got  *Source
		want Change
	}{
		"found in the first list: then or before":     {first, Change{Version: 10}},
		"made before our eyes":                        {at(nil, "10", "1", now, true), Change{Version: 10, Exact: true, Seen: now}},
		"changed":                                     {at(first, "20", "2", now, true), Change{Version: 20, Exact: true, Seen: now}},
		"metadata changed":                            {at(first, "20", "1", now, true), Change{Version: 10}},
		"a key goes":                                  {at(first, "20", "", now, true), Change{Version: 20, Exact: true, Seen: now}},
		"kept as long as it stays":                    {at(at(first, "20", "2", now, true), "30", "2", now.Add(time.Hour), false), Change{Version: 20, Exact: true, Seen: now}},
		"made empty":                                  {at(nil, "10", "", now, true), Change{Version: 10, Exact: true, Seen: now}},
		"made while none watched, and then listed":    {at(nil, "20", "1", now, false), Change{Version: 20, Exact: false, Seen: now}},
		"changed once more before the first sync":     {at(first, "20", "2", time.Time{}, false), Change{Version: 20}},
		"a version that is no number is the earliest": {at(nil, "x", "1", now, true), Change{Version: 0, Exact: true, Seen: now}},
	} {
		if diff := cmp.Diff(tc.want, tc.got.Change); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestSource_CreatedAgain holds what is known of a source that was deleted and created again with the
// same content to be the same, whether the deletion was seen or only a list shows what has become
// of it. In between, pods for which it is optional may have started without it.
func TestSource_CreatedAgain(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	key := SourceKey{Secret, "shop", "db"}
	optional := &Reference{Kind: Secret, Name: "db", Uses: []Use{{Type: EnvFrom, Optional: true}}}
	source := func(uid, version string) *Source {
		return &Source{SourceKey: key, UID: types.UID(uid), ResourceVersion: version, Keys: []KeyDigest{{Key: "a", Digest: Digest{1}}}}
	}
	for name, seen := range map[string]bool{"the deletion is seen": true, "it is missed": false} {
		t.Run(name, func(t *testing.T) {
			g := NewGraph()
			g.SetWorkload(&Workload{WorkloadKey: WorkloadKey{Deployment, "shop", "web"}, References: []Reference{*optional}}, Patterns{})
			first := source("a", "10")
			first.After(nil, nil, Arrival{})
			g.SetSource(first)
			if seen {
				g.DeleteSource(key, Change{Version: 20, Exact: true, Seen: now, Order: 1})
			}
			again := source("b", "30")
			again.After(g.Source(key), g.DeletedBefore(key), Arrival{Live: seen, Seen: now, Order: 2})
			g.SetSource(again)
			if got, want := g.LastChange(key), (Change{Version: 30, Exact: seen, Seen: now, Order: 2}); got != want {
				t.Errorf("the content changed at %+v, want %+v", got, want)
			}
			if got := g.LastWritten("shop", optional).Version; got != 30 {
				t.Errorf("the optional key was written at %d, want 30", got)
			}
			if _, _, times, _ := g.ChangedSince(key, Moment{Version: 15}); times == 0 {
				t.Error("the content has not changed")
			}
		})
	}
}

// TestTemplateIsNeverThoughtNewerThanContentThatIsNewer lets a workload and a source
// change at random, sometimes while no process watches and there is only a list afterwards. What
// is known of the template is a lower bound, what is known of content an upper one, so
// that content is never taken for read that pods cannot have read; and they are exact for
// what was seen.
func TestTemplateIsNeverThoughtNewerThanContentThatIsNewer(t *testing.T) {
	seeds.Each(t, 300, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 5))
		version, image, uid, content := uint64(100), 0, 0, 0
		var changed struct{ template, content uint64 } // the truth
		changed.template, changed.content = version, version
		workloadVersion, sourceVersion := version, version
		var w *Workload
		var s *Source
		live := true  // whether all is being seen
		exact := true // whether all has been, since the first list
		now := time.Unix(0, 0)
		observe := func(live bool) {
			w = sawAt(w, fmt.Sprint(uid), strconv.FormatUint(workloadVersion, 10), fmt.Sprint(image), live)
			next := &Source{ResourceVersion: strconv.FormatUint(sourceVersion, 10), Keys: []KeyDigest{{Key: "a", Digest: Digest{byte(content)}}}}
			var at time.Time
			if s != nil {
				at = now
			}
			next.After(s, nil, Arrival{Live: live, Seen: at})
			s = next
		}
		observe(false)
		for range 60 {
			version += 1 + r.Uint64N(3)
			now = now.Add(time.Second)
			switch r.IntN(6) {
			case 0:
				image = (image + 1 + r.IntN(2)) % 3
				workloadVersion, changed.template = version, version
			case 1:
				uid++
				workloadVersion, changed.template = version, version
			case 2:
				workloadVersion = version // metadata, status
			case 3:
				sourceVersion = version // metadata
			default:
				content++
				sourceVersion, changed.content = version, version
			}
			switch r.IntN(8) {
			case 0: // the watch has ended
				exact, live = false, false
				continue
			case 1: // and starts over
				if !live {
					observe(false)
					live = true
					break
				}
				fallthrough
			default:
				if !live {
					continue
				}
				observe(true)
			}
			if w.StartVersion > changed.template {
				t.Fatalf("the template is thought to have changed at %d, and did at %d", w.StartVersion, changed.template)
			}
			if s.Change.Version < changed.content {
				t.Fatalf("content is thought to have changed at %d, and did at %d", s.Change.Version, changed.content)
			}
			if w.StartVersion > s.Change.Version && changed.template < changed.content {
				t.Fatalf("content of %d is taken for read by the template of %d", changed.content, changed.template)
			}
			if exact && s.Change.Version != changed.content {
				t.Fatalf("content changed at %d, not %d", changed.content, s.Change.Version)
			}
			if exact && w.StartVersion != changed.template && w.StartVersion != 0 {
				t.Fatalf("the template changed at %d, not %d", changed.template, w.StartVersion)
			}
		}
	})
}

// TestDeletionIsNoChangeForThoseWhoReadNothingOfIt: of keys that were not there, nothing goes.
func TestDeletionIsNoChangeForThoseWhoReadNothingOfIt(t *testing.T) {
	now := time.Unix(1000, 0)
	key := SourceKey{Secret, "shop", "db"}
	reads := func(keys ...string) *Reference {
		return &Reference{Kind: Secret, Name: "db", Uses: []Use{{Type: Env, Container: "app", Keys: keys, Optional: true}}}
	}
	g := NewGraph()
	w := &Workload{WorkloadKey: WorkloadKey{Deployment, "shop", "web"}, References: []Reference{*reads("a")}}
	g.SetWorkload(w, Patterns{})
	put := func(version string, order uint64, keys ...string) {
		s := &Source{SourceKey: key, ResourceVersion: version}
		for _, k := range keys {
			s.Keys = append(s.Keys, KeyDigest{Key: k, Digest: Digest{1}})
		}
		s.After(g.Source(key), g.DeletedBefore(key), Arrival{Live: true, Seen: now, Order: order})
		g.SetSource(s)
	}
	put("10", 1, "a", "b")
	put("20", 2, "b")
	g.DeleteSource(key, Change{Version: 30, Seen: now, Order: 3})
	type wants []struct {
		reads *Reference
		want  Moment
	}
	expect := func(when string, all wants) {
		t.Helper()
		for _, tc := range all {
			if got := g.LastWritten("shop", tc.reads); got != tc.want {
				t.Errorf("%s: what reads %v changed at %v, want %v", when, tc.reads.Uses[0].Keys, got, tc.want)
			}
		}
	}
	expect("deleted", wants{
		{reads("a"), Moment{20, 2}},
		{reads("b"), Moment{30, 3}},
		{reads("a", "b"), Moment{30, 3}},
		{reads("c"), Moment{0, 0}}, // it never was there
		{reads(), Moment{30, 3}},   // all
	})
	put("40", 4, "c")
	expect("created again with another key", wants{
		{reads("a"), Moment{20, 2}},
		{reads("b"), Moment{30, 3}}, // it went with the deletion, and stays away
		{reads("c"), Moment{40, 4}},
		{reads("b", "c"), Moment{40, 4}},
	})
}

// What a list shows came after all that its stream had brought before.
func TestWorkload_StartThatAListShows(t *testing.T) {
	read := func(previous *Workload, version, image string, after uint64) *Workload {
		o := &appsv1.Deployment{}
		o.Namespace, o.Name, o.UID, o.ResourceVersion = "shop", "web", "u", version
		o.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: image}}
		w := readDeployment(o)
		w.After(previous, Arrival{After: after})
		return w
	}
	before := read(nil, "10", "1", 0)
	for name, tt := range map[string]struct {
		got  *Workload
		want uint64
	}{
		"the first list":                  {before, 0},
		"it was not there":                {read(nil, "40", "1", 20), 21},
		"it had another template":         {read(before, "40", "2", 20), 21},
		"it is not known how far it came": {read(before, "40", "2", 0), 11},
		"it had this one":                 {read(before, "40", "1", 20), 0},
	} {
		if tt.got.StartVersion != tt.want {
			t.Errorf("%s: since %d, want %d", name, tt.got.StartVersion, tt.want)
		}
		created := uint64(0)
		if name == "it was not there" {
			created = tt.want
		}
		if tt.got.CreatedAt.Version != created {
			t.Errorf("%s: created after %d, want %d", name, tt.got.CreatedAt.Version, created)
		}
	}
	again := read(before, "40", "1", 20)
	again.UID, again.CreatedAt = "another", Moment{}
	again.After(before, Arrival{After: 20})
	if again.CreatedAt.Version != 21 {
		t.Errorf("created again after %d", again.CreatedAt.Version)
	}
}
