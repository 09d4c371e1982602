// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Keys of binaryData, which variables cannot read, leave no date behind for variables when they are removed.
func TestGraph_LastWrittenOfBinaryKeysThatGo(t *testing.T) {
	type keys = map[string]string
	environment := Reference{Kind: ConfigMap, Name: "settings", Uses: []Use{{Type: EnvFrom, Container: "app"}}}
	files := whole(ConfigMap, "settings")
	for name, tt := range map[string]struct {
		do                 []keys
		environment, files uint64
	}{
		"a binary key is removed":                           {[]keys{{"!a": "1", "b": "1"}, {"b": "1"}}, 101, 102},
		"a binary key is added and removed":                 {[]keys{{"b": "1"}, {"!a": "1", "b": "1"}, {"b": "1"}}, 101, 103},
		"a text key becomes binary and is removed":          {[]keys{{"a": "1", "b": "1"}, {"!a": "1", "b": "1"}, {"b": "1"}}, 102, 103},
		"a binary key is removed and added as text":         {[]keys{{"!a": "1", "b": "1"}, {"b": "1"}, {"a": "1", "b": "1"}}, 103, 103},
		"a binary key becomes text and is removed":          {[]keys{{"!a": "1", "b": "1"}, {"a": "1", "b": "1"}, {"b": "1"}}, 103, 103},
		"a binary key is removed, then another key changes": {[]keys{{"!a": "1", "b": "1"}, {"b": "1"}, {"b": "2"}}, 103, 103},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChanging()
			for _, content := range tt.do {
				c.put(content)
			}
			if got := c.graph.LastWritten("shop", &environment).Version; got != tt.environment {
				t.Errorf("last write for variables = %d, want %d", got, tt.environment)
			}
			if got := c.graph.LastWritten("shop", &files).Version; got != tt.files {
				t.Errorf("last write for files = %d, want %d", got, tt.files)
			}
		})
	}
}

