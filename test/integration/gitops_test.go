// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/await"
)

var writeDocument = flag.Bool("update", false, "write what tools that apply manifests see after a restart into docs/integrate.md")

// manifestOf returns what would be in Git.
func manifestOf(t *testing.T, d *appsv1.Deployment) content {
	t.Helper()
	git, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	if err != nil {
		t.Fatal(err)
	}
	delete(git, "status")
	git["apiVersion"], git["kind"] = "apps/v1", "Deployment"
	return git
}

// apply applies the Deployment web as Argo CD and Flux do with server-side apply, or would.
func (s *shop) apply(git content, manager string, dryRun ...string) *appsv1.Deployment {
	s.Helper()
	got, err := kube.AppsV1().Deployments(s.namespace).Patch(s.Context(), "web", types.ApplyPatchType, asJSON(s.T, git),
		metav1.PatchOptions{FieldManager: manager, Force: new(true), DryRun: dryRun})
	s.must(err)
	return got
}

// differs returns how applying a manifest would change the Deployment web, which no other client writes in the meantime.
func (s *shop) differs(git content, manager string) (diff string) {
	s.Helper()
	await.Until(s.T, "the Deployment is not written during a comparison", func(context.Context) error {
		live, would := s.deployment("web"), s.apply(git, manager, metav1.DryRunAll)
		if now := s.deployment("web"); now.ResourceVersion != live.ResourceVersion {
			return errors.New("it was written")
		}
		for _, d := range []*appsv1.Deployment{live, would} {
			d.ManagedFields, d.ResourceVersion, d.Generation = nil, "", 0
		}
		diff = cmp.Diff(live, would)
		return nil
	})
	return diff
}

// survives checks that the Deployment web, which a manager has applied, is restarted once when the password in Secret db changes, and that the
// manager then finds no drift, and restarts nothing when it applies the manifest again.
func (s *shop) survives(git content, manager string) {
	s.Helper()
	s.view("deployment.web", applied)
	awaitAge(s.T, s.namespace, "web")
	before := s.templates("web")
	s.view("deployment.web", applied, at(s.write(db, "password", "new")), restartedFor(string(db)))
	if diff := s.differs(git, manager); diff != "" {
		s.Errorf("%s finds drift (-live +applied):\n%s", manager, diff)
	}
	s.apply(git, manager)
	s.view("deployment.web", applied)
	if got := s.templates("web"); got != before+1 {
		s.Errorf("web had %d templates before the restart, and %d after it", before, got)
	}
}

// A restarting is a way to restart the Deployment web in a shop.
type restarting struct {
	name        string
	annotations []string
	// agent: the Deployment has the label of agents, which report nothing.
	agent bool
	// inPlace: there is a restarter.
	inPlace bool
	// paused: the restart pauses the Deployment.
	paused bool
}

var restartings = []restarting{
	{name: "`annotation`"},
	{name: "`annotation`, with `pause-period`", annotations: []string{"deployment.reloader.stakater.com/pause-period", "1h"}, paused: true},
	{name: "`env-var`", annotations: []string{policy.StrategyAnnotation, "env-var"}},
	{name: "`agent`", annotations: []string{policy.StrategyAnnotation, "agent"}, agent: true},
	{name: "`recreate`", annotations: []string{policy.StrategyAnnotation, "recreate", policy.SettleAnnotation, "8s"}},
	{name: "`in-place`", annotations: []string{policy.StrategyAnnotation, "in-place"}, inPlace: true},
}

// The tools that apply the manifest of a workload see no drift after a restart, whatever the strategy, and restart nothing when they apply it
// again. What they would do if they replaced it is in docs/integrate.md, too: -update writes it.
func TestDrift(t *testing.T) {
	cluster.Needs(t, "1.36", "MutatingAdmissionPolicies, and rules that restart all containers")
	t.Parallel()
	var mu sync.Mutex
	rows := map[string]seen{}
	t.Run("strategies", func(t *testing.T) {
		for _, how := range restartings {
			for _, clientSide := range []bool{true, false} {
				name := fmt.Sprintf("%s, client-side %t", how.name, clientSide)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					got := how.seen(t, clientSide)
					mu.Lock()
					defer mu.Unlock()
					rows[how.name] = rows[how.name].merge(t, got)
				})
			}
		}
	})
	if t.Failed() {
		return
	}
	all := seen{workload: rows[restartings[0].name].workload}
	for _, row := range rows {
		all.workload = slices.DeleteFunc(slices.Clone(all.workload), func(field string) bool { return !slices.Contains(row.workload, field) })
	}
	var table strings.Builder
	table.WriteString("| strategy | written to the workload | written to the pod template | drift | replaced, with the policy | replaced, without it |\n|---|---|---|---|---|---|\n")
	fmt.Fprintf(&table, "| all | %s | | | | |\n", list(all.workload))
	for _, how := range restartings {
		row := rows[how.name]
		own := slices.DeleteFunc(slices.Clone(row.workload), func(field string) bool { return slices.Contains(all.workload, field) })
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s | %s |\n", how.name, list(own), list(row.template), row.drift, row.replaced, row.unprotected)
	}
	documented(t, "../../docs/integrate.md", table.String())
	ignored := ignoredByArgoCD(t)
	for _, how := range restartings {
		for _, a := range slices.Concat(rows[how.name].workload, rows[how.name].template) {
			if strings.Contains(a, "/") && !slices.Contains(ignored, strings.Trim(a, "`")) {
				t.Errorf("docs/integrate.md has no rule for Argo CD to ignore %s", a)
			}
		}
	}
}

