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

// sawAt reads a Deployment with an image at a version, after its previous value.
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
		"found in the first list: not known": {first, 0},
		"created while watched":              {sawAt(nil, "a", "10", "1", true), 10},
		"changed":                            {sawAt(first, "a", "20", "2", true), 20},
		"unchanged":                          {sawAt(first, "a", "20", "1", true), 0},
		"changed in a later list: after the previous version": {sawAt(first, "a", "20", "2", false), 11},
		"unchanged in a later list":                           {sawAt(first, "a", "20", "1", false), 0},
		"a later event without a change":                      {sawAt(sawAt(first, "a", "20", "2", true), "a", "30", "2", true), 20},
		"deleted and created again, seen":                     {sawAt(first, "b", "20", "1", true), 20},
		"deleted and created again while not watched":         {sawAt(first, "b", "20", "1", false), 11},
		"created while not watched":                           {sawAt(nil, "a", "20", "1", false), 0},
		"a version that is not a number":                      {sawAt(nil, "a", "x20", "1", true), 0},
		"the previous version is not a number":                {sawAt(sawAt(nil, "a", "x", "1", false), "a", "20", "2", false), 1},
		"changed back is a change as well":                    {sawAt(sawAt(first, "a", "20", "2", true), "a", "30", "1", true), 30},
	} {
		if tc.got.StartVersion != tc.want {
			t.Errorf("%s: %d, want %d", name, tc.got.StartVersion, tc.want)
		}
	}
}

// TestWorkload_StartUnsure changes a template in the middle of a rollout. Only a restart by configdep is certain
// to create a template that did not exist before: templates that owners set or return to may already have pods.
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
		"restarted by configdep":                             {rolled, false},
		"restarted by configdep again":                       {saw(rolled, "30", third), false},
		"changed by the owner":                               {saw(rolled, "30", second), true},
		"replaced by the owner":                              {saw(rolled, "30", ""), true},
		"set back to the previous restart by the owner":      {saw(rolled, "30", first), true},
		"set back and forth by the owner":                    {saw(saw(rolled, "30", first), "40", second), true},
		"set back by the owner, then restarted by configdep": {saw(saw(rolled, "30", first), "40", third), false},
		"a restart time that is not a time":                  {saw(rolled, "30", "later"), true},
		"replaced by the owner, then restarted":              {saw(saw(rolled, "30", ""), "40", third), false},
	} {
		if tc.got.StartUnsure != tc.want {
			t.Errorf("%s: unsure: %t, want %t", name, tc.got.StartUnsure, tc.want)
		}
	}
}

// TestPausedDeploymentStartsPodsWhenItIsResumed: if its template has changed by then.
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
		"paused":                                 {paused, 10},
		"changed while paused":                   {changed, 10},
		"resumed with the changed template":      {saw(changed, "40", "2", false, true), 40},
		"paused and changed in one write":        {saw(running, "20", "2", true, true), 10},
		"changed and changed back, then resumed": {saw(saw(changed, "40", "1", true, true), "50", "1", false, true), 10},
		"created paused, resumed":                {saw(saw(nil, "10", "1", true, true), "20", "1", false, true), 20},
		"found paused, resumed: it had no pods":  {saw(saw(nil, "10", "1", true, false), "20", "1", false, true), 20},
	} {
		if tc.got.StartVersion != tc.want {
			t.Errorf("%s: pods started at %d, want %d", name, tc.got.StartVersion, tc.want)
		}
	}
}

