// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// uidSpace is the namespace of the UIDs of ConfigDependencies, which are UUIDs of version 5
// (RFC 9562, section 5.5) derived from the UIDs of their workloads.
var uidSpace = uuid.MustParse("6d6e0f0e-8a1c-5c53-9b57-0f6a3c9d1f2b")

// UID returns the UID of the ConfigDependency of a workload.
func UID(workload types.UID) types.UID {
	return types.UID(uuid.NewSHA1(uidSpace, []byte(workload)).String())
}

// ConfigDependency returns the ConfigDependency of an evaluated workload of one of the kinds, without a resourceVersion.
// Callers must not modify it.
func ConfigDependency(kinds kind.Table, e *decide.Evaluation, d decide.Decision) *v1alpha1.ConfigDependency {
	w := e.Workload
	ref := v1alpha1.WorkloadReference{Name: w.Name, UID: w.UID}
	ref.APIVersion, ref.Kind = kinds.Of(w.Kind).GroupVersionKind().ToAPIVersionAndKind()
	out := &v1alpha1.ConfigDependency{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         w.Namespace,
			Name:              w.ViewName(),
			UID:               UID(w.UID),
			CreationTimestamp: w.Created,
			Labels:            w.Labels,
			OwnerReferences:   []metav1.OwnerReference{{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: ref.UID}},
		},
		Spec: v1alpha1.ConfigDependencySpec{
			WorkloadRef: ref,
			Reload:      renderPolicy(&e.Policy),
			Sources:     make([]v1alpha1.Source, len(e.Sources), len(e.Sources)+len(e.Agents.Sources)),
		},
		Status: v1alpha1.ConfigDependencyStatus{
			State:        v1alpha1.State(d.State),
			Reason:       d.Reason,
			Message:      d.Message,
			ConfigHash:   e.Hash,
			RecordedHash: e.Record.Hash,
			Sources:      make([]v1alpha1.SourceStatus, len(e.Sources), len(e.Sources)+len(e.Agents.Sources)),
			Patterns:     renderPatterns(e.Globs),
			LastReload:   renderLastReload(record.LastReloadOf(w)),
			Pods:         renderPods(d.Pods),
			StaleSince:   timeOf(d.Pods.StaleSince),
			RestartTime:  timeOf(restartDue(&d)),
			Policies:     policyNames(e),
			Conditions:   conditions(e, d),
		},
	}
	usages, keys, missingKeys := Budget(maxUsageBytes), Budget(maxKeyBytes), Budget(maxKeyBytes)
	for i := range e.Sources {
		out.Spec.Sources[i] = renderSource(&e.Sources[i], &usages, &keys)
		out.Status.Sources[i] = renderSourceStatus(&e.Sources[i], &missingKeys)
		out.Status.Sources[i].StalePods = count32(d.Pods.StalePods[i])
		if s := &out.Spec.Sources[i]; e.Policy.Strategy == record.Agent && s.TriggersReload {
			s.TriggersReload, s.Reason = false, decide.ReasonNotByAgents
		}
	}
	addAgents(out, e.Agents.Sources)
	return out
}

func policyNames(e *decide.Evaluation) (names []string) {
	for _, p := range e.Limits() {
		names = append(names, p.Name)
	}
	return names
}

func renderPods(j *decide.Judgement) v1alpha1.PodCounts {
	return v1alpha1.PodCounts{
		Total: count32(j.Total), Current: count32(j.Current), Stale: count32(j.Stale), Unknown: count32(j.Unknown), NotStarted: count32(j.NotStarted),
	}
}

// restartDue returns when a restart is due, as the message says it.
func restartDue(d *decide.Decision) time.Time {
	if d.State == decide.Settling || d.Reason == decide.ReasonMinInterval || d.State == decide.Pending && d.Reason == decide.ReasonWindow {
		return d.RecheckAt.Truncate(time.Second)
	}
	return time.Time{}
}

