// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

const tokenType = corev1.SecretTypeServiceAccountToken

func token(name string, pairs ...string) *corev1.Secret {
	s := secret(name, pairs...)
	s.Type = tokenType
	return s
}

// withoutSecrets makes the process read no Secrets, or read them again, as after a restart with other flags.
func withoutSecrets(without bool) func(*world) {
	return func(x *world) {
		x.withoutSecrets = without
		x.restart()
	}
}

// References to Secrets are shown with the reason why their changes restart nothing, whatever the policy. A message says
// what the server does not read.
func TestEvaluate_Unread(t *testing.T) {
	pod := podOf(
		envFrom(dependency.ConfigMap, "settings"),
		env(dependency.Secret, "db", "password"),
		volume(dependency.Secret, "absent", ""),
		envFrom(dependency.Secret, "token"),
		pullSecret("pull"),
	)
	seen, unseen := sight{Triggers: true}, sight{Reason: policy.ReasonNotObserved}
	const noSecrets, noTokens = "configdep reads no Secrets (--read-secrets=false).", "configdep does not read Secrets of that type (--exclude-secret-types)."
	for name, tt := range map[string]struct {
		without     bool
		annotations []string
		want        map[string]sight
		missing     []string
		says        string
	}{
		"no Secrets, auto": {true, nil, map[string]sight{
			"ConfigMap/settings": seen, "Secret/db": unseen, "Secret/absent": unseen, "Secret/token": unseen, "Secret/pull": unseen,
		}, nil, "The next change restarts them. Changes of Secret/absent, Secret/db and Secret/token are not seen: " + noSecrets},
		"no Secrets, but none counts": {true, []string{policy.KindsAnnotation, "configmap"}, map[string]sight{
			"ConfigMap/settings": seen, "Secret/db": unseen, "Secret/absent": unseen, "Secret/token": unseen, "Secret/pull": unseen,
		}, nil, "The next change restarts them."},
		"no Secrets, and one is listed": {true, []string{policy.ReloadAnnotation, "listed", policy.SourcesAnnotation, "secret/other,configmap/settings"}, map[string]sight{
			"ConfigMap/settings": seen, "Secret/db": unseen, "Secret/absent": unseen, "Secret/token": unseen, "Secret/pull": unseen, "Secret/other": unseen,
		}, nil, "Changes of Secret/other are not seen: " + noSecrets},
		"no Secrets, and patterns": {true, []string{policy.SourcesAnnotation, "secret/d*,configmap/s*", policy.KindsAnnotation, "configmap"}, map[string]sight{
			"ConfigMap/settings": seen, "ConfigMap/some": seen, "Secret/db": unseen, "Secret/absent": unseen, "Secret/token": unseen, "Secret/pull": unseen,
		}, nil, "Changes of Secret/db and Secret/d* are not seen: " + noSecrets},
		"no Secrets, and only these count": {true, []string{policy.KindsAnnotation, "secret"}, map[string]sight{
			"ConfigMap/settings": {Reason: policy.ReasonKindNotWatched}, "Secret/db": unseen, "Secret/absent": unseen, "Secret/token": unseen, "Secret/pull": unseen,
		}, nil, "No ConfigMap or Secret restarts this workload automatically; spec.sources says why. Changes of Secret/absent, Secret/db and Secret/token are not seen: " + noSecrets},
		"no tokens": {false, nil, map[string]sight{
			"ConfigMap/settings": seen, "Secret/db": seen, "Secret/absent": seen, "Secret/token": unseen, "Secret/pull": {Reason: policy.ReasonNotRead},
		}, []string{"Secret absent is missing"}, ""},
		"no tokens, of which one is listed": {false, []string{policy.ReloadAnnotation, "listed", policy.SourcesAnnotation, "secret/token,secret/t*"}, map[string]sight{
			"ConfigMap/settings": {Reason: policy.ReasonNotListed}, "Secret/db": {Reason: policy.ReasonNotListed}, "Secret/absent": {Reason: policy.ReasonNotListed}, "Secret/token": unseen, "Secret/pull": {Reason: policy.ReasonNotListed},
		}, []string{"Secret absent is missing"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, pod, configMap("settings", "a", "1"), configMap("some", "a", "1"), secret("db", "password", "x"))
			x.unread, x.withoutSecrets = tokenType, tt.without
			x.set(token("token"))
			x.annotate(tt.annotations...)
			x.restart()
			e := x.evaluate()
			if diff := cmp.Diff(tt.want, sources(e)); diff != "" {
				t.Errorf("sources (-want +got):\n%s", diff)
			}
			if missing, _ := e.Missing(); !cmp.Equal(missing, tt.missing) {
				t.Errorf("missing = %q, want %q", missing, tt.missing)
			}
			if tt.missing == nil {
				x.adopt()
				if d := x.decide(); !strings.HasSuffix(d.Message, tt.says) || tt.says == "" {
					t.Errorf("message = %q, want the suffix %q", d.Message, tt.says)
				}
				return
			}
			x.set(secret("absent"))
			x.tick(time.Minute)
			x.stop(x.pods[0].Name)
			x.rollOut() // without it, no pod can have started
			x.adopt()
			if d := x.decide(); !strings.HasSuffix(d.Message, "Changes of Secret/token are not seen: "+noTokens) {
				t.Errorf("message = %q", d.Message)
			}
		})
	}
}

