// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/configdep/configdep/pkg/agent"
	"github.com/configdep/configdep/pkg/agent/source"
)

type fakeAgent struct {
	status agent.Status
	health []source.Health
}

func (f *fakeAgent) Status() agent.Status    { return f.status }
func (f *fakeAgent) Health() []source.Health { return f.health }

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func get(t *testing.T, a Agent, path string) (int, string) {
	t.Helper()
	return getNames(t, a, true, path)
}

func getNames(t *testing.T, a Agent, names bool, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(a, names, func() time.Time { return now }).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, strings.TrimSpace(w.Body.String())
}

func TestProbes(t *testing.T) {
	inSync := agent.Status{Started: true, Wanted: "a", Applied: "a"}
	fails := &agent.FailureError{Step: agent.Check, Err: errors.New("exit code 1")}
	heard := func(ago time.Duration) []source.Health {
		return []source.Health{{Progress: now, Heard: now}, {Progress: now.Add(-ago), Heard: now.Add(-ago)}}
	}
	for name, tt := range map[string]struct {
		agent                fakeAgent
		startup, live, ready string // "ok", or part of why not
	}{
		"at the start":                     {fakeAgent{status: agent.Status{Unread: errors.New("ConfigMap a does not exist")}}, "ConfigMap a does not exist", "ok", "ConfigMap a does not exist"},
		"in sync":                          {fakeAgent{status: inSync, health: heard(time.Minute)}, "ok", "ok", "ok"},
		"newer content":                    {fakeAgent{status: agent.Status{Started: true, Wanted: "b", Applied: "a"}}, "ok", "ok", "new content is being applied"},
		"a failure":                        {fakeAgent{status: agent.Status{Started: true, Wanted: "b", Applied: "a", Failure: fails}}, "ok", "ok", "check: exit code 1"},
		"rolled back":                      {fakeAgent{status: agent.Status{Started: true, Wanted: "b", Applied: "a", Failure: fails, RolledBack: true}}, "ok", "ok", "are back"},
		"a source that is gone":            {fakeAgent{status: agent.Status{Started: true, Wanted: "a", Applied: "a", Unread: errors.New("gone")}}, "ok", "ok", "gone"},
		"a watch that is dead":             {fakeAgent{status: inSync, health: heard(11 * time.Minute)}, "ok", "source 2 has made no progress for 11m0s", "ok"},
		"a source not begun":               {fakeAgent{status: inSync, health: []source.Health{{}}}, "ok", "ok", "ok"},
		"failures of a check at the start": {fakeAgent{status: agent.Status{Wanted: "a", Failure: fails}}, "check: exit code 1", "ok", "check: exit code 1"},
	} {
		for path, want := range map[string]string{"/startupz": tt.startup, "/livez": tt.live, "/readyz": tt.ready} {
			code, text := get(t, &tt.agent, path)
			if want == "ok" && (code != http.StatusOK || text != "ok") || want != "ok" && (code != http.StatusServiceUnavailable || !strings.Contains(text, want)) {
				t.Errorf("%s: %s is %d %q, want %q", name, path, code, text, want)
			}
		}
	}
	if code, _ := get(t, &fakeAgent{}, "/other"); code != http.StatusNotFound {
		t.Errorf("another path: %d", code)
	}
}