func count32(n int) int32 { return int32(min(n, math.MaxInt32)) }

// timeOf returns a time as it is shown; nil: it is not known, or cannot be encoded.
func timeOf(at time.Time) *metav1.Time {
	if t := metav1.NewTime(at); readable(t) {
		return &t
	}
	return nil
}

// addAgents adds the sources that agents have applied, in order.
func addAgents(out *v1alpha1.ConfigDependency, sources []decide.AgentSource) {
	none := Budget(0)
	for i := range sources {
		s := &sources[i]
		kind, usage := v1alpha1.SourceKind(s.Kind), v1alpha1.Usage{Type: v1alpha1.UsageAgent, Optional: true}
		at, found := slices.BinarySearchFunc(out.Spec.Sources, s, func(o v1alpha1.Source, s *decide.AgentSource) int {
			return cmp.Or(cmp.Compare(o.Kind, kind), cmp.Compare(o.Name, s.Name))
		})
		if found {
			out.Spec.Sources[at].Usages = append(out.Spec.Sources[at].Usages, usage)
			continue
		}
		out.Spec.Sources = slices.Insert(out.Spec.Sources, at, v1alpha1.Source{
			Kind: kind, Name: s.Name, Optional: true, Reason: ReasonByAgent, Usages: []v1alpha1.Usage{usage},
		})
		out.Status.Sources = slices.Insert(out.Status.Sources, at, renderSourceStatus(&decide.Source{
			Reference: &dependency.Reference{Kind: s.Kind, Name: s.Name}, Resolution: s.Resolution,
		}, &none))
	}
}

// ReasonByAgent is why a change of a source that only agents use restarts nothing.
const ReasonByAgent = "AppliedByAgent"

// The limits, in bytes, of the usages and the keys in one object; the rest is only counted. The API documentation
// states these limits. The number of sources is limited by dependency.MaxSources, and the patterns by the maximum
// length of an annotation.
const (
	maxUsageBytes = 128 << 10
	maxKeyBytes   = 32 << 10
)

func sizeOfKey(key *string) int { return len(*key) + len(`"",`) }

// sizeOfUse returns the approximate size of a use in JSON.
func sizeOfUse(u *dependency.Use) int {
	n := len(`{"type":"","container":"","env":"","prefix":"","volume":"","mountPath":"","subPath":true,"keys":[],"optional":true},`)
	n += len(u.Type) + len(u.Container) + sizeOfText(u.Env) + sizeOfText(u.Prefix) + len(u.Volume) + sizeOfText(u.MountPath)
	for i := range u.Keys {
		n += sizeOfKey(&u.Keys[i])
	}
	return n
}

// sizeOfText returns the size of a text in JSON. Names of variables and paths may have any characters.
func sizeOfText(text string) int {
	n := len(text)
	for i := range len(text) {
		switch c := text[i]; {
		case c == '<', c == '>', c == '&', c < ' ':
			n += len(`\u003c`) - 1
		case c == '"', c == '\\':
			n++
		}
	}
	return n
}

func renderPolicy(p *policy.Policy) v1alpha1.ReloadSettings {
	out := v1alpha1.ReloadSettings{Mode: modes[p.Mode], DeclaredBy: p.DeclaredBy}
	if p.Mode != policy.Off {
		out.Strategy = strategyOf(p.Strategy)
		out.Settle, out.MinInterval = &metav1.Duration{Duration: p.Settle}, &metav1.Duration{Duration: p.MinInterval}
		if p.ReleaseSettle > 0 {
			out.ReleaseSettle = &metav1.Duration{Duration: p.ReleaseSettle}
		}
		out.Order = int32(p.Order)
		if p.HealthyWithin > 0 {
			out.HealthyWithin = &metav1.Duration{Duration: p.HealthyWithin}
		}
		if p.Pause.Period > 0 {
			out.PausePeriod = &metav1.Duration{Duration: p.Pause.Period}
		}
		out.LiveVolumes = p.LiveVolumes
		for _, x := range p.Exclude {
			out.Exclude = append(out.Exclude, string(x.Kind)+"/"+x.Name)
		}
	}
	return out
}