// The hash equals the hash of a workload with only the sources that are read.
func TestEvaluate_UnreadIsNotInTheHash(t *testing.T) {
	x := newWorld(t, podOf(envFrom(dependency.ConfigMap, "settings"), envFrom(dependency.Secret, "db")), configMap("settings", "a", "1"), secret("db", "a", "1"))
	x.annotate(policy.SourcesAnnotation, "secret/d*,configmap/o*")
	withoutSecrets(true)(x)
	with := x.evaluate().Hash
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec = podOf(envFrom(dependency.ConfigMap, "settings")) })
	x.annotate(policy.SourcesAnnotation, "configmap/o*")
	if without := x.evaluate().Hash; with != without {
		t.Errorf("hash = %s, want %s as with only the ConfigMaps", with, without)
	}
}

// The flags of the server determine which Secrets are read. A change of them restarts nothing: sources that begin to count are
// adopted, and those that no longer count are forgotten.
func TestDecide_OtherSecretsAreRead(t *testing.T) {
	pod := podOf(envFrom(dependency.ConfigMap, "settings"), env(dependency.Secret, "db", "password"))
	recordedIDs := func(x *world) map[string]bool {
		ids := map[string]bool{}
		for id := range maps.Keys(x.evaluate().Record.Sources) {
			ids[id] = true
		}
		return ids
	}
	baseline := func(t *testing.T, x *world, why string, ids ...string) {
		t.Helper()
		x.adopt()
		want := map[string]bool{}
		for _, id := range ids {
			want[id] = true
		}
		if diff := cmp.Diff(want, recordedIDs(x)); diff != "" {
			t.Errorf("%s: the record (-want +got):\n%s", why, diff)
		}
	}
	x := newWorld(t, pod, configMap("settings", "a", "1"), secret("db", "password", "1"), secret("dx", "a", "1"))
	x.annotate(policy.SourcesAnnotation, "secret/d*")
	baseline(t, x, "with Secrets", "ConfigMap/settings", "Secret/db", "Secret/dx")
	withoutSecrets(true)(x)
	baseline(t, x, "without Secrets", "ConfigMap/settings")
	x.set(secret("db", "password", "2"))
	x.remove(dependency.Secret, "db")
	if d := x.decide(); d.State != decide.InSync || d.Action != decide.None {
		t.Errorf("a Secret that is not read changes and is deleted: decision = %+v, want state InSync and no action", outcomeOf(d))
	}
	x.set(configMap("settings", "a", "2"))
	x.wantRestarts("a ConfigMap changes", "ConfigMap/settings")
	x.set(secret("db", "password", "3"))
	withoutSecrets(false)(x)
	if got := x.restarts(); len(got) > 0 {
		t.Errorf("Secrets are read again: restarts for %q", got)
	}
	x.set(secret("db", "password", "4"))
	x.wantRestarts("a Secret changes", "Secret/db")
}

// A Secret that is deleted and created again may have another type, which may or may not be read.
func TestDecide_TypeChanges(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.unread = tokenType
	x.restart()
	x.adopt()
	x.remove(dependency.Secret, "db")
	if d := x.decide(); d.State != decide.Blocked || d.Reason != decide.ReasonSourceMissing {
		t.Errorf("the Secret is deleted: decision = %+v, want state Blocked and reason SourceMissing", outcomeOf(d))
	}
	x.set(token("db"))
	if d := x.act(); d.State != decide.InSync || d.Action != decide.WriteRecord || d.Reason != "NothingTriggers" {
		t.Errorf("the Secret is created with a type that is not read: decision = %+v, want state InSync , reason NothingTriggers and action WriteBaseline", outcomeOf(d))
	}
	x.set(token("db", "password", "2"))
	if d := x.decide(); d.State != decide.InSync || d.Action != decide.None {
		t.Errorf("the Secret is written: decision = %+v, want state InSync and no action", outcomeOf(d))
	}
	x.remove(dependency.Secret, "db")
	if d := x.decide(); d.State != decide.Blocked || d.Reason != decide.ReasonSourceMissing {
		t.Errorf("the Secret is deleted again: decision = %+v, want state Blocked and reason SourceMissing", outcomeOf(d))
	}
}
