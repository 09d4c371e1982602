// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// unread adds a ConfigMap that is not read; its type does not matter here.
func (w *watched) unread(name string, version uint64) {
	w.g.SetUnread(&Unread{SourceKey: SourceKey{ConfigMap, "shop", name}, Type: "t", ResourceVersion: strconv.FormatUint(version, 10)}, Arrival{Live: true, Seen: seenAt})
}

func (w *watched) removeUnread(name string, version uint64) {
	w.g.DeleteUnread(SourceKey{ConfigMap, "shop", name}, "t", Change{Version: version, Seen: seenAt})
}

// A source that is not read does not delay pods: whether it lacks a key is not known.
func TestGraph_StartedWithUnread(t *testing.T) {
	const template = 100 // the version of the template
	for name, tt := range map[string]struct {
		do   func(*watched)
		want uint64
	}{
		"exists":                            {func(w *watched) { w.unread("y", 10); w.workload("y:a") }, template},
		"exists, another source is created": {func(w *watched) { w.unread("y", 10); w.workload("x", "y"); w.set("x", 110) }, 111},
		"created":                           {func(w *watched) { w.workload("y:a"); w.unread("y", 110) }, 111},
		"created and updated":               {func(w *watched) { w.workload("y:a"); w.unread("y", 110); w.unread("y", 120) }, 111},
		"created, then another source is created": {func(w *watched) { w.workload("x", "y"); w.unread("y", 110); w.set("x", 120) }, 121},
		"deleted and created, then another source is created": {func(w *watched) {
			w.unread("y", 10)
			w.workload("x", "y")
			w.removeUnread("y", 105)
			w.unread("y", 110)
			w.set("x", 120)
		}, 121},
		"deleted, another source is created": {func(w *watched) {
			w.unread("y", 10)
			w.workload("x", "y")
			w.removeUnread("y", 115)
			w.set("x", 110)
			w.unread("y", 120)
		}, template},
		"deleted before the template changed":        {func(w *watched) { w.unread("y", 10); w.removeUnread("y", 90); w.workload("y"); w.unread("y", 110) }, 111},
		"deleted after the template changed":         {func(w *watched) { w.unread("y", 10); w.removeUnread("y", 105); w.workload("y"); w.unread("y", 110) }, template},
		"deleted after the template changed, unused": {func(w *watched) { w.unread("z", 10); w.removeUnread("z", 105); w.workload("z"); w.unread("z", 110) }, template},
		"a source that was read is deleted before": {func(w *watched) {
			w.set("y", 10)
			w.remove("y", 20)
			w.unread("y", 30)
			w.removeUnread("y", 105)
			w.workload("y")
			w.set("y", 110)
		}, template},
		"a source that was read is deleted before, and the event comes later": {func(w *watched) {
			w.set("y", 10)
			w.unread("y", 30)
			w.remove("y", 20)
			w.removeUnread("y", 105)
			w.workload("y")
			w.set("y", 110)
		}, template},
	} {
		t.Run(name, func(t *testing.T) {
			w := &watched{g: NewGraph(), version: template}
			w.g.SetWorkload(&Workload{WorkloadKey: WorkloadKey{Job, "shop", "other"}, References: referencesOf(pod("y"))}, Patterns{})
			tt.do(w)
			if got := w.g.Started(w.g.Workload(w.key), &Use{Type: EnvFrom, Container: "app"}); got != tt.want {
				t.Errorf("pods started at %d, want %d", got, tt.want)
			}
		})
	}
}

// A source that lacks the label by which sources are selected may exist: it does not delay pods.
func TestGraph_StartedWithSourcesSelectedByLabel(t *testing.T) {
	const template = 100
	for name, tt := range map[string]struct {
		do   func(*watched)
		want uint64
	}{
		"absent":                       {func(w *watched) { w.workload("x") }, template},
		"read later":                   {func(w *watched) { w.workload("x"); w.set("x", 110) }, template},
		"absent, another is read":      {func(w *watched) { w.workload("x", "y"); w.set("y", 110) }, template},
		"lacks a key that comes later": {func(w *watched) { w.set("x", 10); w.workload("x:a"); w.set("x", 110, "a") }, 111},
		"lacks a key that comes later, another is absent": {func(w *watched) { w.set("x", 10); w.workload("x:a", "y"); w.set("x", 110, "a") }, 111},
	} {
		t.Run(name, func(t *testing.T) {
			w := &watched{g: NewGraph(), version: template}
			w.g.SetSelectedByLabel(true)
			tt.do(w)
			if got := w.g.Started(w.g.Workload(w.key), &Use{Type: EnvFrom, Container: "app"}); got != tt.want {
				t.Errorf("pods started at %d, want %d", got, tt.want)
			}
		})
	}
}

