// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/standin"
)

// A scene is the workloads, with the server or Reloader or both.
type scene struct {
	*testing.T

	server *install.Installation // nil: it does not run any longer
	// Reloader runs once in each namespace, with a strategy each. It does nothing about a change until it is told to.
	reloaders map[string]*standin.Reloader
	proceed   map[string]chan struct{}
	// due are the workloads that the server would restart, as far as Reloader has not.
	due map[string]bool
	// values counts the changes.
	values int
}

var strategies = map[string]standin.Strategy{"shop": standin.EnvVars, "bank": standin.Annotations}

// startReloader starts Reloader in both namespaces.
func (s *scene) startReloader() {
	s.Helper()
	s.reloaders, s.proceed = map[string]*standin.Reloader{}, map[string]chan struct{}{}
	for namespace, strategy := range strategies {
		proceed := make(chan struct{})
		r, err := standin.Start(context.WithoutCancel(s.Context()), standin.Options{Client: client, Namespace: namespace, Strategy: strategy, Before: func(ctx context.Context) {
			select {
			case <-proceed:
			case <-ctx.Done():
			}
		}})
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { _ = r.Stop() })
		s.reloaders[namespace], s.proceed[namespace] = r, proceed
	}
}

func (s *scene) stopReloader() {
	s.Helper()
	for _, r := range s.reloaders {
		if err := r.Stop(); err != nil {
			s.Error(err)
		}
	}
	s.reloaders = nil
}

// runServer starts the server again with other arguments.
func (s *scene) runServer(args ...string) {
	s.Helper()
	replica := s.server.Replicas[0]
	if err := replica.Terminate(); err != nil {
		s.Fatal(err)
	}
	replica.SetArgs(append([]string{"--shutdown-delay-duration=0s"}, args...)...)
	if err := errors.Join(replica.Start(), replica.AwaitReady(s.Context())); err != nil {
		s.Fatal(err)
	}
}

// make changes a source, and returns it.
func (s *scene) make(c *change) metav1.Object {
	s.Helper()
	s.values++
	value := strconv.Itoa(s.values)
	ctx, configMaps := s.Context(), client.CoreV1().ConfigMaps(c.namespace)
	patch := []byte(strings.ReplaceAll(c.patch, "VALUE", value))
	var made metav1.Object
	var err error
	switch {
	case c.returns:
		if err := configMaps.Delete(ctx, c.name, metav1.DeleteOptions{}); err != nil {
			s.Fatal(err)
		}
		if s.server != nil {
			s.views("the source is shown as absent", func(w *workload, o *v1alpha1.ConfigDependency) error {
				for i := range o.Status.Sources {
					if x := &o.Status.Sources[i]; w.namespace == c.namespace && string(x.Kind)+"/"+x.Name == c.id() && *x.Present {
						return errors.New("it is present")
					}
				}
				return nil
			})
		}
		made, err = configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: c.name}, Data: map[string]string{"level": value}}, metav1.CreateOptions{})
	case c.kind == "Secret":
		made, err = client.CoreV1().Secrets(c.namespace).Patch(ctx, c.name, types.MergePatchType, patch, metav1.PatchOptions{})
	default:
		made, err = configMaps.Patch(ctx, c.name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		s.Fatal(err)
	}
	return made
}

// reloads lets Reloader handle a change, and returns which workloads it has restarted.
func (s *scene) reloads(c *change, made metav1.Object) (restarted []string) {
	s.Helper()
	r := s.reloaders[c.namespace]
	before := len(r.Restarts())
	if !c.metadata && !c.returns {
		select {
		case s.proceed[c.namespace] <- struct{}{}:
		case <-time.After(await.Limit):
			s.Fatalf("Reloader has not seen that %s", c.what)
		}
	}
	await.Until(s.T, "Reloader has handled that "+c.what, func(context.Context) error {
		if at := r.Handled(made); at != made.GetResourceVersion() {
			return fmt.Errorf("the last version is %q, want %s", at, made.GetResourceVersion())
		}
		return nil
	})
	for _, x := range r.Restarts()[before:] {
		restarted = append(restarted, x.Kind+" "+x.Namespace+"/"+x.Name)
	}
	slices.Sort(restarted)
	return restarted
}

// restarted returns the workloads with a verdict about a change, in order.
func restarted(c *change, by func(verdict) bool) (ids []string) {
	for _, w := range workloads {
		if v, found := w.because[c]; found && by(v) {
			ids = append(ids, w.id())
		}
	}
	slices.Sort(ids)
	return ids
}

func byReloader(v verdict) bool  { return v.reloader }
func byConfigdep(v verdict) bool { return v.configdep }

