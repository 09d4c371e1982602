// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	commonmodel "github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/template"
)

const artifacts = "../../artifacts/charts/configdep/files"

func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	rules, err := readRules(artifacts + "/prometheusrule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// Each alert fires in its situation, with a description of it, and does not fire otherwise. The time series last half
// an hour and are from two replicas where that matters.
func TestAlertsFire(t *testing.T) {
	const (
		replica0, replica1 = `job="configdep-apiserver",instance="0"`, `job="configdep-apiserver",instance="1"`
		all                = `x30`
	)
	cases := map[string]struct {
		bad    string
		says   []string // parts of the expected descriptions
		quiets []string
	}{
		"ConfigdepAPIUnavailable": {
			bad: `aggregator_unavailable_apiservice{name="v1alpha1.configdep.io",instance="a"} 0` + all + `
			      aggregator_unavailable_apiservice{name="v1alpha1.configdep.io",instance="b"} 1` + all,
			says: []string{"APIService v1alpha1.configdep.io has been unavailable"},
			quiets: []string{`aggregator_unavailable_apiservice{name="v1alpha1.configdep.io"} 0` + all + `
			                  aggregator_unavailable_apiservice{name="v1beta1.metrics.k8s.io"} 1` + all},
		},
		"ConfigdepNotRegistered": {
			bad:  `aggregator_unavailable_apiservice{name="v1beta1.metrics.k8s.io"} 0` + all,
			says: []string{"no APIService v1alpha1.configdep.io"},
			quiets: []string{`aggregator_unavailable_apiservice{name="v1alpha1.configdep.io"} 1` + all + `
			                  aggregator_unavailable_apiservice{name="v1beta1.metrics.k8s.io"} 0` + all, `up{} 0` + all},
		},
		"ConfigdepDown": {
			bad:    `up{` + replica0 + `} 0` + all,
			says:   []string{"no metrics of configdep"},
			quiets: []string{`configdep_leader{` + replica0 + `} 0` + all},
		},
		"ConfigdepNoLeader": {
			bad:    `configdep_leader{` + replica0 + `} 0` + all + "\n" + `configdep_leader{` + replica1 + `} 0` + all,
			says:   []string{"No replica has held the Lease"},
			quiets: []string{`configdep_leader{` + replica0 + `} 0` + all + "\n" + `configdep_leader{` + replica1 + `} 1` + all},
		},
		"ConfigdepRestartsFail": {
			// Prometheus and the server both set the label, which may be renamed.
			bad: `configdep_rollouts_total{kind="Deployment",namespace="configdep-system",exported_namespace="shop",result="error"} 0+1` + all + `
			      configdep_rollouts_total{kind="DaemonSet",namespace="logs",result="error"} 0+1` + all,
			says: []string{"kind Deployment in namespace shop", "kind DaemonSet in namespace logs"},
			quiets: []string{`configdep_rollouts_total{kind="Deployment",namespace="shop",result="error"} 5` + all + `
			                  configdep_rollouts_total{kind="Deployment",namespace="shop",result="success"} 0+1` + all},
		},
		"ConfigdepRestartsLate": {
			bad: `configdep_rollout_patch_delay_seconds_bucket{le="8.192"} 0+1` + all + `
			      configdep_rollout_patch_delay_seconds_bucket{le="32.768"} 0+10` + all + `
			      configdep_rollout_patch_delay_seconds_bucket{le="+Inf"} 0+10` + all,
			says: []string{"more than 30.0"},
			quiets: []string{
				`configdep_rollout_patch_delay_seconds_bucket{le="8.192"} 0+10` + all + `
				 configdep_rollout_patch_delay_seconds_bucket{le="+Inf"} 0+10` + all,
				// No restarts.
				`configdep_rollout_patch_delay_seconds_bucket{le="8.192"} 0` + all + `
				 configdep_rollout_patch_delay_seconds_bucket{le="+Inf"} 0` + all,
			},
		},
		"ConfigdepWorkloadsBlocked": {
			bad: `configdep_workloads{` + replica0 + `,state="Blocked"} 3` + all + "\n" + `configdep_workloads{` + replica1 + `,state="Blocked"} 3` + all + `
			      configdep_workloads{` + replica0 + `,state="Failed"} 1` + all,
			says:   []string{"3 workloads have been Blocked", "1 workloads have been Failed"},
			quiets: []string{`configdep_workloads{state="Blocked"} 0` + all + "\n" + `configdep_workloads{state="InSync"} 7` + all},
		},
		"ConfigdepRestartsHeld": {
			bad: `configdep_workloads_waiting{` + replica0 + `,reason="HaltedAfterFailure"} 7` + all + "\n" + `configdep_workloads_waiting{` + replica1 + `,reason="HaltedAfterFailure"} 6` + all + `
			      configdep_workloads_waiting{reason="PolicyInvalid"} 2` + all + "\n" + `configdep_workloads_waiting{reason="PolicyUnknown"} 3` + all,
			says: []string{"7 workloads keep old content: their restarts have been on hold with the reason HaltedAfterFailure", "2 workloads", "reason PolicyUnknown"},
			quiets: []string{`configdep_workloads_waiting{reason="Budget"} 7` + all + "\n" + `configdep_workloads_waiting{reason="PolicySuspended"} 7` + all + `
			                  configdep_workloads_waiting{reason="HaltedAfterFailure"} 7x20`},
		},
		"ConfigdepRolloutsIncomplete": {
			bad:    `configdep_workloads{` + replica0 + `,state="RollingOut"} 2` + all + "\n" + `configdep_workloads{` + replica1 + `,state="RollingOut"} 1` + all,
			says:   []string{"now 2."},
			quiets: []string{`configdep_workloads{state="RollingOut"} 0` + all + "\n" + `configdep_workloads{state="Failed"} 1` + all},
		},
		"ConfigdepStalePods": {
			// Prometheus and the server both set the label, which may be renamed. Replicas may know of different changes.
			bad: `configdep_stale_seconds{` + replica0 + `,namespace="configdep-system",exported_namespace="shop"} 7200` + all + `
			      configdep_stale_seconds{` + replica1 + `,namespace="configdep-system",exported_namespace="shop"} 60` + all + `
			      configdep_stale_seconds{` + replica0 + `,namespace="logs"} 7200` + all,
			says:   []string{"Pods in namespace shop run with ConfigMaps or Secrets that changed 2h 0m 0s ago", "Pods in namespace logs"},
			quiets: []string{`configdep_stale_seconds{namespace="shop"} 60` + all, `configdep_stale_pods{namespace="shop"} 3` + all},
		},
		"ConfigdepNotReading": {
			bad: `configdep_ingest_last_progress_timestamp_seconds{` + replica0 + `,resource="secrets"} 0+60` + all + `
			      configdep_ingest_last_progress_timestamp_seconds{` + replica1 + `,resource="secrets"} 1200` + all + `
			      configdep_ingest_last_progress_timestamp_seconds{` + replica1 + `,resource="configmaps"} 0+60` + all,
			says:   []string{"received nothing about secrets for 10m 0s"},
			quiets: []string{`configdep_ingest_last_progress_timestamp_seconds{resource="secrets"} 0+60` + all},
		},
		"ConfigdepKindForbidden": {
			bad: `configdep_ingest_forbidden{` + replica0 + `,resource="rollouts.argoproj.io"} 1` + all + `
			      configdep_ingest_forbidden{` + replica1 + `,resource="rollouts.argoproj.io"} 1` + all + `
			      configdep_ingest_forbidden{` + replica1 + `,resource="services.serving.knative.dev"} 0` + all,
			says:   []string{"serves rollouts.argoproj.io"},
			quiets: []string{`configdep_ingest_forbidden{resource="rollouts.argoproj.io"} 0` + all},
		},
		"ConfigdepVersionsDiffer": {
			bad:    `configdep_ingest_one_revision_counter{` + replica0 + `} 0` + all + "\n" + `configdep_ingest_one_revision_counter{` + replica1 + `} 1` + all,
			says:   []string{"do not share one revision counter"},
			quiets: []string{`configdep_ingest_one_revision_counter 1` + all},
		},
		"ConfigdepAPIErrors": {
			bad: `apiserver_request_total{group="configdep.io",code="200"} 0+9` + all + `
			      apiserver_request_total{group="configdep.io",code="503"} 0+1` + all,
			says: []string{"10% of the requests"},
			quiets: []string{
				`apiserver_request_total{group="configdep.io",code="200"} 0+99` + all + `
				 apiserver_request_total{group="configdep.io",code="404"} 0+99` + all + `
				 apiserver_request_total{group="configdep.io",code="503"} 0+1` + all + `
				 apiserver_request_total{group="apps",code="500"} 0+99` + all,
				// No requests after an error.
				`apiserver_request_total{group="configdep.io",code="503"} 1` + all,
			},
		},
		"ConfigdepCertificateExpires": {
			// The rule is evaluated after half an hour.
			bad: `configdep_serving_certificate_expiry_timestamp_seconds{` + replica0 + `} 88200` + all + `
			      configdep_serving_certificate_expiry_timestamp_seconds{` + replica1 + `} 8640000` + all,
			says:   []string{"expires in 1d 0h 0m 0s"},
			quiets: []string{`configdep_serving_certificate_expiry_timestamp_seconds 8640000` + all},
		},
		"ConfigdepSecretMissing": {
			bad: `configdep_server_secret_missing{secret="configdep-hmac-key",` + replica0 + `} 0` + all + `
			      configdep_server_secret_missing{secret="configdep-hmac-key",` + replica1 + `} 1` + all,
			says:   []string{"Secret configdep-hmac-key has been deleted"},
			quiets: []string{`configdep_server_secret_missing{secret="configdep-hmac-key"} 0` + all},
		},
		"ConfigdepPolicyRefuses": {
			// One refusal is enough, whether it is the first of a policy or a later one.
			bad: `apiserver_validating_admission_policy_check_total{instance="a",policy="configdep-apiserver-workloads",enforcement_action="deny"} _x27 1x3
			      apiserver_validating_admission_policy_check_total{instance="b",policy="configdep-apiserver-workloads",enforcement_action="deny"} 3` + all + `
			      apiserver_validating_admission_policy_check_total{policy="configdep-apiserver-registrations",enforcement_action="deny"} 1x20 2x9`,
			says: []string{"Policy configdep-apiserver-workloads refuses", "Policy configdep-apiserver-registrations refuses"},
			quiets: []string{`apiserver_validating_admission_policy_check_total{policy="configdep-apiserver-workloads",enforcement_action="deny"} 1` + all + `
			                  apiserver_validating_admission_policy_check_total{policy="configdep-apiserver-workloads",enforcement_action="allow"} 0+1` + all + `
			                  apiserver_validating_admission_policy_check_total{policy="configdep-apiserver-workloads",enforcement_action="audit"} 0+1` + all + `
			                  apiserver_validating_admission_policy_check_total{policy="other",enforcement_action="deny"} 0+1` + all},
		},
		"ConfigdepNotificationsLost": {
			bad: `configdep_notifications_total{` + replica0 + `,destination="oncall",result="delivered"} 0+1` + all + `
			      configdep_notifications_total{` + replica0 + `,destination="oncall",result="rejected"} 0` + all + `
			      configdep_notifications_total{` + replica1 + `,destination="oncall",result="rejected"} 0x20 1x10
			      configdep_notifications_total{` + replica1 + `,destination="audit",result="queue_full"} 0+1` + all,
			says: []string{"destination oncall are lost with the result rejected", "destination audit are lost with the result queue_full"},
			quiets: []string{
				`configdep_notifications_total{destination="oncall",result="delivered"} 0+1` + all + `
				 configdep_notifications_total{destination="oncall",result="failed"} 0` + all,
				// Losses that are over.
				`configdep_notifications_total{destination="oncall",result="failed"} 7` + all,
			},
		},
	}
	for _, rule := range alerts(t) {
		t.Run(rule.Alert, func(t *testing.T) {
			test, known := cases[rule.Alert]
			if !known {
				t.Fatal("the alert has no test case")
			}
			said := evaluate(t, rule, test.bad)
			if len(said) != len(test.says) {
				t.Errorf("the alert fires %d times, want %d: %q", len(said), len(test.says), said)
			}
			for _, want := range test.says {
				if !slices.ContainsFunc(said, func(text string) bool { return strings.Contains(text, want) }) {
					t.Errorf("descriptions = %q, want %q", said, want)
				}
			}
			for _, quiet := range append(test.quiets, "") {
				if rule.Alert == "ConfigdepDown" && quiet == "" {
					continue // this alert fires without any time series
				}
				if said := evaluate(t, rule, quiet); len(said) > 0 {
					t.Errorf("the alert fires unexpectedly: %q, with\n%s", said, quiet)
				}
			}
		})
		delete(cases, rule.Alert)
	}
	for name := range cases {
		t.Errorf("no such alert: %s", name)
	}
}

// evaluate returns the description of each alert that fires after half an hour.
func evaluate(t *testing.T, rule rulefmt.Rule, series string) (said []string) {
	t.Helper()
	load := "load 1m\n"
	for line := range strings.SplitSeq(series, "\n") {
		load += "  " + strings.TrimSpace(line) + "\n"
	}
	if series == "" {
		load = ""
	}
	storage := promqltest.LoadedStorage(t, load)
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	at := time.Unix(0, 0).Add(30 * time.Minute)
	query, err := engine.NewInstantQuery(t.Context(), storage, nil, rule.Expr, at)
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	result, err := query.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatal(err)
	}
	for _, sample := range result {
		said = append(said, render(t, rule.Annotations["description"], sample, at))
	}
	return said
}