// renderPatterns renders globs, with at most dependency.MaxNames names in total.
func renderPatterns(globs []decide.Glob) (out []v1alpha1.PatternStatus) {
	left := dependency.MaxNames
	for i := range globs {
		g := &globs[i]
		names := g.Names()
		names = names[:min(len(names), left)]
		left -= len(names)
		p := v1alpha1.PatternStatus{Kind: v1alpha1.SourceKind(g.Kind), Pattern: g.Name, Count: int64(g.Count), Names: names}
		if changed := g.LastChangeTime(); readable(changed) {
			p.LastChangeTime = &changed
		}
		if !g.Observed {
			p.Reason = policy.ReasonNotObserved
		}
		out = append(out, p)
	}
	return out
}

var modes = map[policy.Mode]v1alpha1.ReloadMode{
	policy.Off: v1alpha1.ReloadOff, policy.Auto: v1alpha1.ReloadAuto,
	policy.Matched: v1alpha1.ReloadMatched, policy.Listed: v1alpha1.ReloadListed,
}

// strategyOf returns the API value for a strategy: its name in UpperCamelCase.
func strategyOf(s record.Strategy) v1alpha1.ReloadStrategy {
	var value strings.Builder
	for word := range strings.SplitSeq(s.Name(), "-") {
		value.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return v1alpha1.ReloadStrategy(value.String())
}

func renderLastReload(last *record.LastReload) *v1alpha1.LastReload {
	if last == nil || !readable(metav1.NewTime(last.Time.Time)) {
		return nil
	}
	return &v1alpha1.LastReload{
		Time: metav1.NewTime(last.Time.Time), Trigger: last.Trigger, RequestedBy: last.RequestedBy, Reason: last.Reason,
	}
}

// readable reports whether a time is set and can be encoded. Any client that may edit an object can
// write annotations and managedFields, and in JSON a year with more than four digits would make every
// list with that object unreadable.
func readable(t metav1.Time) bool {
	year := t.UTC().Year()
	return !t.IsZero() && 0 <= year && year <= 9999
}

func renderSource(s *decide.Source, usages, keys *Budget) v1alpha1.Source {
	uses, moreUses := Fit(usages, s.Uses, sizeOfUse)
	out := v1alpha1.Source{
		Kind:           v1alpha1.SourceKind(s.Kind),
		Name:           s.Name,
		Optional:       s.Optional(),
		TriggersReload: s.Triggers,
		Reason:         s.Reason,
		DeclaredBy:     s.DeclaredBy,
		Usages:         make([]v1alpha1.Usage, len(uses)),
		MoreUsages:     moreUses,
	}
	read, _ := s.Keys()
	out.Keys, out.MoreKeys = Fit(keys, read, sizeOfKey)
	for i := range uses {
		u := &uses[i]
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
		if u.Type == dependency.ByObject || u.Type == dependency.Field {
			out.Usages[i].MountPath, out.Usages[i].Path = "", u.MountPath
		}
	}
	return out
}

func renderSourceStatus(s *decide.Source, missingKeys *Budget) v1alpha1.SourceStatus {
	out := v1alpha1.SourceStatus{Kind: v1alpha1.SourceKind(s.Kind), Name: s.Name}
	out.MissingKeys, out.MoreMissingKeys = Fit(missingKeys, s.MissingKeys, sizeOfKey)
	if s.Observed && !s.MayExist || s.Unread != nil {
		present := s.Source != nil || s.Unread != nil
		out.Present = &present
	}
	if s.Source != nil {
		out.ResourceVersion = s.Source.ResourceVersion
		if changed := s.Source.LastChangeTime; readable(changed) {
			out.LastChangeTime = &changed
		}
	}
	return out
}
