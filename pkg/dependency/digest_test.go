// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/dump"
)

func testDigester() *Digester { return NewDigester(bytes.Repeat([]byte{7}, KeySize)) }

// whole returns a reference that reads all keys as files; named returns one that reads some keys.
func whole(kind SourceKind, name string) Reference {
	return Reference{Kind: kind, Name: name, Uses: []Use{{Type: Volume, Container: "app"}}}
}

func named(kind SourceKind, name string, keys ...string) Reference {
	return Reference{Kind: kind, Name: name, Uses: []Use{{Type: Volume, Container: "app", Keys: keys}}}
}

func none(SourceKind, string) *Source { return nil }

// configHash returns the hash of what references read of the sources that are looked up.
func configHash(d *Digester, namespace string, references []Reference, lookup func(SourceKind, string) *Source) string {
	var b []byte
	for i := range references {
		b = AppendContent(b, &references[i], lookup(references[i].Kind, references[i].Name))
	}
	return d.ContentHash(namespace, b)
}

func only(sources ...*Source) func(SourceKind, string) *Source {
	return func(kind SourceKind, name string) *Source {
		for _, s := range sources {
			if s.Kind == kind && s.Name == name {
				return s
			}
		}
		return nil
	}
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: data}
}

// The format of the hash that users see, and that later versions must be able to compare.
func TestConfigHashIsWrittenWithVersionAndKeyID(t *testing.T) {
	d := testDigester()
	got := configHash(d, "shop", []Reference{whole(ConfigMap, "a")}, none)
	if !regexp.MustCompile(`^v1\.[0-9a-f]{8}\.[0-9a-f]{32}$`).MatchString(got) {
		t.Errorf("hash %q", got)
	}
	if id := d.keyID; !strings.HasPrefix(got, "v1."+id+".") {
		t.Errorf("hash = %q, want it to start with the key id %s", got, id)
	}
}

// The digest of a key is the HMAC-SHA256 of its bytes, also when the pooled hashes are reused.
func TestDigestIsHMACOfTheValue(t *testing.T) {
	key := bytes.Repeat([]byte{7}, KeySize)
	d := NewDigester(key)
	for _, length := range []int{0, 1, 15, 55, 56, 63, 64, 65, 127, 128, 1000, 1 << 20} {
		value := bytes.Repeat([]byte{'v'}, length)
		mac := hmac.New(sha256.New, key)
		mac.Write(value)
		want := Digest(mac.Sum(nil)[:16])
		for range 2 {
			if got := d.Content(bytes.Clone(value)); got != want {
				t.Errorf("digest of %d bytes = %x, want %x", length, got, want)
			}
		}
	}
}