// A key that is removed and added again keeps its previous date only if it has the content that it had just before
// its removal, for variables and for files.
func TestGraph_LastWrittenOfAKeyThatIsAddedAgain(t *testing.T) {
	type keys = map[string]string
	file := Reference{Kind: ConfigMap, Name: "settings", Uses: []Use{{Type: Volume, Container: "app", Keys: []string{"a"}}}}
	for name, tt := range map[string]struct {
		do   []keys
		want uint64
	}{
		"with the same content":                                               {[]keys{{"a": "1"}, {"b": "1"}, {"a": "1"}}, 101},
		"with other content":                                                  {[]keys{{"a": "1"}, {"b": "1"}, {"a": "2"}}, 103},
		"with the content from before a move to binaryData":                   {[]keys{{"a": "1"}, {"!a": "2"}, {"b": "1"}, {"a": "1"}}, 104},
		"with the content that it had in binaryData":                          {[]keys{{"a": "1"}, {"!a": "2"}, {"b": "1"}, {"!a": "2"}}, 102},
		"with the content from before a move to binaryData, two writes later": {[]keys{{"a": "1"}, {"!a": "2"}, {"b": "1"}, {"b": "2"}, {"a": "1"}}, 105},
		"with its content after a move to binaryData and back":                {[]keys{{"a": "1"}, {"!a": "2"}, {"a": "1"}, {"b": "1"}, {"a": "1"}}, 103},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChanging()
			for _, content := range tt.do {
				c.put(content)
			}
			if got := c.graph.LastWritten("shop", &file).Version; got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

// A key that has not changed since the source was first read is older than every event, even if other keys of the
// source have changed.
func TestGraph_LastWrittenOfAKeyThatNeverChanged(t *testing.T) {
	c := newChanging()
	read := func(order uint64, live bool, keys ...KeyDigest) {
		c.version++
		s := NewSource(testDigester(), ConfigMap, &metav1.ObjectMeta{Namespace: "shop", Name: "settings", ResourceVersion: fmt.Sprint(c.version)}, SourceMarks{}, keys)
		at := Arrival{Order: order}
		if live {
			at.Live, at.Seen = true, day
		}
		s.After(c.graph.Source(c.key), nil, at)
		c.graph.SetSource(s)
	}
	a := named(ConfigMap, "settings", "a")
	read(1, false, KeyDigest{Key: "a"}, KeyDigest{Key: "b"})
	for i := range maxEpisodes - 1 {
		read(uint64(10+i), true, KeyDigest{Key: "a"}, KeyDigest{Key: "b", Digest: Digest{byte(i + 1)}})
	}
	if got := c.graph.LastWritten("shop", &a); got != (Moment{101, 0}) {
		t.Errorf("last write = %v, want it before all events", got)
	}
	read(100, true, KeyDigest{Key: "a"}, KeyDigest{Key: "b", Digest: Digest{100}})
	read(101, true, KeyDigest{Key: "a"}, KeyDigest{Key: "b", Digest: Digest{101}})
	if got := c.graph.LastWritten("shop", &a); got != (Moment{101, 11}) {
		t.Errorf("last write = %v, want it no later than the first remembered event", got)
	}
}

// A source that was ignored when it was deleted, and is not ignored when it is created again, has no dates from
// before its deletion: changes of ignored sources say nothing about pods.
func TestSource_CreatedAgainToCount(t *testing.T) {
	for _, ignored := range []bool{false, true} {
		c := newChanging()
		read := func(version string, ignored bool) {
			m := &metav1.ObjectMeta{Namespace: "shop", Name: "settings", ResourceVersion: version}
			s := NewSource(testDigester(), ConfigMap, m, SourceMarks{}, []KeyDigest{{Key: "a"}})
			s.Ignored = ignored
			s.After(c.graph.Source(c.key), c.graph.DeletedBefore(c.key), Arrival{Live: true, Seen: day})
			c.graph.SetSource(s)
		}
		read("10", ignored)
		c.graph.DeleteSource(c.key, Change{Version: 20, Seen: day})
		read("30", false)
		want := uint64(10)
		if ignored {
			want = 30
		}
		if got := c.graph.Source(c.key).Keys[0].Version; got != want {
			t.Errorf("ignored before = %v: version of the key = %d, want %d", ignored, got, want)
		}
	}
}

// The removal of keys does not change the time of their field managers.
func TestSource_Undated(t *testing.T) {
	type step struct {
		keys   string
		minute int // of the field managers
		listed bool
	}
	for name, tt := range map[string]struct {
		do   []step
		want uint64 // the first undated version; 0: none
	}{
		"first read":                                                  {[]step{{"ab", 0, false}}, 0},
		"a key is removed":                                            {[]step{{"ab", 0, false}, {"a", 0, false}}, 2},
		"a key is removed, then a label is set":                       {[]step{{"ab", 0, false}, {"a", 0, false}, {"a", 0, false}}, 2},
		"two keys are removed one after the other":                    {[]step{{"abc", 0, false}, {"ab", 0, false}, {"a", 0, false}}, 2},
		"a key is removed, then another is set":                       {[]step{{"ab", 0, false}, {"a", 0, false}, {"ac", 1, false}}, 0},
		"a key is removed, another set, and removed at the same time": {[]step{{"ab", 0, false}, {"a", 0, false}, {"ac", 1, false}, {"a", 1, false}}, 4},
		"a key is removed by server-side apply":                       {[]step{{"ab", 0, false}, {"a", 1, false}}, 0},
		"a key is set at the same time":                               {[]step{{"a", 0, false}, {"ab", 0, false}}, 0},
		"one key is set and two are removed":                          {[]step{{"abc", 0, false}, {"ad", 0, false}}, 0},
		"a list shows a removal":                                      {[]step{{"ab", 0, false}, {"a", 1, true}}, 2},
		"a list shows a removal and another key":                      {[]step{{"ab", 0, false}, {"ac", 1, true}}, 2},
		"a list shows a removal, then another key is removed":         {[]step{{"abc", 0, false}, {"ab", 1, true}, {"a", 1, false}}, 2},
		"a list shows a removal, then another key is set":             {[]step{{"ab", 0, false}, {"a", 1, true}, {"ac", 2, false}}, 0},
		"a list shows an added key":                                   {[]step{{"a", 0, false}, {"ab", 1, true}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var last *Source
			for i, st := range tt.do {
				at := metav1.NewTime(day.Add(time.Duration(st.minute) * time.Minute))
				m := &metav1.ObjectMeta{ResourceVersion: fmt.Sprint(i + 1), ManagedFields: []metav1.ManagedFieldsEntry{
					{Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}}}
				var keys []KeyDigest
				for _, k := range st.keys {
					keys = append(keys, KeyDigest{Key: string(k)})
				}
				s := NewSource(testDigester(), ConfigMap, m, SourceMarks{}, keys)
				s.After(last, nil, Arrival{Live: !st.listed, Seen: day})
				last = s
			}
			for version := uint64(1); version <= 5; version++ {
				if got, want := last.Undated(Moment{Version: version}), tt.want > 0 && version >= tt.want; got != want {
					t.Errorf("version %d undated = %v, want %v", version, got, want)
				}
			}
		})
	}
}

// First returns the content at the time when this process started.
func TestGraph_First(t *testing.T) {
	c := newChanging()
	first := func() string {
		s, known := c.graph.First(c.key)
		if !known {
			t.Error("First does not know the content")
		}
		if s == nil {
			return ""
		}
		for _, v := range []string{"1", "2", "3"} {
			if k := s.key("a"); k != nil && k.Digest == testDigester().digest([]byte(v)) {
				return v
			}
		}
		return "without the key"
	}
	expect := func(when, want string) {
		t.Helper()
		if got := first(); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	expect("absent", "")
	c.write("1", 0, true)
	expect("read", "1")
	c.write("2", 0, true)
	expect("changed before the first lists were complete", "2")
	c.write("3", 1, false)
	expect("changed", "2")
	c.write("2", 2, false)
	expect("changed back", "2")
	c.remove(3)
	expect("deleted", "2")
	c.write("1", 4, false)
	expect("created again", "2")

	c = newChanging()
	c.write("1", 1, false)
	expect("created after this process started", "without the key")
}

// The status of a paused Deployment may describe another template than the one of its pods.
func TestWorkload_StartUnsureWhenResumed(t *testing.T) {
	done := appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3}
	saw := func(previous *Workload, version, image string, paused bool, status appsv1.DeploymentStatus) *Workload {
		o := &appsv1.Deployment{Status: status}
		o.Namespace, o.Name, o.UID, o.ResourceVersion = "shop", "web", "a", version
		o.Spec.Replicas, o.Spec.Paused = new(int32(3)), paused
		o.Spec.Template.Annotations = map[string]string{"image": image}
		w := readDeployment(o)
		w.After(previous, Arrival{Live: true})
		return w
	}
	none := appsv1.DeploymentStatus{Replicas: 3}
	first := saw(nil, "10", "1", false, done)
	begun := saw(first, "20", "2", false, none)
	back := saw(saw(begun, "30", "2", true, none), "40", "1", true, done)
	if w := saw(back, "50", "1", false, done); !w.StartUnsure {
		t.Error("paused before its rollout began, changed back and resumed: StartUnsure = false, want true")
	}
	next := saw(saw(first, "20", "1", true, done), "30", "2", true, none)
	if w := saw(next, "40", "2", false, none); w.StartUnsure {
		t.Error("paused when its rollout was complete, changed and resumed: StartUnsure = true, want false")
	}
}

// The previous key of the hash is restored before the record was written with the new one.
func TestWorkload_WithTheRecordThatItCarries(t *testing.T) {
	w := &Workload{Marks: Marks{Hash: "v1.old.hash", Sources: "sources"}}
	other := w.WithRecord("v1.new.hash", "others")
	if !other.RecordRekeyed() {
		t.Error("RecordRekeyed = false for a record with another key, want true")
	}
	if back := other.WithRecord("v1.old.hash", "sources"); back.RecordRekeyed() || back.RecordDropped() {
		t.Error("the record with the previous key would be written again, want it unchanged")
	}
}