// seen is what there is to see after a restart.
type seen struct {
	workload, template []string
	drift              string
	// replaced says what happens if the manifest replaces the workload, and unprotected what happens without the policy that keeps annotations.
	replaced, unprotected string
}

func (got seen) merge(t *testing.T, more seen) seen {
	t.Helper()
	if got.drift != "" && (got.drift != more.drift || got.replaced != more.replaced || got.unprotected != more.unprotected) {
		t.Errorf("one tool sees %+v, and another %+v", got, more)
	}
	for to, from := range map[*[]string][]string{&more.workload: got.workload, &more.template: got.template} {
		*to = append(*to, from...)
		slices.Sort(*to)
		*to = slices.Compact(*to)
	}
	return more
}

func list(of []string) string {
	if len(of) == 0 {
		return "–"
	}
	return strings.Join(of, ", ")
}

// seen restarts a Deployment that a tool has applied, on the client's side or the server's.
func (how restarting) seen(t *testing.T, clientSide bool) (got seen) {
	t.Helper()
	s := newShop(t)
	s.write(config, "key", "old")
	d := deployment("web", envFromConfigMap("app-config"))
	if how.inPlace {
		d = inPlace("web", 2)
		startKubelet(t, s.namespace)
	}
	optedIn(d, how.annotations...)
	d.Spec.Template.Annotations = pairs("team", "shop")
	d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "LEVEL", Value: "info"}}
	if how.agent {
		d.Spec.Template.Labels["configdep.io/agent"] = "true"
	}
	d.Namespace = s.namespace
	for _, v := range d.Spec.Template.Spec.Volumes { // a default, with which Argo CD compares, too
		v.DownwardAPI.Items[0].FieldRef.APIVersion = "v1"
	}
	git := manifestOf(t, d)
	managers := []string{"argocd-controller", "kustomize-controller", "helm-controller"}
	s.must(await.NextSecond(t.Context()))
	if clientSide {
		managers = nil
		apply := cluster.Command(t.Context(), cluster.KubectlPath(), "apply", "-n", s.namespace, "-f", "-")
		apply.Stdin = bytes.NewReader(asJSON(t, git))
		if out, err := apply.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, manager := range managers {
		s.apply(git, manager)
	}
	runningPods(t, s.namespace, "web", 2, nil)
	written := s.writtenByConfigdep()
	restart := func(seen func()) {
		awaitAge(t, s.namespace, "web") // or it would be in doubt what the pods have read
		reload(t, s.namespace, "deployment.web", v1alpha1.ReloadSpec{})
		s.view("deployment.web", restartedFor(record.TriggerRequest), func(o *v1alpha1.ConfigDependency) error {
			if how.agent {
				return is(v1alpha1.StatePending, "AgentsSilent")(o)
			}
			return applied(o)
		})
		seen()
	}
	look := func() { got.look(s, d, git, managers) }
	if how.agent {
		restart(look)
	} else {
		s.view("deployment.web", applied)
		awaitAge(t, s.namespace, "web")
		changed := s.write(config, "key", "new")
		if how.paused {
			s.view("deployment.web", is(v1alpha1.StatePending, decide.ReasonPausePeriod), at(changed))
			look()
		} else {
			s.view("deployment.web", applied, at(changed), restartedFor(string(config)))
			look()
			restart(func() { s.drift(git, managers) })
		}
	}
	got.workload, got.template = written()
	return got
}

// look tells what tools see of a Deployment, as the API server answers.
func (got *seen) look(s *shop, d *appsv1.Deployment, git content, managers []string) {
	s.Helper()
	got.drift = s.drift(git, managers)
	other := runtime.DeepCopyJSON(git)
	s.must(unstructured.SetNestedField(other, "another", "spec", "template", "metadata", "annotations", "team"))
	if managers == nil && s.threeWay(other) == "" {
		s.Error("a change of the manifest is not found")
	}
	for _, manager := range managers {
		if s.differs(other, manager) == "" {
			s.Errorf("%s does not find a change of the manifest", manager)
		}
	}
	got.replaced = s.replaced(d, "argocd-controller")
	got.unprotected = s.replaced(d, "Reloader") // whose writes the policy lets pass
}

// drift says whether a tool that has applied a manifest would change something, and checks that the pods stay when it does; without field
// managers, it is one that compares on its own side.
func (s *shop) drift(git content, managers []string) string {
	s.Helper()
	if managers == nil {
		if diff := s.threeWay(git); diff != "" {
			s.Errorf("drift (-live +applied): %s", diff)
			return "yes"
		}
	}
	before := s.deployment("web").Spec.Template
	for _, manager := range managers {
		if diff := s.differs(git, manager); diff != "" {
			s.Errorf("drift that %s finds (-live +applied): %s", manager, diff)
			return "yes"
		}
		s.apply(git, manager)
	}
	sameTemplate(s.T, "after the manifest was applied again", &before, &s.deployment("web").Spec.Template)
	return "none"
}