// Each case is a change of the ConfigMap "app", which starts with the keys a, b and c.
func TestConfigHashChangesWithContentOnly(t *testing.T) {
	base := func() *corev1.ConfigMap { return configMap("app", map[string]string{"a": "1", "b": "2", "c": "3"}) }
	tests := map[string]struct {
		reference Reference
		change    func(*corev1.ConfigMap)
		changes   bool
	}{
		"a value of a whole source":        {whole(ConfigMap, "app"), func(c *corev1.ConfigMap) { c.Data["b"] = "x" }, true},
		"a value becomes empty":            {whole(ConfigMap, "app"), func(c *corev1.ConfigMap) { c.Data["b"] = "" }, true},
		"two values are exchanged":         {whole(ConfigMap, "app"), func(c *corev1.ConfigMap) { c.Data["a"], c.Data["b"] = "2", "1" }, true},
		"a key is renamed":                 {whole(ConfigMap, "app"), func(c *corev1.ConfigMap) { delete(c.Data, "b"); c.Data["d"] = "2" }, true},
		"a key is added to a whole source": {whole(ConfigMap, "app"), func(c *corev1.ConfigMap) { c.Data["d"] = "4" }, true},
		"an empty key is added":            {whole(ConfigMap, "app"), func(c *corev1.ConfigMap) { c.Data["d"] = "" }, true},
		"a key is removed":                 {whole(ConfigMap, "app"), func(c *corev1.ConfigMap) { delete(c.Data, "c") }, true},
		"a key that is read changes":       {named(ConfigMap, "app", "a"), func(c *corev1.ConfigMap) { c.Data["a"] = "x" }, true},
		"a key that is read is removed":    {named(ConfigMap, "app", "a"), func(c *corev1.ConfigMap) { delete(c.Data, "a") }, true},
		"a key that is read is added":      {named(ConfigMap, "app", "a", "z"), func(c *corev1.ConfigMap) { c.Data["z"] = "" }, true},
		"a key that is not read changes":   {named(ConfigMap, "app", "a"), func(c *corev1.ConfigMap) { c.Data["b"] = "x" }, false},
		"keys that are not read are added and removed": {named(ConfigMap, "app", "a"), func(c *corev1.ConfigMap) {
			delete(c.Data, "b")
			c.Data["d"] = "4"
		}, false},
		"metadata": {whole(ConfigMap, "app"), func(c *corev1.ConfigMap) {
			c.UID, c.ResourceVersion, c.Generation = "other", "99", 3
			c.Labels = map[string]string{"l": "v"}
			c.Annotations = map[string]string{"a": "v"}
			c.CreationTimestamp = metav1.Now()
			c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
			c.Immutable = new(true)
		}, false},
		"a value moves to binaryData": {whole(ConfigMap, "app"), func(c *corev1.ConfigMap) {
			c.BinaryData = map[string][]byte{"b": []byte(c.Data["b"])}
			delete(c.Data, "b")
		}, false},
		"a source that is referred to but not read": {
			Reference{Kind: ConfigMap, Name: "app", Uses: []Use{{Type: Volume}, {Type: CSI}, {Type: VolumeSecret}, {Type: ImagePullSecret}}},
			func(c *corev1.ConfigMap) { c.Data["a"] = "x" }, false,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := testDigester()
			hashOf := func(c *corev1.ConfigMap) string {
				return configHash(d, "shop", []Reference{tt.reference}, only(read(d, c)))
			}
			changed := base()
			tt.change(changed)
			before, after := hashOf(base()), hashOf(changed)
			if (before != after) != tt.changes {
				t.Errorf("before %s, after %s, want a change = %v", before, after, tt.changes)
			}
		})
	}
}

// For pods, an absent source is the same as a source without the keys.
func TestConfigHashOfAnAbsentSourceIsThatOfAnEmptyOne(t *testing.T) {
	d := testDigester()
	empty := only(read(d, configMap("app", nil)))
	for name, reference := range map[string]Reference{
		"whole": whole(ConfigMap, "app"),
		"keys":  named(ConfigMap, "app", "a", "b"),
	} {
		absent, present := configHash(d, "shop", []Reference{reference}, none), configHash(d, "shop", []Reference{reference}, empty)
		if absent != present {
			t.Errorf("%s: absent %s, empty %s", name, absent, present)
		}
	}
}

// A Secret and a ConfigMap with the same name are different sources, even with equal content.
func TestConfigHashTellsKindsApart(t *testing.T) {
	d := testDigester()
	cm := read(d, configMap("app", map[string]string{"a": "1"}))
	secret := read(d, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Data: map[string][]byte{"a": []byte("1")}})
	if diff := gocmp.Diff(cm.Keys, secret.Keys); diff != "" {
		t.Errorf("digests of the same bytes differ (-want +got):\n%s", diff)
	}
	a := configHash(d, "shop", []Reference{whole(ConfigMap, "app")}, only(cm, secret))
	b := configHash(d, "shop", []Reference{whole(Secret, "app")}, only(cm, secret))
	if a == b {
		t.Error("hashes of a Secret and a ConfigMap are equal, want them to differ")
	}
}

