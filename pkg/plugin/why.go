// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/record"
)

func newWhy(p *plugin) *cobra.Command {
	c := &cobra.Command{
		Use:   "why WORKLOAD",
		Short: "Explains the state of a workload, and its last restarts",
		Long: `Explains the state of a workload: what its pods run with, how that is known, and what
happens next. It lists the last rollouts of a Deployment, StatefulSet or DaemonSet, and who
began them, as far as the user may list ReplicaSets, ControllerRevisions and Events.`,
		Example: `  # Why did it restart last night?
  kubectl configdep why deploy/web`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: once(p.completeWorkloads),
		RunE:              func(c *cobra.Command, args []string) error { return p.why(c.Context(), args[0]) },
	}
	return c
}

func (p *plugin) why(ctx context.Context, workload string) error {
	o, err := p.get(ctx, workload)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.Out, "%s is %s (%s). %s\n", safe(shown(o)), p.state(o.Status.State), o.Status.Reason, safe(o.Status.Message))
	const off = "Automatic restarts are off."
	switch {
	case o.Spec.Reload.Mode == v1alpha1.ReloadOff && !strings.Contains(o.Status.Message, off):
		fmt.Fprintln(p.Out, off)
	case o.Spec.Reload.Mode != v1alpha1.ReloadOff:
		fmt.Fprintf(p.Out, "Automatic restarts: mode %s, strategy %s%s.\n", o.Spec.Reload.Mode, o.Spec.Reload.Strategy, declared(o))
	}
	if err := p.evidence(ctx, o); err != nil {
		return err
	}
	return p.history(ctx, o)
}

func declared(o *v1alpha1.ConfigDependency) string {
	if by := o.Spec.Reload.DeclaredBy; by != "" {
		return ", by " + safe(by)
	}
	return ""
}

// evidence prints how it is known what the pods run with.
func (p *plugin) evidence(ctx context.Context, o *v1alpha1.ConfigDependency) error {
	pods, err := p.pods(ctx, o.Name)
	switch {
	case apierrors.IsForbidden(err):
		fmt.Fprintln(p.ErrOut, "\nYou may not get configdependencies/pods, so the evidence of each pod is not shown.")
		return nil
	case err != nil:
		return err
	case len(pods.Pods) == 0:
		return nil
	}
	fmt.Fprintln(p.Out)
	return p.podTable(pods)
}

// rollout is a change of the pod template.
type rollout struct {
	at          metav1.Time
	revision    int64
	annotations map[string]string // of the template
}

// mostRollouts limits the rollouts that are shown.
const mostRollouts = 5

// history prints the last rollouts, and what configdep reported.
func (p *plugin) history(ctx context.Context, o *v1alpha1.ConfigDependency) error {
	kube, err := p.kube()
	if err != nil {
		return err
	}
	if last := o.Status.LastReload; last != nil {
		fmt.Fprintf(p.Out, "\nconfigdep last restarted it %s ago%s.\n", ago(&last.Time), because(last))
	}
	rollouts, err := rolloutsOf(ctx, kube, o)
	switch {
	case apierrors.IsForbidden(err):
		fmt.Fprintln(p.ErrOut, "\nYou may not list what tells of earlier rollouts:", err)
	case err != nil:
		return err
	case len(rollouts) > 0:
		fmt.Fprintln(p.Out)
		t := p.table("ROLLOUT", "AGE", "BEGUN BY")
		for i := 0; i < len(rollouts) && i < mostRollouts; i++ {
			by := "the creation, or an earlier rollout that is no longer known"
			if i+1 < len(rollouts) {
				by = begunBy(rollouts[i+1].annotations, rollouts[i].annotations)
			}
			t.row(o.Namespace, strconv.FormatInt(rollouts[i].revision, 10), ago(&rollouts[i].at), by)
		}
		if err := t.end(); err != nil {
			return err
		}
	}
	return p.events(ctx, kube, o)
}

