// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/test/install"
)

// calm waits until nothing is left to do, and lets the oracle judge. Views show whether every server has seen
// everything: they have the versions of all sources that a template reads, which are written once more, because
// views do not show the version of a source that only a glob matches; and finally a label that the owner sets.
func (s *stage) calm(ctx context.Context, label string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not calm within %v", limit))
	defer cancel()
	s.logf("waiting for calm")
	for _, o := range s.owners {
		for _, m := range o.workloads {
			m.settle, m.minInterval = "", "" // which would grow with each restart
			if err := o.apply(ctx, m); err != nil {
				return err
			}
		}
	}
	if err := s.awaitCalm(ctx, false); err != nil {
		return err
	}
	for _, o := range s.owners {
		if err := o.touch(ctx, label); err != nil {
			return err
		}
		for _, m := range o.workloads {
			m.label = label
			if err := o.apply(ctx, m); err != nil {
				return err
			}
		}
	}
	if err := s.awaitCalm(ctx, true); err != nil {
		return err
	}
	if err := s.judge(ctx, func() { s.oracle.each((*workload).unrestarted); s.oracle.calm() }); err != nil {
		return err
	}
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	if len(s.oracle.violations) > 0 {
		return violations(s.oracle.violations)
	}
	return nil
}

func (s *stage) awaitCalm(ctx context.Context, exact bool) error {
	for i, r := range server.Replicas {
		if err := s.awaitViews(ctx, i, exact); err != nil {
			return fmt.Errorf("%s: %w", r.Name(), err)
		}
	}
	return nil
}

// awaitViews waits until the pods run with the current content, and a replica shows that; if exact, in a list that was judged as a whole.
func (s *stage) awaitViews(ctx context.Context, replica int, exact bool) error {
	client, err := versioned.NewForConfig(directly(server.Replicas[replica]))
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		views, judged, err := s.list(ctx, client)
		if err != nil {
			if ctx.Err() == nil {
				last = err
			}
			return false, nil
		}
		last = s.compare(views)
		if violated, found := errors.AsType[violations](last); found {
			return false, violated
		}
		return last == nil && (judged || !exact), nil
	})
	if err != nil && ctx.Err() != nil {
		s.logPods(context.WithoutCancel(ctx), client)
		return fmt.Errorf("%w: %w", context.Cause(ctx), last)
	}
	return err
}

// logPods logs what a replica says of the pods of workloads that are not as expected.
func (s *stage) logPods(ctx context.Context, client versioned.Interface) {
	s.oracle.each(func(w *workload) {
		if w.late {
			path := fmt.Sprintf("/apis/configdep.io/v1alpha1/namespaces/%s/configdependencies/%s.%s", w.cell.namespace, strings.ToLower(w.kind), w.name)
			view, err := client.ConfigdepV1alpha1().RESTClient().Get().AbsPath(path).DoRaw(ctx)
			pods, podsErr := client.ConfigdepV1alpha1().RESTClient().Get().AbsPath(path, "pods").DoRaw(ctx)
			s.logf("%s\n%s %v", view, pods, errors.Join(err, podsErr))
		}
	})
}

// directly returns the configuration of a client of one replica with all permissions.
func directly(r *install.Replica) *rest.Config {
	config := r.AdminConfig()
	config.Timeout = 10 * time.Second
	return config
}

// compare compares the views of a replica with the expected state.
func (s *stage) compare(views map[string]*v1alpha1.ConfigDependency) error {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	if len(s.oracle.violations) > 0 {
		return violations(s.oracle.violations)
	}
	var err error
	s.oracle.each(func(w *workload) {
		name := w.cell.namespace + "/" + strings.ToLower(w.kind) + "." + w.name
		one := w.settled()
		if one == nil {
			one = w.shown(views[name])
		}
		if w.late = one != nil; w.late {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, one))
		}
	})
	return err
}