// A user who may create Secrets in one namespace must not learn from their hashes what Secrets of another
// namespace contain.
func TestConfigHashTellsNamespacesApart(t *testing.T) {
	d := testDigester()
	references := []Reference{whole(Secret, "app")}
	sources := only(read(d, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Data: map[string][]byte{"a": []byte("1")}}))
	if configHash(d, "shop", references, sources) == configHash(d, "mine", references, sources) {
		t.Error("hashes of two namespaces are equal, want them to differ")
	}
}

// Hashes with different keys cannot be compared, which their key ids show.
func TestAnotherKeyHasAnotherKeyIDAndOtherDigests(t *testing.T) {
	key := bytes.Repeat([]byte{7}, KeySize)
	a := NewDigester(key)
	for i := range key {
		other := bytes.Clone(key)
		other[i] ^= 1
		b := NewDigester(other)
		if a.keyID == b.keyID {
			t.Errorf("the key id does not depend on byte %d of the key", i)
		}
		if a.digest([]byte("x")) == b.digest([]byte("x")) {
			t.Errorf("digests do not depend on byte %d of the key", i)
		}
	}
	same := NewDigester(bytes.Clone(key))
	if a.keyID != same.keyID || a.digest([]byte("x")) != same.digest([]byte("x")) {
		t.Error("another digester with the same key has other hashes")
	}
	if hex.EncodeToString(key)[:8] == a.keyID {
		t.Error("the key contains its key id")
	}
}

// A derived secret depends only on the key and the purpose, and no digest of any content is a part of it.
func TestDerive_IsNoDigest(t *testing.T) {
	d := testDigester()
	secret := d.Derive("x")
	if secret != testDigester().Derive("x") {
		t.Error("the same key and purpose derive another secret")
	}
	if secret == d.Derive("y") || secret == NewDigester(bytes.Repeat([]byte{8}, KeySize)).Derive("x") {
		t.Error("another purpose or key derives the same secret")
	}
	for _, content := range []string{"x", "configdep derived key", "configdep derived key: x", "configdep derived keyx"} {
		if digest := d.Content([]byte(content)); bytes.Contains(secret[:], digest[:]) {
			t.Errorf("the digest of %q is a part of the secret", content)
		}
	}
}

// Random content, chosen so that two values are often equal or nearly so: equal content has equal hashes, and
// different content has different hashes, however similar it looks when it is concatenated.
func TestHashesAreEqualIfAndOnlyIfContentIs(t *testing.T) {
	withSeeds(t, 1, hashesAreEqualIfAndOnlyIfContentIs)
}

func hashesAreEqualIfAndOnlyIfContentIs(t *testing.T, r *rand.Rand) {
	t.Helper()
	d := testDigester()
	references := []Reference{whole(ConfigMap, "a"), named(ConfigMap, "b", "k", "kk", "v"), whole(Secret, "a")}
	seen := map[string]string{} // hash by content
	byHash := map[string]string{}
	const runs = 5_000
	for range runs {
		contents := map[sourceID]map[string]string{}
		for _, id := range []sourceID{{ConfigMap, "a"}, {ConfigMap, "b"}, {Secret, "a"}} {
			contents[id] = ambiguous(r)
		}
		described := fmt.Sprintf("%q %q %q %q", contents[sourceID{ConfigMap, "a"}], describe(contents[sourceID{ConfigMap, "b"}], "k", "kk", "v"), "", contents[sourceID{Secret, "a"}])
		hash := configHash(d, "shop", references, func(kind SourceKind, name string) *Source {
			c := &content{data: contents[sourceID{kind, name}]}
			return c.source(d, sourceID{kind, name})
		})
		if before, found := seen[described]; found && before != hash {
			t.Fatalf("content %s has two hashes, %s and %s", described, before, hash)
		}
		if before, found := byHash[hash]; found && before != described {
			t.Fatalf("%s and %s have the same hash", before, described)
		}
		seen[described], byHash[hash] = hash, described
	}
	if len(seen) < runs/10 || len(seen) > runs*9/10 {
		t.Errorf("%d different contents: too many or too few for this test", len(seen))
	}
}

