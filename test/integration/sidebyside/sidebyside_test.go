// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// Commands of docs/migration.md.
const (
	compare = `restarts() { kubectl get events -A --no-headers --field-selector "reason=$1" -o custom-columns=K:.involvedObject.kind,S:.involvedObject.namespace,N:.involvedObject.name,C:.count |
  awk '{n[$1 " " $2 "/" $3] += $4} END {for (w in n) print w, n[w]}' | sort; }
diff <(restarts Reloaded) <(restarts ConfigReloadObserved)`
	pending     = `kubectl get cfgdep -A --field-selector status.state=Pending`
	notRecorded = `kubectl get cfgdep -A -o custom-columns=NAMESPACE:.metadata.namespace,NAME:.metadata.name,REASON:.status.reason | grep NotRecorded`
)

// The server runs beside Reloader with --observe, takes over, and Reloader takes over again, as docs/migration.md describes.
func TestSideBySide(t *testing.T) {
	s := &scene{T: t, due: map[string]bool{}}
	create(t)
	s.rolledOut()
	if _, err := client.AppsV1().Deployments("shop").Patch(t.Context(), paused, types.MergePatchType, []byte(`{"spec": {"paused": true}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.startReloader()
	server, err := install.Install(t.Context(), cluster, install.Options{
		Race: install.RaceDetector, Args: []string{"--shutdown-delay-duration=0s", "--observe", "--settle=0s", "--release-settle=0s"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.server = server
	defer func() {
		server.Stop()
		if err := server.CheckLogs(); err != nil {
			t.Error(err)
		}
	}()
	s.observe()
	s.takeOver()
	s.restart()
	s.goBack()
}

// rolledOut waits until the pods of all workloads run.
func (s *scene) rolledOut() {
	s.Helper()
	await.Until(s.T, "all pods run", func(ctx context.Context) error {
		for _, namespace := range []string{"shop", "bank"} {
			apps := client.AppsV1()
			deployments, err1 := apps.Deployments(namespace).List(ctx, metav1.ListOptions{})
			statefulSets, err2 := apps.StatefulSets(namespace).List(ctx, metav1.ListOptions{})
			daemonSets, err3 := apps.DaemonSets(namespace).List(ctx, metav1.ListOptions{})
			if err := errors.Join(err1, err2, err3); err != nil {
				return err
			}
			ready := func(of []appsv1.Deployment, sets []appsv1.StatefulSet, daemons []appsv1.DaemonSet) (waits string) {
				for i := range of {
					if o := &of[i]; o.Status.ObservedGeneration < o.Generation || o.Status.AvailableReplicas != *o.Spec.Replicas {
						waits = o.Name
					}
				}
				for i := range sets {
					if o := &sets[i]; o.Status.ObservedGeneration < o.Generation || o.Status.AvailableReplicas != *o.Spec.Replicas {
						waits = o.Name
					}
				}
				for i := range daemons {
					if o := &daemons[i]; o.Status.ObservedGeneration < o.Generation || o.Status.NumberAvailable < 1 {
						waits = o.Name
					}
				}
				return waits
			}
			if waits := ready(deployments.Items, statefulSets.Items, daemonSets.Items); waits != "" {
				return fmt.Errorf("%s in %s is not ready", waits, namespace)
			}
		}
		return nil
	})
}

// observe makes all changes. For each, the server says which workloads it would restart, and Reloader restarts those that it does:
// the same ones, but for the differences that docs/migration.md names. What Reloader restarts is up to date for the server, too.
func (s *scene) observe() {
	s.Helper()
	rows := differences(s.T)
	s.views("nothing is due", calm)
	wantCounts, byTool := map[string]int{}, map[string][2]int{} // restarts by Reloader, and by configdep
	for _, c := range changes {
		made := s.make(c)
		for _, w := range workloads {
			v, found := w.because[c]
			if !found {
				continue
			}
			if v.reloader != v.configdep && !rows[v.difference] {
				s.Errorf("docs/migration.md names no difference %q", v.difference)
			}
			n := byTool[w.id()]
			if v.reloader {
				n[0]++
			}
			if v.configdep {
				n[1]++
				wantCounts[w.kind+" "+w.namespace]++
				s.due[w.id()] = true
			}
			byTool[w.id()] = n
		}
		s.views("what would be restarted is shown when "+c.what, func(w *workload, o *v1alpha1.ConfigDependency) error {
			if err := at(c, made, o); err != nil {
				return err
			}
			v, found := w.because[c]
			switch {
			case s.due[w.id()]:
				return is(o, v1alpha1.StatePending, policy.ReasonObserved)
			case found:
				state, reason := reasonOf(v)
				return is(o, state, reason)
			default:
				return calm(w, o)
			}
		})
		await.Until(s.T, "restarts that are observed are counted when "+c.what, func(ctx context.Context) error {
			got, err := s.counts(ctx, "observed")
			if diff := cmp.Diff(wantCounts, got); err == nil && diff != "" {
				err = fmt.Errorf("counters (-want +got):\n%s", diff)
			}
			return err
		})

		restartedBy := s.reloads(c, made)
		s.equal("restarted by Reloader when "+c.what, restarted(c, byReloader), restartedBy)
		for _, id := range restartedBy {
			delete(s.due, id)
		}
		s.views("pods that Reloader has replaced are up to date when "+c.what, func(w *workload, o *v1alpha1.ConfigDependency) error {
			if s.due[w.id()] {
				return is(o, v1alpha1.StatePending, policy.ReasonObserved)
			}
			return calm(w, o)
		})
	}
	if all, _ := writes(s.T); len(all) > 0 {
		s.Errorf("with --observe, the server writes to workloads:\n%s", strings.Join(all, "\n"))
	}
	for id, template := range s.templates() {
		if hash := template.Annotations[policy.ConfigHashAnnotation]; hash != "" {
			s.Errorf("with --observe, the webhook writes to %s", id)
		}
	}
	s.compareEvents(byTool)

	// The workloads that only configdep would restart are restarted by hand.
	var shown []string
	out, err := s.documented(s.Context(), pending)
	if err != nil {
		s.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(out), "\n")[1:] {
		fields := strings.Fields(line)
		for _, w := range workloads {
			if w.namespace == fields[0] && w.view() == fields[1] {
				shown = append(shown, w.id())
				if _, err := cluster.Kubectl(s.Context(), "rollout", "restart", "-n", w.namespace, w.kind+"/"+w.name); err != nil {
					s.Fatal(err)
				}
			}
		}
	}
	slices.Sort(shown)
	s.equal("only configdep would restart", slices.Sorted(maps.Keys(s.due)), shown)
	clear(s.due)
	s.views("what users have restarted is up to date", calm)
}

// compareEvents compares the restarts of both tools by their events, as docs/migration.md says.
func (s *scene) compareEvents(byTool map[string][2]int) {
	s.Helper()
	var want []string
	for id, n := range byTool {
		for i, side := range []string{"<", ">"} {
			if n[0] != n[1] && n[i] > 0 {
				want = append(want, fmt.Sprintf("%s %s %d", side, id, n[i]))
			}
		}
	}
	slices.Sort(want)
	await.Until(s.T, "the events of both are compared", func(ctx context.Context) error {
		out, err := s.documented(ctx, compare)
		if err != nil {
			return err
		}
		var got []string
		for line := range strings.Lines(out) {
			if line[0] == '<' || line[0] == '>' {
				got = append(got, strings.TrimSpace(line))
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("differences (-want +got):\n%s", diff)
		}
		return nil
	})
}

// recorded waits until the content of all workloads is recorded, as docs/migration.md says.
func (s *scene) recorded() {
	s.Helper()
	s.views("nothing is due", calm)
	await.Until(s.T, "everything is recorded", func(ctx context.Context) error {
		out, err := s.documented(ctx, notRecorded)
		if err == nil && out != "" {
			err = errors.New(out)
		}
		return err
	})
}

// takeOver starts the server without --observe while Reloader runs, and stops Reloader. Nothing is restarted. Of a change in between,
// only Reloader restarts the workloads.
func (s *scene) takeOver() {
	s.Helper()
	before := s.templates()
	// The longest time to settle, so that Reloader is first, on any machine.
	s.runServer("--settle=5m", "--release-settle=5m", "--min-interval=0s")
	s.recorded()
	s.equal("restarted when the server takes over", nil, changed(before, s.templates()))

	made := s.make(rotated)
	want := restarted(rotated, byReloader)
	s.equal("restarted by Reloader while both run", want, s.reloads(rotated, made))
	s.views("the restarts of Reloader are recorded", func(w *workload, o *v1alpha1.ConfigDependency) error {
		err := errors.Join(at(rotated, made, o), calm(w, o))
		if slices.Contains(want, w.id()) && (o.Status.AppliedHash == "" || o.Status.AppliedHash != o.Status.ConfigHash) {
			err = errors.Join(err, errors.New("another content is recorded"))
		}
		return err
	})
	before = s.templates()
	s.stopReloader()
	s.runServer("--settle=0s", "--release-settle=0s", "--min-interval=0s")
	s.recorded()
	s.equal("restarted when the server starts again", nil, changed(before, s.templates()))
	if _, restarts := writes(s.T); len(restarts) > 0 {
		s.Errorf("the server restarts %v while both run", restarts)
	}
}

// restart makes all changes. Each restarts the workloads as the server said with --observe, by one patch that removes what Reloader
// has left.
func (s *scene) restart() {
	s.Helper()
	wantRestarts := map[string]int{}
	for _, c := range changes {
		before := s.templates()
		made := s.make(c)
		want := restarted(c, byConfigdep)
		s.views("workloads are restarted when "+c.what, func(w *workload, o *v1alpha1.ConfigDependency) error {
			err := errors.Join(at(c, made, o), calm(w, o))
			if !slices.Contains(want, w.id()) {
				return err
			}
			if last := o.Status.LastReload; last == nil || last.Trigger != c.id() {
				err = errors.Join(err, fmt.Errorf("last reload = %+v", last))
			}
			return errors.Join(err, is(o, v1alpha1.StateInSync, policy.ReasonContentApplied))
		})
		after := s.templates()
		s.equal("restarted when "+c.what, want, changed(before, after))
		for _, id := range want {
			template := after[id]
			if left := variables(&template); len(left) > 0 {
				s.Errorf("%s: variables of Reloader are left: %v", id, left)
			}
			var from struct{ Type, Name, Namespace string }
			text := template.Annotations["reloader.stakater.com/last-reloaded-from"]
			if err := json.Unmarshal([]byte(text), &from); err != nil || from.Type != strings.ToUpper(c.kind) || from.Name != c.name || from.Namespace != c.namespace {
				s.Errorf("%s: restarted because of %q (%v), want %s", id, text, err, c.id())
			}
		}
		for _, w := range workloads {
			if slices.Contains(want, w.id()) {
				wantRestarts[strings.ToLower(w.kind)+"s "+w.namespace+"/"+w.name]++
			}
		}
	}
	await.Until(s.T, "all restarts are logged", func(context.Context) error {
		_, restarts := writes(s.T)
		if diff := cmp.Diff(wantRestarts, restarts); diff != "" {
			return fmt.Errorf("patches of templates (-want +got):\n%s", diff)
		}
		return nil
	})
}

// variables returns the variables of Reloader.
func variables(template *corev1.PodTemplateSpec) (names []string) {
	for _, c := range append(slices.Clone(template.Spec.InitContainers), template.Spec.Containers...) {
		for _, v := range c.Env {
			if strings.HasPrefix(v.Name, "STAKATER_") {
				names = append(names, v.Name)
			}
		}
	}
	return names
}

// goBack starts Reloader, and stops the server. Nothing is restarted. A change restarts what Reloader restarts, once.
func (s *scene) goBack() {
	s.Helper()
	before := s.templates()
	s.startReloader()
	if err := s.server.Replicas[0].Terminate(); err != nil {
		s.Fatal(err)
	}
	s.server = nil
	s.equal("restarted when Reloader takes over", nil, changed(before, s.templates()))
	for _, c := range []*change{counted, annotated, returned, bankDB} {
		before := s.templates()
		want := restarted(c, byReloader)
		s.equal("restarted by Reloader when "+c.what, want, s.reloads(c, s.make(c)))
		s.equal("templates changed when "+c.what, want, changed(before, s.templates()))
	}
	s.stopReloader()
}
