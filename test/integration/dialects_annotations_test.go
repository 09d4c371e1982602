// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dialects

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
)

const (
	config ref = "ConfigMap/app-config"
	extra  ref = "ConfigMap/extra"
	db     ref = "Secret/db"

	configMapReload = "configmap.reloader.stakater.com/reload"
	secretReload    = "secret.reloader.stakater.com/reload"
	auto            = "reloader.stakater.com/auto"
)

// With the annotations of another tool, a change of content restarts exactly the workloads that it does with that tool, and the
// API says by which annotation. A change of labels restarts none.
func TestAnnotations(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		workload, template map[string]string // annotations
		reads              []ref
		marked             map[ref]string // an annotation of a source, with the value true
		restarts           map[ref]string // the sources that restart the workload, with the annotation by which they do
		mode               v1alpha1.ReloadMode
	}{
		"Reloader: a named ConfigMap, and a Secret that is not named": {
			workload: pairs(configMapReload, "app-config"), reads: []ref{config, db},
			restarts: map[ref]string{config: configMapReload}, mode: v1alpha1.ReloadListed,
		},
		"Reloader: named, but not read": {
			workload: pairs(configMapReload, "other, extra"), reads: []ref{db},
			restarts: map[ref]string{extra: configMapReload}, mode: v1alpha1.ReloadListed,
		},
		"Reloader: a regular expression, which matches whole names": {
			workload: pairs(configMapReload, "app-.*|xtra"), reads: []ref{config, extra},
			restarts: map[ref]string{config: configMapReload}, mode: v1alpha1.ReloadListed,
		},
		"Reloader: all that is read": {
			workload: pairs(auto, "true"), reads: []ref{config, db},
			restarts: map[ref]string{config: auto, db: auto}, mode: v1alpha1.ReloadAuto,
		},
		"Reloader: all Secrets that are read": {
			workload: pairs("secret.reloader.stakater.com/auto", "true"), reads: []ref{config, db},
			restarts: map[ref]string{db: "secret.reloader.stakater.com/auto"}, mode: v1alpha1.ReloadAuto,
		},
		"Reloader: all ConfigMaps that are read, and a named Secret": {
			workload: pairs("configmap.reloader.stakater.com/auto", "true", secretReload, "db"), reads: []ref{config},
			restarts: map[ref]string{config: "configmap.reloader.stakater.com/auto", db: secretReload}, mode: v1alpha1.ReloadAuto,
		},
		"Reloader: what is marked": {
			workload: pairs("reloader.stakater.com/search", "true"), reads: []ref{config, extra},
			marked: map[ref]string{config: "reloader.stakater.com/match"}, restarts: map[ref]string{config: "reloader.stakater.com/search"}, mode: v1alpha1.ReloadMatched,
		},
		"Reloader: what is excluded": {
			workload: pairs(auto, "true", "configmaps.exclude.reloader.stakater.com/reload", "extra"), reads: []ref{config, extra},
			restarts: map[ref]string{config: auto}, mode: v1alpha1.ReloadAuto,
		},
		"Reloader: what is ignored, although it is named": {
			workload: pairs(configMapReload, "app-config,extra"), reads: []ref{config, extra},
			marked: map[ref]string{extra: "reloader.stakater.com/ignore"}, restarts: map[ref]string{config: configMapReload}, mode: v1alpha1.ReloadListed,
		},
		"Reloader: on the template": {
			template: pairs(auto, "true"), reads: []ref{config, db},
			restarts: map[ref]string{config: auto, db: auto}, mode: v1alpha1.ReloadAuto,
		},
		"Reloader: named on the template, and on the workload for the other kind": {
			workload: pairs(secretReload, "db"), template: pairs(configMapReload, "app-config"), reads: []ref{config, db, extra},
			restarts: map[ref]string{config: configMapReload, db: secretReload}, mode: v1alpha1.ReloadListed,
		},
		"Reloader: auto is false": {
			workload: pairs(auto, "false"), reads: []ref{config, db}, mode: v1alpha1.ReloadOff,
		},
		"Reloader: auto is false, and one is named": {
			workload: pairs(auto, "false", secretReload, "db"), reads: []ref{config, db},
			restarts: map[ref]string{db: secretReload}, mode: v1alpha1.ReloadListed,
		},
		"pod-reloader": {
			workload: pairs("pod-reloader.cs.sap.com/configmaps", "extra", "pod-reloader.cs.sap.com/secrets", "db"), reads: []ref{config},
			restarts: map[ref]string{extra: "pod-reloader.cs.sap.com/configmaps", db: "pod-reloader.cs.sap.com/secrets"}, mode: v1alpha1.ReloadListed,
		},
		"wave": {
			workload: pairs("wave.pusher.com/update-on-config-change", "true", "wave.pusher.com/extra-secrets", "db"), reads: []ref{config},
			restarts: map[ref]string{config: "wave.pusher.com/update-on-config-change", db: "wave.pusher.com/extra-secrets"}, mode: v1alpha1.ReloadAuto,
		},
		"no annotation": {reads: []ref{config, db}, mode: v1alpha1.ReloadOff},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			all := []ref{config, extra, db}
			for _, r := range all {
				if mark := tt.marked[r]; mark != "" {
					s.source(r, mark, "true")
				} else {
					s.source(r)
				}
			}
			s.createCanary(all...)
			template := podTemplate("web", tt.reads...)
			template.Annotations = tt.template
			made := s.create(deployment("web", tt.workload, template))
			// The webhook is called for what opts in, and makes no use of patterns.
			want := tt.mode != v1alpha1.ReloadOff && !strings.ContainsAny(tt.workload[configMapReload], "*|")
			if stamped := made.Spec.Template.Annotations[policy.ConfigHashAnnotation] != ""; stamped != want {
				t.Errorf("annotations of the new template = %v", made.Spec.Template.Annotations)
			}
			shown := s.view("deployment.web", func(o *v1alpha1.ConfigDependency) error {
				if o.Spec.Reload.Mode != tt.mode {
					return fmt.Errorf("mode = %s", o.Spec.Reload.Mode)
				}
				if tt.mode != v1alpha1.ReloadOff {
					return inSync(o)
				}
				return nil
			})
			for _, r := range all {
				if said := declaredBy(shown, r); said != tt.restarts[r] {
					t.Errorf("%s restarts the workload because of %q, want %q", r, said, tt.restarts[r])
				}
			}

			// First the changes that restart nothing, which the canary shows to have been seen.
			for _, r := range all {
				if tt.restarts[r] == "" {
					s.seen(r, s.write(r, "new"))
				} else {
					s.view("deployment.web", at(r, s.label(r, "another")), inSync)
				}
			}
			if d := s.deployment("web"); s.rollouts("web") != 1 || d.Spec.Template.Annotations[lastReloadedFrom] != "" {
				t.Fatalf("%d templates, annotations = %v, after changes that restart nothing", s.rollouts("web"), d.Spec.Template.Annotations)
			}

			restarts := 0
			for _, r := range all {
				by := tt.restarts[r]
				if by == "" {
					continue
				}
				for _, value := range []string{"new", "newer"} { // the second right after the restart for the first
					before := s.deployment("web").Spec.Template.Annotations
					version := s.write(r, value)
					restarts++
					s.until("web", "is restarted because of "+string(r), func(d *appsv1.Deployment) error {
						now := d.Spec.Template.Annotations
						if now[policy.ConfigHashAnnotation] == before[policy.ConfigHashAnnotation] || d.Status.ObservedGeneration < d.Generation {
							return fmt.Errorf("annotations of the template = %v", now)
						}
						return nil
					})
					after := s.deployment("web").Spec.Template.Annotations
					if !strings.Contains(by, "stakater.com") {
						if said := after[lastReloadedFrom]; said != "" {
							t.Errorf("%s = %s, which is for users of Reloader", lastReloadedFrom, said)
						}
					} else if s.checkReloadedFrom(after[lastReloadedFrom], r); after[lastReloadedFrom] == before[lastReloadedFrom] {
						t.Errorf("%s stays %s", lastReloadedFrom, after[lastReloadedFrom])
					}
					s.view("deployment.web", at(r, version), func(o *v1alpha1.ConfigDependency) error {
						if last := o.Status.LastReload; last == nil || last.Trigger != string(r) {
							return fmt.Errorf("last reload = %+v, want it by %s", last, r)
						}
						return nil
					})
				}
			}
			s.view("deployment.web", func(o *v1alpha1.ConfigDependency) error {
				if tt.mode != v1alpha1.ReloadOff {
					return inSync(o)
				}
				return nil
			})
			if n := s.rollouts("web"); n != 1+restarts {
				t.Errorf("%d templates after %d changes that restart the workload", n, restarts)
			}
		})
	}
}

// declaredBy returns the annotation by which a source restarts a workload; empty: it does not.
func declaredBy(o *v1alpha1.ConfigDependency, r ref) string {
	kind, name := r.split()
	for i := range o.Spec.Sources {
		if s := &o.Spec.Sources[i]; string(s.Kind) == kind && s.Name == name && s.TriggersReload {
			return cmp.Or(s.DeclaredBy, o.Spec.Reload.DeclaredBy)
		}
	}
	return ""
}
