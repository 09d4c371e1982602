// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/dependency/dependencytest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// A change of a source restarts the custom resource that a Deployment belongs to, if it counts there, and not the Deployment.
func TestOwner_CoversSources(t *testing.T) {
	type family struct {
		owner    *dependency.Object
		of       *dependency.Owner
		absent   bool
		allow    string // fields, by the Secret
		defaults policy.Defaults
		custom   bool // the Deployment is one itself
	}
	whole := []dependency.Named{{Kind: dependency.Secret, Name: "db", Path: ".spec.db"}}
	oneKey := []dependency.Named{{Kind: dependency.Secret, Name: "db", Key: "password", Path: ".spec.db"}}
	for name, tt := range map[string]struct {
		change func(*family)
		keys   []string // that the Deployment reads; nil: all
		covers bool
	}{
		"the owner reads the Secret":          {func(*family) {}, nil, true},
		"the owner reads one key":             {func(f *family) { f.owner.Named = oneKey }, nil, false},
		"both read the same key":              {func(f *family) { f.owner.Named = oneKey }, []string{"password"}, true},
		"they read different keys":            {func(f *family) { f.owner.Named = oneKey }, []string{"user"}, false},
		"the owner reads another Secret":      {func(f *family) { f.owner.Named[0].Name = "other" }, nil, false},
		"the owner has not opted in":          {func(f *family) { f.owner.Meta.Annotations = nil }, nil, false},
		"the owner has an invalid annotation": {func(f *family) { f.owner.Meta.Annotations[policy.SettleAnnotation] = "soon" }, nil, false},
		"the owner excludes the Secret":       {func(f *family) { f.owner.Meta.Annotations[policy.ExcludeAnnotation] = "secret/db" }, nil, false},
		"the owner is only reported":          {func(f *family) { f.owner.Traits.Restart = &dependency.Restart{EventOnly: true} }, nil, false},
		"the owner is only shown":             {func(f *family) { f.owner.Traits.Rollable = false }, nil, false},
		"the owner is no custom resource":     {func(f *family) { f.owner.Traits.Custom = false }, nil, false},
		"the owner is paused":                 {func(f *family) { f.owner.Paused = true }, nil, false},
		"the owner has no replicas":           {func(f *family) { f.owner.Replicas = 0 }, nil, false},
		"another source of the owner is missing": {
			func(f *family) {
				f.owner.Named = append(f.owner.Named, dependency.Named{Kind: dependency.Secret, Name: "missing"})
			}, nil, false,
		},
		"fields of the owner are not allowed": {func(f *family) {
			f.owner.Traits.Fields, f.owner.Meta.Annotations[policy.FieldsAnnotation] = true, "spec.a = secret/db#password"
		}, nil, false},
		"only fields of the owner are set from it": {func(f *family) {
			f.owner.Named, f.allow = nil, "harbor/registry#password"
			f.owner.Traits.Fields, f.owner.Meta.Annotations[policy.FieldsAnnotation] = true, "spec.a = secret/db#password"
		}, []string{"password"}, false},
		"more of the owner is not known": {func(f *family) { f.owner.Truncated = true }, nil, false},
		"the owner is being deleted":     {func(f *family) { f.owner.Meta.DeletionTimestamp = &metav1.Time{Time: epoch} }, nil, false},
		"the owner is gone":              {func(f *family) { f.absent = true }, nil, false},
		"another owner has its name":     {func(f *family) { f.of.UID = "other" }, nil, false},
		"it has no owner":                {func(f *family) { f.of = nil }, nil, false},
		"it is a custom resource itself": {func(f *family) { f.custom = true }, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := family{
				owner: &dependency.Object{
					Kind: "Harbor", Template: &corev1.PodTemplateSpec{}, Named: slices.Clone(whole),
					Meta:   &metav1.ObjectMeta{Namespace: "shop", Name: "registry", UID: "owner", Annotations: annotations{policy.ReloadAnnotation: "auto"}},
					Traits: dependency.Traits{Rollable: true, Custom: true, UnknownPods: true, Restart: &dependency.Restart{}},
					Status: dependency.Status{Replicas: 1, Rollout: dependency.Rollout{Phase: dependency.RolloutComplete}},
				},
				of:       &dependency.Owner{WorkloadKey: dependency.WorkloadKey{Kind: "Harbor", Namespace: "shop", Name: "registry"}, UID: "owner"},
				defaults: policy.Defaults{Mode: policy.Off},
			}
			tt.change(&f)
			template := &corev1.PodTemplateSpec{Spec: podOf(envFrom(dependency.Secret, "db"))}
			if tt.keys != nil {
				template.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}
				for _, key := range tt.keys {
					template.Spec.Containers[0].Env = append(template.Spec.Containers[0].Env, corev1.EnvVar{Name: "X", ValueFrom: &corev1.EnvVarSource{
						SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}, Key: key},
					}})
				}
			}
			owned := &dependency.Object{
				Kind: kind.Deployment, Template: template, Owner: f.of, Traits: kind.Table(nil).Of(kind.Deployment).Traits,
				Meta: &metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web", Annotations: annotations{policy.ReloadAnnotation: "auto"}},
			}
			owned.Traits.Custom = f.custom

			g := dependency.NewGraph()
			digester := dependency.NewDigester(make([]byte, 32))
			g.SetDigester(digester)
			db := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "s", ResourceVersion: "5"}, Data: map[string][]byte{"password": nil, "user": nil}}
			g.SetSource(dependencytest.Source(digester, db, dependency.SourceMarks{AllowFields: f.allow}))
			var w *dependency.Workload
			for _, o := range []*dependency.Object{f.owner, owned} {
				if o == f.owner && f.absent {
					continue
				}
				w = policy.Dialects(nil).ReadWorkload(o)
				p := policy.Note(w, nil, f.defaults)
				g.SetWorkload(w, p.Patterns())
			}
			e := decide.Evaluator{Graph: g, Defaults: f.defaults}.Evaluate(w)
			s := e.Sources[0]
			if s.Triggers == tt.covers || (s.Reason == decide.ReasonCoveredByOwner) != tt.covers {
				t.Errorf("source = %+v, covered: %v", s, tt.covers)
			}
			recorded := *w
			present := e.Present()
			recorded.Marks.Hash, recorded.Marks.Sources = present.Hash, `{}`
			if len(present.Sources) > 0 {
				recorded.Marks.Sources = present.Text()
			}
			d := decide.Evaluator{Graph: g, Defaults: f.defaults}.Evaluate(&recorded).Decide(epoch)
			said := strings.Contains(d.Message, "A change of Secret/db restarts Harbor registry, to which the Deployment belongs.")
			if said != tt.covers || tt.covers && s.DeclaredBy != "Harbor registry" {
				t.Errorf("declared by %q; the message says so: %v", s.DeclaredBy, said)
			}
			found := false
			g.Owned(dependency.WorkloadKey{Kind: "Harbor", Namespace: "shop", Name: "registry"}, func(key dependency.WorkloadKey) { found = found || key == w.WorkloadKey })
			if found != (f.of != nil) {
				t.Errorf("the graph knows the owner: %v", found)
			}
			g.DeleteWorkload(w.WorkloadKey)
			g.Owned(dependency.WorkloadKey{Kind: "Harbor", Namespace: "shop", Name: "registry"}, func(key dependency.WorkloadKey) {
				t.Errorf("%v is known after it was deleted", key)
			})
		})
	}
}

