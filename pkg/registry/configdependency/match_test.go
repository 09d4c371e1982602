// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	stdcmp "cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// parseFields does with a field selector what the generic API server does with the one
// of a request.
func parseFields(t *testing.T, selector string) (fields.Selector, error) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Transform(func(label, value string) (string, string, error) {
		return scheme.ConvertFieldLabel(v1alpha1.SchemeGroupVersion.WithKind("ConfigDependency"), label, value)
	})
}

func TestSelectors(t *testing.T) {
	c := newCluster(t,
		workload(kind.Deployment, "shop", "web", map[string]string{"app": "web", "tier": "front"}, "Secret/db", "ConfigMap/settings"),
		workload(kind.Deployment, "shop", "api", map[string]string{"app": "api"}, "Secret/db", "Secret/db-admin"),
		workload(kind.CronJob, "shop", "web", map[string]string{"app": "web"}, "ConfigMap/db"),
		workload(kind.Pod, "payments", "debug", nil, "SecretProviderClass/keys", "Secret/db"),
		workload(kind.Pod, "payments", "idle", nil),
	)
	const (
		web, api, cron, debug, idle = "shop/deployment.web", "shop/deployment.api", "shop/cronjob.web", "payments/pod.debug", "payments/pod.idle"
	)
	tests := map[string]struct {
		labels, fields string
		want           []string
	}{
		"everything":               {"", "", []string{debug, idle, cron, api, web}},
		"labels of the workload":   {"app=web", "", []string{cron, web}},
		"labels that are not set":  {"!app", "", []string{debug, idle}},
		"sets of labels":           {"app in (web, api),tier!=front", "", []string{cron, api}},
		"labels that nothing has":  {"app=nothing", "", nil},
		"a name":                   {"", "metadata.name=deployment.web", []string{web}},
		"not a name":               {"", "metadata.name!=deployment.web", []string{debug, idle, cron, api}},
		"a namespace":              {"", "metadata.namespace=payments", []string{debug, idle}},
		"a state":                  {"", "status.state=InSync", []string{debug, idle, cron}},
		"a state in lower case":    {"", "status.state=rollingout", []string{api, web}},
		"a reason":                 {"", "status.reason=NextRunReadsContent", []string{cron}},
		"not a reason":             {"", "status.reason!=NextRunReadsContent,metadata.namespace=shop", []string{api, web}},
		"a mode":                   {"", "spec.reload.mode=off", []string{debug, idle, cron, api, web}},
		"another mode":             {"", "spec.reload.mode=Auto", nil},
		"another state":            {"", "status.state=Failed", nil},
		"a kind":                   {"", "spec.workloadRef.kind=Deployment", []string{api, web}},
		"not a kind":               {"", "spec.workloadRef.kind!=Deployment", []string{debug, idle, cron}},
		"a workload's name":        {"", "spec.workloadRef.name=web", []string{cron, web}},
		"both of two fields":       {"", "spec.workloadRef.name=web,spec.workloadRef.kind=CronJob", []string{cron}},
		"fields and labels":        {"tier", "spec.workloadRef.name=web", []string{web}},
		"who uses a Secret":        {"", "source=Secret/db", []string{debug, api, web}},
		"who uses a ConfigMap":     {"", "source=ConfigMap/db", []string{cron}},
		"in lower case":            {"", "source=secret/db", []string{debug, api, web}},
		"with two equals signs":    {"", "source==SECRET/db", []string{debug, api, web}},
		"who uses a class":         {"", "source=secretproviderclass/keys", []string{debug}},
		"who does not use it":      {"", "source!=Secret/db", []string{idle, cron}},
		"who uses both":            {"", "source=Secret/db,source=ConfigMap/settings", []string{web}},
		"who uses one, not other":  {"", "source=Secret/db,source!=ConfigMap/settings", []string{debug, api}},
		"the beginning of a name":  {"", "source=Secret/d", nil},
		"a source that is absent":  {"", "source=Secret/nothing", nil},
		"the same name, other ns":  {"", "source=Secret/db,metadata.namespace=payments", []string{debug}},
		"a source with no name":    {"", "source=", nil},
		"not a source with no one": {"", "source!=", []string{debug, idle, cron, api, web}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			byLabel, err := labels.Parse(tt.labels)
			if err != nil {
				t.Fatal(err)
			}
			byField, err := parseFields(t, tt.fields)
			if err != nil {
				t.Fatal(err)
			}
			o, err := c.rest.List(in(""), &metainternalversion.ListOptions{LabelSelector: byLabel, FieldSelector: byField})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, listNames(t, o)); diff != "" {
				t.Errorf("selected (-want +got):\n%s", diff)
			}
		})
	}
}

