package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
)

// What is just allowed is taken as it is, and one more is a problem.
func TestOf_BoundsOfValues(t *testing.T) {
	for name, tt := range map[string]struct {
		key, value string
		problem    string // a part of it; empty: there is none
	}{
		"the longest name":               {SourcesAnnotation, "secret/" + strings.Repeat("a", 253), ""},
		"a longer name":                  {SourcesAnnotation, "secret/" + strings.Repeat("a", 254), "is neither the name of an object"},
		"as many stars as there may be":  {SourcesAnnotation, "secret/*a*b*c*", ""},
		"one more":                       {SourcesAnnotation, "secret/*a*b*c*d*", "must not have more than 4 *"},
		"no time":                        {SettleAnnotation, "0", ""},
		"a little less":                  {SettleAnnotation, "-1ns", "a duration such as"},
		"the longest value in a message": {SettleAnnotation, strings.Repeat("a", 64), `"` + strings.Repeat("a", 64) + `"`},
		"a longer value in a message":    {SettleAnnotation, strings.Repeat("a", 65), `"` + strings.Repeat("a", 64) + `…"`},
	} {
		t.Run(name, func(t *testing.T) {
			p := Of(map[string]string{ReloadAnnotation: "auto", tt.key: tt.value}, nil, Defaults{})
			if tt.problem == "" && len(p.Problems) > 0 || tt.problem != "" && (len(p.Problems) != 1 || !strings.Contains(p.Problems[0], tt.problem)) {
				t.Errorf("the problems are %q", p.Problems)
			}
		})
	}
}

// The index is locked while patterns are tried on sources.
func TestPolicy_BoundsComparisons(t *testing.T) {
	for _, tt := range []struct {
		globs, sources int
		ok             bool
	}{
		{0, 1_000_000, true},
		{50, 400, true},
		{59, 339, false}, // 20,001
	} {
		var p Policy
		p.Sources = append(p.Sources, dependency.Pattern{Kind: dependency.Secret, Name: "plain"})
		for i := range tt.globs {
			pattern := dependency.Pattern{Kind: dependency.Secret, Name: fmt.Sprintf("s-%d-*", i)}
			if i%2 == 0 {
				p.Sources = append(p.Sources, pattern)
			} else {
				p.Exclude = append(p.Exclude, pattern)
			}
		}
		p.bound(tt.sources)
		if ok := len(p.Problems) == 0; ok != tt.ok || ok != (len(p.Sources) > 0) || !ok && p.Exclude != nil {
			t.Errorf("%d globs and %d sources: %d and %d patterns are tried, and the problems are %q", tt.globs, tt.sources, len(p.Sources), len(p.Exclude), p.Problems)
		}
	}
}

// The annotation that names pods has to fit into an object; more pods than it can name are
// replaced by a rollout.
func TestRestartPatch_BoundsPodsToEvict(t *testing.T) {
	p := Policy{Mode: Auto, Strategy: Recreate}
	for _, tt := range []struct {
		pods     int
		recreate bool
	}{{0, true}, {1, true}, {10_000, true}, {10_001, false}} {
		var pods []types.UID
		for i := range tt.pods {
			pods = append(pods, types.UID(fmt.Sprint("pod-", i)))
		}
		patch, err := p.RestartPatch(&dependency.Workload{}, &Restart{Present: Record{Hash: "v1.k.h"}, Last: Automatic(nil, epoch, time.Second, "Secret/db"), Pods: pods})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(patch), RecreatingAnnotation); got != tt.recreate || got == strings.Contains(string(patch), `"template"`) {
			t.Errorf("with %d pods, they are evicted: %v, and the patch has %d bytes", tt.pods, got, len(patch))
		}
	}
}

// The pods that a restart has to evict are those that are there when it begins, and no other.
func TestPodsToEvict(t *testing.T) {
	for _, pods := range [][]types.UID{nil, {"a"}, {"b", "a", "b"}} {
		named, valid := PodsToEvictOf(&dependency.Workload{Annotations: map[string]string{RecreatingAnnotation: podsToEvict(pods)}})
		if !valid {
			t.Errorf("of %v, the list is not valid", pods)
		}
		for _, uid := range pods {
			if !named.Has(uid) {
				t.Errorf("of %v, %s is not to be evicted", pods, uid)
			}
		}
		if named.Has("c") {
			t.Errorf("of %v, a pod that came later is to be evicted", pods)
		}
	}
	for _, value := range []string{"", "a", "0123456", "01234567,", ",01234567", "01234567,NONE,89abcdef", "01234567, 89abcdef", "0123456789"} {
		if _, valid := PodsToEvictOf(&dependency.Workload{Annotations: map[string]string{RecreatingAnnotation: value}}); valid {
			t.Errorf("%q is taken for a list", value)
		}
	}
	if podsToEvict(nil) == "" {
		t.Error("without pods, it looks as if no eviction had begun")
	}
}
