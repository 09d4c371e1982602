// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// TestDecide_ReplacedKey_RestartsForChangesAlone: only for changes that were seen before the key of the hash
// was replaced, that the record shows, or that happen while everything is read again.
func TestDecide_ReplacedKey_RestartsForChangesAlone(t *testing.T) {
	const glob = "Secret/feature-*"
	nothingHappens := func(*world) {}
	set := func(value string) func(*world) {
		return func(x *world) { x.set(secret("db", "password", value, "unread", "1")) }
	}
	hashAlone := func(x *world) { x.annotate(policy.AppliedSourcesAnnotation, "[]") }
	comes := func(x *world) { x.set(secret("feature-2", "a", "1")) }
	for name, tt := range map[string]struct {
		first   func(*world) // before the key is replaced
		before  func(*world) // before anything is read again
		between func(*world) // after the sources are read again, before the workload is
		sameKey bool         // the key is restored before everything is read again
		want    outcome
		changed bool // the shown record differs from the current content
	}{
		"nothing happens":                                {want: baseline},
		"content has changed":                            {first: set("2"), want: rollOut("Secret/db"), changed: true},
		"content changes meanwhile":                      {before: set("2"), want: rollOut("Secret/db"), changed: true},
		"content changes, and the workload is read last": {between: set("2"), want: rollOut("Secret/db"), changed: true},
		"the record shows a change": {
			first: func(x *world) { x.away(func() { set("2")(x) }) }, want: rollOut("Secret/db"), changed: true,
		},
		"content that is not read changes meanwhile": {
			first:   func(x *world) { set("2")(x); x.tick(time.Minute); x.act(); x.tick(time.Hour) },
			between: func(x *world) { x.set(secret("db", "password", "2", "unread", "2")) }, want: baseline,
		},
		"content has changed and changed back": {first: both(set("2"), set("1")), want: inspect("Secret/db")},
		// It is not known what was written.
		"metadata changes meanwhile": {
			before: func(x *world) { x.set(annotated(configMap("settings", "a", "1", "b", "1"), "a", "b")) },
			want:   rollOut("ConfigMap/settings"), changed: true,
		},
		"an optional source is created meanwhile": {
			before: func(x *world) { x.set(secret("extra", "a", "1")) }, want: rollOut("Secret/extra"), changed: true,
		},
		"the template reads another key meanwhile": {
			before: func(x *world) {
				x.edit(func(d *appsv1.Deployment) { env(dependency.Secret, "db", "unread")(&d.Spec.Template.Spec) })
			}, want: baseline, changed: true,
		},
		"the template reads less meanwhile": {
			before: func(x *world) {
				x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Env = nil })
			}, want: baseline, changed: true,
		},

		"the list of sources is removed meanwhile":                                    {before: hashAlone, want: baseline},
		"the hash alone is recorded":                                                  {first: hashAlone, want: baseline},
		"the hash alone is recorded, and content has changed":                         {first: both(hashAlone, set("2")), want: rollOut(policy.TriggerUnknown), changed: true},
		"the hash alone is recorded, and content changes":                             {first: hashAlone, before: set("2"), want: rollOut(policy.TriggerUnknown), changed: true},
		"the hash alone is recorded, and content changes before the workload is read": {first: hashAlone, between: set("2"), want: rollOut(policy.TriggerUnknown), changed: true},

		"a source of a glob is created meanwhile": {before: comes, want: rollOut(glob), changed: true},
		"a source of a glob is deleted meanwhile": {
			before: func(x *world) { x.remove(dependency.Secret, "feature-1") }, want: rollOut(glob), changed: true,
		},
		"a source of a glob was created and deleted": {
			first: both(comes, func(x *world) { x.remove(dependency.Secret, "feature-2") }), want: inspect(glob),
		},
		"a source of a glob has changed and changed back": {
			first: func(x *world) {
				x.set(secret("feature-1", "a", "2"))
				x.set(secret("feature-1", "a", "1"))
			}, want: inspect(glob),
		},
		"a source without content that a glob names is created again meanwhile": {
			first:  func(x *world) { x.set(secret("feature-3")); x.tick(time.Minute); x.act(); x.tick(time.Hour) },
			before: func(x *world) { x.remove(dependency.Secret, "feature-3"); x.set(secret("feature-3")) },
			want:   outcome{policy.Pending, "SourceChanged", policy.RollOut, glob}, changed: true,
		},

		"the record cannot be compared": {first: func(x *world) { x.annotate(policy.ConfigHashAnnotation, "garbage") }, want: adoption, changed: true},
		"the record cannot be compared, and content has changed and changed back": {
			first: both(func(x *world) { x.annotate(policy.ConfigHashAnnotation, "v1.00000000."+strings.Repeat("0", 32)) }, set("2"), set("1")),
			want:  rollOut("Secret/db"), changed: true,
		},
		"the record cannot be compared, but says that pods differ": {
			first: func(x *world) {
				x.patch(x.evaluate().MixedPatch([]string{"Secret/db"}))
				x.annotate(policy.ConfigHashAnnotation, "v1.00000000."+policy.Mixed)
			},
			want: rollOut("Secret/db"), changed: true,
		},
		"another record of the replaced key is written meanwhile": {
			before: func(x *world) {
				x.annotate(policy.ConfigHashAnnotation, x.deployment.Annotations[policy.ConfigHashAnnotation]+"0")
			}, want: adoption, changed: true,
		},
		"the workload is created again with the same annotations": {
			before: func(x *world) { x.edit(func(d *appsv1.Deployment) { d.UID = "web-2" }) }, want: adoption, changed: true,
		},
		"the key is restored":                             {sameKey: true, want: nothing},
		"the key is restored, and content has changed":    {sameKey: true, first: set("2"), want: rollOut("Secret/db"), changed: true},
		"the key is restored, and the hash alone is left": {sameKey: true, first: hashAlone, want: baseline},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), envFrom(dependency.ConfigMap, "settings"), optionalEnvFrom(dependency.Secret, "extra")),
				secret("db", "password", "1", "unread", "1"), configMap("settings", "a", "1", "b", "1"), secret("feature-1", "a", "1"))
			x.annotate(policy.SourcesAnnotation, "secret/feature-*")
			x.adopt()
			for _, f := range []*func(*world){&tt.first, &tt.before, &tt.between} {
				if *f == nil {
					*f = nothingHappens
				}
			}
			tt.first(x)
			key := x.key
			if !tt.sameKey {
				key++
			}
			x.rekey(key, tt.before, tt.between)
			x.tick(time.Minute)
			if diff := cmp.Diff(tt.want, outcomeOf(x.decide()), ignoreLastTrigger(tt.want)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			e := x.evaluate()
			if changed := e.Record.Hash != e.Hash; changed != tt.changed {
				t.Errorf("shown hash of the record = %s, want %s, the hash of the current content", e.Record.Hash, e.Hash)
			}
			if e.Comparable() && tt.changed && !tt.sameKey && !strings.HasSuffix(e.Record.Hash, "."+policy.Mixed) {
				t.Errorf("shown hash of the record = %s, want another one than of the current content", e.Record.Hash)
			}
			// After the action, nothing is left to do, and later changes are seen.
			x.act()
			x.tick(time.Hour)
			if d := x.act(); d.State != policy.InSync || d.Action != policy.None {
				t.Errorf("the next decision = %+v, want state InSync and no action", d)
			}
			x.set(configMap("settings", "a", "3"))
			x.tick(time.Minute)
			if diff := cmp.Diff(rollOut("ConfigMap/settings"), outcomeOf(x.decide())); diff != "" {
				t.Errorf("a later change (-want +got):\n%s", diff)
			}
		})
	}
}

