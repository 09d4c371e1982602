// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"reflect"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// Missing sources would make the objects unrealistic and reduce the work.
func TestDeploymentsUseTwoToFourSourcesThatExist(t *testing.T) {
	for _, unscaled := range []shape{peers, standard, bigValues} {
		for _, scale := range []float64{1, 0.05, 0.001} {
			s := unscaled.scaled(scale)
			exist := sourcesOf(s)
			for i := range s.workloads {
				d := deployment(i)
				d.Namespace = namespaceOf(i)
				references := workloadtest.Read(d).References
				if len(references) < 2 || len(references) > 4 {
					t.Fatalf("%v: deployment %d has %d sources", s, i, len(references))
				}
				for _, r := range references {
					if !exist[dependency.SourceKey{Kind: r.Kind, Namespace: d.Namespace, Name: r.Name}] {
						t.Fatalf("%v: deployment %d uses %s %s, which does not exist", s, i, r.Kind, r.Name)
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
			t.Errorf("a ConfigMap and a Secret of %d bytes each have %d bytes in total", s.sourceBytes, sum)
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
				t.Errorf("judge: error = %v, want an error: %v", err, c.fails)
			}
			for why, s := range map[string]settings{"few objects": {scale: 0.1}, "another subject": {scale: 1, command: "x"}} {
				if err := judge([]row{c.row}, s); err != nil {
					t.Errorf("with %s, the limits are judged: %v", why, err)
				}
			}
		})
	}
}

func TestQuantile(t *testing.T) {
	s := samples{4, 1, 3, 2}
	for q, want := range map[float64]float64{0: 1, 0.5: 2.5, 1: 4} {
		if got := s.quantile(q); got != want {
			t.Errorf("quantile(%v) of %v = %v, want %v", q, s, got, want)
		}
	}
}

func TestSettings(t *testing.T) {
	for name, c := range map[string]struct {
		env   map[string]string
		want  settings
		fails bool
	}{
		"defaults":                    {nil, settings{scale: 1}, false},
		"scale":                       {map[string]string{"BENCH_SCALE": "0.5"}, settings{scale: 0.5}, false},
		"scale of zero":               {map[string]string{"BENCH_SCALE": "0"}, settings{}, true},
		"invalid regular expression":  {map[string]string{"BENCH_ONLY": "("}, settings{}, true},
		"subject without annotations": {map[string]string{"BENCH_SUBJECT": "x"}, settings{scale: 1, command: "x"}, false},
		"subject": {
			map[string]string{"BENCH_SUBJECT": "x -y", "BENCH_ANNOTATIONS": "a/b=c=d, e="},
			settings{scale: 1, command: "x -y", optIn: map[string]string{"a/b": "c=d", "e": ""}}, false,
		},
		"annotations without subject": {map[string]string{"BENCH_ANNOTATIONS": "a=b"}, settings{}, true},
		"annotation without value":    {map[string]string{"BENCH_SUBJECT": "x", "BENCH_ANNOTATIONS": "a"}, settings{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := settingsOf(func(key string) string { return c.env[key] })
			if (err != nil) != c.fails {
				t.Fatalf("error = %v, want an error: %v", err, c.fails)
			}
			if got.only = nil; err == nil && !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// Benchmarks that only the server has are not run for another program.
func TestBenchmarksOfAnotherSubject(t *testing.T) {
	s, err := settingsOf(func(key string) string {
		return map[string]string{"BENCH_SUBJECT": "x", "BENCH_ONLY": "^(growth|pairs)$"}[key]
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
{"verb":"list","user":{"username":"me"},"objectRef":{"resource":"jobs"},"requestURI":"/apis/batch/v1/jobs?fieldSelector=metadata.name%3D-","requestReceivedTimestamp":"2026-01-01T00:00:02.000000Z"}
{"verb":"patch","user":{"username":"me"},"objectRef":{"resource":"deployments"},"requestReceivedTimestamp":"2026-01-01T00:00:03.000000Z"}
{"verb":"patch","user":{"username":"me"},"objectRef":{"resource":"deployments"},"requestReceivedTimestamp":"2026-01-01T00:00:05.000000Z"}
`
	at := func(second int) time.Time { return time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC) }
	got, err := callsIn(bufio.NewScanner(strings.NewReader(log)), "me", at(2), at(4))
	if want := map[string]int{"patch deployments": 2, "get /readyz": 1}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("calls = %v (%v), want %v", got, err, want)
	}
	if got, err := callsIn(bufio.NewScanner(strings.NewReader(log)), "other", at(2), at(4)); err == nil {
		t.Errorf("calls of a user without entries = %v, want an error", got)
	}
}

// A rollout is a change of the pod template; other changes do not count.
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
	if n, err := seen.rollouts(); n != 0 || err != nil {
		t.Errorf("%d rollouts (%v) without a change of the template", n, err)
	}
	see(func() { d.Spec.Template.Annotations = map[string]string{"a": "b"} })
	see(func() { d.Spec.Template.Annotations = nil })
	d.Name = canary
	see(func() {})
	see(func() { d.Spec.Template.Annotations = map[string]string{"a": "b"} })
	if n, err := seen.rollouts(); n != 2 || err != nil {
		t.Errorf("%d rollouts (%v), want 2", n, err)
	}
}

// An event that is missing, or cut off, is an error.
func TestReadEvents(t *testing.T) {
	const added, bookmark = `{"type":"ADDED","object":{}}` + "\n", `{"type":"BOOKMARK","object":{}}` + "\n"
	long := `{"type":"ADDED","object":"` + strings.Repeat("x", 100_000) + "\"}\n"
	for name, c := range map[string]struct {
		watch string
		fails string
	}{
		"all events":    {bookmark + added + long, ""},
		"one is cut":    {added + long[:len(long)-1], "1 events are missing"},
		"too few":       {added + bookmark, "1 events are missing"},
		"not an event":  {added + "{}\n", "not an event"},
		"an error":      {added + `{"type":"ERROR","object":{"kind":"Status","message":"no"}}` + "\n", "no"},
		"more than two": {added + added + added, ""},
	} {
		err := readEvents(linesOf(strings.NewReader(c.watch)), 2)
		if err == nil != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: error = %v, want %q", name, err, c.fails)
		}
	}
}

// A follower has the last state of each object, and knows when a watch must begin with another list.
func TestFollower(t *testing.T) {
	object := func(name, version, text string) string {
		return `{"kind":"ConfigDependency","metadata":{"name":"` + name + `","namespace":"n","resourceVersion":"` + version + `"},"spec":"` + text + `"}`
	}
	listed := func(texts ...string) *copied {
		c := &copied{states: map[string]held{}}
		for i, text := range texts {
			name, _, state, err := parseObject([]byte(object(string(rune('a'+i)), "1", text)))
			if err != nil {
				t.Fatal(err)
			}
			c.states[name] = state
		}
		return c
	}
	f := &follower{sizes: &sizes{before: listed("x", "x")}, scope: "n/", changed: map[string]held{}}
	for _, event := range []string{
		`{"type":"MODIFIED","object":` + object("a", "2", "y") + "}",
		`{"type":"MODIFIED","object":` + object("b", "1", "ignored: the version is unchanged") + "}",
		`{"type":"ADDED","object":` + object("other", "3", "y") + "}",
	} {
		if err := f.take([]byte(event)); err != nil {
			t.Fatal(err)
		}
	}
	for want, truths := range [][2]*copied{{listed("y", "x"), listed("y", "z")}, {listed("x", "x"), listed("z", "x")}, {listed("x", "y"), listed("x", "y")}} {
		if got := f.missing(truths); got != want || f.version != "3" {
			t.Errorf("%d objects are missing, at version %s; want %d at 3", got, f.version, want)
		}
	}
	if err := f.take([]byte(`{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}`)); !apierrors.IsResourceExpired(err) {
		t.Errorf("error = %v, want one of an expired version", err)
	}
}
