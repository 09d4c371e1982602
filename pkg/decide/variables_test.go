// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

func plain(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }

func fromSecret(name string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}}
}

// The environment of the containers after a restart: variables of restarts are replaced, and nothing else changes, neither the
// order of the containers nor variables of users.
func TestRestartPatch_Variables(t *testing.T) {
	db := record.Changed{Kind: dependency.Secret, Name: "db", Digest: "new", Containers: []string{"app"}}
	ofSidecar := record.Changed{Kind: dependency.ConfigMap, Name: "log.level", Digest: "new", Containers: []string{"sidecar"}}
	type containers map[string][]corev1.EnvVar
	for name, tt := range map[string]struct {
		before, after containers
		strategy      record.Strategy
		changed       []record.Changed
	}{
		"a variable in the container that reads the source": {
			containers{"app": nil, "sidecar": {plain("A", "a")}},
			containers{"app": nil, "sidecar": {plain("A", "a"), plain("STAKATER_LOG_LEVEL_CONFIGMAP", "new")}},
			record.EnvVar, []record.Changed{ofSidecar},
		},
		"a variable of an earlier restart": {
			containers{"app": {plain("A", "a"), plain("STAKATER_DB_SECRET", "old"), plain("B", "b")}, "sidecar": nil},
			containers{"app": {plain("A", "a"), plain("STAKATER_DB_SECRET", "new"), plain("B", "b")}, "sidecar": nil},
			record.EnvVar, []record.Changed{db},
		},
		"names with characters that variables cannot have": {
			containers{"app": nil, "sidecar": nil},
			containers{"app": {plain("STAKATER_A_Z_0_9_CONFIGMAP", "new"), plain("STAKATER_A_Z_SECRET", "new")}, "sidecar": nil},
			record.EnvVar, []record.Changed{
				{Kind: dependency.ConfigMap, Name: "a-z.0--9", Digest: "new", Containers: []string{"app"}},
				{Kind: dependency.Secret, Name: "a.z", Digest: "new", Containers: []string{"app"}},
			},
		},
		"two containers, the second one first": {
			containers{"app": nil, "sidecar": nil},
			containers{"app": {plain("STAKATER_DB_SECRET", "new")}, "sidecar": {plain("STAKATER_LOG_LEVEL_CONFIGMAP", "new")}},
			record.EnvVar, []record.Changed{ofSidecar, db},
		},
		"variables of other sources, one of them in another container": {
			containers{"app": {plain("STAKATER_WEB_SECRET", "old")}, "sidecar": {plain("STAKATER_WEB_SECRETPROVIDERCLASS", "old"), plain("A", "a")}},
			containers{"app": {plain("STAKATER_DB_SECRET", "new")}, "sidecar": {plain("A", "a")}},
			record.EnvVar, []record.Changed{db},
		},
		"variables of users": {
			containers{"app": {plain("STAKATER_ACCOUNT", "mine"), plain("STAKATER__SECRET", "mine"), fromSecret("STAKATER_WEB_SECRET"), plain("STAKATER_OLD_SECRET", "old")}, "sidecar": nil},
			containers{"app": {plain("STAKATER_ACCOUNT", "mine"), plain("STAKATER__SECRET", "mine"), fromSecret("STAKATER_WEB_SECRET")}, "sidecar": nil},
			record.Annotate, []record.Changed{db},
		},
		"variables that are defined twice, and read by others": {
			containers{"app": {plain("A", "a"), plain("B", "$(A)"), plain("A", "b"), plain("C", "$(A)")}, "sidecar": nil},
			containers{"app": {plain("A", "a"), plain("B", "$(A)"), plain("A", "b"), plain("C", "$(A)"), plain("STAKATER_DB_SECRET", "new")}, "sidecar": nil},
			record.EnvVar, []record.Changed{db},
		},
		"a variable of Reloader among variables that are defined twice": {
			containers{"app": {plain("A", "a"), plain("STAKATER_WEB_SECRET", "old"), plain("B", "b"), plain("A", "c")}, "sidecar": nil},
			containers{"app": {plain("A", "a"), plain("B", "b"), plain("A", "c")}, "sidecar": nil},
			record.Annotate, []record.Changed{db},
		},
		"variables of restarts that are defined twice: the last one counts": {
			containers{"app": {plain("STAKATER_DB_SECRET", "1"), plain("A", "a"), plain("STAKATER_DB_SECRET", ""), plain("B", "b")}, "sidecar": {plain("STAKATER_DB_SECRET", "old")}},
			containers{"app": {plain("A", "a"), plain("B", "b")}, "sidecar": {plain("STAKATER_DB_SECRET", "new")}},
			record.EnvVar, []record.Changed{db},
		},
		"a source that is gone": {
			containers{"app": {plain("STAKATER_DB_SECRET", "old"), plain("A", "a")}, "sidecar": nil},
			containers{"app": {plain("A", "a")}, "sidecar": nil},
			record.EnvVar, []record.Changed{{Kind: dependency.Secret, Name: "db", Containers: []string{"app"}}},
		},
		"all variables go": {
			containers{"app": {plain("STAKATER_WEB_SECRET", "1"), plain("STAKATER_OLD_SECRET", "2")}, "sidecar": nil},
			containers{"app": {plain("STAKATER_DB_SECRET", "new")}, "sidecar": nil},
			record.EnvVar, []record.Changed{db},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := ingesttest.Deployment("web", corev1.PodSpec{})
			d.ResourceVersion, d.Spec.Template.Labels = "7", map[string]string{"app": "web"}
			for _, c := range []string{"app", "sidecar"} {
				d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: c, Image: c, Env: tt.before[c]})
			}
			p := policy.Policy{Mode: policy.Auto, Strategy: tt.strategy}
			patch, err := p.RestartPatch(workloadtest.Read(d), &record.Restart{
				Present: record.Record{Hash: "v1.k.h"}, Last: record.NewAutomaticReload(nil, epoch, 0, "Secret/db"), Changed: tt.changed,
			})
			if err != nil {
				t.Fatal(err)
			}
			ingesttest.Patch(t, d, patch)
			var order []string
			after := containers{}
			for _, c := range d.Spec.Template.Spec.Containers {
				order, after[c.Name] = append(order, c.Name), c.Env
				if c.Image != c.Name {
					t.Errorf("image of %s = %q", c.Name, c.Image)
				}
			}
			if diff := cmp.Diff([]string{"app", "sidecar"}, order); diff != "" {
				t.Errorf("order of the containers (-before +after):\n%s", diff)
			}
			for name, want := range tt.after {
				if diff := cmp.Diff(want, after[name]); diff != "" && len(want)+len(after[name]) > 0 {
					t.Errorf("variables of %s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}

// A restart that changes variables writes the same annotations, and the same pause, as one that changes none.
func TestRestartPatch_VariablesAreAllThatDiffers(t *testing.T) {
	for name, tt := range map[string]struct {
		object, template annotations
		dropped          bool
		pause            time.Duration
	}{
		"no annotations":             {},
		"annotations of others":      {object: annotations{"a/b~c": "x"}, template: annotations{"a/b~c": "x"}},
		"a restart that is replaced": {object: annotations{record.RecreatingAnnotation: "x"}},
		"another client has removed it, with all other annotations": {object: annotations{record.RecreatingAnnotation: "x"}, dropped: true},
		"a mark of another tool":                                    {template: annotations{"wave.pusher.com/config-hash": "x"}},
		"a pause":                                                   {pause: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			patched := func(env ...corev1.EnvVar) *appsv1.Deployment {
				d := ingesttest.Deployment("web", podOf())
				d.UID, d.ResourceVersion, d.Annotations, d.Spec.Template.Annotations = "u", "7", tt.object, tt.template
				d.Spec.Template.Spec.Containers[0].Env = env
				w := workloadtest.Read(d)
				if tt.dropped {
					d.Annotations = nil
					w.RecordDropped, w.Absent.Annotations = true, true
				}
				p := policy.Policy{Mode: policy.Auto, Pause: record.Pause{Period: tt.pause, Key: "example.com/paused-at"}}
				patch, err := p.RestartPatch(w, &record.Restart{Present: record.Record{Hash: "v1.k.h"}, Last: record.NewAutomaticReload(nil, epoch, 0, "Secret/db"), Always: true})
				if err != nil {
					t.Fatal(err)
				}
				if record.IsJSONPatch(patch) != (env != nil) {
					t.Errorf("patch = %s", patch)
				}
				ingesttest.Patch(t, d, patch)
				return d
			}
			if diff := cmp.Diff(patched(), patched(plain("STAKATER_WEB_SECRET", "old")), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("with a variable (-without +with):\n%s", diff)
			}
		})
	}
}

// Dashboards and scripts read which source caused a restart from the annotation of Reloader. It names one container: the first
// that reads the source, or if none does, the first of the pods.
func TestRestartPatch_LastReloadedFrom(t *testing.T) {
	const reported = `{"type":"SECRET","name":"db","namespace":"shop","hash":"new","containerRefs":["CONTAINER"],"observedAt":1772366400}`
	db := func(containers ...string) []record.Changed {
		return []record.Changed{
			{Kind: dependency.Secret, Name: "db", Digest: "new", Containers: containers},
			{Kind: dependency.ConfigMap, Name: "settings", Digest: "new", Containers: []string{"app"}},
		}
	}
	both := []string{"app", "sidecar"}
	for name, tt := range map[string]struct {
		key, value string // of the annotation that opts the workload in
		containers []string
		changed    []record.Changed
		reports    bool
		container  string
	}{
		"read by a container":                    {reloaderAuto, "true", both, db("sidecar"), true, "sidecar"},
		"read by two, the second one first":      {reloaderAuto, "true", both, db("sidecar", "app"), true, "app"},
		"read by an init container":              {reloaderAuto, "true", both, db("init"), true, "app"},
		"named, and read by none":                {secretList, "db", both, db(), true, "app"},
		"marked":                                 {reloaderSearch, "true", both, db("sidecar"), true, "sidecar"},
		"a template without containers":          {reloaderAuto, "true", nil, db(), true, ""},
		"on request":                             {reloaderAuto, "true", both, nil, false, ""},
		"opted in by an annotation of configdep": {policy.ReloadAnnotation, "auto", both, db("sidecar"), false, ""},
	} {
		for _, strategy := range []string{"annotation", "env-var"} {
			t.Run(name+"/"+strategy, func(t *testing.T) {
				d := ingesttest.Deployment("web", corev1.PodSpec{})
				d.Namespace, d.ResourceVersion = "shop", "7"
				for _, c := range tt.containers {
					d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: c})
				}
				p := policy.NewPolicy(policy.Annotated{Workload: annotations{tt.key: tt.value, policy.StrategyAnnotation: strategy}}, policy.Defaults{Mode: policy.Off})
				patch, err := p.RestartPatch(workloadtest.Read(d), &record.Restart{
					Present: record.Record{Hash: "v1.k.h"}, Last: record.NewAutomaticReload(nil, epoch, 0, "Secret/db"), Changed: tt.changed,
				})
				if err != nil {
					t.Fatal(err)
				}
				ingesttest.Patch(t, d, patch)
				got, found := d.Spec.Template.Annotations["reloader.stakater.com/last-reloaded-from"]
				if want := strings.Replace(reported, "CONTAINER", tt.container, 1); found != tt.reports || found && got != want {
					t.Errorf("reported = %t, %s; want %t, %s", found, got, tt.reports, want)
				}
			})
		}
	}
}

// What other tools wrote to the pod template to restart it goes with the next restart, and annotations of users stay.
func TestRestartPatch_RemovesMarksOfOtherTools(t *testing.T) {
	d := ingesttest.Deployment("web", podOf())
	d.Spec.Template.Annotations = annotations{
		"reloader.stakater.com/last-reloaded-from": "{}", "pod-reloader.cs.sap.com/config-hash": "h", "wave.pusher.com/config-hash": "h",
		reloaderAuto: "true", "wave.pusher.com/other": "mine", "pod-reloader.cs.sap.com/other": "mine", "example.com/mine": "mine",
	}
	p := policy.Policy{Mode: policy.Auto}
	patch, err := p.RestartPatch(workloadtest.Read(d), &record.Restart{Present: record.Record{Hash: "v1.k.h"}, Last: record.NewAutomaticReload(nil, epoch, 0, "Secret/db")})
	if err != nil {
		t.Fatal(err)
	}
	ingesttest.Patch(t, d, patch)
	want := annotations{reloaderAuto: "true", "wave.pusher.com/other": "mine", "pod-reloader.cs.sap.com/other": "mine", "example.com/mine": "mine", record.ConfigHashAnnotation: "v1.k.h"}
	if diff := cmp.Diff(want, d.Spec.Template.Annotations); diff != "" {
		t.Errorf("annotations of the template (-want +got):\n%s", diff)
	}
}