// Resolve does not report a source as missing if it is not observed, and knows that an unread source exists.
func TestGraph_Resolve(t *testing.T) {
	source := &Source{SourceKey: SourceKey{Secret, "shop", "db"}, ResourceVersion: "1"}
	unread := &Unread{SourceKey: SourceKey{Secret, "shop", "token"}, Type: "t", ResourceVersion: "1"}
	replaced := &Unread{SourceKey: source.SourceKey, Type: "t", ResourceVersion: "9"} // the deletion of the source with the same name has not been read yet
	type found struct {
		name string
		kind SourceKind
		want Resolution
	}
	for name, tt := range map[string]struct {
		leftOut  SourceKind
		selected bool // by label
		found    []found
	}{
		"all kinds are read": {"", false, []found{
			{"db", Secret, Resolution{Source: source, Observed: true, Missing: true, MissingKeys: []string{"key"}}},
			{"absent", Secret, Resolution{Observed: true, Missing: true}},
			{"token", Secret, Resolution{Unread: unread}},
			{"token", ConfigMap, Resolution{Observed: true, Missing: true}},
			{"class", SecretProviderClass, Resolution{}},
		}},
		"no Secrets are read": {Secret, false, []found{
			{"db", Secret, Resolution{}},
			{"absent", Secret, Resolution{}},
			{"absent", ConfigMap, Resolution{Observed: true, Missing: true}},
			{"class", SecretProviderClass, Resolution{}},
		}},
		"no ConfigMaps are read": {ConfigMap, false, []found{
			{"settings", ConfigMap, Resolution{}},
			{"absent", Secret, Resolution{Observed: true, Missing: true}},
		}},
		"sources with a label are read": {"", true, []found{
			{"db", Secret, Resolution{Source: source, Observed: true, Missing: true, MissingKeys: []string{"key"}}},
			{"absent", Secret, Resolution{Observed: true, MayExist: true}},
			{"token", Secret, Resolution{Unread: unread}},
			{"token", ConfigMap, Resolution{Observed: true, MayExist: true}},
			{"class", SecretProviderClass, Resolution{}},
		}},
		"ConfigMaps with a label are read, and no Secrets": {Secret, true, []found{
			{"absent", Secret, Resolution{}},
			{"absent", ConfigMap, Resolution{Observed: true, MayExist: true}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewGraph()
			g.LeaveOut(tt.leftOut)
			g.SetSelectedByLabel(tt.selected)
			if tt.leftOut == "" {
				g.SetSource(source)
				g.SetUnread(unread, Arrival{})
				g.SetUnread(replaced, Arrival{})
			}
			if u := g.Unread(source.SourceKey); u != nil {
				t.Errorf("a source that is read is known as unread: %+v", u)
			}
			for _, g := range []*Graph{g, g.Snapshot(), g.With(nil)} {
				if g.SelectedByLabel() != tt.selected {
					t.Errorf("selected by label: %t, want %t", g.SelectedByLabel(), tt.selected)
				}
				for _, f := range tt.found {
					r := &Reference{Kind: f.kind, Name: f.name, Uses: []Use{{Type: Env, Container: "app", Keys: []string{"key"}}}, RequiredKeys: []string{"key"}}
					if diff := cmp.Diff(f.want, g.Resolve("shop", r), cmpopts.IgnoreUnexported(Source{})); diff != "" {
						t.Errorf("%s %s (-want +got):\n%s", f.kind, f.name, diff)
					}
				}
			}
		})
	}
}

// A source that is created again counts as changed if an unread source existed in between, with which pods may
// have started.
func TestGraph_UnreadInBetween(t *testing.T) {
	for name, between := range map[string]func(*watched){
		"nothing":          func(*watched) {},
		"an unread source": func(w *watched) { w.unread("y", 110); w.removeUnread("y", 115) },
		"an unread source whose deletion is read last": func(w *watched) { w.unread("y", 110) },
	} {
		w := &watched{g: NewGraph(), version: 100}
		w.set("y", 10, "a")
		w.workload("y")
		w.remove("y", 105)
		between(w)
		key := SourceKey{ConfigMap, "shop", "y"}
		s := &Source{SourceKey: key, ResourceVersion: "120", Keys: []KeyDigest{{Key: "a", Digest: Digest{10}}}} // with its previous content
		s.After(nil, w.g.DeletedBefore(key), Arrival{Live: true, Seen: seenAt})
		w.g.SetSource(s)
		w.removeUnread("y", 115)
		if changed := s.Keys[0].Version == 120; changed != (name != "nothing") {
			t.Errorf("%s in between: version of the content = %d", name, s.Keys[0].Version)
		}
		if gone := w.g.UnusedDeletion(key); gone != (Change{}) {
			t.Errorf("%s in between: UnusedDeletion of the existing source = %d, want none", name, gone.Version)
		}
	}
}