// writtenByConfigdep watches the Deployment web, and returns a function that ends that and says what configdep has written to the workload and
// to its template.
func (s *shop) writtenByConfigdep() func() (workload, template []string) {
	s.Helper()
	w, err := kube.AppsV1().Deployments(s.namespace).Watch(s.Context(), metav1.ListOptions{FieldSelector: "metadata.name=web"})
	s.must(err)
	all := fieldpath.NewSet()
	var running sync.WaitGroup
	running.Go(func() {
		for e := range w.ResultChan() {
			d, is := e.Object.(*appsv1.Deployment)
			if !is {
				continue
			}
			for _, entry := range d.ManagedFields {
				set := fieldpath.NewSet()
				if entry.Manager == string(dependency.OwnFieldManager) && set.FromJSON(entry.FieldsV1.GetRawReader()) == nil {
					all = all.Union(set.Leaves())
				}
			}
		}
	})
	return func() (workload, template []string) {
		w.Stop()
		running.Wait()
		variable := regexp.MustCompile(`^spec\.template\.spec\.containers.*\.env\[name="(.*)"\]\.name$`)
		all.Iterate(func(p fieldpath.Path) {
			field := strings.TrimPrefix(p.String(), ".")
			if name, is := strings.CutPrefix(field, "metadata.annotations."); is {
				workload = append(workload, "`"+name+"`")
			} else if name, is := strings.CutPrefix(field, "spec.template.metadata.annotations."); is {
				template = append(template, "`"+name+"`")
			} else if found := variable.FindStringSubmatch(field); found != nil {
				template = append(template, "variable `"+found[1]+"`")
			} else if !strings.HasPrefix(field, "spec.template.spec.containers") {
				workload = append(workload, "`"+field+"`")
			}
		})
		slices.Sort(workload)
		slices.Sort(template)
		return slices.Compact(workload), slices.Compact(template)
	}
}

// threeWay returns how kubectl apply, and Argo CD without server-side apply, would change the Deployment web.
func (s *shop) threeWay(git content) (diff string) {
	s.Helper()
	o := s.deployment("web")
	o.APIVersion, o.Kind = "apps/v1", "Deployment"
	last := o.Annotations[corev1.LastAppliedConfigAnnotation]
	live := asJSON(s.T, o)
	of, err := strategicpatch.NewPatchMetaFromStruct(o)
	s.must(err)
	patch, err := strategicpatch.CreateThreeWayMergePatch([]byte(last), asJSON(s.T, git), live, of, true)
	s.must(err)
	would, err := strategicpatch.StrategicMergePatchUsingLookupPatchMeta(live, patch, of)
	s.must(err)
	return cmp.Diff(fromYAML(s.T, string(live)), fromYAML(s.T, string(would)))
}

// replaced says what happens if a tool replaces the Deployment web by a manifest.
func (s *shop) replaced(d *appsv1.Deployment, manager string) string {
	s.Helper()
	live := s.deployment("web")
	would, err := kube.AppsV1().Deployments(s.namespace).Update(s.Context(), d.DeepCopy(), metav1.UpdateOptions{FieldManager: manager, DryRun: []string{metav1.DryRunAll}})
	s.must(err)
	var happens []string
	if live.Spec.Paused && !would.Spec.Paused {
		happens = append(happens, "the pause ends")
	}
	if !cmp.Equal(live.Spec.Template, would.Spec.Template) {
		happens = append(happens, "the pods are replaced")
	}
	if _, kept := would.Annotations[record.AppliedSourcesAnnotation]; !kept && live.Annotations[record.AppliedSourcesAnnotation] != "" {
		happens = append(happens, "the record is removed")
	}
	return list(happens)
}

// documented checks that the document has a table, or writes it.
func documented(t *testing.T, name, table string) {
	t.Helper()
	const begin, end = "<!-- generated -->\n", "<!-- /generated -->\n"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(text), begin)
	old, rest, ends := strings.Cut(after, end)
	if !found || !ends {
		t.Fatalf("%s has no place for the table", name)
	}
	if diff := cmp.Diff(old, table); diff == "" {
		return
	} else if !*writeDocument {
		t.Fatalf("%s (-document +table; go test ./test/integration -run TestDrift -update writes it):\n%s", name, diff)
	}
	if err := os.WriteFile(name, []byte(before+begin+table+end+rest), 0o644); err != nil {
		t.Fatal(err)
	}
}

// ignoredByArgoCD returns the annotations that docs/integrate.md has Argo CD ignore.
func ignoredByArgoCD(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/integrate.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`(?m)^ +- .*/metadata/annotations/(\S+)`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, strings.ReplaceAll(found[1], "~1", "/"))
	}
	return names
}
