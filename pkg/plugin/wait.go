// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

func newWait(p *plugin) *cobra.Command {
	var uses, after string
	timeout := 5 * time.Minute
	c := &cobra.Command{
		Use:   "wait [WORKLOAD...]",
		Short: "Waits until all pods run with the current content",
		Long: `Waits until all pods of the workloads run with the content as it is when the command
begins: of those that are named, that use a source, or of all in the namespace.

It is exact: the server answers only when it has read everything that was written
before. The command ends with code 2 as soon as a workload will not get there by itself,
and says why: it is Stale, Blocked, Failed or Unknown. Pods that are being deleted do not
count; who --pods lists them.`,
		Example: `  # In a pipeline, after a Secret was changed
  kubectl configdep wait --after secret/db --timeout 10m

  # Until a release is complete
  kubectl configdep wait deploy/web sts/db`,
		ValidArgsFunction: p.completeWorkloads,
		RunE: func(c *cobra.Command, args []string) error {
			if timeout <= 0 {
				return errNoTimeout
			}
			ctx, cancel := context.WithTimeout(c.Context(), timeout)
			defer cancel()
			w := waiter{plugin: p}
			if err := w.choose(ctx, args, uses, after); err != nil {
				return err
			}
			return w.wait(ctx, timeout)
		},
	}
	c.Flags().StringVar(&uses, "uses", "", "The workloads that use this source, such as secret/db.")
	c.Flags().StringVar(&after, "after", "", "As --uses, after the last write of this source, which the user must be allowed to get.")
	p.completes(c, "uses", p.completeSources)
	p.completes(c, "after", p.completeSources)
	c.Flags().DurationVar(&timeout, "timeout", timeout, "How long to wait.")
	return p.lists(c)
}

var errNoTimeout = errors.New("--timeout must be more than 0, such as 5m")

// waiter waits for workloads.
type waiter struct {
	*plugin

	namespace string
	keys      []string // the only ones, as NAMESPACE/NAME; empty: all that are selected
	uses      *sourceName
	revision  string                                // at least that is shown; empty: any
	told      map[string]string                     // what was printed last of each
	seen      map[string]*v1alpha1.ConfigDependency // what was shown last
	hopeless  map[string]bool                       // as of then
	late      error                                 // why nothing has been seen yet
}

// choose sets for what the waiter waits.
func (w *waiter) choose(ctx context.Context, workloads []string, uses, after string) (err error) {
	if w.namespace, err = w.plugin.namespace(); err != nil {
		return err
	}
	if uses != "" && after != "" {
		return errors.New("--after selects the workloads that use its source: leave out --uses")
	}
	for _, each := range workloads {
		name, err := parseWorkload(each)
		if err != nil {
			return err
		}
		w.keys = append(w.keys, w.namespace+"/"+name)
	}
	if named := uses + after; named != "" {
		source, err := parseSource(named)
		if err != nil {
			return err
		}
		w.uses = &source
	}
	if len(w.keys) > 0 && (w.uses != nil || w.selector != "" || w.all) {
		return errors.New("name workloads, or select them, but not both")
	}
	var version string // which must be there
	if after != "" {
		if version, err = w.versionOf(ctx, *w.uses); err != nil {
			return err
		}
	}
	w.revision, err = w.current(ctx)
	if w.revision == "" {
		w.revision = version
	}
	if err == nil && w.revision == "" {
		fmt.Fprintln(w.ErrOut, "You may list neither ConfigMaps nor Pods nor Deployments, so what was written in the last second may not be taken into account.")
	}
	return err
}

// resources are what the API of Kubernetes calls sources.
var resources = map[v1alpha1.SourceKind]schema.GroupVersionResource{
	v1alpha1.SourceConfigMap: {Version: "v1", Resource: "configmaps"},
	v1alpha1.SourceSecret:    {Version: "v1", Resource: "secrets"},
}

