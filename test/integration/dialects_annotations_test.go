// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/record"
)

// Sources of workloads that come from other tools.
const (
	config ref = "ConfigMap/app-config"
	extra  ref = "ConfigMap/extra"
	db     ref = "Secret/db"

	configMapReload = "configmap.reloader.stakater.com/reload"
	secretReload    = "secret.reloader.stakater.com/reload"
	autoReload      = "reloader.stakater.com/auto"
)

// With the annotations of another tool, a change of content restarts exactly the workloads that it does with that tool, and the
// API says by which annotation. A change of labels restarts none.
func TestDialects_Annotations(t *testing.T) {
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
		"Reloader: all that is read": {
			workload: pairs(autoReload, "true"), reads: []ref{config, db},
			restarts: map[ref]string{config: autoReload, db: autoReload}, mode: v1alpha1.ReloadAuto,
		},
		"Reloader: what is marked": {
			workload: pairs("reloader.stakater.com/search", "true"), reads: []ref{config, extra},
			marked: map[ref]string{config: "reloader.stakater.com/match"}, restarts: map[ref]string{config: "reloader.stakater.com/search"}, mode: v1alpha1.ReloadMatched,
		},
		"Reloader: what is ignored, although it is named": {
			workload: pairs(configMapReload, "app-config,extra"), reads: []ref{config, extra},
			marked: map[ref]string{extra: "reloader.stakater.com/ignore"}, restarts: map[ref]string{config: configMapReload}, mode: v1alpha1.ReloadListed,
		},
		"Reloader: named on the template, and on the workload for the other kind": {
			workload: pairs(secretReload, "db"), template: pairs(configMapReload, "app-config"), reads: []ref{config, db, extra},
			restarts: map[ref]string{config: configMapReload, db: secretReload}, mode: v1alpha1.ReloadListed,
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
				s.write(r, "key", "old")
				if mark := tt.marked[r]; mark != "" {
					s.annotate(r, mark, "true")
				}
			}
			s.createCanary(all...)
			s.create(reading("web", tt.workload, tt.template, tt.reads...))
			shown := s.view("deployment.web", func(o *v1alpha1.ConfigDependency) error {
				if o.Spec.Reload.Mode != tt.mode {
					return fmt.Errorf("mode = %s", o.Spec.Reload.Mode)
				}
				if tt.mode != v1alpha1.ReloadOff {
					return applied(o)
				}
				return nil
			})
			for _, r := range all {
				if said := declaredBy(shown, r); said != tt.restarts[r] {
					t.Errorf("%s restarts the workload because of %q, want %q", r, said, tt.restarts[r])
				}
			}

			// First the changes that restart nothing, which the canary shows to have been seen. Those of content that pods read leave them stale.
			for _, r := range all {
				if tt.restarts[r] != "" {
					s.view("deployment.web", at(s.patchSource(r, map[string]any{"metadata": map[string]any{"labels": pairs("team", "another")}})), applied)
				}
			}
			for _, r := range all {
				if tt.restarts[r] == "" {
					s.seen(s.write(r, "key", "new"))
				}
			}
			if d := s.deployment("web"); s.templates("web") != 1 || d.Spec.Template.Annotations[lastReloadedFrom] != "" {
				t.Fatalf("%d templates, annotations = %v, after changes that restart nothing", s.templates("web"), d.Spec.Template.Annotations)
			}

			restarts := 0
			for _, r := range all {
				by := tt.restarts[r]
				if by == "" {
					continue
				}
				for _, value := range []string{"new", "newer"} { // the second right after the restart for the first
					before := s.deployment("web").Spec.Template.Annotations
					written := s.write(r, "key", value)
					restarts++
					s.until("web", "is restarted because of "+string(r), func(d *appsv1.Deployment) error {
						now := d.Spec.Template.Annotations
						if now[record.ConfigHashAnnotation] == before[record.ConfigHashAnnotation] || d.Status.ObservedGeneration < d.Generation {
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
					s.view("deployment.web", at(written), restartedFor(string(r)))
				}
			}
			s.view("deployment.web", func(o *v1alpha1.ConfigDependency) error {
				if tt.mode != v1alpha1.ReloadOff {
					return applied(o)
				}
				return nil
			})
			if n := s.templates("web"); n != 1+restarts {
				t.Errorf("%d templates after %d changes that restart the workload", n, restarts)
			}
		})
	}
}

// declaredBy returns the annotation by which a source restarts a workload; empty: it does not.
func declaredBy(o *v1alpha1.ConfigDependency, r ref) string {
	kind, name := r.split()
	s, _, err := source(o, v1alpha1.SourceKind(kind), name)
	switch {
	case err != nil || !s.TriggersReload:
		return ""
	case s.DeclaredBy != "":
		return s.DeclaredBy
	default:
		return o.Spec.Reload.DeclaredBy
	}
}

// reading returns a Deployment with one pod, which reads sources, and with annotations of its own and of its template.
func reading(name string, annotations, onTemplate map[string]string, sources ...ref) *appsv1.Deployment {
	o := single(name, optional(sources...))
	o.Annotations, o.Spec.Template.Annotations = annotations, onTemplate
	return o
}

// lastReloadedFrom is the annotation of pod templates that says, in the format of Stakater Reloader, what has caused the last
// restart.
const lastReloadedFrom = "reloader.stakater.com/last-reloaded-from"

// reloadedFrom are the fields of lastReloadedFrom.
type reloadedFrom struct {
	Type          string   `json:"type"`
	Name          string   `json:"name"`
	Namespace     string   `json:"namespace"`
	Hash          string   `json:"hash"`
	ContainerRefs []string `json:"containerRefs"`
	ObservedAt    int64    `json:"observedAt"`
}

// checkReloadedFrom checks the text that a restart because of a source leaves on a template.
func (s *shop) checkReloadedFrom(text string, by ref) {
	s.Helper()
	var got reloadedFrom
	var fields map[string]any
	if err := errors.Join(json.Unmarshal([]byte(text), &got), json.Unmarshal([]byte(text), &fields)); err != nil {
		s.Fatalf("%s = %q: %v", lastReloadedFrom, text, err)
	}
	kind, source := by.split()
	want := reloadedFrom{Type: strings.ToUpper(kind), Name: source, Namespace: s.namespace, ContainerRefs: []string{"app"}, Hash: got.Hash, ObservedAt: got.ObservedAt}
	if diff := cmp.Diff(want, got); diff != "" || got.Hash == "" || got.ObservedAt < 1_700_000_000 || len(fields) != 6 {
		s.Errorf("%s = %s, want the fields of Reloader, for %s (-want +got):\n%s", lastReloadedFrom, text, by, diff)
	}
}
