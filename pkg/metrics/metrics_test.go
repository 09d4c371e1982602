// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
)

// server is the state of a server.
type server struct {
	states             map[string]int
	stale              map[string]StalePods
	workloads, sources int
	progress           map[string]time.Time
	expiry             time.Time
	missing            bool
}

func (s *server) WorkloadStates() map[string]int      { return s.states }
func (s *server) Waiting() map[string]int             { return map[string]int{"Budget": 2} }
func (s *server) StalePods() map[string]StalePods     { return s.stale }
func (s *server) IndexSize() (workloads, sources int) { return s.workloads, s.sources }
func (s *server) LastProgress() map[string]time.Time  { return s.progress }
func (s *server) Revisions() (uint64, bool)           { return 7, true }
func (s *server) Watches() (open, events int)         { return 3, 50 }
func (s *server) CertificateExpiry() time.Time        { return s.expiry }
func (s *server) MissingSecrets() map[string]bool {
	return map[string]bool{"key": s.missing, "cert": false}
}

func (s *server) Forbidden() map[string]bool {
	return map[string]bool{"rollouts.argoproj.io": s.missing, "boats.sea.example.com": false}
}

// scrape returns configdep's metrics as they are served.
func scrape(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*dto.MetricFamily{}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "configdep_") {
			out[f.GetName()] = f
		}
	}
	return out
}

// series returns the value of each series of a family, by its labels.
func series(f *dto.MetricFamily) map[string]float64 {
	out := map[string]float64{}
	for _, m := range f.GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
		out[strings.Join(labels, ",")] = value
	}
	return out
}

// everything gives every metric a series.
func everything() {
	Register()
	Register() // like a second server in the process
	Rollout("Deployment", "shop", Success, "Secret")
	PatchDelay(5 * time.Millisecond)
	CurrentAfter(time.Minute)
	Notifications("oncall", NotificationDelivered, 1)
	Leading(true)
	Observe(&server{
		states:    map[string]int{"InSync": 2, "Failed": 0},
		stale:     map[string]StalePods{"shop": {Pods: 1, Since: time.Now()}},
		workloads: 2, sources: 5,
		progress: map[string]time.Time{"secrets": time.UnixMilli(1700000000500)},
		expiry:   time.Unix(1800000000, 0),
	})
}

// TestMetricsAreNamedAsEveryoneExpects runs the linter of Prometheus.
func TestMetricsAreNamedAsEveryoneExpects(t *testing.T) {
	everything()
	families := scrape(t)
	var names []string
	var all []*dto.MetricFamily
	for name, f := range families {
		names = append(names, name)
		all = append(all, f)
		if !strings.HasPrefix(f.GetHelp(), "[ALPHA] ") {
			t.Errorf("help of %s lacks its stability: %s", name, f.GetHelp())
		}
	}
	slices.Sort(names)
	want := []string{
		"configdep_current_after_seconds", "configdep_index_objects", "configdep_ingest_forbidden", "configdep_ingest_last_progress_timestamp_seconds",
		"configdep_ingest_one_revision_counter", "configdep_ingest_revision_lag", "configdep_leader", "configdep_notifications_total",
		"configdep_rollout_patch_delay_seconds", "configdep_rollouts_total",
		"configdep_server_secret_missing", "configdep_serving_certificate_expiry_timestamp_seconds", "configdep_stale_pods", "configdep_stale_seconds",
		"configdep_watch_events_kept", "configdep_watches", "configdep_workloads", "configdep_workloads_waiting",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	problems, err := promlint.NewWithMetricFamilies(all).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("lint of %s: %s", p.Metric, p.Text)
	}
}