// equal compares lists of workloads.
func (s *scene) equal(what string, want, got []string) {
	s.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// views waits until all workloads are shown in a way that passes a check, at the same time.
func (s *scene) views(what string, check func(*workload, *v1alpha1.ConfigDependency) error) {
	s.Helper()
	await.Until(s.T, what, func(ctx context.Context) error {
		list, err := api.ConfigdepV1alpha1().ConfigDependencies("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, w := range workloads {
			i := slices.IndexFunc(list.Items, func(o v1alpha1.ConfigDependency) bool { return o.Namespace == w.namespace && o.Name == w.view() })
			if i < 0 {
				return fmt.Errorf("%s is not shown", w.id())
			}
			o := &list.Items[i]
			if failed := check(w, o); failed != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w; %s, %s: %s", w.id(), failed, o.Status.State, o.Status.Reason, o.Status.Message))
			}
		}
		return err
	})
}

// at checks that a view that shows a source shows it as it was made.
func at(c *change, made metav1.Object, o *v1alpha1.ConfigDependency) error {
	for i := range o.Status.Sources {
		if x := &o.Status.Sources[i]; o.Namespace == c.namespace && string(x.Kind)+"/"+x.Name == c.id() && x.ResourceVersion != made.GetResourceVersion() {
			return fmt.Errorf("version of %s = %s, want %s", c.id(), x.ResourceVersion, made.GetResourceVersion())
		}
	}
	return nil
}

// is checks the state of a workload.
func is(o *v1alpha1.ConfigDependency, state v1alpha1.State, reason string) error {
	if o.Status.State != state || o.Status.Reason != reason {
		return fmt.Errorf("want %s, %s", state, reason)
	}
	return nil
}

// calm checks that nothing is about to happen to a workload, and no rollout is under way but that of the Deployment that its user
// has paused.
func calm(w *workload, o *v1alpha1.ConfigDependency) error {
	switch o.Status.State {
	case v1alpha1.StateInSync, v1alpha1.StateBlocked, v1alpha1.StateUnmanaged:
		return nil
	case v1alpha1.StateRollingOut:
		if w.name == paused && o.Status.Reason == policy.ReasonPaused {
			return nil
		}
	}
	return errors.New("not calm")
}

// templates returns all pod templates.
func (s *scene) templates() map[string]corev1.PodTemplateSpec {
	s.Helper()
	found, err := templates(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	if len(found) != len(workloads) {
		s.Fatalf("%d workloads, want %d", len(found), len(workloads))
	}
	return found
}

// changed returns the workloads whose pod templates differ.
func changed(before, after map[string]corev1.PodTemplateSpec) (ids []string) {
	for _, id := range slices.Sorted(maps.Keys(after)) {
		if !reflect.DeepEqual(before[id], after[id]) {
			ids = append(ids, id)
		}
	}
	return ids
}

var counter = regexp.MustCompile(`(?m)^configdep_rollouts_total\{kind="(\w+)",namespace="(\w+)",result="(\w+)",trigger="\w+"\} (\d+)$`)

// counts returns how many restarts the server counts, by their result and the kind and the namespace of the workload.
func (s *scene) counts(ctx context.Context, result string) (map[string]int, error) {
	direct, err := kubernetes.NewForConfig(s.server.Replicas[0].AdminConfig())
	if err != nil {
		return nil, err
	}
	text, err := direct.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]int{}
	for _, m := range counter.FindAllStringSubmatch(string(text), -1) {
		if m[3] == result {
			n, err := strconv.Atoi(m[4])
			if err != nil {
				return nil, err
			}
			found[m[1]+" "+m[2]] += n
		}
	}
	return found, nil
}

// documented runs a command of docs/migration.md, and returns its output.
func (s *scene) documented(ctx context.Context, command string) (string, error) {
	s.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "migration.md"))
	if err != nil {
		s.Fatal(err)
	}
	for line := range strings.Lines(command) {
		if !strings.Contains(strings.ReplaceAll(string(text), "\n   ", "\n"), "\n"+strings.TrimSuffix(line, "\n")) {
			s.Fatalf("docs/migration.md has no line %q", line)
		}
	}
	cmd := cluster.Command(ctx, "bash", "-c", command)
	cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(cluster.KubectlPath())+string(os.PathListSeparator)+os.Getenv("PATH"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if stderr.Len() > 0 {
		return string(out), fmt.Errorf("%s: %s (%w)", command, stderr.String(), err)
	}
	return string(out), nil // diff and grep fail if there is a difference, or nothing
}

// differences returns the rows of the table of intended differences in docs/migration.md, by their first column.
func differences(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "migration.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n## Intended differences\n")
	if !found {
		t.Fatal("docs/migration.md has no intended differences")
	}
	rows := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(table, -1) {
		rows[m[1]] = true
	}
	return rows
}

// reasonOf returns what configdep shows for a workload that it would not restart.
func reasonOf(v verdict) (v1alpha1.State, string) {
	if v.state == "" {
		return v1alpha1.StateInSync, policy.ReasonContentApplied
	}
	return v1alpha1.State(v.state), v.reason
}
