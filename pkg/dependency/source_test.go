// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// read returns what is kept of a ConfigMap or a Secret.
func read(d *Digester, o metav1.Object) *Source {
	var keys []KeyDigest
	switch o := o.(type) {
	case *corev1.ConfigMap:
		for key, value := range o.Data {
			keys = append(keys, KeyDigest{Key: key, Digest: d.digest([]byte(value))})
		}
		for key, value := range o.BinaryData {
			keys = append(keys, KeyDigest{Key: key, Digest: d.digest(value)})
		}
		return NewSource(ConfigMap, &o.ObjectMeta, SourceMarks{}, keys)
	case *corev1.Secret:
		for key, value := range o.Data {
			keys = append(keys, KeyDigest{Key: key, Digest: d.digest(value)})
		}
		return NewSource(Secret, &o.ObjectMeta, SourceMarks{}, keys)
	}
	return nil
}

func TestNewSource_SortsKeys(t *testing.T) {
	created := metav1.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "u", ResourceVersion: "7", CreationTimestamp: created}
	a, b, c := KeyDigest{Key: "a"}, KeyDigest{Key: "b"}, KeyDigest{Key: "c", Digest: Digest{1}}
	want := &Source{
		SourceKey: SourceKey{Secret, "shop", "db"}, UID: "u", ResourceVersion: "7", Created: created, LastChangeTime: created,
		SourceMarks: SourceMarks{Match: true}, Keys: []KeyDigest{a, b, c},
	}
	got := NewSource(Secret, &meta, SourceMarks{Match: true}, []KeyDigest{c, a, b})
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Source{})); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
}

func at(minute int) metav1.Time { return metav1.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC) }

