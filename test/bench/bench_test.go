package main

import (
	"testing"

	"github.com/configdep/configdep/pkg/dependency"
)

// A missing source would make objects that no cluster has, and less work.
func TestDeploymentsUseTwoToFourSourcesThatExist(t *testing.T) {
	for _, unscaled := range []shape{standard, bigValues, peers} {
		for _, scale := range []float64{1, 0.05, 0.001} {
			s := unscaled.scaled(scale)
			exist := sourcesOf(s)
			for i := range s.workloads {
				d := deployment(i)
				d.Namespace = namespaceOf(i)
				references := dependency.FromDeployment(d).References
				if len(references) < 2 || len(references) > 4 {
					t.Fatalf("%v: deployment %d has %d sources", s, i, len(references))
				}
				for _, r := range references {
					if !exist[dependency.SourceKey{Kind: r.Kind, Namespace: d.Namespace, Name: r.Name}] {
						t.Fatalf("%v: deployment %d uses %s %s, which is not there", s, i, r.Kind, r.Name)
					}
				}
			}
		}
	}
}

func sourcesOf(s shape) map[dependency.SourceKey]bool {
	all := map[dependency.SourceKey]bool{}
	for i := range s.sources / 2 {
		all[dependency.SourceKey{Kind: dependency.ConfigMap, Namespace: namespaceOf(i), Name: configMapName(i)}] = true
		all[dependency.SourceKey{Kind: dependency.Secret, Namespace: namespaceOf(i), Name: secretName(i)}] = true
	}
	return all
}

func TestSourcesHaveTheSizeOfTheShape(t *testing.T) {
	for _, s := range []shape{standard, bigValues} {
		sum := 0
		for _, v := range configMap(7, s.sourceBytes).Data {
			sum += len(v)
		}
		for _, v := range secret(7, s.sourceBytes).Data {
			sum += len(v)
		}
		if sum != 2*s.sourceBytes {
			t.Errorf("a ConfigMap and a Secret of %d bytes each have %d", s.sourceBytes, sum)
		}
	}
}

func TestVerdict(t *testing.T) {
	measured := func(value, floor float64, l limit) row {
		return row{name: "x", got: exactly(value), floor: exactly(floor), floorName: "floor", limit: l}
	}
	for name, c := range map[string]struct {
		row     row
		verdict string
		fails   bool
	}{
		"no limit":          {measured(9, 1, limit{}), "-", false},
		"kept":              {measured(1.4, 1, limit{ratio: 1.5}), "ok", false},
		"just missed":       {measured(1.5, 1, limit{ratio: 1.5}), "MISSED", false},
		"missed by far":     {measured(3, 1, limit{ratio: 1.5}), "MISSED", true},
		"value kept":        {measured(79, 1, limit{value: 80}), "ok", false},
		"value missed":      {measured(200, 1, limit{value: 80}), "MISSED", true},
		"count met":         {measured(0, 1, limit{exact: true}), "ok", false},
		"count exceeded":    {measured(1, 1, limit{exact: true}), "MISSED", true},
		"count not reached": {measured(19, 1, limit{exact: true, value: 20}), "MISSED", true},
	} {
		t.Run(name, func(t *testing.T) {
			full := settings{scale: 1}
			if got := c.row.verdict(full); got != c.verdict {
				t.Errorf("verdict %q, want %q", got, c.verdict)
			}
			if err := judge([]row{c.row}, full); (err != nil) != c.fails {
				t.Errorf("judge returned %v, want an error: %v", err, c.fails)
			}
			for why, s := range map[string]settings{"few objects": {scale: 0.1}, "another subject": {scale: 1, command: "x"}} {
				if err := judge([]row{c.row}, s); err != nil {
					t.Errorf("judged with %s: %v", why, err)
				}
			}
		})
	}
}

func TestQuantile(t *testing.T) {
	s := samples{4, 1, 3, 2}
	for q, want := range map[float64]float64{0: 1, 0.5: 2.5, 1: 4} {
		if got := s.quantile(q); got != want {
			t.Errorf("quantile(%v) of %v is %v, want %v", q, s, got, want)
		}
	}
}