// TestAnyChangeOfATemplateIsNoticed: every change that makes the controller create new pods.
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
		"found in the first list: at its version or earlier":    {first, Change{Version: 10}},
		"created while watched":                                 {at(nil, "10", "1", now, true), Change{Version: 10, Exact: true, Seen: now}},
		"changed":                                               {at(first, "20", "2", now, true), Change{Version: 20, Exact: true, Seen: now}},
		"metadata changed":                                      {at(first, "20", "1", now, true), Change{Version: 10}},
		"a key goes":                                            {at(first, "20", "", now, true), Change{Version: 20, Exact: true, Seen: now}},
		"kept by a later list without a change":                 {at(at(first, "20", "2", now, true), "30", "2", now.Add(time.Hour), false), Change{Version: 20, Exact: true, Seen: now}},
		"created empty":                                         {at(nil, "10", "", now, true), Change{Version: 10, Exact: true, Seen: now}},
		"created while not watched, then listed":                {at(nil, "20", "1", now, false), Change{Version: 20, Exact: false, Seen: now}},
		"changed again before the first sync":                   {at(first, "20", "2", time.Time{}, false), Change{Version: 20}},
		"a version that is not a number counts as the earliest": {at(nil, "x", "1", now, true), Change{Version: 0, Exact: true, Seen: now}},
	} {
		if diff := cmp.Diff(tc.want, tc.got.Change); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestSource_CreatedAgain deletes a source and creates it again with the same content. The result must be the same
// whether the deletion was seen or only a list shows the new object. In between, pods for which the source is
// optional may have started without it.
func TestSource_CreatedAgain(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	key := SourceKey{Secret, "shop", "db"}
	optional := &Reference{Kind: Secret, Name: "db", Uses: []Use{{Type: EnvFrom, Optional: true}}}
	source := func(uid, version string) *Source {
		return &Source{SourceKey: key, UID: types.UID(uid), ResourceVersion: version, Keys: []KeyDigest{{Key: "a", Digest: Digest{1}}}}
	}
	for name, seen := range map[string]bool{"the deletion is seen": true, "the deletion is missed": false} {
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
				t.Errorf("change of the content = %+v, want %+v", got, want)
			}
			if got := g.LastWritten("shop", optional).Version; got != 30 {
				t.Errorf("version of the optional key = %d, want 30", got)
			}
			if _, _, times, _ := g.ChangedSince(key, Moment{Version: 15}); times == 0 {
				t.Error("ChangedSince reports no change")
			}
		})
	}
}

// TestTemplateIsNeverThoughtNewerThanContentThatIsNewer changes a workload and a source at random, sometimes while
// not watched, followed by a list. The known version of the template is a lower bound and that of the content an
// upper bound, so that pods are never assumed to have read content that is newer than they are. Both are exact for
// changes that were seen.
func TestTemplateIsNeverThoughtNewerThanContentThatIsNewer(t *testing.T) {
	seeds.Each(t, 300, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 5))
		version, image, uid, content := uint64(100), 0, 0, 0
		var changed struct{ template, content uint64 } // the actual versions
		changed.template, changed.content = version, version
		workloadVersion, sourceVersion := version, version
		var w *Workload
		var s *Source
		live := true  // whether events are watched
		exact := true // whether all events since the first list were watched
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
			case 0: // the watch ends
				exact, live = false, false
				continue
			case 1: // the watch starts again
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
				t.Fatalf("known version of the template = %d, later than its change at %d", w.StartVersion, changed.template)
			}
			if s.Change.Version < changed.content {
				t.Fatalf("known version of the content = %d, earlier than its change at %d", s.Change.Version, changed.content)
			}
			if w.StartVersion > s.Change.Version && changed.template < changed.content {
				t.Fatalf("content of version %d is assumed to be read by pods of the template of version %d", changed.content, changed.template)
			}
			if exact && s.Change.Version != changed.content {
				t.Fatalf("the content changed at %d, got %d", changed.content, s.Change.Version)
			}
			if exact && w.StartVersion != changed.template && w.StartVersion != 0 {
				t.Fatalf("the template changed at %d, got %d", changed.template, w.StartVersion)
			}
		}
	})
}

// TestDeletionIsNoChangeForThoseWhoReadNothingOfIt: the deletion of a source changes nothing for readers of keys
// that did not exist.
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
				t.Errorf("%s: last change for readers of %v = %v, want %v", when, tc.reads.Uses[0].Keys, got, tc.want)
			}
		}
	}
	expect("deleted", wants{
		{reads("a"), Moment{20, 2}},
		{reads("b"), Moment{30, 3}},
		{reads("a", "b"), Moment{30, 3}},
		{reads("c"), Moment{0, 0}}, // never existed
		{reads(), Moment{30, 3}},   // reads all keys
	})
	put("40", 4, "c")
	expect("created again with another key", wants{
		{reads("a"), Moment{20, 2}},
		{reads("b"), Moment{30, 3}}, // deleted with the source, and not created again
		{reads("c"), Moment{40, 4}},
		{reads("b", "c"), Moment{40, 4}},
	})
}

// Changes that a list shows are later than the last event of the previous watch.
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
		"the first list":          {before, 0},
		"not known before":        {read(nil, "40", "1", 20), 21},
		"another template before": {read(before, "40", "2", 20), 21},
		"the version at which the watch ended is not known": {read(before, "40", "2", 0), 11},
		"the same template before":                          {read(before, "40", "1", 20), 0},
	} {
		if tt.got.StartVersion != tt.want {
			t.Errorf("%s: since %d, want %d", name, tt.got.StartVersion, tt.want)
		}
		created := uint64(0)
		if name == "not known before" {
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
		t.Errorf("created again after version %d, want 21", again.CreatedAt.Version)
	}
}
