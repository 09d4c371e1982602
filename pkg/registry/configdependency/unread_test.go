// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
)

// namesSecrets is a Deployment that reads the Secret db, and whose annotation names others.
func namesSecrets() *appsv1.Deployment {
	return web(annotated(policy.SourcesAnnotation, "secret/listed,secret/c*,configmap/c*"))
}

// seen is what users see of a source.
type seen struct {
	Kind, Name string
	Present    string // unknown, or whether it is
	Reason     string
}

func seenOf(o *v1alpha1.ConfigDependency) (out []seen) {
	for i := range o.Spec.Sources {
		s, status := &o.Spec.Sources[i], &o.Status.Sources[i]
		present := "unknown"
		if status.Present != nil {
			present = map[bool]string{true: "yes", false: "no"}[*status.Present]
		}
		out = append(out, seen{string(s.Kind), s.Name, present, s.Reason})
	}
	return out
}

// Where no Secrets are read, views show who uses them, and say nothing of whether they are there.
func TestRender_WithoutSecrets(t *testing.T) {
	w := namesSecrets()
	c := unsynced(t, w)
	c.start(ingest.Scope{WithoutSecrets: true})
	c.sync(t)
	o := c.render(w, 123)
	want := []seen{
		{"Secret", "db", "unknown", policy.ReasonNotObserved}, {"Secret", "listed", "unknown", policy.ReasonNotObserved},
		{"Secret", "share-key", "unknown", policy.ReasonNotObserved},
	}
	if diff := cmp.Diff(want, seenOf(o)); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
	patterns := []v1alpha1.PatternStatus{{Kind: "ConfigMap", Pattern: "c*"}, {Kind: "Secret", Pattern: "c*", Reason: policy.ReasonNotObserved}}
	if diff := cmp.Diff(patterns, o.Status.Patterns, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("patterns (-want +got):\n%s", diff)
	}
	if resolved := o.Status.Conditions[0]; resolved.Status != metav1.ConditionTrue || o.Status.State == v1alpha1.StateBlocked {
		t.Errorf("the state is %s, and %+v", o.Status.State, resolved)
	}
	for source, found := range map[string]int{"Secret/db": 1, "Secret/listed": 1, "Secret/share-key": 1, "Secret/cert": 1, "Secret/other": 0, "ConfigMap/db": 0} {
		fields, err := parseFields(t, "source="+source)
		if err != nil {
			t.Fatal(err)
		}
		if list := c.list(t, "shop", &metainternalversion.ListOptions{FieldSelector: fields}); len(list.Items) != found {
			t.Errorf("%d workloads use %s, want %d", len(list.Items), source, found)
		}
	}
}

// Where no ConfigMaps are read, views say nothing of whether they are there.
func TestRender_WithoutConfigMaps(t *testing.T) {
	w := web(annotated(policy.SourcesAnnotation, "configmap/listed,configmap/c*"))
	c := unsynced(t, w)
	c.start(ingest.Scope{WithoutConfigMaps: true})
	c.sync(t)
	o := c.render(w, 123)
	for _, s := range seenOf(o) {
		if unread := s.Kind == "ConfigMap"; unread != (s.Present == "unknown") || unread != (s.Reason == policy.ReasonNotObserved) {
			t.Errorf("%+v", s)
		}
	}
	if diff := cmp.Diff([]v1alpha1.PatternStatus{{Kind: "ConfigMap", Pattern: "c*", Reason: policy.ReasonNotObserved}}, o.Status.Patterns, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("patterns (-want +got):\n%s", diff)
	}
}

// A source that lacks the label by which sources are selected may be there.
func TestRender_SourcesSelectedByLabel(t *testing.T) {
	w := web(func(o *appsv1.Deployment) { o.Spec.Template.Spec.Volumes = nil })
	c := unsynced(t, w)
	c.start(ingest.Scope{SourceSelector: labels.Everything(), UnreadTypes: []string{string(corev1.SecretTypeServiceAccountToken)}})
	c.sync(t)
	check := func(why, present, reason string) {
		t.Helper()
		o := c.render(w, 123)
		if diff := cmp.Diff([]seen{{"Secret", "db", present, reason}}, seenOf(o)); diff != "" {
			t.Errorf("%s: sources (-want +got):\n%s", why, diff)
		}
		if resolved := o.Status.Conditions[0]; resolved.Status != metav1.ConditionTrue || missing(o) != "<none>" {
			t.Errorf("%s: %+v, missing %s", why, resolved, missing(o))
		}
	}
	check("it is absent", "unknown", "")
	c.set(ingesttest.Secret("db", "password", "1"))
	check("it is there", "yes", "")
	c.remove(ingesttest.Secret("db"))
	check("it has gone", "unknown", "")
	token := ingesttest.Secret("db")
	token.Type = corev1.SecretTypeServiceAccountToken
	c.set(token)
	check("it is of a type that is not read", "yes", policy.ReasonNotObserved)
}

// A Secret of a type that is not read is there, without more; when it came, everything that pods need was.
func TestRender_Unread(t *testing.T) {
	w := web(func(o *appsv1.Deployment) { o.Spec.Template.Spec.Volumes = nil })
	c := unsynced(t, w)
	c.start(ingest.Scope{UnreadTypes: []string{string(corev1.SecretTypeServiceAccountToken)}})
	c.sync(t)
	token := ingesttest.Secret("db")
	token.Type, token.CreationTimestamp = corev1.SecretTypeServiceAccountToken, secondOf(5)
	check := func(why string, present, reason string, status metav1.ConditionStatus, since metav1.Time) {
		t.Helper()
		o := c.render(w, 123)
		if diff := cmp.Diff([]seen{{"Secret", "db", present, reason}}, seenOf(o)); diff != "" {
			t.Errorf("%s: sources (-want +got):\n%s", why, diff)
		}
		if s := o.Status.Sources[0]; s.ResourceVersion != "" || s.LastChangeTime != nil || s.MissingKeys != nil {
			t.Errorf("%s: it shows %+v", why, s)
		}
		if resolved := o.Status.Conditions[0]; resolved.Status != status || !resolved.LastTransitionTime.Equal(&since) {
			t.Errorf("%s: %+v", why, resolved)
		}
	}
	check("it is absent", "no", "", metav1.ConditionFalse, secondOf(1))
	c.set(token)
	check("it is there", "yes", policy.ReasonNotObserved, metav1.ConditionTrue, secondOf(5))
	c.remove(token)
	check("it has gone", "no", "", metav1.ConditionFalse, secondOf(1))
}