// render renders the template of an annotation as Prometheus does.
func render(t *testing.T, text string, sample promql.Sample, at time.Time) string {
	t.Helper()
	data := template.AlertTemplateData(sample.Metric.Map(), nil, "", sample)
	prefix := "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"
	expander := template.NewTemplateExpander(t.Context(), prefix+text, "test", data, commonmodel.TimeFromUnix(at.Unix()), nil, &url.URL{}, []string{"missingkey=error"})
	rendered, err := expander.Expand()
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return rendered
}

// Every alert has a runbook under its name, a description and a severity.
func TestAlertsHaveARunbook(t *testing.T) {
	const file = "docs/operations.md"
	content, err := os.ReadFile("../../" + file)
	if err != nil {
		t.Fatal(err)
	}
	headings := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^### (Configdep\w+)$`).FindAllSubmatch(content, -1) {
		headings[string(found[1])] = true
	}
	for _, rule := range alerts(t) {
		want := fmt.Sprintf("https://github.com/configdep/configdep/blob/main/%s#%s", file, strings.ToLower(rule.Alert))
		if rule.Annotations["runbook_url"] != want || !headings[rule.Alert] {
			t.Errorf("%s: runbook = %q, want %s with that heading", rule.Alert, rule.Annotations["runbook_url"], want)
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s has no summary or no description", rule.Alert)
		}
		if !slices.Contains([]string{"info", "warning", "critical"}, rule.Labels["severity"]) {
			t.Errorf("%s has the severity %q", rule.Alert, rule.Labels["severity"])
		}
		if rule.For == 0 {
			t.Errorf("%s has no duration before it fires", rule.Alert)
		}
		delete(headings, rule.Alert)
	}
	for name := range headings {
		t.Errorf("%s documents an unknown alert %s", file, name)
	}
}