// What the scheme lets through, the storage can select by, and the other way round.
func TestStorageAndSchemeSelectByTheSameFields(t *testing.T) {
	c := newCluster(t)
	for _, field := range []string{
		v1alpha1.FieldName, v1alpha1.FieldNamespace, v1alpha1.FieldState, v1alpha1.FieldReason, v1alpha1.FieldMode, v1alpha1.FieldWorkloadKind,
		v1alpha1.FieldWorkloadName, v1alpha1.FieldSource, "spec.reload", "status", "spec.sources",
	} {
		value := map[string]string{v1alpha1.FieldState: "Stale", v1alpha1.FieldReason: "Held", v1alpha1.FieldMode: "Auto"}[field]
		value = stdcmp.Or(value, "Secret/x")
		selector, schemeErr := parseFields(t, field+"="+value)
		if schemeErr != nil {
			selector = fields.OneTermEqualSelector(field, value)
		}
		if _, err := c.rest.List(in(""), &metainternalversion.ListOptions{FieldSelector: selector}); (err == nil) != (schemeErr == nil) {
			t.Errorf("%s: the scheme says %v, the storage %v", field, schemeErr, err)
		}
	}
}

// A reason that no workload can have is a mistake, and not an empty list.
func TestList_UnknownReason(t *testing.T) {
	c := newCluster(t)
	for _, selector := range []fields.Selector{fields.OneTermEqualSelector(v1alpha1.FieldReason, "OptedInStal"), fields.OneTermNotEqualSelector(v1alpha1.FieldReason, "")} {
		_, err := c.rest.List(in(""), &metainternalversion.ListOptions{FieldSelector: selector})
		if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "OptedInStale") {
			t.Errorf("%s: error %v", selector, err)
		}
	}
}

// A pattern matches the names of sources, present or not, that are not excluded.
func TestSelectors_Patterns(t *testing.T) {
	o := &v1alpha1.ConfigDependency{}
	o.Status.Patterns = []v1alpha1.PatternStatus{{Kind: "Secret", Pattern: "feature-*"}, {Kind: "ConfigMap", Pattern: "a*"}}
	o.Spec.Reload.Exclude = []string{"Secret/feature-x*", "ConfigMap/feature-1"}
	for source, want := range map[string]bool{
		"Secret/feature-1": true, "Secret/feature-x1": false, "Secret/feature": false, "ConfigMap/feature-1": false,
		"ConfigMap/ab": true, "Secret/ab": false, "": false, "Secret": false,
	} {
		if got := fieldValues(o, v1alpha1.FieldSource)(source); got != want {
			t.Errorf("%q: %v", source, got)
		}
	}
}

// All patterns together show a bounded number of names.
func TestRenderPatterns(t *testing.T) {
	d := web(annotated(policy.SourcesAnnotation, "configmap/s-00*,secret/s-*,secret/*"))
	c := newCluster(t, d)
	for i := range 2 * dependency.MaxNames {
		name := fmt.Sprintf("s-%03d", i)
		c.Set(ingesttest.ConfigMap(name))
		c.Set(ingesttest.Secret(name))
	}
	out := c.render(d, 1).Status.Patterns
	if len(out) != 3 || len(out[0].Names) != 10 || len(out[1].Names) != 90 || len(out[2].Names) != 0 {
		t.Fatalf("%+v", out)
	}
	if out[1].Count != 200 || out[2].Count != 200 || out[1].Names[89] != "s-089" {
		t.Errorf("%+v", out)
	}
}
