package configdependency

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// uidSpace is the name space of the UIDs of ConfigDependencies, which are UUIDs of
// version 5 (RFC 9562, section 5.5) of the UIDs of their workloads.
var uidSpace = uuid.MustParse("6d6e0f0e-8a1c-5c53-9b57-0f6a3c9d1f2b")

// UID returns the UID of the ConfigDependency of a workload.
func UID(workload types.UID) types.UID {
	return types.UID(uuid.NewSHA1(uidSpace, []byte(workload)).String())
}

// Render returns the ConfigDependency of a workload. Nobody may change it.
func Render(g *dependency.Graph, digester *dependency.Digester, w *dependency.Workload, revision uint64) *v1alpha1.ConfigDependency {
	ref := v1alpha1.WorkloadReference{
		APIVersion: w.Kind.GroupVersion().String(),
		Kind:       string(w.Kind),
		Name:       w.Name,
		UID:        w.UID,
	}
	sources := g.Sources(w.Namespace)
	out := &v1alpha1.ConfigDependency{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         w.Namespace,
			Name:              w.ViewName(),
			UID:               UID(w.UID),
			ResourceVersion:   strconv.FormatUint(revision, 10),
			CreationTimestamp: w.Created,
			Labels:            w.Labels,
			OwnerReferences:   []metav1.OwnerReference{{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: ref.UID}},
		},
		Spec: v1alpha1.ConfigDependencySpec{
			WorkloadRef: ref,
			Reload:      v1alpha1.ReloadPolicy{Mode: v1alpha1.ReloadOff, DeclaredBy: "Default"},
			Sources:     make([]v1alpha1.Source, len(w.References)),
		},
		Status: v1alpha1.ConfigDependencyStatus{
			State:       v1alpha1.StateUnmanaged,
			Reason:      "NotOptedIn",
			Message:     unmanagedMessage(w),
			ConfigHash:  digester.ConfigHash(w.References, sources, nil),
			AppliedHash: policy.AppliedHash(w),
			Sources:     make([]v1alpha1.SourceStatus, len(w.References)),
			LastReload:  lastReload(w),
		},
	}
	resolved := resolution{since: w.Created}
	for i := range w.References {
		r := &w.References[i]
		res := dependency.Resolve(r, sources(r.Kind, r.Name))
		resolved.add(r, res)
		out.Spec.Sources[i] = renderSource(r)
		out.Status.Sources[i] = renderSourceStatus(r, res)
	}
	out.Status.Conditions = []metav1.Condition{resolved.condition()}
	return out
}

// Reloadable tells whether the pods of workloads of a kind can be restarted as a rollout.
func Reloadable(kind dependency.WorkloadKind) bool {
	switch kind {
	case dependency.Deployment, dependency.StatefulSet, dependency.DaemonSet:
		return true
	default:
		return false
	}
}

func unmanagedMessage(w *dependency.Workload) string {
	const nothing = "Nothing restarts this workload when its sources change"
	switch {
	case Reloadable(w.Kind):
		return nothing + "; a Reload restarts it."
	case w.Kind == dependency.CronJob:
		return nothing + "; its next run reads their content."
	default:
		return nothing + "; a " + string(w.Kind) + " cannot be reloaded."
	}
}

func lastReload(w *dependency.Workload) *v1alpha1.LastReload {
	last := policy.LastReloadOf(w)
	if last == nil || !readable(last.Time) {
		return nil
	}
	out := v1alpha1.LastReload(*last)
	return &out
}

// readable tells whether there is a time, and one that clients can read. Annotations and
// managedFields are written by whoever may edit an object, and in JSON a year beyond four
// digits would make every list with that object unreadable.
func readable(t metav1.Time) bool {
	year := t.UTC().Year()
	return !t.IsZero() && 0 <= year && year <= 9999
}

func renderSource(r *dependency.Reference) v1alpha1.Source {
	out := v1alpha1.Source{
		Kind:     v1alpha1.SourceKind(r.Kind),
		Name:     r.Name,
		Optional: r.Optional(),
		Reason:   "ReloadOff",
		Usages:   make([]v1alpha1.Usage, len(r.Uses)),
	}
	if r.Reads() {
		out.Keys, _ = r.Keys()
	} else {
		out.Reason = "NotRead"
		if slices.ContainsFunc(r.Uses, func(u dependency.Use) bool { return u.Type == dependency.Volume || u.Type == dependency.Projected }) {
			out.Reason = "NotMounted"
		}
	}
	for i := range r.Uses {
		u := &r.Uses[i]
		out.Usages[i] = v1alpha1.Usage{
			Type:      v1alpha1.UsageType(u.Type),
			Container: u.Container,
			Env:       u.Env,
			Prefix:    u.Prefix,
			Volume:    u.Volume,
			MountPath: u.MountPath,
			SubPath:   u.SubPath,
			Keys:      u.Keys,
			Optional:  u.Optional,
		}
	}
	return out
}

func renderSourceStatus(r *dependency.Reference, res dependency.Resolution) v1alpha1.SourceStatus {
	out := v1alpha1.SourceStatus{Kind: v1alpha1.SourceKind(r.Kind), Name: r.Name, MissingKeys: res.MissingKeys}
	if r.Kind.Observed() {
		present := res.Source != nil
		out.Present = &present
	}
	if res.Source != nil {
		out.ResourceVersion = res.Source.ResourceVersion
		if changed := res.Source.LastChanged; readable(changed) {
			out.LastChanged = &changed
		}
	}
	return out
}

// resolution gathers the condition SourcesResolved.
type resolution struct {
	absent, keys []string
	present      int
	since        metav1.Time
}

func (s *resolution) add(r *dependency.Reference, res dependency.Resolution) {
	id := string(r.Kind) + " " + r.Name
	switch {
	case len(res.MissingKeys) > 0:
		s.keys = append(s.keys, fmt.Sprintf("%s lacks %s", id, strings.Join(res.MissingKeys, ", ")))
	case res.Missing:
		s.absent = append(s.absent, id+" is missing")
	case res.Source != nil:
		s.present++
	}
	if res.Source != nil && s.since.Before(&res.Source.Created) {
		s.since = res.Source.Created
	}
}

// condition returns the condition. Its transition time is, as far as the cluster
// remembers, when the last of the workload and its sources was created.
func (s *resolution) condition() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionSourcesResolved, LastTransitionTime: s.since}
	missing := slices.Concat(s.absent, s.keys)
	if len(missing) == 0 {
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonAllPresent
		c.Message = "Everything that pods need to start is present."
		return c
	}
	c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonKeyMissing
	if len(s.absent) > 0 {
		c.Reason = v1alpha1.ReasonSourceMissing
	}
	c.Message = strings.Join(missing, "; ") + ": new pods do not start."
	return c
}
