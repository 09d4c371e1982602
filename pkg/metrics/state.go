// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// State is the state of a running server, which is read at each scrape.
type State interface {
	// WorkloadStates returns the number of workloads by state.
	WorkloadStates() map[string]int
	// Waiting returns the number of workloads that are Pending or Blocked, by reason.
	Waiting() map[string]int
	// StalePods returns the pods that run with old content, by namespace.
	StalePods() map[string]StalePods
	// IndexSize returns the number of workloads and of sources in the index.
	IndexSize() (workloads, sources int)
	// LastProgress returns when each resource last sent an event or a bookmark.
	LastProgress() map[string]time.Time
	// Revisions returns the number of revisions between the newest change that was seen and
	// the revision up to which every resource has been read, and whether all resources share
	// one revision counter.
	Revisions() (lag uint64, oneCounter bool)
	// Watches returns the number of open watches of ConfigDependencies, and the number of
	// events that are kept so that watches can resume.
	Watches() (open, events int)
	// CertificateExpiry returns when the serving certificate expires; zero if that is not
	// known.
	CertificateExpiry() time.Time
	// MissingSecrets returns the names of the Secrets in which the server keeps data, and
	// whether each is missing.
	MissingSecrets() map[string]bool
	// Forbidden returns the optional resources, and whether the server lacks the right to read each.
	Forbidden() map[string]bool
}

// StalePods are the pods of a namespace that run with old content.
type StalePods struct {
	Pods int
	// Since is when the first change was made that one of them has not read; zero: that is not known.
	Since time.Time
}

// Add returns the pods of both.
func (p StalePods) Add(other StalePods) StalePods {
	p.Pods += other.Pods
	if p.Since.IsZero() || !other.Since.IsZero() && other.Since.Before(p.Since) {
		p.Since = other.Since
	}
	return p
}

var (
	workloadsDesc = metrics.NewDesc("configdep_workloads", "Number of workloads by state.",
		[]string{"state"}, nil, metrics.ALPHA, "")
	waitingDesc = metrics.NewDesc("configdep_workloads_waiting", "Number of workloads in the states Pending and Blocked, by reason.",
		[]string{"reason"}, nil, metrics.ALPHA, "")
	stalePodsDesc = metrics.NewDesc("configdep_stale_pods",
		"Number of pods that run with old content. A namespace without such pods has no series.",
		[]string{"namespace"}, nil, metrics.ALPHA, "")
	staleSecondsDesc = metrics.NewDesc("configdep_stale_seconds",
		"Time since the first change that a pod of the namespace has not read. A namespace for which that is not known has no series.",
		[]string{"namespace"}, nil, metrics.ALPHA, "")
	indexDesc = metrics.NewDesc("configdep_index_objects", "Number of objects in the index: workloads and sources.",
		[]string{"type"}, nil, metrics.ALPHA, "")
	progressDesc = metrics.NewDesc("configdep_ingest_last_progress_timestamp_seconds",
		"When a resource last sent an event or a bookmark, in seconds since the epoch. At least one comes in each --max-version-lag.",
		[]string{"resource"}, nil, metrics.ALPHA, "")
	lagDesc = metrics.NewDesc("configdep_ingest_revision_lag",
		"Number of revisions between the newest change that was seen and the one up to which all resources have been read.",
		nil, nil, metrics.ALPHA, "")
	counterDesc = metrics.NewDesc("configdep_ingest_one_revision_counter",
		"1 if all resources share one revision counter, so that clients can switch replicas; 0 if they do not, or it is not known yet.",
		nil, nil, metrics.ALPHA, "")
	watchesDesc = metrics.NewDesc("configdep_watches", "Number of open watches of ConfigDependencies.", nil, nil, metrics.ALPHA, "")
	expiryDesc  = metrics.NewDesc("configdep_serving_certificate_expiry_timestamp_seconds",
		"When the serving certificate in use expires, in seconds since the epoch.", nil, nil, metrics.ALPHA, "")
	missingDesc = metrics.NewDesc("configdep_server_secret_missing",
		"1 if a Secret in which the server keeps data does not exist: the data is only in memory, and no replica can start.",
		[]string{"secret"}, nil, metrics.ALPHA, "")
	forbiddenDesc = metrics.NewDesc("configdep_ingest_forbidden",
		"1 if the server lacks the right to list and watch an optional resource, which then counts as empty. "+
			"Without the right to read ReloadPolicies, no automatic restart begins.",
		[]string{"resource"}, nil, metrics.ALPHA, "")
	eventsDesc = metrics.NewDesc("configdep_watch_events_kept", "Number of events that are kept, from which watches can resume.", nil, nil, metrics.ALPHA, "")
)

// collector reads the state of the server at each scrape. There is one registry and one
// collector for the process; with several servers in a process, it reads the last one.
type collector struct {
	metrics.BaseStableCollector
	state atomic.Pointer[State]
}

var shared collector

// Observe makes the metrics report the state of a server.
func Observe(s State) {
	if shared.state.Swap(&s) == nil {
		legacyregistry.CustomMustRegister(&shared)
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- workloadsDesc
	ch <- waitingDesc
	ch <- stalePodsDesc
	ch <- staleSecondsDesc
	ch <- indexDesc
	ch <- progressDesc
	ch <- lagDesc
	ch <- counterDesc
	ch <- watchesDesc
	ch <- eventsDesc
	ch <- expiryDesc
	ch <- missingDesc
	ch <- forbiddenDesc
}

// CollectWithStability implements metrics.StableCollector.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	s := *c.state.Load()
	gauge := func(d *metrics.Desc, value float64, labels ...string) {
		ch <- metrics.NewLazyConstMetric(d, metrics.GaugeValue, value, labels...)
	}
	for state, n := range s.WorkloadStates() {
		gauge(workloadsDesc, float64(n), state)
	}
	for reason, n := range s.Waiting() {
		gauge(waitingDesc, float64(n), reason)
	}
	for namespace, stale := range bound(s.StalePods()) {
		gauge(stalePodsDesc, float64(stale.Pods), namespace)
		if !stale.Since.IsZero() {
			gauge(staleSecondsDesc, max(0, time.Since(stale.Since).Seconds()), namespace)
		}
	}
	workloads, sources := s.IndexSize()
	gauge(indexDesc, float64(workloads), "workload")
	gauge(indexDesc, float64(sources), "source")
	for resource, at := range s.LastProgress() {
		gauge(progressDesc, float64(at.UnixNano())/1e9, resource)
	}
	lag, one := s.Revisions()
	gauge(lagDesc, float64(lag))
	gauge(counterDesc, oneIf(one))
	watches, events := s.Watches()
	gauge(watchesDesc, float64(watches))
	gauge(eventsDesc, float64(events))
	if expiry := s.CertificateExpiry(); !expiry.IsZero() {
		gauge(expiryDesc, float64(expiry.Unix()))
	}
	for secret, missing := range s.MissingSecrets() {
		gauge(missingDesc, oneIf(missing), secret)
	}
	for resource, forbidden := range s.Forbidden() {
		gauge(forbiddenDesc, oneIf(forbidden), resource)
	}
}

// bound replaces namespaces by their labels.
func bound(all map[string]StalePods) map[string]StalePods {
	out := map[string]StalePods{}
	for _, namespace := range slices.Sorted(maps.Keys(all)) {
		label := namespaces.label(namespace)
		out[label] = out[label].Add(all[namespace])
	}
	return out
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
