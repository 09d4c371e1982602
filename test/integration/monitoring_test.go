// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/metrics"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// metricUse is the output of test/monitoring for an expression.
type metricUse struct {
	Where, Metric string
	Matchers      []labelMatcher
	Labels        []string
}

type labelMatcher struct{ Label, Type, Value string }

// matches reports whether a label, which is empty if it is absent, satisfies a matcher.
func (m labelMatcher) matches(value string) bool {
	switch m.Type {
	case "=":
		return value == m.Value
	case "!=":
		return value != m.Value
	}
	return regexp.MustCompile("^(?s:"+m.Value+")$").MatchString(value) == (m.Type == "=~")
}

// Labels that Prometheus adds to each time series that it scrapes.
var targetLabels = []string{"job", "instance", "exported_namespace"}

// Label values that do not occur in this test, so that it does not wait for them.
var notHere = map[string]labelMatcher{
	"configdep_rollouts_total": {"result", "=", metrics.Error},
	"apiserver_request_total":  {"code", "=~", "5.."},
}

// satisfied reports whether some time series satisfies an expression.
func (u *metricUse) satisfied(series model.Vector) bool {
	return slices.ContainsFunc(series, func(s *model.Sample) bool {
		if string(s.Metric[model.MetricNameLabel]) != u.Metric {
			return false
		}
		for _, m := range u.Matchers {
			value, there := s.Metric[model.LabelName(m.Label)]
			switch {
			case slices.Contains(targetLabels, m.Label):
			case notHere[u.Metric] == m && there:
			case !there || !m.matches(string(value)):
				return false
			}
		}
		return !slices.ContainsFunc(u.Labels, func(label string) bool {
			_, there := s.Metric[model.LabelName(label)]
			return !there && !slices.Contains(targetLabels, label)
		})
	})
}

// Every metric, label and value in the alerts and on the dashboard is exposed by a running server or
// kube-apiserver, and every metric of configdep is documented.
func TestMonitoringAsksForWhatIsExposed(t *testing.T) {
	t.Parallel()
	uses := metricUses(t)

	// Some metrics need events first: an automatic restart and one on request, workloads that are blocked, a
	// watch, an error of a client.
	namespace := newNamespace(t)
	made := write(t, namespace, "Secret/db", "password", "x")
	web := deployment("web", envFromSecret("db"))
	optedIn(web)
	create(t, kube.AppsV1().Deployments(namespace).Create, web)
	blocked := deployment("blocked", envFromSecret("missing"))
	optedIn(blocked)
	create(t, kube.AppsV1().Deployments(namespace).Create, blocked)
	write(t, namespace, "Secret/other", "password", "x")
	held := deployment("held", envFromSecret("other"))
	optedIn(held)
	create(t, kube.AppsV1().Deployments(namespace).Create, held)
	view(t, namespace, "deployment.web", at(made), applied)
	view(t, namespace, "deployment.blocked", is(v1alpha1.StateBlocked, "SourceMissing"))
	write(t, namespace, "Secret/db", "password", "y")
	view(t, namespace, "deployment.web", func(o *v1alpha1.ConfigDependency) error {
		if o.Status.LastReload == nil || o.Status.LastReload.Trigger != "Secret/db" {
			return fmt.Errorf("lastReload = %v", o.Status.LastReload)
		}
		return nil
	})
	reload(t, namespace, "deployment.web", v1alpha1.ReloadSpec{})
	watch, err := configdep.ConfigDependencies(namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if _, err := configdep.ConfigDependencies(namespace).Get(t.Context(), "deployment.none", metav1.GetOptions{}); err == nil {
		t.Error("a ConfigDependency without a workload exists")
	}
	beRefused(t, namespace, "web")
	// Another client removes the hash from a pod template. No policy restores what Reloader removes.
	patch := fmt.Sprintf(`{"spec": {"template": {"metadata": {"annotations": {%q: null}}}}}`, record.ConfigHashAnnotation)
	if _, err := kube.AppsV1().Deployments(namespace).Patch(t.Context(), "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "Reloader"}); err != nil {
		t.Fatal(err)
	}
	// A policy holds a restart, and pods keep old content.
	view(t, namespace, "deployment.held", applied)
	awaitAge(t, namespace, "held")
	shopIn(t, namespace).limit("of-"+namespace, `windows: [{kind: Allow, schedule: "0 1 99 * *", duration: 1h}]`, metav1.ConditionFalse)
	write(t, namespace, "Secret/other", "password", "y")

	var ours, theirs model.Vector
	await.Until(t, "all metrics of the expressions are exposed", func(ctx context.Context) error {
		ours = nil
		for _, r := range server.Replicas {
			found, err := scrape(ctx, r.Name(), r.AdminConfig())
			if err != nil {
				return err
			}
			ours = append(ours, found...)
		}
		if theirs, err = scrape(ctx, "kube-apiserver", cluster.RESTConfig()); err != nil {
			return err
		}
		missing := []error{}
		for _, u := range uses {
			series := ours
			if strings.HasPrefix(u.Metric, "aggregator_") || strings.HasPrefix(u.Metric, "apiserver_validating_admission_policy_") {
				series = theirs
			}
			if !u.satisfied(series) {
				missing = append(missing, fmt.Errorf("%s: no server exposes %s with labels %v and %v", u.Where, u.Metric, u.Labels, u.Matchers))
			}
		}
		return errors.Join(missing...)
	})

	documents, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range ours {
		name := string(s.Metric[model.MetricNameLabel])
		if strings.HasPrefix(name, "configdep_") && !strings.Contains(string(documents), "`"+regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")+"`") {
			t.Errorf("docs/metrics.md does not document %s", name)
		}
	}
}

// scrape returns the metrics of a server.
func scrape(ctx context.Context, name string, config *rest.Config) (model.Vector, error) {
	got, err := try(ctx, config, request{path: "/metrics"})
	if err != nil {
		return nil, fmt.Errorf("scraping %s: %w", name, err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(got.body))
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of %s: %w", name, err)
	}
	return expfmt.ExtractSamples(&expfmt.DecodeOptions{}, slices.Collect(maps.Values(families))...)
}

// metricUses parses the expressions with the parser of Prometheus.
func metricUses(t *testing.T) (uses []metricUse) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "run", "-trimpath", ".", filepath.Join("..", "..", "artifacts", "charts", "configdep", "files"))
	cmd.Dir = filepath.Join("..", "monitoring")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0") // like the binary of "make test"
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("reading the expressions: %v: %s", err, stderr.Bytes())
	}
	if err := json.Unmarshal(out, &uses); err != nil {
		t.Fatal(err)
	}
	if len(uses) < 40 {
		t.Fatalf("only %d uses of metrics", len(uses))
	}
	return uses
}

// beRefused sends a request with the server's identity that the server never sends.
func beRefused(t *testing.T, namespace, deployment string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(impersonate("system:serviceaccount:" + install.Namespace + ":" + install.Name))
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.AppsV1().Deployments(namespace).Patch(t.Context(), deployment, types.MergePatchType, []byte(`{"spec":{"paused":true}}`), metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
		t.Fatalf("no policy rejects the request: %v", err)
	}
}
