// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/judge"
	"github.com/configdep/configdep/pkg/render"
)

// How many bytes of an answer list containers, their sources, and the stale sources of pods; the rest is counted. The
// documentation of the API names them. How many pods there are is bounded (see maxPods).
const (
	maxContainerBytes   = 4 << 20
	maxSourceBytes      = 4 << 20
	maxStaleSourceBytes = 2 << 20
)

// renderer renders the pods of one answer.
type renderer struct {
	containers, sources, staleSources render.Budget // that are left
}

// containerTypes are the types of containers in the API, by their roles.
var containerTypes = map[dependency.ContainerRole]v1alpha1.ContainerType{
	dependency.RegularContainer: v1alpha1.ContainerRegular,
	dependency.InitContainer:    v1alpha1.ContainerInit,
	dependency.SidecarContainer: v1alpha1.ContainerSidecar,
}

// render returns what is shown of a pod. The judge's sources are in the order of kind and name.
func (r *renderer) render(j *judge.Judge, p *dependency.Pod) v1alpha1.PodContent {
	out := v1alpha1.PodContent{
		Name:              p.Name,
		UID:               p.UID,
		NodeName:          p.Node,
		Phase:             p.Phase,
		CreationTimestamp: metav1.NewTime(p.Created),
		DeletionTimestamp: shown(p.Deleted),
		TemplateRevision:  p.Revision,
	}
	worst := judge.Verdict{State: judge.Current, Reason: judge.ReasonNothingRead}
	out.Message = worst.Text()
	stale := make([]bool, len(j.Sources))
	for i := range p.Containers {
		c, v := r.container(j, p, &p.Containers[i], stale)
		if v.Compare(&worst) > 0 {
			worst, out.Message = v, c.Message
		}
		if out.MoreContainers > 0 || !r.containers.Take(sizeOfContainer(&c)) {
			out.MoreContainers++
			continue
		}
		out.Containers = append(out.Containers, c)
	}
	out.State, out.Reason = v1alpha1.ContentState(worst.State), worst.Reason
	var names []string
	for i, is := range stale {
		if is {
			names = append(names, string(j.Sources[i].Kind)+"/"+j.Sources[i].Name)
		}
	}
	out.StaleSources, out.MoreStaleSources = render.Fit(&r.staleSources, names, func(s *string) int { return len(*s) + len(`"",`) })
	return out
}

// container judges a container, and notes which sources it is stale for.
func (r *renderer) container(j *judge.Judge, p *dependency.Pod, c *dependency.PodContainer, stale []bool) (v1alpha1.ContainerContent, judge.Verdict) {
	var found []judge.SourceVerdict
	v := j.Container(p, c, func(s judge.SourceVerdict) {
		if s.State != judge.Current {
			found = append(found, s)
		}
		stale[s.Index] = stale[s.Index] || s.State == judge.Stale
	})
	found = worstOfEach(found)
	out := v1alpha1.ContainerContent{
		Name:         c.Name,
		Type:         containerTypes[c.Role],
		StartedAt:    shown(c.Started),
		RestartCount: c.Restarts,
		State:        v1alpha1.ContentState(v.State),
		Reason:       v.Reason,
		Message:      message(&v, found),
	}
	for i := range found {
		if r.sources == 0 { // so that no messages are made that are not listed
			out.MoreSources = int64(len(found) - i)
			break
		}
		s := renderSource(p, &found[i])
		if !r.sources.Take(sizeOfSource(&s)) {
			out.MoreSources = int64(len(found) - i)
			break
		}
		out.Sources = append(out.Sources, s)
	}
	return out, v
}

// worstOfEach returns the worst verdict on each source, in the order of the sources: a container can read one as environment and as files.
func worstOfEach(all []judge.SourceVerdict) []judge.SourceVerdict {
	slices.SortStableFunc(all, func(a, b judge.SourceVerdict) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), b.Compare(&a.Verdict))
	})
	return slices.CompactFunc(all, func(a, b judge.SourceVerdict) bool { return a.Index == b.Index })
}

// message explains the verdict on a container: by the first source with this verdict, if it is about one.
func message(v *judge.Verdict, sources []judge.SourceVerdict) string {
	for i := range sources {
		if s := &sources[i]; s.State == v.State && s.Reason == v.Reason {
			return s.Text()
		}
	}
	return v.Text()
}

func renderSource(p *dependency.Pod, s *judge.SourceVerdict) v1alpha1.ContainerSource {
	return v1alpha1.ContainerSource{
		Kind: v1alpha1.SourceKind(s.Kind), Name: s.Name,
		State: v1alpha1.ContentState(s.State), Reason: s.Reason, Message: s.Text(),
		LastChangeTime: shown(lastChangeTime(p, s.Source)),
	}
}

// lastChangeTime returns when the current content of a source began; of a SecretProviderClass, as the pod has mounted it. Zero: that is not known.
func lastChangeTime(p *dependency.Pod, s *judge.Source) time.Time {
	if s.Mounted != nil {
		return s.Mounted(p).Written
	}
	current := &s.Periods[len(s.Periods)-1]
	if !current.Written.IsZero() {
		return current.Written
	}
	return current.Before.Truncate(time.Second)
}

// shown returns a time for the API; nil: it is zero, or a client has written a year with more than four digits, which cannot be encoded.
func shown(t time.Time) *metav1.Time {
	if year := t.UTC().Year(); t.IsZero() || year < 0 || year > 9999 {
		return nil
	}
	return new(metav1.NewTime(t))
}

// sizeOfSource is about how many bytes a source has in JSON.
func sizeOfSource(s *v1alpha1.ContainerSource) int {
	const rest = `{"kind":"","name":"","state":"","reason":"","message":"","lastChangeTime":"2006-01-02T15:04:05Z"},`
	return len(rest) + len(s.Kind) + len(s.Name) + len(s.State) + len(s.Reason) + len(s.Message)
}

// sizeOfContainer is about how many bytes a container has in JSON, without its sources.
func sizeOfContainer(c *v1alpha1.ContainerContent) int {
	const rest = `{"name":"","type":"","startedAt":"2006-01-02T15:04:05Z","restartCount":100,"state":"","reason":"","message":"","sources":[],"moreSources":1000},`
	return len(rest) + len(c.Name) + len(c.Type) + len(c.State) + len(c.Reason) + len(c.Message)
}

// count adds a pod to the summary.
func count(s *v1alpha1.PodSummary, p *v1alpha1.PodContent) {
	switch {
	case p.DeletionTimestamp != nil:
		s.Terminating++
	case p.State == v1alpha1.ContentStale:
		s.Stale++
	case p.State == v1alpha1.ContentUnknown:
		s.Unknown++
	case p.State == v1alpha1.ContentNotStarted:
		s.NotStarted++
	default:
		s.Current++
	}
}