// ambiguous returns a map whose keys and values look like parts of one another.
func ambiguous(r *rand.Rand) map[string]string {
	out := map[string]string{}
	for range r.Intn(3) {
		out[pick(r, "k", "kk", "v", "kv")] = pick(r, "", "k", "v", "vk", "\x00", "\x01k", "k\x00v")
	}
	return out
}

func describe(m map[string]string, keys ...string) string {
	read := map[string]string{}
	for _, k := range keys {
		if v, found := m[k]; found {
			read[k] = v
		}
	}
	return fmt.Sprintf("%q", read)
}

// The hash depends neither on the iteration order of the map nor on the order of the named keys.
func TestConfigHashDoesNotDependOnOrder(t *testing.T) {
	d := testDigester()
	data := map[string]string{}
	for i := range 50 {
		data[fmt.Sprint("key-", i)] = fmt.Sprint(i)
	}
	var hashes []string
	for range 20 {
		hashes = append(hashes, configHash(d, "shop", []Reference{whole(ConfigMap, "a")}, only(read(d, configMap("a", data)))))
	}
	if slices.Sort(hashes); len(slices.Compact(hashes)) != 1 {
		t.Errorf("the same content has several hashes")
	}
}

// The pooled hashes do not keep the content that they have read.
func TestPooledHashesHoldNoContent(t *testing.T) {
	secret := bytes.Repeat([]byte("Z"), 63) // less than a block: only an incomplete block is kept
	key := bytes.Repeat([]byte{7}, KeySize)
	d := NewDigester(key)
	hash := &mac{Hash: hmac.New(sha256.New, key)}
	d.macs.New = func() any { return hash }
	for d.macs.Get() != hash { // the hash from NewDigester
		continue
	}

	hash.Write(secret)
	if !strings.Contains(dump.Pretty(hash), "ZZZZZZ") {
		t.Fatal("the content is not found in a hash that has just read it: this test looks in the wrong place")
	}
	d.macs.Put(hash)
	d.Content(bytes.Clone(secret))
	if held := dump.Pretty(hash); strings.Contains(held, "ZZZZZZ") || strings.Contains(held, "5a 5a") {
		t.Errorf("the hash contains content:\n%s", held)
	}
}

// Several reflectors compute digests concurrently.
func TestDigesterIsSafeForConcurrentUse(t *testing.T) {
	d := testDigester()
	done := make(chan map[string]Digest)
	const workers = 8
	for range workers {
		go func() {
			out := map[string]Digest{}
			for i := range 500 {
				v := fmt.Sprint(i)
				out[v] = d.Content([]byte(v))
			}
			done <- out
		}()
	}
	want := <-done
	for range workers - 1 {
		if got := <-done; !maps.Equal(got, want) {
			t.Error("two goroutines got different digests of the same values")
		}
	}
}

// Keys and names that are equal when they are concatenated: only their lengths distinguish them.
var alike = [][2][]consumed{
	{{{keys: []string{"a\x00b", "c"}}}, {{keys: []string{"a", "b\x00c"}}}},
	{{{name: "a", keys: []string{"b"}}}, {{name: "a\x01b", keys: []string{""}}}},
	{{{name: "a", all: true}}, {{name: "a\x00", keys: []string{""}}}},
	{{{all: true, data: map[string]string{"k": "v"}}}, {{keys: []string{"k"}, data: map[string]string{"k": "v"}}}},
	{{{all: true, data: map[string]string{"k": "vk"}}}, {{all: true, data: map[string]string{"k": "v", "kk": ""}}}},
	{{{all: true, data: map[string]string{"k": ""}}}, {{all: true}}},
	{{{name: "a", all: true}, {name: "b", all: true}}, {{name: "a", all: true}}},
	{{{name: "a", all: true}, {kind: Secret, name: "a", all: true}}, {{kind: Secret, name: "a", all: true}}},
	{
		{{name: "a", all: true, data: map[string]string{"k": "v"}}, {name: "b", all: true}},
		{{name: "a", all: true}, {name: "b", all: true, data: map[string]string{"k": "v"}}},
	},
}