func TestLastChangedIsWhenContentWasLastWritten(t *testing.T) {
	entry := func(minute int, fields string) metav1.ManagedFieldsEntry {
		e := metav1.ManagedFieldsEntry{Time: new(at(minute))}
		if fields != "" {
			e.FieldsV1 = metav1.NewFieldsV1(fields)
		}
		return e
	}
	const (
		data     = `{"f:data":{".":{},"f:key":{}}}`
		metadata = `{"f:metadata":{"f:annotations":{"f:data":{}}}}`
	)
	tests := map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   int
	}{
		"no managed fields":                                             {nil, 0},
		"written by the manager that created it":                        {[]metav1.ManagedFieldsEntry{entry(5, data)}, 5},
		"the latest of several managers":                                {[]metav1.ManagedFieldsEntry{entry(5, data), entry(9, data), entry(7, data)}, 9},
		"a write of metadata does not count":                            {[]metav1.ManagedFieldsEntry{entry(5, data), entry(9, metadata)}, 5},
		"a write of binaryData counts":                                  {[]metav1.ManagedFieldsEntry{entry(6, `{"f:binaryData":{"f:k":{}}}`)}, 6},
		"a write of stringData counts":                                  {[]metav1.ManagedFieldsEntry{entry(6, `{"f:stringData":{"f:k":{}}}`)}, 6},
		"a write of the type of a Secret does not count":                {[]metav1.ManagedFieldsEntry{entry(6, `{"f:type":{}}`)}, 0},
		"a write of content and metadata counts":                        {[]metav1.ManagedFieldsEntry{entry(6, `{"f:data":{},"f:metadata":{"f:labels":{}}}`)}, 6},
		"an entry without a time is ignored":                            {[]metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(data)}}, 0},
		"an entry without fields is ignored":                            {[]metav1.ManagedFieldsEntry{entry(6, "")}, 0},
		"an entry that cannot be parsed is ignored":                     {[]metav1.ManagedFieldsEntry{entry(6, `{"f:data":`), entry(4, data)}, 4},
		"a time before the creation, because clocks differ, is ignored": {[]metav1.ManagedFieldsEntry{entry(-5, data)}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			meta := metav1.ObjectMeta{CreationTimestamp: at(0), ManagedFields: tt.fields}
			got, _ := contentChanged(&meta)
			if diff := cmp.Diff(at(tt.want), got); diff != "" {
				t.Errorf("last changed (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzOwnsContent compares the result with that of decoding the JSON.
func FuzzOwnsContent(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `null`, `[]`, `"f:data":`, `{"f:data":{}}`, `{"f:binaryData":{".":{}}}`, `{"f:stringData":null}`,
		`{"f:metadata":{"f:annotations":{"f:data":{}}}}`, `{"f:metadata":{"f:labels":{}},"f:data":{"f:k":{}}}`,
		`{"f:data":{}`, `{"f:type":{}}`, "{\"f:d\\u0061ta\":{}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var top map[string]any
		want := false
		if err := json.Unmarshal(raw, &top); err != nil && bytes.HasPrefix(raw, []byte(`{"f:`)) {
			return // the API server rejects it, so ownsContent need not look beyond a first key
		} else if err == nil {
			_, a := top["f:data"]
			_, b := top["f:binaryData"]
			_, c := top["f:stringData"]
			want = a || b || c
			// The API server writes JSON without spaces and unnecessary escapes.
			if written, err := json.Marshal(top); err != nil || !bytes.Equal(written, raw) {
				return
			}
		}
		if got := ownsContent(metav1.NewFieldsV1(string(raw))); got != want {
			t.Errorf("ownsContent = %v, want %v", got, want)
		}
	})
}

func TestResolve_NamesWhatIsMissing(t *testing.T) {
	d := testDigester()
	source := read(d, &corev1.ConfigMap{Data: map[string]string{"a": ""}, BinaryData: map[string][]byte{"b": nil}})
	required := func(uses ...Use) *Reference {
		r := &Reference{Kind: ConfigMap, Uses: uses}
		for _, u := range uses {
			if !u.Optional {
				r.RequiredKeys = append(r.RequiredKeys, u.Keys...)
			}
		}
		r.RequiredKeys = sortedSet(r.RequiredKeys)
		return r
	}
	file := func(keys ...string) Use { return Use{Type: Volume, Container: "app", Keys: keys} }
	env := func(optional bool, key string) Use {
		return Use{Type: Env, Container: "app", Keys: []string{key}, Optional: optional}
	}
	tests := map[string]struct {
		reference *Reference
		source    *Source
		want      Resolution
	}{
		"everything exists":            {required(file("a", "b"), env(false, "a")), source, Resolution{Source: source}},
		"the source is absent":         {required(file()), nil, Resolution{Missing: true}},
		"an optional source is absent": {required(env(true, "a")), nil, Resolution{}},
		"keys are absent":              {required(file("z", "a", "y")), source, Resolution{Source: source, Missing: true, MissingKeys: []string{"y", "z"}}},
		"an optional key is absent":    {required(env(true, "z")), source, Resolution{Source: source}},
		"a SecretProviderClass is not observed": {
			&Reference{Kind: SecretProviderClass, Uses: []Use{{Type: CSI}}}, nil, Resolution{},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Resolve(tt.reference, tt.source), cmpopts.IgnoreUnexported(Source{})); diff != "" {
				t.Errorf("resolution (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKeysOfASourceAreFound(t *testing.T) {
	d := testDigester()
	source := read(d, configMap("a", map[string]string{"b": "2", "a": "1", "c": "3"}))
	for _, key := range []string{"a", "b", "c"} {
		if k := source.key(key); k == nil || k.Key != key {
			t.Errorf("key %s: %v", key, k)
		}
	}
	for _, key := range []string{"", "0", "aa", "d"} {
		if k := source.key(key); k != nil {
			t.Errorf("key %s: %v", key, k)
		}
	}
	if !slices.IsSortedFunc(source.Keys, func(a, b KeyDigest) int { return strings.Compare(a.Key, b.Key) }) {
		t.Error("the keys are not sorted")
	}
}