func TestStateIsReadWhenItIsScraped(t *testing.T) {
	everything()
	s := &server{states: map[string]int{"InSync": 1}}
	Observe(s) // the last server in a process counts
	s.states["Pending"], s.workloads, s.sources = 3, 4, 9
	s.progress = map[string]time.Time{"secrets": time.UnixMilli(1700000000500), "pods": time.Unix(0, 0)}
	families := scrape(t)
	if f, found := families["configdep_serving_certificate_expiry_timestamp_seconds"]; found {
		t.Errorf("without a certificate, family = %v, want none", f)
	}
	s.expiry, s.missing = time.Unix(1900000000, 0), true
	families = scrape(t)
	for name, want := range map[string]map[string]float64{
		"configdep_serving_certificate_expiry_timestamp_seconds": {"": 1900000000},
		"configdep_server_secret_missing":                        {"secret=key": 1, "secret=cert": 0},
		"configdep_ingest_forbidden":                             {"resource=rollouts.argoproj.io": 1, "resource=boats.sea.example.com": 0},
		"configdep_workloads":                                    {"state=InSync": 1, "state=Pending": 3},
		"configdep_workloads_waiting":                            {"reason=Budget": 2},
		"configdep_index_objects":                                {"type=workload": 4, "type=source": 9},
		"configdep_ingest_last_progress_timestamp_seconds":       {"resource=secrets": 1700000000.5, "resource=pods": 0},
		"configdep_ingest_one_revision_counter":                  {"": 1},
		"configdep_ingest_revision_lag":                          {"": 7},
		"configdep_watches":                                      {"": 3},
		"configdep_watch_events_kept":                            {"": 50},
	} {
		if diff := cmp.Diff(want, series(families[name])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestLeaderIsOneReplica(t *testing.T) {
	Register()
	for _, leads := range []bool{true, false} {
		Leading(leads)
		want := map[string]float64{"": 0}
		if leads {
			want[""] = 1
		}
		if diff := cmp.Diff(want, series(scrape(t)["configdep_leader"])); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestDelaysFallIntoUsefulBuckets: delays should be a few milliseconds, and operators need to
// see minutes.
func TestDelaysFallIntoUsefulBuckets(t *testing.T) {
	Register()
	PatchDelay(time.Millisecond)
	var bounds []float64
	for _, b := range scrape(t)["configdep_rollout_patch_delay_seconds"].GetMetric()[0].GetHistogram().GetBucket() {
		bounds = append(bounds, b.GetUpperBound())
	}
	if len(bounds) == 0 || bounds[0] > 0.001 || bounds[len(bounds)-1] < 30 {
		t.Errorf("buckets = %v", bounds)
	}
}

// TestNamespacesAreBounded: a user who creates endless namespaces must not fill the memory of this
// process or of Prometheus. The first namespaces keep their labels.
func TestNamespacesAreBounded(t *testing.T) {
	b := bounded{known: map[string]bool{}}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range maxNamespaces {
				if name := fmt.Sprint("ns-", i); b.label(name) != name {
					t.Errorf("label of %s differs from the namespace", name)
				}
			}
		})
	}
	wg.Wait()
	for i := range 1000 {
		if got := b.label(fmt.Sprint("more-", i)); got != "_other" {
			t.Fatalf("label of another namespace = %q, want _other", got)
		}
	}
	if got := b.label("ns-7"); got != "ns-7" {
		t.Errorf("label of ns-7 = %q, want ns-7", got)
	}
	if len(b.known) != maxNamespaces {
		t.Errorf("got %d known namespaces, want %d", len(b.known), maxNamespaces)
	}
}

func TestRolloutsAreCountedByNamespaceUpToABound(t *testing.T) {
	Register()
	const first = "kind=Deployment,namespace=team-0,result=error,trigger=Secret"
	before := series(scrape(t)["configdep_rollouts_total"])[first]
	for i := range 2 * maxNamespaces {
		Rollout("Deployment", fmt.Sprint("team-", i), Error, "Secret")
	}
	got := series(scrape(t)["configdep_rollouts_total"])
	if len(got) > maxNamespaces+10 {
		t.Errorf("got %d series", len(got))
	}
	if others := got["kind=Deployment,namespace=_other,result=error,trigger=Secret"]; others < maxNamespaces {
		t.Errorf("count in other namespaces = %v", others)
	}
	if n := got[first] - before; n != 1 {
		t.Errorf("count in the first namespace = %v", n)
	}
}

func TestStalePods(t *testing.T) {
	everything()
	hourAgo, all := time.Now().Add(-time.Hour), map[string]StalePods{}
	for i := range maxNamespaces + 10 { // some are known from other tests
		all[fmt.Sprintf("stale-%03d", i)] = StalePods{Pods: 2, Since: hourAgo}
	}
	all["shop"] = StalePods{Pods: 3} // which is known from everything
	Observe(&server{stale: all})
	families := scrape(t)
	pods, seconds := series(families["configdep_stale_pods"]), series(families["configdep_stale_seconds"])
	if pods["namespace=shop"] != 3 {
		t.Errorf("%v pods are stale in the namespace, want 3", pods["namespace=shop"])
	}
	if got, found := seconds["namespace=shop"]; found {
		t.Errorf("%v seconds, although it is not known since when the pods are stale", got)
	}
	sum := 0.0
	for _, n := range pods {
		sum += n
	}
	if want := float64(2*(maxNamespaces+10) + 3); sum != want || pods["namespace=_other"] < 20 || len(pods) > maxNamespaces+1 {
		t.Errorf("%v pods are stale in %d series, %v in other namespaces; want %v", sum, len(pods), pods["namespace=_other"], want)
	}
	if got := seconds["namespace=_other"]; got < 3600 || got > 3660 {
		t.Errorf("%v seconds, want an hour", got)
	}
}