func TestMetrics(t *testing.T) {
	a := &fakeAgent{
		status: agent.Status{
			Started: true, Wanted: "b", Applied: "a", RolledBack: true, AppliedAt: time.Unix(1700000000, 0), Successes: 3,
			Failures: map[agent.Step]int{agent.Reload: 2},
		},
		health: []source.Health{{Heard: time.Unix(1700000100, 0)}, {Heard: time.Unix(1700000050, 0)}},
	}
	_, text := get(t, a, "/metrics")
	for _, want := range []string{
		`configdep_agent_content_info{wanted="b",applied="a"} 1`, "configdep_agent_in_sync 0", "configdep_agent_rolled_back 1",
		"configdep_agent_last_applied_timestamp_seconds 1.7e+09", "configdep_agent_applied_total 3", `configdep_agent_failures_total{step="reload"} 2`,
		`configdep_agent_failures_total{step="check"} 0`, "configdep_agent_source_last_heard_timestamp_seconds 1.70000005e+09", "configdep_agent_sources_complete 1",
	} {
		if !strings.Contains(text+"\n", want+"\n") {
			t.Errorf("%s is missing in:\n%s", want, text)
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	if families, err := parser.TextToMetricFamilies(strings.NewReader(text + "\n")); err != nil || len(families) != 10 {
		t.Errorf("%d metrics, %v", len(families), err)
	}
	a.health[0].Heard = time.Time{}
	if _, text = get(t, a, "/metrics"); !strings.Contains(text+"\n", "configdep_agent_source_last_heard_timestamp_seconds 0\n") {
		t.Errorf("a source that was never heard:\n%s", text)
	}
	a.status = agent.Status{Started: true, Wanted: "a", Applied: "a"}
	if _, text = get(t, a, "/metrics"); !strings.Contains(text, "configdep_agent_in_sync 1\n") || strings.Contains(text, "last_applied") {
		t.Errorf("in sync:\n%s", text)
	}
}

// Sources are named by the versions that are applied, as long as they exist and are not too many.
func TestMetrics_Sources(t *testing.T) {
	versions := []source.Version{
		{Kind: source.ConfigMap, Namespace: "shop", Name: "gone"},
		{Kind: source.ConfigMap, Namespace: "shop", Name: "settings", UID: "u", ResourceVersion: "17"},
		{Kind: source.Secret, Namespace: "shop", Name: "tls", UID: "v", ResourceVersion: "a\"\\\n"},
	}
	many := func(n int) (out []source.Version) {
		for i := range n {
			out = append(out, source.Version{Kind: source.Secret, Namespace: "shop", Name: strconv.Itoa(i), UID: "u", ResourceVersion: "1"})
		}
		return out
	}
	for name, tt := range map[string]struct {
		versions []source.Version
		sources  float64
		want     []string // the last ones
		named    int
	}{
		"none":            {nil, 0, nil, 0},
		"one that is not": {versions[:1], 0, nil, 0},
		"some":            {versions, 2, []string{"ConfigMap shop settings 17", "Secret shop tls a\"\\\n"}, 2},
		"many":            {many(500), 500, []string{"Secret shop 499 1"}, 500},
		"too many":        {many(501), 501, nil, 0},
	} {
		_, text := get(t, &fakeAgent{status: agent.Status{Versions: tt.versions}}, "/metrics")
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text + "\n"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := families["configdep_agent_sources"].GetMetric()[0].GetGauge().GetValue(); got != tt.sources {
			t.Errorf("%s: %v sources, want %v", name, got, tt.sources)
		}
		var named []string
		for _, m := range families["configdep_agent_source_info"].GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			named = append(named, strings.Join([]string{labels["kind"], labels["namespace"], labels["name"], labels["resource_version"]}, " "))
			if m.GetGauge().GetValue() != 1 {
				t.Errorf("%s: %v", name, m)
			}
		}
		if _, has := families["configdep_agent_source_info"]; has != (tt.named != 0) {
			t.Errorf("%s: it is there: %t", name, has)
		}
		if len(named) != tt.named || !slices.Equal(named[len(named)-len(tt.want):], tt.want) {
			t.Errorf("%s: %q, want %q", name, named, tt.want)
		}
	}
}

// What is left out is told by the readiness probe, which succeeds, and by metrics.
func TestRejected(t *testing.T) {
	one := source.Rejected{Kind: source.ConfigMap, Namespace: "shop", Name: "a", Why: "ConfigMap shop/a is left out: it is bad"}
	again := one
	again.Why = "ConfigMap shop/a is left out: it is bad by another selector, too"
	a := &fakeAgent{status: agent.Status{Started: true, Wanted: "a", Applied: "a", Rejected: []source.Rejected{one, again}}}
	for names, want := range map[bool]string{true: "ok; " + one.Why + "; " + again.Why, false: "ok; 2 objects of selectors are left out; the log names them"} {
		if code, text := getNames(t, a, names, "/readyz"); code != http.StatusOK || text != want {
			t.Errorf("/readyz is %d %q, want %q", code, text, want)
		}
		_, text := getNames(t, a, names, "/metrics")
		if !strings.Contains(text+"\n", "configdep_agent_rejected_sources 2\n") {
			t.Errorf("how many are left out is missing:\n%s", text)
		}
		named := 0
		if names {
			named = 1
		}
		if n := strings.Count(text, `configdep_agent_rejected_source_info{kind="ConfigMap",namespace="shop",name="a"} 1`); n != named {
			t.Errorf("it is named %d times:\n%s", n, text)
		}
		if _, text := getNames(t, a, names, "/livez"); text != "ok" {
			t.Errorf("/livez is %q", text)
		}
	}
	a.status.Rejected = a.status.Rejected[:1]
	if _, text := getNames(t, a, false, "/readyz"); text != "ok; an object of a selector is left out; the log names it" {
		t.Errorf("/readyz is %q", text)
	}
}

// Every client in the pod network can read the answers: they name nothing unless that is asked for.
func TestHandler_NamesNothing(t *testing.T) {
	const name = "tls-of-payments"
	secret := source.Version{Kind: source.Secret, Namespace: name, Name: name, UID: "u", ResourceVersion: name}
	for why, s := range map[string]agent.Status{
		"a source is missing or cannot be read": {Unread: errors.New("Secret shop/" + name + ` has no key "` + name + `"`)},
		"check failed":                          {Failure: &agent.FailureError{Step: agent.Check, Err: errors.New("nginx -t " + name)}},
		"reload failed; the log says why; the files that were applied last are back": {
			RolledBack: true, Failure: &agent.FailureError{Step: agent.Reload, Err: errors.New("Post http://" + name)},
		},
	} {
		s.Versions, s.Wanted = []source.Version{secret}, "b"
		for _, path := range []string{"/startupz", "/livez", "/readyz", "/metrics"} {
			_, text := getNames(t, &fakeAgent{status: s}, false, path)
			if strings.Contains(text, name) || (path == "/startupz" || path == "/readyz") && !strings.HasPrefix(text, why) {
				t.Errorf("%s: %s, want %s", path, text, why)
			}
		}
		if _, text := get(t, &fakeAgent{status: s}, "/metrics"); !strings.Contains(text, name) {
			t.Errorf("asked for names:\n%s", text)
		}
	}
}