func TestContentsThatLookAlikeHaveDifferentHashes(t *testing.T) {
	d := testDigester()
	for _, pair := range alike {
		if hashConsumed(d, pair[0]) == hashConsumed(d, pair[1]) {
			t.Errorf("%+v and %+v have the same hash", pair[0], pair[1])
		}
	}
}

// consumed is what a workload consumes of one source: all keys or some, and their content.
type consumed struct {
	kind SourceKind // ConfigMap by default
	name string
	all  bool
	keys []string
	data map[string]string
}

func hashConsumed(d *Digester, all []consumed) string {
	var references []Reference
	var sources []*Source
	for _, c := range all {
		kind := cmp.Or(c.kind, ConfigMap)
		r := named(kind, c.name, c.keys...)
		if c.all {
			r = whole(kind, c.name)
		}
		references = append(references, r)
		sources = append(sources, (&content{data: c.data}).source(d, sourceID{kind, c.name}))
	}
	return configHash(d, "shop", references, only(sources...))
}

// FuzzConfigHash decodes from bytes what two workloads consume: their hashes are equal if and only if that is
// equal.
func FuzzConfigHash(f *testing.F) {
	for _, pair := range alike {
		f.Add(pack(pair[0]), pack(pair[1]))
		f.Add(pack(pair[0]), pack(pair[0]))
	}
	d := testDigester()
	f.Fuzz(func(t *testing.T, a, b []byte) {
		left, right := unpack(a), unpack(b)
		same := reflect.DeepEqual(left, right)
		if hashes := hashConsumed(d, left) == hashConsumed(d, right); hashes != same {
			t.Errorf("hashes equal = %v\n%+v\n%+v", hashes, left, right)
		}
	})
}

// pack and unpack write and read consumed values as bytes: strings after their lengths.
func pack(all []consumed) (b []byte) {
	for _, c := range all {
		flags := byte(len(c.keys) << 2)
		if c.kind == Secret {
			flags |= 1
		}
		if c.all {
			flags |= 2
		}
		b = appendString(append(b, flags, byte(len(c.data))), c.name)
		for _, key := range c.keys {
			b = appendString(b, key)
		}
		for _, key := range slices.Sorted(maps.Keys(c.data)) {
			b = appendString(appendString(b, key), c.data[key])
		}
	}
	return b
}

func unpack(b []byte) (all []consumed) {
	next := func() string {
		if len(b) == 0 {
			return ""
		}
		n := min(int(b[0]), len(b)-1)
		s := string(b[1 : 1+n])
		b = b[1+n:]
		return s
	}
	for len(b) > 2 && len(all) < 4 {
		c := consumed{kind: ConfigMap, all: b[0]&2 != 0, data: map[string]string{}}
		if b[0]&1 != 0 {
			c.kind = Secret
		}
		keys, entries := int(b[0]>>2)%8, int(b[1])%8
		b = b[2:]
		c.name = next()
		for range keys {
			c.keys = append(c.keys, next())
		}
		for range entries {
			key := next()
			c.data[key] = next()
		}
		switch c.keys = sortedSet(c.keys); {
		case c.all:
			c.keys = nil
		case len(c.keys) == 0:
			continue // a use names all keys or at least one
		default: // sources that are not read are not consumed
			maps.DeleteFunc(c.data, func(key, _ string) bool { return !slices.Contains(c.keys, key) })
		}
		if slices.ContainsFunc(all, func(o consumed) bool { return o.kind == c.kind && o.name == c.name }) {
			continue // a workload has one reference to a source
		}
		all = append(all, c)
	}
	return all
}