// A workload that has opted out keeps its record, also when the key is replaced.
func TestDecide_ReplacedKey_OfAWorkloadThatHasOptedOut(t *testing.T) {
	for name, tt := range map[string]struct {
		value string
		want  outcome
	}{
		"content has changed meanwhile": {"2", rollOut("Secret/db")},
		"content has not changed":       {"1", baseline},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			x.annotate(policy.ReloadAnnotation, "off")
			x.rekey(x.key+1, func(*world) {}, func(*world) {})
			x.set(secret("db", "password", tt.value))
			x.annotate(policy.ReloadAnnotation, "auto")
			x.tick(time.Minute)
			if diff := cmp.Diff(tt.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// A record with another key of the hash still identifies the keys of sources: if none of them was removed, the change
// of content before a newer template has a date.
func TestDecide_ReplacedKey_TellsWhichKeysThereWere(t *testing.T) {
	for name, tt := range map[string]struct {
		now  []string
		want outcome
	}{
		"a key is changed": {[]string{"password", "2", "user", "1"}, outcome{policy.Pending, policy.ReasonVerifying, policy.Verify, "Secret/db"}},
		"a key is removed": {[]string{"password", "1"}, rollOut("Secret/db")},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(envFrom(dependency.Secret, "db")), secret("db", "password", "1", "user", "1"))
			x.adopt()
			x.tick(time.Minute)
			x.away(func() {
				x.set(secret("db", tt.now...))
				x.tick(time.Minute)
				x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
			})
			if diff := cmp.Diff(tt.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("before the key is replaced: decision (-want +got):\n%s", diff)
			}
			x.rekey(1, func(*world) {}, func(*world) {})
			if diff := cmp.Diff(tt.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// The key of the hash is restored, so the annotations are valid again, with the time when they were written: before the changes
// in between.
func TestDecide_ReplacedKey_ComesBack(t *testing.T) {
	for name, then := range map[string]func(*world){
		"and nothing else is written": func(*world) {},
		"and the workload is written": func(x *world) { x.annotate("example.com/owner", "me") },
		"and the whole source counts then": func(x *world) {
			x.annotate("example.com/owner", "me")
			x.annotate(policy.SourcesAnnotation, "secret/db")
		},
		"and another source counts no longer": func(x *world) {
			x.annotate("example.com/owner", "me")
			x.annotate(policy.ExcludeAnnotation, "configmap/settings")
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), env(dependency.ConfigMap, "settings", "a")),
				secret("db", "password", "1"), configMap("settings", "a", "1"))
			x.adopt()
			key, nothing := x.key, func(*world) {}
			x.rekey(key+1, nothing, nothing)
			x.edit(func(d *appsv1.Deployment) { envFrom(dependency.Secret, "db")(&d.Spec.Template.Spec) })
			x.set(secret("db", "password", "2"))
			x.rekey(key, nothing, nothing)
			then(x)
			x.tick(time.Minute)
			if diff := cmp.Diff(rollOut("Secret/db"), outcomeOf(x.decide())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}
