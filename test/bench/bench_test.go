// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// Missing sources would make the objects unrealistic and reduce the work.
func TestDeploymentsUseTwoToFourSourcesThatExist(t *testing.T) {
	for _, unscaled := range []shape{standard, bigValues, peers} {
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
		"defaults":                    {nil, settings{scale: 1, dialect: dialectNative}, false},
		"scale":                       {map[string]string{"BENCH_SCALE": "0.5"}, settings{scale: 0.5, dialect: dialectNative}, false},
		"scale of zero":               {map[string]string{"BENCH_SCALE": "0"}, settings{}, true},
		"invalid regular expression":  {map[string]string{"BENCH_ONLY": "("}, settings{}, true},
		"subject without annotations": {map[string]string{"BENCH_SUBJECT": "x"}, settings{scale: 1, command: "x", dialect: dialectNative}, false},
		"subject": {
			map[string]string{"BENCH_SUBJECT": "x -y", "BENCH_ANNOTATIONS": "a/b=c=d, e="},
			settings{scale: 1, command: "x -y", optIn: map[string]string{"a/b": "c=d", "e": ""}, dialect: dialectNative}, false,
		},
		"dialect":                     {map[string]string{"BENCH_DIALECT": "reloader"}, settings{scale: 1, dialect: dialectReloader}, false},
		"unknown dialect":             {map[string]string{"BENCH_DIALECT": "wave"}, settings{}, true},
		"dialect of another subject":  {map[string]string{"BENCH_SUBJECT": "x", "BENCH_DIALECT": "reloader"}, settings{}, true},
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

// Otherwise, annotations of two dialects would be compared that do not mean the same.
func TestDialectsSayTheSame(t *testing.T) {
	for name, annotations := range map[string]func(dialect) map[string]string{
		"auto":                   func(d dialect) map[string]string { return d.auto },
		"a list of names":        func(d dialect) map[string]string { return union(d.listed, d.named("a", "b")) },
		"one name":               func(d dialect) map[string]string { return union(d.listed, d.named("a", "")) },
		"globs":                  func(d dialect) map[string]string { return undelayed(d.auto, d.named("a*b", "*")) },
		"marked sources":         func(d dialect) map[string]string { return undelayed(d.matched) },
		"auto with an exclusion": func(d dialect) map[string]string { return union(d.auto, d.except("a")) },
	} {
		said := func(dialect string) policy.Policy {
			p := policy.NewPolicy(policy.Annotated{Workload: annotations(dialects[dialect])}, policy.Defaults{Mode: policy.Off, Settle: time.Second})
			if p.Mode == policy.Off || len(p.Problems) > 0 {
				t.Errorf("%s, %s: mode %s, problems %v", name, dialect, p.Mode, p.Problems)
			}
			slices.SortFunc(p.Sources, func(a, b dependency.Pattern) int {
				return strings.Compare(string(a.Kind)+a.Name, string(b.Kind)+b.Name)
			})
			return policy.Policy{Mode: p.Mode, Sources: p.Sources, Exclude: p.Exclude, Settle: p.Settle}
		}
		if own, other := said(dialectNative), said(dialectReloader); !reflect.DeepEqual(own, other) {
			t.Errorf("%s: %+v and %+v", name, own, other)
		}
	}
	for name, d := range dialects {
		if !policy.Dialects(nil).ReadSource(d.mark).Match {
			t.Errorf("%s: %v does not mark a source", name, d.mark)
		}
	}
}

// Benchmarks of the server's API are not run for another program.
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

// A line that is longer than the buffer is one event, with its type.
func TestEventsOfAWatch(t *testing.T) {
	const bookmark = `{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n"
	long := `{"type":"ADDED","object":"` + strings.Repeat("x", 1000) + "\"}\n"
	const other = `{"type":"BOOKMARK","object":{"metadata":{}}}` + "\n"
	lines := bufio.NewReaderSize(strings.NewReader(long+other+bookmark+long[:500]), 128)
	for i, want := range []struct {
		kind string
		size int
		ends bool
	}{{"ADDED", len(long), false}, {"BOOKMARK", len(other), false}, {"BOOKMARK", len(bookmark), true}} {
		got, err := readEvent(lines)
		if err != nil || got.kind != want.kind || got.size != int64(want.size) || got.endsInitial() != want.ends {
			t.Errorf("event %d = %s of %d bytes, end of initial events: %v (%v), want %+v", i, got.kind, got.size, got.endsInitial(), err, want)
		}
	}
	for what, text := range map[string]string{
		"a line that is cut off": long[:500],
		"an error":               `{"type":"ERROR","object":{"code":410}}` + "\n",
		"not an event":           "{}\n",
	} {
		if got, err := readEvent(bufio.NewReaderSize(strings.NewReader(text), 128)); err == nil {
			t.Errorf("%s is read as %s of %d bytes, want an error", what, got.kind, got.size)
		}
	}
}

// A watch-list that lacks an object, or contains another event, is an error.
func TestInitialEvents(t *testing.T) {
	const bookmark = `{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n"
	const added, modified = `{"type":"ADDED","object":{}}` + "\n", `{"type":"MODIFIED","object":{}}` + "\n"
	for name, c := range map[string]struct {
		text  string
		fails bool
	}{
		"all":           {added + added + bookmark + modified, false},
		"too few":       {added + bookmark, true},
		"no bookmark":   {added + added, true},
		"another event": {added + added + modified + bookmark, true},
	} {
		if err := readInitial(strings.NewReader(c.text), 2); (err != nil) != c.fails {
			t.Errorf("%s: error = %v, want an error: %v", name, err, c.fails)
		}
	}
}

// A crowd counts the events of each watch, and no watch may receive too many or too few.
func TestCrowdCounts(t *testing.T) {
	const added, bookmark = `{"type":"ADDED","object":{}}` + "\n", `{"type":"BOOKMARK","object":{}}` + "\n"
	for name, c := range map[string]struct {
		watches []string // the events of each; the last watch then ends if an error is expected
		fails   string
	}{
		"all events":              {[]string{added + added, bookmark + added + added}, ""},
		"an early end of a watch": {[]string{added + added, added}, "ended after 1 events"},
		"one event too many":      {[]string{added + added, added + added + added}, "3 events of 2 changes"},
		"an error":                {[]string{added + added, added + `{"type":"ERROR","object":{}}` + "\n"}, "received an error"},
		"no events":               {[]string{added + added, ""}, "ended after 0 events"},
	} {
		t.Run(name, func(t *testing.T) {
			all := &crowd{size: len(c.watches), reached: make(chan struct{}, 1), failed: make(chan error, 1)}
			all.ctx, all.cancel = context.WithCancel(t.Context())
			all.expect(2)
			var ends []*io.PipeWriter
			for i, text := range c.watches {
				body, server := io.Pipe()
				ends = append(ends, server)
				all.wg.Go(func() { all.count(body) })
				all.wg.Go(func() {
					_, _ = io.WriteString(server, text) // fails if the client stops reading
					if i == len(c.watches)-1 && c.fails != "" {
						_ = server.Close()
					}
				})
			}
			var err error
			if c.fails == "" {
				err = all.await(t.Context())
			} else {
				err = <-all.failed
			}
			if err == nil != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("error = %v, want %q", err, c.fails)
			}
			all.cancel()
			for _, end := range ends {
				_ = end.Close()
			}
			all.wg.Wait()
		})
	}
}

func TestMemoryInUse(t *testing.T) {
	const profile = "heap profile: 1: 2 [3: 4] @ heap/1\n\n# runtime.MemStats\n# Alloc = 9\n# HeapAlloc = 1000\n# Stack = 200 / 300\n"
	if got, err := sumOf([]byte(profile), "HeapAlloc", "Stack"); got != 1200 || err != nil {
		t.Errorf("memory in use = %v (%v), want 1200", got, err)
	}
	if got, err := sumOf([]byte("# HeapAlloc = 1"), "HeapAlloc", "Stack"); err == nil {
		t.Errorf("memory in use of an incomplete profile = %v, want an error", got)
	}
}