// versionOf returns the version of a source in the namespace.
func (w *waiter) versionOf(ctx context.Context, s sourceName) (string, error) {
	resource, found := resources[s.kind]
	switch {
	case !found:
		return "", fmt.Errorf("--after needs a ConfigMap or a Secret: the content of %s is in a store outside of the cluster", s)
	case w.all:
		return "", errors.New("--after is about one namespace: leave out --all-namespaces")
	}
	client, err := w.metadata()
	if err != nil {
		return "", err
	}
	o, err := client.Resource(resource).Namespace(w.namespace).Get(ctx, s.name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return o.ResourceVersion, nil
}

// current returns the current version of the cluster, from a list of anything that the user may list; empty: of nothing.
func (w *waiter) current(ctx context.Context) (string, error) {
	client, err := w.metadata()
	if err != nil {
		return "", err
	}
	for _, resource := range []schema.GroupVersionResource{{Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "pods"}, {Group: "apps", Version: "v1", Resource: "deployments"}} {
		list, err := client.Resource(resource).Namespace(w.namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil {
			return list.ResourceVersion, nil
		}
		if !apierrors.IsForbidden(err) {
			return "", err
		}
	}
	return "", nil
}

func (p *plugin) metadata() (metadata.Interface, error) {
	config, err := p.config.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	return metadata.NewForConfig(config)
}

// wait waits until all are ready.
func (w *waiter) wait(ctx context.Context, timeout time.Duration) error {
	w.told = map[string]string{}
	err := wait.PollUntilContextCancel(ctx, time.Second, true, w.check)
	switch {
	case err == nil || ctx.Err() == nil:
		return err
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded) && w.seen == nil && w.late != nil:
		return &exit{exitTimeout, fmt.Errorf("it is not known which workloads run with the current content after %v: %w", timeout, explain(w.late))}
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return &exit{exitTimeout, fmt.Errorf("not all workloads run with the current content after %v:\n%s", timeout, w.rest())}
	default:
		return &exit{exitInterrupted, fmt.Errorf("interrupted; restarts that have begun continue:\n%s", w.rest())}
	}
}

// check reports whether all are ready.
func (w *waiter) check(ctx context.Context) (done bool, err error) {
	client, err := w.configdep()
	if err != nil {
		return false, err
	}
	o := metav1.ListOptions{LabelSelector: w.selector, ResourceVersion: w.revision}
	if w.uses != nil {
		o.FieldSelector = fields.OneTermEqualSelector("source", w.uses.String()).String()
	}
	list, err := client.ConfigDependencies(w.namespace).List(ctx, o)
	switch {
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), apierrors.IsTooManyRequests(err), apierrors.IsResourceExpired(err), (apierrors.IsServiceUnavailable(err) || utilnet.IsConnectionRefused(err)) && w.seen != nil:
		w.late = err
		return false, nil // it has yet to read that version, or cannot compare it yet with its own, or a replica is being replaced
	case err != nil:
		return false, explain(err)
	}
	w.seen = map[string]*v1alpha1.ConfigDependency{}
	for i := range list.Items {
		o := &list.Items[i]
		if key := o.Namespace + "/" + o.Name; len(w.keys) == 0 || slices.Contains(w.keys, key) {
			w.seen[key] = o
		}
	}
	for _, key := range w.keys {
		if w.seen[key] == nil {
			return false, fmt.Errorf("there is no workload %s", key)
		}
	}
	if len(w.seen) == 0 {
		return false, errors.New("no workload is selected")
	}
	done = true
	var hopeless []string
	before := w.hopeless
	w.hopeless = map[string]bool{}
	for _, o := range w.inOrder() {
		w.tell(o)
		done = done && isReady(o)
		key := o.Namespace + "/" + o.Name
		if w.hopeless[key] = isHopeless(o); w.hopeless[key] && before[key] { // twice, as what is seen of pods may lag behind what is seen of their workload
			hopeless = append(hopeless, w.stateOf(o))
		}
	}
	if len(hopeless) > 0 {
		return false, &exit{exitFound, fmt.Errorf("this will not get there by itself:\n%s", strings.Join(hopeless, "\n"))}
	}
	return done, nil
}

// isReady reports whether all pods run with the current content, and none is being replaced.
func isReady(o *v1alpha1.ConfigDependency) bool {
	return meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionInSync) && !isRollingOut(o)
}

func isRollingOut(o *v1alpha1.ConfigDependency) bool {
	return meta.IsStatusConditionFalse(o.Status.Conditions, v1alpha1.ConditionRolloutComplete)
}

// isHopeless reports whether a workload that is not ready will not be so by itself. One that is blocked may have been reloaded.
func isHopeless(o *v1alpha1.ConfigDependency) bool {
	switch s := &o.Status; {
	case isReady(o):
		return false
	case s.State == v1alpha1.StateUnknown:
		return !isRollingOut(o) && s.Pods.NotStarted == 0
	case s.State == v1alpha1.StateBlocked:
		return !isRollingOut(o)
	default:
		recorded := s.RecordedHash != "" || o.Spec.Reload.Mode == v1alpha1.ReloadOff // else it has just opted in
		return s.State == v1alpha1.StateStale && recorded || s.State == v1alpha1.StateFailed
	}
}

func (w *waiter) inOrder() (out []*v1alpha1.ConfigDependency) {
	for _, o := range w.seen {
		out = append(out, o)
	}
	inOrder(out)
	return out
}

// tell prints what a workload does, if that is news.
func (w *waiter) tell(o *v1alpha1.ConfigDependency) {
	line := fmt.Sprintf("%s: %s (%s), %d of %d pods are current", w.name(o), o.Status.State, safe(o.Status.Reason), o.Status.Pods.Current, o.Status.Pods.Total)
	if key := o.Namespace + "/" + o.Name; w.told[key] != line {
		w.told[key] = line
		fmt.Fprintln(w.Out, line)
	}
}

// stateOf says in a line how a workload is.
func (w *waiter) stateOf(o *v1alpha1.ConfigDependency) string {
	return fmt.Sprintf("%s is %s (%s): %s", w.name(o), o.Status.State, o.Status.Reason, safe(o.Status.Message))
}

// name returns the name of a workload, with its namespace if there are several.
func (p *plugin) name(o *v1alpha1.ConfigDependency) string {
	if p.all {
		return o.Namespace + " " + shown(o)
	}
	return shown(o)
}

// rest says which are not ready.
func (w *waiter) rest() string {
	var lines []string
	for _, o := range w.inOrder() {
		if !isReady(o) {
			lines = append(lines, w.stateOf(o))
		}
	}
	return strings.Join(lines, "\n")
}