// because says why configdep restarted a workload.
func because(last *v1alpha1.LastReload) (out string) {
	if last.Trigger != "" && last.Trigger != record.TriggerRequest {
		out = ", because of " + safe(last.Trigger)
	}
	if last.RequestedBy != "" {
		out += ", as " + safe(last.RequestedBy) + " requested"
	}
	if last.Reason != "" {
		out += ": " + strconv.Quote(last.Reason)
	}
	return out
}

// rolloutsOf returns the rollouts that the cluster remembers, the last one first.
func rolloutsOf(ctx context.Context, kube kubernetes.Interface, o *v1alpha1.ConfigDependency) (out []rollout, err error) {
	ref := o.Spec.WorkloadRef
	switch ref.Kind {
	case "Deployment":
		list, err := kube.AppsV1().ReplicaSets(o.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if rs := &list.Items[i]; ownedBy(rs.OwnerReferences, ref.UID) {
				revision, _ := strconv.ParseInt(rs.Annotations["deployment.kubernetes.io/revision"], 10, 64)
				out = append(out, rollout{rs.CreationTimestamp, revision, rs.Spec.Template.Annotations})
			}
		}
	case "StatefulSet", "DaemonSet":
		list, err := kube.AppsV1().ControllerRevisions(o.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if r := &list.Items[i]; ownedBy(r.OwnerReferences, ref.UID) {
				out = append(out, rollout{r.CreationTimestamp, r.Revision, annotationsIn(r)})
			}
		}
	}
	slices.SortFunc(out, func(a, b rollout) int { return cmp.Compare(b.revision, a.revision) })
	return out, nil
}

func ownedBy(owners []metav1.OwnerReference, uid types.UID) bool {
	return slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return o.UID == uid })
}

// annotationsIn returns the annotations of the pod template in a revision.
func annotationsIn(r *appsv1.ControllerRevision) map[string]string {
	var of struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	_ = json.Unmarshal(r.Data.Raw, &of) // what cannot be read has no annotations
	return of.Spec.Template.Annotations
}

// begunBy says who changed a pod template, given its annotations before and after.
func begunBy(before, after map[string]string) string {
	differ := func(key string) bool { return before[key] != after[key] }
	switch {
	case differ(record.ReloadedAtAnnotation) && after[record.ReloadedAtAnnotation] != "":
		return "configdep, by a Reload"
	case differ(record.ConfigHashAnnotation) && after[record.ConfigHashAnnotation] != "":
		return "configdep, because content changed"
	case differ("kubectl.kubernetes.io/restartedAt"):
		return "kubectl rollout restart"
	case maps.Equal(before, after):
		return "a change of the pod template"
	default:
		return "a change of the pod template's annotations"
	}
}

// events prints what configdep reported about a workload.
func (p *plugin) events(ctx context.Context, kube kubernetes.Interface, o *v1alpha1.ConfigDependency) error {
	selector := fields.Set{"involvedObject.uid": string(o.Spec.WorkloadRef.UID), "source": "configdep"}.AsSelector()
	list, err := kube.CoreV1().Events(o.Namespace).List(ctx, metav1.ListOptions{FieldSelector: selector.String()})
	switch {
	case apierrors.IsForbidden(err):
		fmt.Fprintln(p.ErrOut, "\nYou may not list Events, so those about it are not shown.")
		return nil
	case err != nil || len(list.Items) == 0:
		return err
	}
	slices.SortFunc(list.Items, func(a, b corev1.Event) int { return lastSeen(&b).Compare(lastSeen(&a)) })
	fmt.Fprintln(p.Out)
	t := p.table("EVENT", "AGE", "MESSAGE")
	for i := 0; i < len(list.Items) && i < mostRollouts; i++ {
		e := &list.Items[i]
		at := metav1.NewTime(lastSeen(e))
		t.row(o.Namespace, e.Reason, ago(&at), e.Message)
	}
	return t.end()
}

func lastSeen(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	default:
		return e.EventTime.Time
	}
}
