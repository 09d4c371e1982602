// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/configdep/configdep/pkg/agent/fileset"
)

const limit = 5 * time.Minute

func object(name string, pairs ...string) *Object {
	o := &Object{Namespace: "shop", Name: name, UID: "uid-" + name, ResourceVersion: "7", Data: map[string][]byte{}}
	for i := 0; i < len(pairs); i += 2 {
		o.Data[pairs[i]] = []byte(pairs[i+1])
	}
	return o
}

// render shows the files of a set.
func render(s *Set) (out []string) {
	for _, f := range s.Files {
		line := f.Path + "=" + string(f.Data)
		if f.Mode != 0 {
			line += fmt.Sprintf(" %#o", f.Mode)
		}
		out = append(out, line)
	}
	return append(out, s.Env...)
}

func TestCompose(t *testing.T) {
	long, longest := strings.Repeat("x", 100_000), strings.Repeat("x", maxVariable)
	everything := labels.SelectorFromSet(labels.Set{"app": "web"})
	named := func(kind Kind, name string) Spec { return Spec{Kind: kind, Namespace: "shop", Name: name} }
	for name, tt := range map[string]struct {
		specs   []Spec
		objects [][]*Object
		want    []string
		err     string // in the error
	}{
		"all keys of two sources": {
			[]Spec{named(ConfigMap, "a"), named(Secret, "b")},
			[][]*Object{{object("a", "y", "1", "x", "2")}, {object("b", "z", "3")}},
			[]string{"x=2", "y=1", "z=3"}, "",
		},
		"chosen keys, renamed, in a directory, with permissions": {
			[]Spec{{Kind: Secret, Namespace: "shop", Name: "tls", Dir: "tls", Mode: 0o440, Keys: []Key{{"tls.crt", "server/cert.pem"}, {"tls.key", "tls.key"}}}},
			[][]*Object{{object("tls", "tls.crt", "c", "tls.key", "k", "ca.crt", "a")}},
			[]string{"tls/server/cert.pem=c 0440", "tls/tls.key=k 0440"}, "",
		},
		"one key twice": {
			[]Spec{{Kind: ConfigMap, Namespace: "shop", Name: "a", Keys: []Key{{"x", "one"}, {"x", "two"}}}},
			[][]*Object{{object("a", "x", "1")}},
			[]string{"one=1", "two=1"}, "",
		},
		"a selector, each in its directory": {
			[]Spec{{Kind: ConfigMap, Namespace: "shop", Selector: everything, Dir: "{namespace}.{name}"}},
			[][]*Object{{object("a", "f", "1"), object("b", "f", "2")}},
			[]string{"shop.a/f=1", "shop.b/f=2"}, "",
		},
		"a selector that matches nothing":   {[]Spec{{Kind: ConfigMap, Namespace: "shop", Selector: everything}}, [][]*Object{nil}, nil, ""},
		"a required object is missing":      {[]Spec{named(Secret, "a")}, [][]*Object{nil}, nil, "Secret shop/a does not exist"},
		"an optional object is missing":     {[]Spec{{Kind: Secret, Namespace: "shop", Name: "a", Optional: true}}, [][]*Object{nil}, nil, ""},
		"a required key is missing":         {[]Spec{{Kind: Secret, Namespace: "shop", Name: "a", Keys: []Key{{"x", "x"}}}}, [][]*Object{{object("a")}}, nil, `Secret shop/a: there is no key "x"`},
		"an optional key is missing":        {[]Spec{{Kind: Secret, Namespace: "shop", Name: "a", Optional: true, Keys: []Key{{"x", "x"}}}}, [][]*Object{{object("a")}}, nil, ""},
		"two sources with the same file":    {[]Spec{named(ConfigMap, "a"), named(Secret, "a")}, [][]*Object{{object("a", "f", "1")}, {object("a", "f", "2")}}, nil, `file "f" is in both ConfigMap shop/a and Secret shop/a`},
		"a file where there is a directory": {[]Spec{named(ConfigMap, "a"), {Kind: Secret, Namespace: "shop", Name: "b", Dir: "f"}}, [][]*Object{{object("a", "f", "1")}, {object("b", "g", "2")}}, nil, `"f" is a file`},
		"a key of a volume leads outside":   {[]Spec{{Kind: Volume, Name: "/v"}}, [][]*Object{{object("/v", "../x", "1")}}, nil, `path "../x"`},
		"a volume is missing":               {[]Spec{{Kind: Volume, Name: "/v"}}, [][]*Object{nil}, nil, "Volume /v does not exist"},
		"everything that is wrong is told":  {[]Spec{named(Secret, "a"), named(Secret, "b")}, [][]*Object{nil, nil}, nil, "Secret shop/a does not exist\nSecret shop/b does not exist"},
		"variables; the last one counts": {
			[]Spec{{Kind: ConfigMap, Namespace: "shop", Name: "a", Env: true}, {Kind: Secret, Namespace: "shop", Name: "b", Env: true, EnvPrefix: "DB_"}},
			[][]*Object{{object("a", "A", "1", "not a name=", "x", "B", "\x00")}, {object("b", "A", "2")}},
			[]string{"A=1", "DB_A=2"}, "",
		},
		"a variable of the longest kind": {
			[]Spec{{Kind: ConfigMap, Namespace: "shop", Name: "a", Env: true}}, [][]*Object{{object("a", "A", longest[:maxVariable-3])}},
			[]string{"A=" + longest[:maxVariable-3]}, "",
		},
		"a variable is too long": {
			[]Spec{{Kind: ConfigMap, Namespace: "shop", Name: "a", Env: true}}, [][]*Object{{object("a", "A", longest[:maxVariable-2])}},
			nil, "ConfigMap shop/a: environment variable A has 131073 bytes, and 131072 are allowed",
		},
		"variables are too long together": {
			[]Spec{{Kind: ConfigMap, Namespace: "shop", Name: "a", Env: true}},
			[][]*Object{{object("a", "A", long, "B", long, "C", long, "D", long, "E", long, "F", long, "G", long, "H", long, "I", long, "J", long, "K", long)}},
			nil, "ConfigMap shop/a: with environment variable K, these have more than 1048576 bytes",
		},
		"variables of chosen keys, renamed": {
			[]Spec{{Kind: Secret, Namespace: "shop", Name: "b", Env: true, EnvPrefix: "DB_", Keys: []Key{{"tls.key", "KEY"}, {"USER", "USER"}}}},
			[][]*Object{{object("b", "tls.key", "k", "USER", "u", "OTHER", "o")}},
			[]string{"DB_KEY=k", "DB_USER=u"}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := NewComposer(tt.specs, "/files", maxBytes, lookup).Compose(func(i int) []*Object { return tt.objects[i] })
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || set != nil {
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
}

// What is wrong with an object of a selector keeps no other one from its place, and neither sources by name nor older objects lose theirs.
func TestCompose_Isolates(t *testing.T) {
	created := func(at string, o *Object) *Object { o.Created = at; return o }
	in := func(dir string, o *Object) *Object { o.Dir = dir; return o }
	all := Spec{Kind: ConfigMap, Namespace: "shop", Selector: labels.SelectorFromSet(labels.Set{"app": "web"}), DirAnnotation: "folder"}
	with := func(change func(*Spec)) Spec { s := all; change(&s); return s }
	named := Spec{Kind: Secret, Namespace: "shop", Name: "tls"}
	full := strings.Repeat("x", maxBytes)
	bomb := func(name string) *Object { return object(name, name+".gz", packed(t, full+"x")) }
	long := strings.Repeat("n", 253)
	for name, tt := range map[string]struct {
		specs   []Spec
		objects [][]*Object
		foreign string
		want    []string
		out     string // what is rejected, and why
	}{
		"a folder outside": {
			[]Spec{all}, [][]*Object{{in("/etc", object("a", "f", "1")), object("b", "f", "2")}}, "",
			[]string{"f=2"}, `ConfigMap shop/a is left out: annotation folder: directory "/etc" is not below /files`,
		},
		"a folder with a long name": {
			[]Spec{all}, [][]*Object{{in("/"+strings.Repeat("x", 2000), object("a", "f", "1")), object("b", "f", "2")}}, "",
			[]string{"f=2"}, `ConfigMap shop/a is left out: annotation folder: directory "/` + strings.Repeat("x", 99) + `" is not below /files`,
		},
		"a name that is too long for a directory": {
			[]Spec{with(func(s *Spec) { s.Dir = "{namespace}.{name}" })}, [][]*Object{{object(long, "f", "1"), object("b", "f", "2")}}, "",
			[]string{"shop.b/f=2"}, `ConfigMap shop/` + long + ` is left out: path "shop.` + long + `/f": a name of 258 bytes: at most 255 are allowed`,
		},
		"a file twice: the older object keeps it, whatever its name": {
			[]Spec{all}, [][]*Object{{created("2026-02-01T00:00:00Z", object("a", "e", "1", "f", "1")), created("2026-01-01T00:00:00Z", object("b", "f", "2"))}}, "",
			[]string{"f=2"}, `ConfigMap shop/a is left out: file "f" is in both ConfigMap shop/b and ConfigMap shop/a`,
		},
		"a file twice, of the same second: the first name keeps it": {
			[]Spec{all}, [][]*Object{{created("2026-01-01T00:00:00Z", object("a", "f", "1")), created("2026-01-01T00:00:00Z", object("b", "f", "2"))}}, "",
			[]string{"f=1"}, `ConfigMap shop/b is left out: file "f" is in both ConfigMap shop/a and ConfigMap shop/b`,
		},
		"a file of a source by name, which is named later": {
			[]Spec{all, named}, [][]*Object{{object("a", "f", "1"), object("b", "g", "2")}, {object("tls", "f", "3")}}, "",
			[]string{"f=3", "g=2"}, `ConfigMap shop/a is left out: file "f" is in both Secret shop/tls and ConfigMap shop/a`,
		},
		"a file of another selector": {
			[]Spec{all, with(func(s *Spec) { s.Kind = Secret })}, [][]*Object{{object("a", "f", "1")}, {object("a", "f", "2"), object("b", "g", "3")}}, "",
			[]string{"f=1", "g=3"}, `Secret shop/a is left out: file "f" is in both ConfigMap shop/a and Secret shop/a`,
		},
		"a file where there is a directory": {
			[]Spec{all}, [][]*Object{{in("d/e", object("a", "f", "1")), object("b", "d", "2"), object("c", "g", "3")}}, "",
			[]string{"d/e/f=1", "g=3"}, `ConfigMap shop/b is left out: "d" is a file of ConfigMap shop/b and a directory of ConfigMap shop/a`,
		},
		"a directory where there is a file": {
			[]Spec{all}, [][]*Object{{object("a", "d", "1"), in("d/e", object("b", "f", "2")), in("d", object("c", "f", "3"))}}, "",
			[]string{"d=1"}, `ConfigMap shop/b is left out: "d" is a file of ConfigMap shop/a and a directory of ConfigMap shop/b; ` +
				`ConfigMap shop/c is left out: "d" is a file of ConfigMap shop/a and a directory of ConfigMap shop/c`,
		},
		"what is left out takes no place": {
			[]Spec{with(func(s *Spec) { s.Gunzip = true })}, [][]*Object{{in("d", object("a", "a", "1", "b.gz", "it is damaged")), object("b", "d", "2"), object("c", "a", "3")}}, "",
			[]string{"d=2", "a=3"}, `ConfigMap shop/a is left out: key "b.gz" is not a valid gzip file: invalid header`,
		},
		"a file of others in the directory": {
			[]Spec{all}, [][]*Object{{in("theirs", object("a", "f", "1")), object("b", "f", "2")}}, "theirs",
			[]string{"f=2"}, `ConfigMap shop/a is left out: "theirs" exists already, and is not of the set`,
		},
		"a key is missing": {
			[]Spec{with(func(s *Spec) { s.Keys = []Key{{"f", "{x}"}} })}, [][]*Object{{object("a"), object("b", "f", "2")}}, "",
			[]string{"{x}=2"}, `ConfigMap shop/a is left out: there is no key "f"`,
		},
		"one file of two keys": {
			[]Spec{with(func(s *Spec) { s.Gunzip = true })}, [][]*Object{{object("a", "f", "1", "f.gz", packed(t, "1")), object("b", "f", "2")}}, "",
			[]string{"f=2"}, `ConfigMap shop/a is left out: file "f" comes twice from ConfigMap shop/a`,
		},
		"too large": {
			[]Spec{all, named}, [][]*Object{{object("a", "a", full), object("b", "b", "2")}, {object("tls", "f", "3")}}, "",
			[]string{"f=3", "b=2"}, `ConfigMap shop/a is left out: with file "a", the files have more than 1000 bytes`,
		},
		"it unpacks to more than there is room for": {
			[]Spec{with(func(s *Spec) { s.Gunzip = true })}, [][]*Object{{bomb("a"), object("b", "b.gz", packed(t, "2"))}}, "",
			[]string{"b=2"}, `ConfigMap shop/a is left out: with key "a.gz", the files have more than 1000 bytes`,
		},
		"many of them": { // 10 are unpacked, and named
			[]Spec{with(func(s *Spec) { s.Gunzip = true })},
			[][]*Object{{bomb("a"), bomb("b"), bomb("c"), bomb("d"), bomb("e"), bomb("f"), bomb("g"), bomb("h"), bomb("i"), object("ok", "ok.gz", packed(t, "1")), bomb("j"), object("z", "z.gz", packed(t, "2")), object("zz", "x", "3")}}, "",
			[]string{"ok=1"}, "; and 2 more",
		},
		"a variable is too long": {
			[]Spec{with(func(s *Spec) { s.Env = true })}, [][]*Object{{object("a", "A", "1", "B", strings.Repeat("x", maxVariable)), object("b", "C", "2")}}, "",
			[]string{"C=2"}, `ConfigMap shop/a is left out: environment variable B has 131075 bytes, and 131072 are allowed`,
		},
		"variables stay in the order of the sources": {
			[]Spec{with(func(s *Spec) { s.Env = true }), {Kind: Secret, Namespace: "shop", Name: "tls", Env: true}}, [][]*Object{{object("a", "A", "1")}, {object("tls", "A", "2")}}, "",
			[]string{"A=1", "A=2"}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewComposer(tt.specs, "/files", maxBytes, lookup)
			c.Foreign = func(name string) bool { return name == tt.foreign }
			set, err := c.Compose(func(i int) []*Object { return tt.objects[i] })
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, render(set)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			d, err := fileset.Open(t.TempDir(), fileset.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if _, err := d.Stage(set.Files); err != nil {
				t.Error(err)
			}
			if got := Rejections(set.Rejected); got != tt.out && (tt.out == "" || !strings.HasSuffix(got, tt.out)) {
				t.Errorf("left out: %q, want %q", got, tt.out)
			}
			for _, r := range set.Rejected {
				if slices.ContainsFunc(set.Versions, func(v Version) bool { return v.Kind == r.Kind && v.Name == r.Name }) {
					t.Errorf("%s is applied and left out", r.Name)
				}
			}
		})
	}
}

// A selector that asks for an empty value, as users of k8s-sidecar write who mean any value, says why it matches nothing.
func TestCompose_EmptyValue(t *testing.T) {
	for selector, says := range map[string]bool{"app=": true, "app==": true, "x=y,app in (,)": true, "app": false, "app!=": false, "app=web": false, "app notin (,)": false} {
		parsed, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		specs := []Spec{{Kind: ConfigMap, Namespace: "shop", Selector: parsed}}
		for _, objects := range [][]*Object{nil, {object("a", "f", "1")}} {
			set, err := NewComposer(specs, "/files", maxBytes, lookup).Compose(func(int) []*Object { return objects })
			if err != nil {
				t.Fatal(err)
			}
			if got := Rejections(set.Rejected); (got != "") != (says && objects == nil) || got != "" && !strings.Contains(got, "an empty value matches only labels without a value") {
				t.Errorf("%s, with %d objects: %q", selector, len(objects), got)
			}
		}
	}
}

// An annotation chooses a directory below the source's own, and nothing else.
func TestCompose_DirAnnotation(t *testing.T) {
	spec := []Spec{{Kind: ConfigMap, Namespace: "shop", Name: "a", Dir: "dashboards", DirAnnotation: "folder"}}
	for dir, want := range map[string]string{
		"": "dashboards/f=1", "team/a": "dashboards/team/a/f=1", "team/a/": "dashboards/team/a/f=1", ".": "dashboards/f=1",
		"/files/dashboards": "dashboards/f=1", "/files/dashboards/": "dashboards/f=1", "/files/dashboards/team//a/": "dashboards/team/a/f=1",
		"/etc": "", "../x": "", "..data": "", "a/../../x": "", "/files": "", "/files/other": "", "/files/dashboards2": "", "/files/dashboards/../other": "", "/files/dashboards/..data": "", "/": "",
	} {
		o := object("a", "f", "1")
		o.Dir = dir
		set, err := NewComposer(spec, "/files", maxBytes, lookup).Compose(func(int) []*Object { return []*Object{o} })
		switch {
		case want == "":
			if err == nil || !strings.Contains(err.Error(), "ConfigMap shop/a: annotation folder: ") {
				t.Errorf("directory %q: %v", dir, err)
			}
		case err != nil || render(set)[0] != want:
			t.Errorf("directory %q: %v, %v, want %s", dir, set, err, want)
		}
	}
}

// Versions are those of all objects, once each, and tell which ones are absent.
func TestCompose_Versions(t *testing.T) {
	specs := []Spec{{Kind: Secret, Namespace: "shop", Name: "b"}, {Kind: ConfigMap, Namespace: "shop", Name: "z", Optional: true}, {Kind: Secret, Namespace: "shop", Name: "b", Dir: "again"}, {Kind: Volume, Name: "/v"}}
	objects := [][]*Object{{object("b", "x", "1")}, nil, {object("b", "x", "1")}, {object("/v")}}
	set, err := NewComposer(specs, "/files", maxBytes, lookup).Compose(func(i int) []*Object { return objects[i] })
	if err != nil {
		t.Fatal(err)
	}
	want := []Version{{Kind: ConfigMap, Namespace: "shop", Name: "z"}, {Kind: Secret, Namespace: "shop", Name: "b", UID: "uid-b", ResourceVersion: "7"}}
	if diff := cmp.Diff(want, set.Versions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// However a source is named, no file is outside of the directory.
func FuzzCompose(f *testing.F) {
	for _, path := range []string{"a", "../a", "/a", "a/../../b", "..data", "a\x00", "{name}", "."} {
		f.Add(path, path, path)
	}
	f.Fuzz(func(t *testing.T, key, path, dir string) {
		o := object("a", key, "1")
		o.Dir = dir
		spec := Spec{Kind: Volume, Name: "/v", DirAnnotation: "d"}
		if path != "" {
			spec.Keys = []Key{{key, path}}
		}
		set, err := NewComposer([]Spec{spec}, "/files", maxBytes, lookup).Compose(func(int) []*Object { return []*Object{o} })
		if err != nil {
			return
		}
		d, err := fileset.Open(filepath.Join(t.TempDir(), "files"), fileset.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		s, err := d.Stage(set.Files)
		if err != nil {
			return // as a path that is too long together
		}
		for _, file := range set.Files {
			inside, err := filepath.Rel(s.Path(), filepath.Join(s.Path(), file.Path))
			if err != nil || !filepath.IsLocal(inside) {
				t.Errorf("file %q", file.Path)
			}
		}
	})
}

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, limit, true, func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

// Directories are read when the kernel tells of changes, and otherwise when it is time.
func TestMount(t *testing.T) {
	for name, poll := range map[string]time.Duration{"notified": time.Hour, "polled": 5 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			volume := dir
			if name == "polled" { // a link is made later, so that nothing is told of what it leads to, as on a network file system
				volume = filepath.Join(t.TempDir(), "volume")
			}
			set := func(name string, files map[string]string) {
				t.Helper()
				if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
					t.Fatal(err)
				}
				for file, content := range files {
					if err := os.WriteFile(filepath.Join(dir, name, file), []byte(content), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				temp := filepath.Join(dir, "..data_tmp")
				if err := os.Symlink(name, temp); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(temp, filepath.Join(dir, dataLink)); err != nil {
					t.Fatal(err)
				}
			}
			// As the kubelet does.
			set("..2026_1", map[string]string{"a": "1", "b": "1"})
			for _, f := range []string{"a", "b"} {
				if err := os.Symlink(filepath.Join(dataLink, f), filepath.Join(dir, f)); err != nil {
					t.Fatal(err)
				}
			}
			var changes atomic.Int32
			m := NewMount(&Spec{Kind: Volume, Name: volume}, poll, maxBytes, func() { changes.Add(1) })
			if _, synced := m.Objects(); synced {
				t.Error("it has been read before it was")
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { m.Run(ctx); close(done) }()
			shows := func(want map[string]string) func() bool {
				return func() bool {
					objects, synced := m.Objects()
					if !synced || len(objects) != 1 {
						return false
					}
					got := map[string]string{}
					for key, value := range objects[0].Data {
						got[key] = string(value)
					}
					return cmp.Equal(got, want)
				}
			}
			if volume != dir {
				await(t, "it is not found", func() bool { objects, synced := m.Objects(); return synced && len(objects) == 0 && changes.Load() == 1 })
				changes.Store(0)
				if err := os.Symlink(dir, volume); err != nil {
					t.Fatal(err)
				}
			}
			await(t, "it is read", shows(map[string]string{"a": "1", "b": "1"}))
			set("..2026_2", map[string]string{"a": "2", "c": "2"})
			await(t, "the second set is read", shows(map[string]string{"a": "2", "c": "2"}))
			await(t, "both changes are told", func() bool { return changes.Load() >= 2 }) // which is after the objects are there
			if n := changes.Load(); n != 2 {
				t.Errorf("%d changes, want 2", n)
			}
			if m.Health().Heard.IsZero() || m.Health().Err != nil {
				t.Errorf("health %+v", m.Health())
			}
			cancel()
			<-done
		})
	}
}

// maxBytes is how many bytes the volumes of tests may have.
const maxBytes = 1000

// What cannot be read is logged once, and the agent is told, because it has not what there is now.
func TestMount_Refused(t *testing.T) {
	dir := t.TempDir()
	write := func(size int) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "a"), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(maxBytes)
	changes := 0
	m := NewMount(&Spec{Kind: Volume, Name: dir}, time.Hour, maxBytes, func() { changes++ })
	for i, step := range []struct {
		size, changes int
		failed        bool
	}{{maxBytes, 1, false}, {maxBytes + 1, 2, true}, {maxBytes + 2, 2, false}, {maxBytes, 3, false}, {maxBytes, 3, false}, {maxBytes + 1, 4, true}} {
		write(step.size)
		err := m.look()
		if (err != nil) != step.failed || changes != step.changes {
			t.Errorf("step %d: error %v, %d changes, want %+v", i, err, changes, step)
		}
		if _, is := errors.AsType[*LimitError](m.Health().Err); is != (step.size > maxBytes) {
			t.Errorf("step %d: health %+v", i, m.Health())
		}
	}
}

// What is read again and is the same stays the same object, from which nothing is made again.
func TestMount_Same(t *testing.T) {
	dir := t.TempDir()
	m := NewMount(&Spec{Kind: Volume, Name: dir}, time.Hour, maxBytes, func() {})
	look := func(content string) *Object {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "a"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := m.look(); err != nil {
			t.Fatal(err)
		}
		objects, _ := m.Objects()
		return objects[0]
	}
	first := look("1")
	if look("1") != first {
		t.Error("the same content is another object")
	}
	if look("2") == first {
		t.Error("other content is the same object")
	}
}

// A plain directory has files of others, links, and what is no file.
func TestMount_PlainDirectory(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	for path, content := range map[string]string{"a": "1", "sub/b": "2", "..hidden/c": "3", "..d": "4"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"inside": "a", "outside": outside, "nowhere": "none", "folder": "sub"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	m := NewMount(&Spec{Kind: Volume, Name: dir}, time.Hour, maxBytes, func() {})
	o, err := m.load()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for key, value := range o.Data {
		got[key] = string(value)
	}
	if diff := cmp.Diff(map[string]string{"a": "1", "sub/b": "2", "inside": "1"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if o, err := NewMount(&Spec{Kind: Volume, Name: filepath.Join(dir, "none")}, time.Hour, maxBytes, func() {}).load(); o != nil || err != nil {
		t.Errorf("a directory that does not exist: %v, %v", o, err)
	}
	if err := os.Truncate(filepath.Join(dir, "a"), maxBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := m.load(); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a file that is too large: %v", err)
	}
}

// Those who write in the volume cannot have files read that are outside of it.
func TestMount_LinkToOutside(t *testing.T) {
	parent := t.TempDir()
	dir, outside := filepath.Join(parent, "volume"), filepath.Join(parent, "outside")
	for _, d := range []string{dir, outside} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "token"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "hop")); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"../outside", outside, "hop"} {
		link := filepath.Join(dir, dataLink)
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		if o, err := NewMount(&Spec{Kind: Volume, Name: dir}, time.Hour, maxBytes, func() {}).load(); err == nil {
			t.Errorf("%s leads to %s: %v", dataLink, target, o)
		}
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
	}
}