// Stale pods are never said to be in sync: neither when the custom resource that a Deployment belongs to opts in while a restart of the Deployment is due, nor
// when it opts out again.
func TestOwner_OptsInWhileARestartIsDue(t *testing.T) {
	g := dependency.NewGraph()
	digester := dependency.NewDigester(make([]byte, 32))
	g.SetDigester(digester)
	g.SetComplete(epoch)
	var before *dependency.Source
	write := func(password string, at time.Time) {
		s := dependencytest.Source(digester, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "s", ResourceVersion: password}, Data: map[string][]byte{"password": []byte(password)},
		}, dependency.SourceMarks{})
		s.Remember(before, g, dependency.Arrival{Live: true, Seen: at})
		g.SetSource(s)
		before = s
	}
	marks := annotations{policy.ReloadAnnotation: "auto"}
	put := func(owner, of annotations) *dependency.Workload {
		var w *dependency.Workload
		for _, o := range []*dependency.Object{{
			Kind: "Harbor", Template: &corev1.PodTemplateSpec{}, Named: []dependency.Named{{Kind: dependency.Secret, Name: "db", Path: ".spec.db"}},
			Meta:   &metav1.ObjectMeta{Namespace: "shop", Name: "registry", UID: "owner", Annotations: owner},
			Traits: dependency.Traits{Rollable: true, Custom: true, UnknownPods: true, Restart: &dependency.Restart{}},
			Status: dependency.Status{Replicas: 1, Rollout: dependency.Rollout{Phase: dependency.RolloutComplete}},
		}, {
			Kind: kind.Deployment, Template: &corev1.PodTemplateSpec{Spec: podOf(envFrom(dependency.Secret, "db"))}, Traits: kind.Table(nil).Of(kind.Deployment).Traits,
			Owner:  &dependency.Owner{WorkloadKey: dependency.WorkloadKey{Kind: "Harbor", Namespace: "shop", Name: "registry"}, UID: "owner"},
			Meta:   &metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web", Annotations: of},
			Status: dependency.Status{Replicas: 1, Rollout: dependency.Rollout{Phase: dependency.RolloutComplete}},
		}} {
			w = policy.Dialects(nil).ReadWorkload(o)
			p := policy.Note(w, nil, policy.Defaults{Mode: policy.Off})
			g.SetWorkload(w, p.Patterns())
		}
		return w
	}
	evaluate := func(w *dependency.Workload) *decide.Evaluation { return decide.Evaluator{Graph: g}.Evaluate(w) }

	write("1", epoch.Add(time.Minute))
	w := put(nil, marks)
	started := epoch.Add(time.Hour)
	g.SetPod(&dependency.Pod{
		PodKey: dependency.PodKey{Namespace: "shop", Name: "web-1"}, UID: "web-1", Workload: w.WorkloadKey, Owner: "web", Created: started, Phase: "Running", Ready: started,
		Containers: []dependency.PodContainer{{Name: "app", Started: started}},
	})
	e := evaluate(w)
	d := e.Decide(started.Add(time.Hour))
	marks = annotations{policy.ReloadAnnotation: "auto", record.ConfigHashAnnotation: d.Record.Hash, record.AppliedSourcesAnnotation: d.Record.Text()}
	write("2", started.Add(2*time.Hour))
	now := started.Add(3 * time.Hour)
	if d := evaluate(put(nil, marks)).Decide(now); d.Action != decide.RollOut {
		t.Fatalf("decision = %+v", d)
	}
	in := annotations{policy.ReloadAnnotation: "auto"}
	if d := evaluate(put(in, marks)).Decide(now); d.State != decide.Stale || d.Reason != decide.ReasonNotTriggering {
		t.Errorf("the owner opts in: decision = %+v", d)
	}
	if d := evaluate(put(nil, marks)).Decide(now); d.Action != decide.RollOut {
		t.Errorf("the owner opts out: decision = %+v", d)
	}
}