// shown returns an error unless a view shows the current state of the workload.
func (w *workload) shown(view *v1alpha1.ConfigDependency) error {
	if view == nil {
		return errors.New("the view does not exist")
	}
	if label := w.state.labels[calmLabel]; view.Labels[calmLabel] != label {
		return fmt.Errorf("label = %q, want %q", view.Labels[calmLabel], label)
	}
	shown := map[string]string{}
	for _, source := range view.Status.Sources {
		shown[source.Name] = source.ResourceVersion
	}
	for _, u := range variants[w.variant] {
		version := ""
		if v := w.cell.versions[u.source]; v != 0 {
			version = strconv.FormatInt(v, 10)
		}
		if got, found := shown[u.source]; !found || got != version {
			return fmt.Errorf("version of %s = %q, want %q", u.source, got, version)
		}
	}
	if w.lasts(view) {
		return nil
	}
	if want := w.want(); !slices.Contains(want, view.Status.State) {
		return fmt.Errorf("state = %s (%s: %s), want one of %v", view.Status.State, view.Status.Reason, view.Status.Message, want)
	}
	return nil
}

// lasts reports whether a replica whose watches were disturbed keeps showing a restart in doubt as due, which only a leader begins.
func (w *workload) lasts(view *v1alpha1.ConfigDependency) bool {
	pods := &view.Status.Pods
	if view.Status.State != v1alpha1.StatePending || pods.Stale > 0 || pods.Unknown == 0 || w.cell.oracle.undisturbed && !w.isStormy() {
		w.doubted = time.Time{}
		return false
	}
	if w.doubted.IsZero() {
		w.doubted = time.Now()
	}
	return time.Since(w.doubted) > limit/3
}

// want returns the states that servers may show when everything is calm. Whether Stale and Unknown are right is judged with each list.
func (w *workload) want() []v1alpha1.State {
	switch {
	case !w.rules().managed() && w.state.annotations["configdep.io/sources"] != "": // which may have no effect, so that it is taken for a mistake
		return []v1alpha1.State{v1alpha1.StateInSync, v1alpha1.StateStale, v1alpha1.StateUnknown, v1alpha1.StateBlocked}
	case !w.rules().managed():
		return []v1alpha1.State{v1alpha1.StateInSync, v1alpha1.StateStale, v1alpha1.StateUnknown}
	case !w.starts:
		return []v1alpha1.State{v1alpha1.StateBlocked}
	case w.isUnclear(): // servers do not know what it has read, and one that has just begun would restart it if it led
		return []v1alpha1.State{v1alpha1.StateInSync, v1alpha1.StateStale, v1alpha1.StateUnknown, v1alpha1.StatePending}
	case w.adopted(), !w.allTrigger():
		return []v1alpha1.State{v1alpha1.StateInSync, v1alpha1.StateStale, v1alpha1.StateUnknown}
	case w.state.template.Annotations[hashAnnotation] != w.state.annotations[hashAnnotation], w.recurs, w.isMissed(), // times alone tell, within margins
		!w.cell.oracle.undisturbed, w.isStormy(): // a server may have read nothing while a pod started, and the source has been written since
		return []v1alpha1.State{v1alpha1.StateInSync, v1alpha1.StateUnknown}
	default:
		return []v1alpha1.State{v1alpha1.StateInSync}
	}
}

// isStormy reports whether a pod was created while something disturbed servers.
func (w *workload) isStormy() bool {
	for _, p := range w.pods {
		if p.stormy {
			return true
		}
	}
	return false
}

// isUnclear reports whether kwok started a pod that a kubelet would not have started.
func (w *workload) isUnclear() bool {
	for _, p := range w.pods {
		for _, r := range p.read {
			if r.unclear {
				return true
			}
		}
	}
	return false
}

// isMissed reports whether a pod was created before the last restart by evictions, which did not know it yet: if it started at about the time of the
// change, that is not known.
func (w *workload) isMissed() bool {
	for _, p := range w.pods {
		if p.born < w.evicted {
			return true
		}
	}
	return false
}

// allTrigger reports whether each source that counts restarts the workload.
func (w *workload) allTrigger() bool {
	return !slices.ContainsFunc(sourceNames, func(name string) bool {
		return w.rules().counts(w.variant, name) && !w.rules().triggers(w.variant, name)
	})
}
