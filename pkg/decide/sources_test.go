// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
)

// sight is how a policy treats a source.
type sight struct {
	Triggers bool
	Reason   string
}

func sources(e *decide.Evaluation) map[string]sight {
	out := map[string]sight{}
	for _, s := range e.Sources {
		out[decide.IDOf(s.Kind, s.Name)] = sight{s.Triggers, s.Reason}
	}
	for i := range e.Globs {
		for _, name := range e.Globs[i].Names() {
			out[decide.IDOf(e.Globs[i].Kind, name)] = sight{Triggers: true}
		}
	}
	return out
}

// TestEvaluate_WhichSourcesTrigger has a Deployment that uses sources in every way, and checks for
// each policy which of them restart it, and why the others do not.
func TestEvaluate_WhichSourcesTrigger(t *testing.T) {
	pod := podOf(
		env(dependency.Secret, "env", "password"),
		envFrom(dependency.ConfigMap, "envfrom"),
		volume(dependency.ConfigMap, "mounted", ""),
		volume(dependency.Secret, "subpath", "tls.crt"),
		unmounted(dependency.Secret, "unmounted"),
		pullSecret("pull"),
		csi("csi", "class"),
		optionalEnv(dependency.Secret, "absent", "k"),
		envFrom(dependency.ConfigMap, "ignored"),
		envFrom(dependency.Secret, "marked"),
		volume(dependency.ConfigMap, "both", ""), envFrom(dependency.ConfigMap, "both"),
	)
	objects := []ingesttest.Object{
		secret("env", "password", "1"), configMap("envfrom", "a", "1"), configMap("mounted", "a", "1"),
		secret("subpath", "tls.crt", "1"), secret("unmounted", "a", "1"), secret("pull", "a", "1"), secret("csi", "a", "1"),
		annotated(configMap("ignored", "a", "1"), policy.IgnoreAnnotation, "true"),
		annotated(secret("marked", "a", "1"), policy.MatchAnnotation, "true"),
		configMap("both", "a", "1"), secret("extra-1", "a", "1"), secret("extra-2", "a", "1"),
	}
	yes := sight{Triggers: true}
	no := func(reason string) sight { return sight{Reason: reason} }
	auto := map[string]sight{
		"Secret/env": yes, "ConfigMap/envfrom": yes, "ConfigMap/mounted": yes, "Secret/subpath": yes,
		"Secret/unmounted": no(policy.ReasonNotMounted), "Secret/pull": no(policy.ReasonNotRead), "Secret/csi": no(policy.ReasonNotRead),
		"SecretProviderClass/class": no(policy.ReasonNotObserved), "Secret/absent": yes,
		"ConfigMap/ignored": no(policy.ReasonIgnored), "Secret/marked": yes, "ConfigMap/both": yes,
	}
	all := func(reason string, except map[string]sight) map[string]sight {
		out := map[string]sight{}
		for id := range auto {
			out[id] = no(reason)
		}
		out["SecretProviderClass/class"] = no(policy.ReasonNotObserved)
		out["ConfigMap/ignored"] = no(policy.ReasonIgnored)
		maps.Copy(out, except)
		return out
	}
	but := func(changes map[string]sight) map[string]sight {
		out := maps.Clone(auto)
		maps.Copy(out, changes)
		return out
	}
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        map[string]sight
	}{
		"auto": {map[string]string{policy.ReloadAnnotation: "auto"}, auto},
		"off is the reason, except for sources that would not trigger anyway": {map[string]string{policy.ReloadAnnotation: "off"}, but(map[string]sight{
			"Secret/env": no(policy.ReasonReloadOff), "ConfigMap/envfrom": no(policy.ReasonReloadOff), "ConfigMap/mounted": no(policy.ReasonReloadOff),
			"Secret/subpath": no(policy.ReasonReloadOff), "Secret/absent": no(policy.ReasonReloadOff), "Secret/marked": no(policy.ReasonReloadOff),
			"ConfigMap/both": no(policy.ReasonReloadOff),
		})},
		"matched": {map[string]string{policy.ReloadAnnotation: "matched"}, all(policy.ReasonNotMatched, map[string]sight{"Secret/marked": yes})},
		"matched, with another source named": {
			map[string]string{policy.ReloadAnnotation: "matched", policy.SourcesAnnotation: "secret/env"},
			all(policy.ReasonNotMatched, map[string]sight{"Secret/marked": yes, "Secret/env": yes}),
		},
		"matched, limited to a kind": {
			map[string]string{policy.ReloadAnnotation: "matched", policy.KindsAnnotation: "configmap"},
			all(policy.ReasonNotMatched, map[string]sight{"Secret/marked": no(policy.ReasonKindNotWatched)}),
		},
		"listed, without a list": {map[string]string{policy.ReloadAnnotation: "listed"}, all(policy.ReasonNotListed, nil)},
		"listed: sources that no container reads, or not in the template, trigger if named": {
			map[string]string{policy.ReloadAnnotation: "listed", policy.SourcesAnnotation: "secret/pull,secret/csi,secret/unmounted,secret/extra-1,configmap/nowhere"},
			all(policy.ReasonNotListed, map[string]sight{
				"Secret/pull": yes, "Secret/csi": yes, "Secret/unmounted": yes, "Secret/extra-1": yes, "ConfigMap/nowhere": yes,
			}),
		},
		"listed by a glob": {
			map[string]string{policy.ReloadAnnotation: "listed", policy.SourcesAnnotation: "secret/extra-*,secret/p*ll,configmap/no-*"},
			all(policy.ReasonNotListed, map[string]sight{"Secret/extra-1": yes, "Secret/extra-2": yes, "Secret/pull": yes}),
		},
		"a name with the other kind matches nothing": {
			map[string]string{policy.ReloadAnnotation: "listed", policy.SourcesAnnotation: "configmap/env"},
			all(policy.ReasonNotListed, map[string]sight{"ConfigMap/env": yes}),
		},
		"sources are added to auto": {
			map[string]string{policy.ReloadAnnotation: "auto", policy.SourcesAnnotation: "secret/pull"},
			but(map[string]sight{"Secret/pull": yes}),
		},
		"exclude beats sources": {
			map[string]string{policy.ReloadAnnotation: "auto", policy.SourcesAnnotation: "secret/env,secret/extra-*", policy.ExcludeAnnotation: "secret/env,secret/extra-1"},
			but(map[string]sight{"Secret/env": no(policy.ReasonExcluded), "Secret/extra-2": yes}),
		},
		"exclude by a glob": {
			map[string]string{policy.ReloadAnnotation: "auto", policy.ExcludeAnnotation: "configmap/*"},
			but(map[string]sight{
				"ConfigMap/envfrom": no(policy.ReasonExcluded), "ConfigMap/mounted": no(policy.ReasonExcluded), "ConfigMap/both": no(policy.ReasonExcluded),
			}),
		},
		"ignore beats sources": {
			map[string]string{policy.ReloadAnnotation: "listed", policy.SourcesAnnotation: "configmap/ignored"}, all(policy.ReasonNotListed, nil),
		},
		"kinds limits auto, not sources": {
			map[string]string{policy.ReloadAnnotation: "auto", policy.KindsAnnotation: "secret", policy.SourcesAnnotation: "configmap/mounted"},
			but(map[string]sight{"ConfigMap/envfrom": no(policy.ReasonKindNotWatched), "ConfigMap/both": no(policy.ReasonKindNotWatched)}),
		},
		"live volumes: environment and subPath trigger": {
			map[string]string{policy.ReloadAnnotation: "auto", policy.LiveVolumesAnnotation: "true"},
			but(map[string]sight{"ConfigMap/mounted": no(policy.ReasonLiveVolume)}),
		},
		"live volumes, one named": {
			map[string]string{policy.ReloadAnnotation: "auto", policy.LiveVolumesAnnotation: "true", policy.SourcesAnnotation: "configmap/mounted"}, auto,
		},
		"a class is not observed, even when excluded": {
			map[string]string{policy.ReloadAnnotation: "auto", policy.ExcludeAnnotation: "secret/csi"},
			but(map[string]sight{"Secret/csi": no(policy.ReasonExcluded)}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, pod, objects...)
			for k, v := range tc.annotations {
				x.annotate(k, v)
			}
			if diff := cmp.Diff(tc.want, sources(x.evaluate())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestEvaluate_OnlyTheValueTrueMarksASource(t *testing.T) {
	for value, want := range map[string]sight{
		"true": {Triggers: true}, "false": {Reason: policy.ReasonNotMatched}, "True": {Reason: policy.ReasonNotMatched}, "": {Reason: policy.ReasonNotMatched},
	} {
		x := newWorld(t, podOf(envFrom(dependency.Secret, "db")), annotated(secret("db", "a", "1"), policy.MatchAnnotation, value))
		x.annotate(policy.ReloadAnnotation, "matched")
		if diff := cmp.Diff(map[string]sight{"Secret/db": want}, sources(x.evaluate())); diff != "" {
			t.Errorf("match=%q (-want +got):\n%s", value, diff)
		}
	}
}

// TestEvaluate_WhichKeysCount: a change of a key restarts the workload exactly if a container would
// keep the old content without a restart.
func TestEvaluate_WhichKeysCount(t *testing.T) {
	for name, tc := range map[string]struct {
		parts  []part
		policy []string
		counts string // the keys of a, b, c of which a change counts
	}{
		"a variable":                         {parts: []part{env(dependency.Secret, "s", "a")}, counts: "a"},
		"two variables":                      {parts: []part{env(dependency.Secret, "s", "a"), env(dependency.Secret, "s", "c")}, counts: "ac"},
		"all variables":                      {parts: []part{envFrom(dependency.Secret, "s")}, counts: "abc"},
		"a volume":                           {parts: []part{volume(dependency.Secret, "s", "")}, counts: "abc"},
		"a subPath":                          {parts: []part{volume(dependency.Secret, "s", "b")}, counts: "b"},
		"a variable and a volume":            {parts: []part{env(dependency.Secret, "s", "a"), volume(dependency.Secret, "s", "")}, counts: "abc"},
		"a variable and a volume, live":      {parts: []part{env(dependency.Secret, "s", "a"), volume(dependency.Secret, "s", "")}, policy: []string{policy.LiveVolumesAnnotation, "true"}, counts: "a"},
		"a subPath and a volume, live":       {parts: []part{volume(dependency.Secret, "s", "b"), volume(dependency.Secret, "s", "")}, policy: []string{policy.LiveVolumesAnnotation, "true"}, counts: "b"},
		"a volume, live":                     {parts: []part{volume(dependency.Secret, "s", "")}, policy: []string{policy.LiveVolumesAnnotation, "true"}},
		"a volume, live but named":           {parts: []part{volume(dependency.Secret, "s", "")}, policy: []string{policy.LiveVolumesAnnotation, "true", policy.SourcesAnnotation, "secret/s"}, counts: "abc"},
		"a variable, named: the same":        {parts: []part{env(dependency.Secret, "s", "a")}, policy: []string{policy.SourcesAnnotation, "secret/s"}, counts: "a"},
		"an unmounted volume":                {parts: []part{unmounted(dependency.Secret, "s")}},
		"an unmounted volume, named":         {parts: []part{unmounted(dependency.Secret, "s")}, policy: []string{policy.SourcesAnnotation, "secret/s"}, counts: "abc"},
		"a pull secret":                      {parts: []part{pullSecret("s")}},
		"a pull secret, named":               {parts: []part{pullSecret("s")}, policy: []string{policy.SourcesAnnotation, "secret/s"}, counts: "abc"},
		"a pull secret, named by a glob":     {parts: []part{pullSecret("s")}, policy: []string{policy.SourcesAnnotation, "secret/*"}, counts: "abc"},
		"nothing, named":                     {policy: []string{policy.SourcesAnnotation, "secret/s"}, counts: "abc"},
		"nothing, named by a glob":           {policy: []string{policy.SourcesAnnotation, "secret/*"}, counts: "abc"},
		"a variable and a pull secret":       {parts: []part{env(dependency.Secret, "s", "a"), pullSecret("s")}, counts: "a"},
		"a variable, excluded":               {parts: []part{env(dependency.Secret, "s", "a")}, policy: []string{policy.ExcludeAnnotation, "secret/s"}},
		"a variable, of another kind":        {parts: []part{env(dependency.Secret, "s", "a")}, policy: []string{policy.KindsAnnotation, "configmap"}},
		"a variable, not listed":             {parts: []part{env(dependency.Secret, "s", "a")}, policy: []string{policy.ReloadAnnotation, "listed"}},
		"a variable, not matched":            {parts: []part{env(dependency.Secret, "s", "a")}, policy: []string{policy.ReloadAnnotation, "matched"}},
		"a variable of a key that is absent": {parts: []part{optionalEnv(dependency.Secret, "s", "z")}},
	} {
		t.Run(name, func(t *testing.T) {
			counts := ""
			for _, key := range []string{"a", "b", "c"} {
				x := newWorld(t, podOf(tc.parts...), secret("s", "a", "1", "b", "1", "c", "1"))
				x.annotate(tc.policy...)
				x.adopt()
				data := map[string]string{"a": "1", "b": "1", "c": "1"}
				data[key] = "2"
				x.set(secret("s", "a", data["a"], "b", data["b"], "c", data["c"]))
				x.tick(time.Minute)
				switch d := x.decide(); d.Action {
				case decide.RollOut:
					counts += key
				case decide.None:
				default:
					t.Errorf("a change of %s: decision = %+v", key, d)
				}
			}
			if counts != tc.counts {
				t.Errorf("keys whose changes restart the workload = %q, want %q", counts, tc.counts)
			}
		})
	}
}
