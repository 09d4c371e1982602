package dependency

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPatternNamesSources(t *testing.T) {
	for _, tc := range []struct {
		pattern string
		glob    bool
		yes, no []string
	}{
		{"db", false, []string{"db"}, []string{"", "d", "dbx", "xdb", "DB"}},
		{"feature-*", true, []string{"feature-", "feature-1", "feature-a.b-c"}, []string{"feature", "xfeature-1"}},
		{"*", true, []string{"", "a", "a.b"}, nil},
		{"a?c", true, []string{"abc", "a.c"}, []string{"ac", "abbc"}},
		{"v[0-9]", true, []string{"v1", "v9"}, []string{"va", "v10", "v"}},
		{"v[^0-9]", true, []string{"va"}, []string{"v1"}},
		{`a\*`, true, []string{"a*"}, []string{"ab", `a\*`}},
		{"a.b", false, []string{"a.b"}, []string{"axb"}},
		{"[", true, nil, []string{"[", "a", ""}},
		{"a[", true, nil, []string{"a[", "a"}},
	} {
		p := Pattern{Kind: Secret, Name: tc.pattern}
		if p.Glob() != tc.glob {
			t.Errorf("%q: glob is %v, want %v", tc.pattern, p.Glob(), tc.glob)
		}
		for _, name := range tc.yes {
			if !p.Matches(Secret, name) {
				t.Errorf("%q does not match %q", tc.pattern, name)
			}
			if p.Matches(ConfigMap, name) {
				t.Errorf("%q matches a ConfigMap", tc.pattern)
			}
		}
		for _, name := range tc.no {
			if p.Matches(Secret, name) {
				t.Errorf("%q matches %q", tc.pattern, name)
			}
		}
	}
}

// A Matcher names what its patterns do, which is what path.Match says.
func TestMatcher(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	text := func(alphabet string, most int) string {
		b := make([]byte, r.IntN(most+1))
		for i := range b {
			b[i] = alphabet[r.IntN(len(alphabet))]
		}
		return string(b)
	}
	matched := 0
	for range 50_000 {
		patterns := []Pattern{{Secret, text("aab**", 6)}, {Secret, text("ab*?[]^-\\\\/", 6)}, {ConfigMap, text("ab*", 4)}}
		m := NewMatcher(patterns)
		name := text("aab", 8)
		if r.IntN(10) == 0 {
			name = text("ab/*", 5)
		}
		var named bool
		var want []int
		globs := 0
		for _, p := range patterns {
			yes := p.Matches(Secret, name)
			if p.Glob() {
				if yes {
					want = append(want, globs)
				}
				globs++
				continue
			}
			named = named || yes
		}
		if got := m.Globs(Secret, name, nil); !slices.Equal(got, want) || m.Names(Secret, name) != named || m.Matches(Secret, name) != (named || len(want) > 0) {
			t.Fatalf("of %q, %q is named by the globs %v, want %v; by name: %v, want %v", patterns, name, got, want, m.Names(Secret, name), named)
		}
		matched += len(want)
	}
	if matched < 5_000 {
		t.Errorf("only %d globs have matched", matched)
	}
}

func TestLastGoneIsTheLatestDeletionOfWhatAPatternNames(t *testing.T) {
	g := NewGraph()
	patterns := []Pattern{{Secret, "feature-*"}}
	w := &Workload{WorkloadKey: WorkloadKey{Deployment, "shop", "web"}}
	g.SetWorkload(w, patterns)
	g.SetWorkload(&Workload{WorkloadKey: WorkloadKey{Deployment, "other", "web"}}, patterns)
	del := func(kind SourceKind, namespace, name string, version uint64) {
		key := SourceKey{kind, namespace, name}
		g.SetSource(&Source{SourceKey: key})
		g.DeleteSource(key, Change{Version: version})
	}
	check := func(what string, want uint64) {
		t.Helper()
		if diff := cmp.Diff([]Change{{Version: want}}, g.LastGone("shop", patterns, []Pattern{{Secret, "feature-x*"}})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("nothing has gone", 0)
	del(Secret, "shop", "feature-2", 20)
	del(Secret, "shop", "feature-1", 10)
	check("two have gone", 20)
	del(ConfigMap, "shop", "feature-3", 30)
	del(Secret, "other", "feature-4", 40)
	del(Secret, "shop", "db", 50)
	del(Secret, "shop", "feature-x1", 60)
	check("others have gone, and one that is excepted", 20)
	g.SetSource(&Source{SourceKey: SourceKey{Secret, "shop", "feature-2"}})
	check("one is there again", 10)
}

// Deletions of sources that only globs name are not remembered without end, and what is
// forgotten makes none seem older than it is.
func TestDeletionsAreForgottenInTheEnd(t *testing.T) {
	g := NewGraph()
	w := &Workload{WorkloadKey: WorkloadKey{Deployment, "shop", "web"}, References: []Reference{{Kind: Secret, Name: "db"}}}
	all := Pattern{ConfigMap, "*"}
	g.SetWorkload(w, []Pattern{all})
	remove := func(kind SourceKind, name string, version uint64) {
		key := SourceKey{kind, "shop", name}
		g.SetSource(&Source{SourceKey: key})
		g.DeleteSource(key, Change{Version: version})
	}
	remove(Secret, "db", 1)
	remove(ConfigMap, "feature-old", 2)
	const n = 5 * maxGone
	for i := range uint64(n) {
		remove(ConfigMap, fmt.Sprint("lock-", i), 3+i)
		if n := g.gone.len(); n > maxGone {
			t.Fatalf("%d deletions are remembered", n)
		}
	}
	last := g.LastGone("shop", []Pattern{all, {ConfigMap, "feature-*"}}, nil)
	if got := last[0].Version; got != n+2 {
		t.Errorf("the last deletion was at %d, want %d", got, n+2)
	}
	if got := last[1].Version; got < 2 {
		t.Errorf("a deletion at 2 is taken for one at %d", got)
	}
	if got := g.LastChange(SourceKey{Secret, "shop", "db"}).Version; got != 1 {
		t.Errorf("the deletion of a source that the template names was at %d, want 1", got)
	}
}
