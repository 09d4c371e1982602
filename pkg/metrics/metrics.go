// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package metrics defines the server's own metrics, which are served at /metrics with those
// of the generic API server and the workqueues. All names begin with configdep_; they are
// documented in docs/metrics.md.
package metrics

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // requests to kube-apiserver and their latency
	_ "k8s.io/component-base/metrics/prometheus/workqueue"  // depth, age and latency of the queues
)

var (
	rollouts = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "configdep_rollouts_total",
		Help: "Number of attempted restarts of workloads, and of fields that were set. " +
			"The result is success, conflict (retried at once), error, or observed (only reported). " +
			"The trigger is ConfigMap, Secret, SecretProviderClass, Unknown, or Request for a Reload.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"kind", "namespace", "result", "trigger"})

	patchDelay = metrics.NewHistogram(&metrics.HistogramOpts{
		Name:           "configdep_rollout_patch_delay_seconds",
		Help:           "Time from when a restart was due until the workload was patched.",
		Buckets:        metrics.ExponentialBuckets(0.001, 2, 16),
		StabilityLevel: metrics.ALPHA,
	})

	currentAfter = metrics.NewHistogram(&metrics.HistogramOpts{
		Name:           "configdep_current_after_seconds",
		Help:           "Time from the first change that a pod of a workload had not read until all of its pods were up to date. Only the leader reports it.",
		Buckets:        []float64{10, 30, 60, 300, 900, 1800, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600},
		StabilityLevel: metrics.ALPHA,
	})

	rewrites = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "configdep_template_rewrites_total",
		Help: "Number of writes by other clients that removed configdep's hash from a pod template and changed only annotations of it. " +
			"Each caused a rollout that the MutatingAdmissionPolicy prevents.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"namespace"})

	leading = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "configdep_leader",
		Help:           "1 on the replica that restarts workloads, 0 on the others.",
		StabilityLevel: metrics.ALPHA,
	})

	notifications = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "configdep_notifications_total",
		Help: "Number of events for a destination outside of the cluster. The result is delivered, or why the event was lost: " +
			"queue_full, invalid, rejected, failed or shutdown.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"destination", "result"})

	register = sync.OnceFunc(func() {
		legacyregistry.MustRegister(rollouts, patchDelay, currentAfter, rewrites, leading, notifications)
	})
)

// Register registers the metrics, once for the process.
func Register() { register() }

// Results of a rollout.
const (
	Success  = "success"
	Conflict = "conflict"
	Error    = "error"
	Observed = "observed"
)

// Rollout counts an attempted restart.
func Rollout(kind, namespace, result, trigger string) {
	rollouts.WithLabelValues(kind, namespaces.label(namespace), result, trigger).Inc()
}

// CurrentAfter observes how long a workload was stale.
func CurrentAfter(d time.Duration) { currentAfter.Observe(max(0, d.Seconds())) }

// Rewrites counts n writes that removed the hash from a pod template.
func Rewrites(namespace string, n int) {
	if n > 0 {
		rewrites.WithLabelValues(namespaces.label(namespace)).Add(float64(n))
	}
}

// PatchDelay observes the time from when a restart was due until the patch.
func PatchDelay(d time.Duration) { patchDelay.Observe(d.Seconds()) }

// Results of events for a destination outside of the cluster. All but the first are losses.
const (
	NotificationDelivered = "delivered"
	NotificationQueueFull = "queue_full"
	NotificationInvalid   = "invalid"
	NotificationRejected  = "rejected"
	NotificationFailed    = "failed"
	NotificationShutdown  = "shutdown"
)

// NotificationResults returns all results of events for a destination.
func NotificationResults() []string {
	return []string{
		NotificationDelivered, NotificationQueueFull, NotificationInvalid, NotificationRejected, NotificationFailed, NotificationShutdown,
	}
}

// Notifications counts n events for a destination. Destinations are names from the configuration, so they are few.
func Notifications(destination, result string, n int) {
	notifications.WithLabelValues(destination, result).Add(float64(n))
}

// Leading sets whether this replica restarts workloads.
func Leading(yes bool) {
	leading.Set(oneIf(yes))
}

// maxNamespaces limits the values of the label namespace, and so the memory of this process
// and of clients that scrape it.
const maxNamespaces = 200

var namespaces = bounded{known: map[string]bool{}}

type bounded struct {
	mu    sync.Mutex
	known map[string]bool
}

func (b *bounded) label(value string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.known[value] {
		if len(b.known) == maxNamespaces {
			return "_other"
		}
		b.known[value] = true
	}
	return value
}
