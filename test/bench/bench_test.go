package main

import (
	"bufio"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

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

func TestSettings(t *testing.T) {
	for name, c := range map[string]struct {
		env   map[string]string
		want  settings
		fails bool
	}{
		"nothing":                   {nil, settings{scale: 1}, false},
		"scale":                     {map[string]string{"BENCH_SCALE": "0.5"}, settings{scale: 0.5}, false},
		"scale of nothing":          {map[string]string{"BENCH_SCALE": "0"}, settings{}, true},
		"no regular expression":     {map[string]string{"BENCH_ONLY": "("}, settings{}, true},
		"subject that needs no key": {map[string]string{"BENCH_SUBJECT": "x"}, settings{scale: 1, command: "x"}, false},
		"subject": {
			map[string]string{"BENCH_SUBJECT": "x -y", "BENCH_ANNOTATIONS": "a/b=c=d, e="},
			settings{scale: 1, command: "x -y", optIn: map[string]string{"a/b": "c=d", "e": ""}}, false,
		},
		"annotations of nobody": {map[string]string{"BENCH_ANNOTATIONS": "a=b"}, settings{}, true},
		"no annotation":         {map[string]string{"BENCH_SUBJECT": "x", "BENCH_ANNOTATIONS": "a"}, settings{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := settingsOf(func(key string) string { return c.env[key] })
			if (err != nil) != c.fails {
				t.Fatalf("error %v, want one: %v", err, c.fails)
			}
			if got.only = nil; err == nil && !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// The API of the server is not measured in a program that has none.
func TestBenchmarksOfAnotherSubject(t *testing.T) {
	s, err := settingsOf(func(key string) string {
		return map[string]string{"BENCH_SUBJECT": "x", "BENCH_ONLY": "^(list|pairs)$"}[key]
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, b := range benchmarks {
		if s.selected(b) {
			names = append(names, b.name)
		}
	}
	if want := []string{"pairs"}; !reflect.DeepEqual(names, want) {
		t.Errorf("selected %v, want %v", names, want)
	}
}

func TestCallsInTheAuditLog(t *testing.T) {
	const log = `{"verb":"list","user":{"username":"me"},"objectRef":{"resource":"secrets"},"requestReceivedTimestamp":"2026-01-01T00:00:01.000000Z"}
{"verb":"patch","user":{"username":"me"},"objectRef":{"resource":"deployments"},"requestReceivedTimestamp":"2026-01-01T00:00:02.000000Z"}
{"verb":"patch","user":{"username":"you"},"objectRef":{"resource":"deployments"},"requestReceivedTimestamp":"2026-01-01T00:00:02.000000Z"}
{"verb":"get","user":{"username":"me"},"requestURI":"/readyz","requestReceivedTimestamp":"2026-01-01T00:00:02.000000Z"}
{"verb":"patch","user":{"username":"me"},"objectRef":{"resource":"deployments"},"requestReceivedTimestamp":"2026-01-01T00:00:03.000000Z"}
{"verb":"patch","user":{"username":"me"},"objectRef":{"resource":"deployments"},"requestReceivedTimestamp":"2026-01-01T00:00:05.000000Z"}
`
	at := func(second int) time.Time { return time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC) }
	got, err := callsIn(bufio.NewScanner(strings.NewReader(log)), "me", at(2), at(4))
	if want := map[string]int{"patch deployments": 2, "get /readyz": 1}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("found %v (%v), want %v", got, err, want)
	}
	if got, err := callsIn(bufio.NewScanner(strings.NewReader(log)), "nobody", at(2), at(4)); err == nil {
		t.Errorf("found %v of somebody who is not logged", got)
	}
}

// A rollout is a change of the pod template, and of nothing else.
func TestTemplatesCountRollouts(t *testing.T) {
	seen := &templates{seen: map[string]*template{}, changed: make(chan struct{})}
	d := bystander("app", reads("source", ""))
	see := func(change func()) {
		change()
		seen.see(d.DeepCopy(), time.Now())
	}
	see(func() {})
	see(func() { d.Annotations = map[string]string{"a": "b"} })
	see(func() { d.Spec.Replicas = ptr.To[int32](7) })
	see(func() { d.Spec.Template.Annotations = map[string]string{} })
	if n, _, err := seen.rollouts(); n != 0 || err != nil {
		t.Errorf("%d rollouts (%v) without a change of the template", n, err)
	}
	see(func() { d.Spec.Template.Annotations = map[string]string{"a": "b"} })
	see(func() { d.Spec.Template.Annotations = nil })
	d.Name = canary
	see(func() {})
	see(func() { d.Spec.Template.Annotations = map[string]string{"a": "b"} })
	if n, of, err := seen.rollouts(); n != 2 || of != 1 || err != nil {
		t.Errorf("%d rollouts of %d Deployments (%v), want 2 of 1", n, of, err)
	}
}
