// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// put replaces the keys of the ConfigMap. Keys with the same value have the same content; a leading "!" puts a key
// into binaryData.
func (c *changing) put(keys map[string]string) {
	c.version++
	o := &corev1.ConfigMap{Data: map[string]string{}, BinaryData: map[string][]byte{}}
	o.Namespace, o.Name, o.ResourceVersion = "shop", "settings", fmt.Sprint(c.version)
	for key, value := range keys {
		if key[0] == '!' {
			o.BinaryData[key[1:]] = []byte(value)
		} else {
			o.Data[key] = value
		}
	}
	s := FromConfigMap(testDigester(), o, SourceMarks{})
	s.After(c.graph.Source(c.key), c.graph.DeletedBefore(c.key), Arrival{Live: true, Seen: day, Order: 1000 + c.version})
	c.graph.SetSource(s)
}

// numbered returns n keys, numbered from from.
func numbered(from, n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out[fmt.Sprintf("k%02d", from+i)] = "1"
	}
	return out
}

// The last write depends on what the reference reads: only keys that it reads count, where it can see them.
// Removed keys count as long as they are absent.
func TestGraph_LastWrittenOfWhatIsRead(t *testing.T) {
	type keys = map[string]string
	environment := Reference{Kind: ConfigMap, Name: "settings", Uses: []Use{{Type: EnvFrom, Container: "app"}}}
	optional := Reference{Kind: ConfigMap, Name: "settings", Uses: []Use{{Type: EnvFrom, Container: "app", Optional: true}}}
	unread := Reference{Kind: ConfigMap, Name: "settings", Uses: []Use{{Type: EnvFrom, Container: "app"}, {Type: Volume, Optional: true}}}
	optionalKey := Reference{Kind: ConfigMap, Name: "settings", Uses: []Use{{Type: Env, Container: "app", Keys: []string{"a"}, Optional: true}}}
	part := Reference{Kind: ConfigMap, Name: "settings", Uses: []Use{{Type: Volume, Container: "app", Keys: []string{"a"}, SubPath: true}}}
	all, a, b := whole(ConfigMap, "settings"), named(ConfigMap, "settings", "a"), named(ConfigMap, "settings", "b")
	for name, tt := range map[string]struct {
		do   []keys // at versions 101, 102 and so on; nil: deleted
		r    Reference
		want uint64
	}{
		"a key that is read changes":                                                   {[]keys{{"a": "1", "b": "1"}, {"a": "2", "b": "1"}}, a, 102},
		"another key changes":                                                          {[]keys{{"a": "1", "b": "1"}, {"a": "2", "b": "1"}}, b, 101},
		"any key changes":                                                              {[]keys{{"a": "1", "b": "1"}, {"a": "2", "b": "1"}, {"a": "2", "b": "1"}}, all, 102},
		"a key is removed":                                                             {[]keys{{"a": "1", "b": "1"}, {"b": "1"}}, a, 102},
		"another key is removed":                                                       {[]keys{{"a": "1", "b": "1"}, {"b": "1"}}, b, 101},
		"any key is removed":                                                           {[]keys{{"a": "1", "b": "1"}, {"b": "1"}, {"b": "1"}}, all, 102},
		"a key is removed, then another changes":                                       {[]keys{{"a": "1", "b": "1"}, {"b": "1"}, {"b": "2"}}, a, 102},
		"one key is removed after another":                                             {[]keys{{"a": "1", "b": "1", "c": "1"}, {"b": "1", "c": "1"}, {"c": "1"}}, a, 102},
		"a key is removed and added again":                                             {[]keys{{"a": "1", "b": "1"}, {"b": "1"}, {"a": "1", "b": "1"}}, a, 101},
		"a key is removed and added again, then another is removed":                    {[]keys{{"a": "1", "b": "1"}, {"b": "1"}, {"a": "1", "b": "1"}, {"a": "1"}}, a, 101},
		"a key is added again with other content":                                      {[]keys{{"a": "1", "b": "1"}, {"b": "1"}, {"a": "2", "b": "1"}}, a, 103},
		"a key is added again as binary":                                               {[]keys{{"a": "1", "b": "1"}, {"b": "1"}, {"!a": "1", "b": "1"}}, a, 103},
		"a key is added again after the source was deleted":                            {[]keys{{"a": "1", "b": "1"}, {"b": "1"}, nil, {"a": "1", "b": "1"}}, a, 101},
		"an optional key is removed and added again":                                   {[]keys{{"a": "1", "b": "1"}, {"b": "1"}, {"a": "1", "b": "1"}}, optionalKey, 103},
		"an optional file is removed and added again":                                  {[]keys{{"a": "1", "b": "1"}, {"b": "1"}, {"a": "1", "b": "1"}}, part, 103},
		"all keys are read, and one is removed and added again":                        {[]keys{{"a": "1", "b": "1"}, {"b": "1"}, {"a": "1", "b": "1"}}, all, 103},
		"all keys are read, and one is removed and added again, then metadata changes": {[]keys{{"a": "1", "b": "1"}, {"b": "1"}, {"a": "1", "b": "1"}, {"a": "1", "b": "1"}}, all, 103},
		"a key is removed twice":                                                       {[]keys{{"a": "1", "b": "1"}, {"b": "1"}, {"a": "1", "b": "1"}, {"b": "1"}}, a, 104},
		"a key becomes binary, which environments cannot see":                          {[]keys{{"a": "1"}, {"!a": "1"}, {"!a": "2"}}, environment, 102},
		"a key becomes binary, which files can see":                                    {[]keys{{"a": "1"}, {"!a": "1"}, {"!a": "2"}}, all, 103},
		"a binary key is removed":                                                      {[]keys{{"!a": "1", "b": "1"}, {"b": "1"}}, all, 102},
		"a binary key becomes text":                                                    {[]keys{{"!a": "1"}, {"a": "1"}}, environment, 102},
		"deleted and created again with the same content":                              {[]keys{{"a": "1"}, nil, {"a": "1"}}, all, 101},
		"an optional source is deleted and created again":                              {[]keys{{"a": "1"}, nil, {"a": "1"}}, optional, 103},
		"deleted and created again, only an unread use is optional":                    {[]keys{{"a": "1"}, nil, {"a": "1"}}, unread, 101},
		"deleted and created again, then another key is added":                         {[]keys{{"a": "1"}, nil, {"a": "1"}, {"a": "1", "b": "1"}}, a, 101},
		"deleted and created again with other content":                                 {[]keys{{"a": "1"}, nil, {"a": "2"}}, all, 103},
		"deleted and created again without a key":                                      {[]keys{{"a": "1", "b": "1"}, nil, {"b": "1"}}, all, 102},
		"as many keys are removed as are remembered":                                   {[]keys{numbered(0, 32), {"b": "1"}}, b, 102},
		"as many keys are removed as are remembered, none forgotten":                   {[]keys{numbered(0, 32), {"a": "1"}, {"a": "1"}}, named(ConfigMap, "settings", "a", "zz"), 102},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChanging()
			for _, content := range tt.do {
				if content == nil {
					c.remove(1)
				} else {
					c.put(content)
				}
			}
			if got := c.graph.LastWritten("shop", &tt.r).Version; got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

// If more keys were removed than are remembered, the earliest removals count for every key.
func TestGraph_LastWrittenOfForgottenKeys(t *testing.T) {
	for _, tt := range []struct {
		gone  int
		other uint64 // the version of a key that never existed
	}{{31, 0}, {32, 0}, {33, 103}, {35, 105}} {
		c := newChanging()
		for i := range tt.gone + 1 { // one key is removed at each version from 102 on
			c.put(numbered(i, tt.gone+1-i))
		}
		never := named(ConfigMap, "settings", "zz")
		if got := c.graph.LastWritten("shop", &never).Version; got != tt.other {
			t.Errorf("%d keys removed: version of a key that never existed = %d, want %d", tt.gone, got, tt.other)
		}
		for _, i := range []int{tt.gone - 31, tt.gone - 1} { // those that are remembered by name
			one := named(ConfigMap, "settings", fmt.Sprintf("k%02d", i))
			if got, want := c.graph.LastWritten("shop", &one).Version, uint64(102+i); got != want {
				t.Errorf("%d keys removed: version of number %d = %d, want %d", tt.gone, i, got, want)
			}
		}
		if n := len(c.graph.Source(c.key).history().removed); n > 32 {
			t.Errorf("%d keys removed: %d are remembered", tt.gone, n)
		}
	}
}

// The order of a change is that of the first event that can have brought the change.
func TestGraph_LastWrittenInOrder(t *testing.T) {
	c := newChanging()
	a := named(ConfigMap, "settings", "a")
	for _, step := range []struct {
		keys map[string]string
		want Moment
	}{
		{map[string]string{"a": "1"}, Moment{101, 1101}},
		{map[string]string{"a": "2"}, Moment{102, 1102}},
		{map[string]string{"a": "2", "b": "1"}, Moment{102, 1102}},
		{map[string]string{"a": "2", "b": "2"}, Moment{102, 1102}},
		{map[string]string{"a": "3", "b": "2"}, Moment{105, 1105}},
	} {
		c.put(step.keys)
		if got := c.graph.LastWritten("shop", &a); got != step.want {
			t.Errorf("at version %d: last write = %v, want %v", c.version, got, step.want)
		}
	}
}
