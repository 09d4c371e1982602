// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// packed returns a gzip file.
func packed(t testing.TB, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// lookup knows some variables.
func lookup(name string) (string, bool) {
	value, set := map[string]string{"A": "1", "long_NAME_2": "$(A)", "EMPTY": "", "LONG": strings.Repeat("x", 400), "TOKEN": "VALUE-OF-TOKEN", "_09AZaz": "all"}[name]
	return value, set
}

// compose composes a set from one object.
func compose(c *Composer, o *Object) (*Set, error) {
	return c.Compose(func(int) []*Object { return []*Object{o} })
}

func TestGunzip(t *testing.T) {
	const secret = "PASSWORD-OF-THE-APPLICATION"
	text := packed(t, secret+secret)
	damaged := []byte(text)
	damaged[len(damaged)-8] ^= 1 // in its checksum
	full := strings.Repeat("x", maxBytes)
	for name, tt := range map[string]struct {
		keys  []Key
		pairs []string
		want  []string
		err   string
	}{
		"content tells what is unpacked, and files lose the suffix": {
			nil, []string{"a.yaml.gz", packed(t, "1"), "b", packed(t, "2"), "c", "3", "d", "\x1f\x8b"},
			[]string{"a.yaml=1", "b=2", "c=3", "d=\x1f\x8b"}, "",
		},
		"a file of another name keeps it": {
			[]Key{{"a.gz", "b.gz"}, {"c", "c"}, {"d.gz", "d.gz"}}, []string{"a.gz", packed(t, "1"), "c", "3", "d.gz", packed(t, "4")},
			[]string{"b.gz=1", "c=3", "d=4"}, "",
		},
		"two files in one":               {nil, []string{"a.gz", packed(t, "1") + packed(t, "2")}, []string{"a=12"}, ""},
		"an empty file":                  {nil, []string{"a.gz", packed(t, ""), "b", ""}, []string{"a=", "b="}, ""},
		"only once":                      {nil, []string{"a.gz", packed(t, packed(t, "1"))}, []string{"a=" + packed(t, "1")}, ""},
		"as large as is allowed":         {nil, []string{"a.gz", packed(t, full)}, []string{"a=" + full}, ""},
		"too large":                      {nil, []string{"a.gz", packed(t, full+"x")}, nil, `Secret shop/a: with key "a.gz", the files have more than 1000 bytes`},
		"too large together":             {nil, []string{"a", "1", "b.gz", packed(t, full), "c.gz", packed(t, full)}, nil, `Secret shop/a: with key "b.gz", the files have more than 1000 bytes`},
		"a name that says gzip":          {nil, []string{"a.gz", secret}, nil, `Secret shop/a: key "a.gz" is not a valid gzip file: invalid header`},
		"a name that says gzip, empty":   {nil, []string{"a.gz", ""}, nil, `Secret shop/a: key "a.gz" is not a complete gzip file`},
		"the end is missing":             {nil, []string{"a", text[:len(text)-9]}, nil, `Secret shop/a: key "a" is not a complete gzip file`},
		"damaged":                        {nil, []string{"a", string(damaged)}, nil, `Secret shop/a: key "a" is not a valid gzip file: invalid checksum`},
		"more follows":                   {nil, []string{"a", text + secret}, nil, `Secret shop/a: key "a" is not a valid gzip file: invalid header`},
		"two keys with the same file":    {nil, []string{"a.gz", packed(t, "1"), "a", "2"}, nil, `file "a" comes twice from Secret shop/a`},
		"a name that is only the suffix": {nil, []string{".gz", packed(t, "1")}, nil, `Secret shop/a: path ""`},
	} {
		t.Run(name, func(t *testing.T) {
			spec := Spec{Kind: Secret, Namespace: "shop", Name: "a", Gunzip: true, Keys: tt.keys}
			set, err := compose(NewComposer([]Spec{spec}, "/files", maxBytes, lookup), object("a", tt.pairs...))
			if tt.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tt.err) || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "\n") {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, render(set)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	// Without the option, content is as it is.
	set, err := compose(NewComposer([]Spec{{Kind: Secret, Namespace: "shop", Name: "a"}}, "/files", maxBytes, lookup), object("a", "a.gz", text))
	if err != nil || !cmp.Equal(render(set), []string{"a.gz=" + text}) {
		t.Errorf("%v, %v", set, err)
	}
}

// A small file that unpacks to a lot costs neither memory nor, as long as it stays the same, time.
func TestGunzip_Bomb(t *testing.T) {
	const room = 64 << 20
	bomb := object("a", "a.gz", packed(t, strings.Repeat("\x00", room+1)))
	c := NewComposer([]Spec{{Kind: ConfigMap, Namespace: "shop", Name: "a", Gunzip: true}}, "/files", room, lookup)
	allocated := func() (bytes uint64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := compose(c, bomb); err == nil || !strings.Contains(err.Error(), "more than 67108864 bytes") {
			t.Errorf("error %v", err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if first := allocated(); first > 1<<20 {
		t.Errorf("%d bytes of memory", first)
	}
	if second := allocated(); second > 16<<10 { // a reader of gzip takes 40 KB
		t.Errorf("%d bytes of memory the second time: it has been unpacked again", second)
	}
}

func TestSubstitute(t *testing.T) {
	for name, tt := range map[string]struct {
		text, want, err string
	}{
		"variables":                    {"a: $(A)$(A), b: $(EMPTY).", "a: 11, b: .", ""},
		"values stay as they are":      {"$(long_NAME_2)", "$(A)", ""},
		"letters, digits, underscores": {"$(_09AZaz) $(_09AZaz@) $(_09AZaz[) $(_09AZaz{) $(/) $(:) $(`)", "all $(_09AZaz@) $(_09AZaz[) $(_09AZaz{) $(/) $(:) $(`)", ""},
		"nothing else":                 {"$A ${A} $() $(A $(A-B) $(A)) $($(A) $ $(", "$A ${A} $() $(A $(A-B) 1) $(1 $ $(", ""},
		"the dollar before stays":      {"$$(A)", "$1", ""},
		"nothing":                      {"", "", ""},
		"other variables stay":         {"$(date) $(TOKEN) $(A) $(none)$(A)", "$(date) $(TOKEN) 1 $(none)1", ""},
		"as large as is allowed":       {"$(LONG)$(LONG)" + strings.Repeat("y", 200), strings.Repeat("x", 800) + strings.Repeat("y", 200), ""},
		"too large":                    {"$(LONG)$(LONG)" + strings.Repeat("y", 201), "", `ConfigMap shop/a: with key "x", the files have more than 1000 bytes`},
		"smaller than it was before":   {strings.Repeat("$(A)", 1000), strings.Repeat("1", 1000), ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := Spec{Kind: ConfigMap, Namespace: "shop", Name: "a", Substitute: named}
			set, err := compose(NewComposer([]Spec{spec}, "/files", maxBytes, lookup), object("a", "x", tt.text))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "VALUE") {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"x=" + tt.want}, render(set)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	// Variables are those of what has been unpacked, and keys and names of files have none.
	spec := Spec{Kind: ConfigMap, Namespace: "shop", Name: "a", Gunzip: true, Substitute: named, Keys: []Key{{"$(A).gz", "$(A)"}}}
	set, err := compose(NewComposer([]Spec{spec}, "/files", maxBytes, lookup), object("a", "$(A).gz", packed(t, "a: $(A)")))
	if err != nil || !cmp.Equal(render(set), []string{"$(A)=a: 1"}) {
		t.Errorf("%v, %v", set, err)
	}
	// Content without variables takes no memory of its own.
	o := object("a", "x", "$(none)")
	set, err = compose(NewComposer([]Spec{{Kind: ConfigMap, Namespace: "shop", Name: "a", Substitute: named}}, "/files", maxBytes, lookup), o)
	if err != nil || &set.Files[0].Data[0] != &o.Data["x"][0] {
		t.Errorf("%v, %v", set, err)
	}
}

// named are the variables that content may refer to: all that lookup knows but TOKEN.
var named = []string{"A", "long_NAME_2", "EMPTY", "LONG", "_09AZaz", "none"}

// Content that stays the same is unpacked once, and what has become too large is unpacked again once there is room.
func TestComposer_MakesOnce(t *testing.T) {
	specs := []Spec{{Kind: ConfigMap, Namespace: "shop", Name: "a", Gunzip: true}, {Kind: ConfigMap, Namespace: "shop", Name: "b"}, {Kind: ConfigMap, Namespace: "shop", Name: "c", Gunzip: true}}
	c := NewComposer(specs, "/files", maxBytes, lookup)
	objects := []*Object{object("a", "a", packed(t, "1")), object("b", "b", "2"), object("c", "c", packed(t, strings.Repeat("3", 500)))}
	compose := func(want string) *Set {
		t.Helper()
		set, err := c.Compose(func(i int) []*Object { return []*Object{objects[i]} })
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %s", err, want)
			}
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	first := compose("")
	objects[1] = object("b", "b", "4")
	second := compose("")
	for i, same := range []bool{true, false, true} {
		if got := &first.Files[i].Data[0] == &second.Files[i].Data[0]; got != same {
			t.Errorf("%s has been made once: %t, want %t", second.Files[i].Path, got, same)
		}
	}
	objects[1] = object("b", "b", strings.Repeat("x", 500))
	compose(`with key "c", the files have more than 1000 bytes`)
	objects[1] = object("b", "b", "5")
	third := compose("")
	if &first.Files[0].Data[0] != &third.Files[0].Data[0] {
		t.Error("a failure of another source had content unpacked again")
	}
	if len(c.made) != 2 || c.before != nil {
		t.Errorf("it keeps %d and %d pieces of content", len(c.made), len(c.before))
	}
	// What was too large is tried again with more room, and so is what is new.
	objects[2] = object("c", "c", packed(t, strings.Repeat("3", 1000)))
	compose(`with key "c"`)
	objects[0], objects[1] = object("a"), object("b")
	if set := compose(""); len(set.Files) != 1 || len(set.Files[0].Data) != 1000 {
		t.Errorf("%v", render(set))
	}
}

// Whatever content is, what is unpacked of it has room, and errors have nothing of it.
func FuzzGunzip(f *testing.F) {
	for _, text := range []string{"", "x", strings.Repeat("x", 100), packed(f, "x")} {
		f.Add([]byte(packed(f, text)), int64(50))
	}
	f.Add([]byte{0x1f, 0x8b, 8}, int64(-5))
	f.Fuzz(func(t *testing.T, data []byte, room int64) {
		room = min(room, 1<<20)
		out, err := gunzip(data, room)
		if err == nil && int64(len(out)) > room {
			t.Errorf("%d bytes in %d", len(out), room)
		}
		if _, invalid := errors.AsType[gzipError](err); err != nil && !invalid && !errors.Is(err, errTooLarge) {
			t.Errorf("error %v", err)
		}
		if r, err2 := gzip.NewReader(bytes.NewReader(data)); err == nil && err2 == nil {
			if all, err2 := io.ReadAll(r); err2 != nil || !bytes.Equal(all, out) {
				t.Errorf("%q, want %q, %v", out, all, err2)
			}
		}
	})
}
