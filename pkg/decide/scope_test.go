// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/policy"
)

// Where no ConfigMaps are read, only Secrets restart the workload. It is not blocked by a ConfigMap, and a message says
// which changes are not seen, beside those of Secrets of a type that is not read.
func TestDecide_WithoutConfigMaps(t *testing.T) {
	pod := podOf(envFrom(dependency.ConfigMap, "settings"), volume(dependency.ConfigMap, "absent", ""), env(dependency.Secret, "db", "password"), envFrom(dependency.Secret, "token"))
	x := newWorld(t, pod, configMap("settings", "a", "1"), secret("db", "password", "1"))
	x.unread = tokenType
	x.set(token("token"))
	x.annotate(policy.SourcesAnnotation, "configmap/s*,secret/d*")
	x.scope.WithoutConfigMaps = true
	x.restart()
	unseen := sight{Reason: policy.ReasonNotObserved}
	want := map[string]sight{"ConfigMap/settings": unseen, "ConfigMap/absent": unseen, "Secret/db": {Triggers: true}, "Secret/token": unseen}
	if diff := cmp.Diff(want, sources(x.evaluate())); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
	x.adopt()
	const says = " Changes of ConfigMap/absent, ConfigMap/settings and ConfigMap/s* are not seen: configdep reads no ConfigMaps (--read-configmaps=false)." +
		" Changes of Secret/token are not seen: configdep does not read Secrets of that type (--exclude-secret-types)."
	if d := x.decide(); d.State != decide.InSync || !strings.HasSuffix(d.Message, says) {
		t.Errorf("state = %s, message = %q, want the suffix %q", d.State, d.Message, says)
	}
	x.set(configMap("settings", "a", "2"))
	if d := x.decide(); d.State != decide.InSync || d.Action != decide.None {
		t.Errorf("a ConfigMap changes: decision = %+v", outcomeOf(d))
	}
	x.set(secret("db", "password", "2"))
	x.wantRestarts("a Secret changes", db)
	// All are read again: what counts from then on is adopted.
	x.scope.WithoutConfigMaps = false
	x.set(configMap("absent"))
	x.restart()
	x.restarts()
	x.set(configMap("settings", "a", "3"))
	x.wantRestarts("a ConfigMap changes, and is read", "ConfigMap/settings")
}

// A source that lacks the label by which sources are selected may exist, so it does not block restarts for others. A key that a
// source with the label lacks does.
func TestDecide_SourcesSelectedByLabel(t *testing.T) {
	x := newWorld(t, podOf(envFrom(dependency.ConfigMap, "unlabelled"), env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	selector, err := labels.Parse("reload=true")
	if err != nil {
		t.Fatal(err)
	}
	x.scope.SourceSelector = selector // the cluster sends what it would with it
	x.restart()
	if missing, _ := x.evaluate().Missing(); len(missing) > 0 {
		t.Errorf("missing = %q", missing)
	}
	x.adopt()
	x.set(secret("db", "password", "2"))
	x.wantRestarts("a Secret changes", db)
	x.set(secret("db", "other", "2"))
	if d := x.decide(); d.State != decide.Blocked || d.Reason != decide.ReasonKeyMissing {
		t.Errorf("a key is missing: decision = %+v", outcomeOf(d))
	}
}

// A namespace that gets the label opts its workloads in, as they are, and one that loses it opts them out.
func TestDecide_NamespaceSelector(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	selector, err := labels.Parse("env=test")
	if err != nil {
		t.Fatal(err)
	}
	space := func(env string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"env": env}}}
	}
	x.scope = ingest.Scope{NamespaceSelector: selector}
	x.set(space("prod"))
	x.restart()
	x.want("the namespace lacks the label", nothing)
	x.set(secret("db", "password", "2"))
	x.tick(time.Hour)
	x.want("the content changes", stale(decide.ReasonNotOptedIn, decide.None))
	x.set(space("test"))
	if got := x.restarts(); len(got) > 0 {
		t.Errorf("the namespace gets the label: restarts for %q", got)
	}
	x.set(secret("db", "password", "3"))
	x.wantRestarts("the content changes where the label is", db)
	x.set(space("prod"))
	x.set(secret("db", "password", "4"))
	if got := x.restarts(); len(got) > 0 {
		t.Errorf("the namespace loses the label: restarts for %q", got)
	}
	x.want("without the label", outcome{decide.Stale, decide.ReasonNotOptedIn, decide.None, db})
}

// A label that a source gets, or loses, is no change, in any dialect. But content that changes while it has none is one, once
// it has the label again.
func TestDecide_LabelsOfSelectedSources(t *testing.T) {
	labelled := func(value, label string) *corev1.Secret {
		s := secret("db", "password", value)
		s.Labels = map[string]string{"reload": label}
		return s
	}
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), labelled("1", "true"))
	selector, err := labels.Parse("reload=true")
	if err != nil {
		t.Fatal(err)
	}
	x.scope.SourceSelector = selector
	x.restart()
	x.adopt()
	// The API server reports an object that ceases to match as deleted, and one that begins to match as added.
	for i, step := range []struct {
		do   func()
		want int
	}{
		{func() { x.remove(dependency.Secret, "db") }, 0},
		{func() { x.set(labelled("1", "true")) }, 0},
		{func() { x.remove(dependency.Secret, "db") }, 0},
		{func() { x.set(labelled("2", "true")) }, 1},
	} {
		step.do()
		if n := len(x.restarts()); n != step.want {
			t.Errorf("step %d: %d restarts, want %d", i+1, n, step.want)
		}
	}
}
