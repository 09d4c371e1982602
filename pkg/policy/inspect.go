package policy

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// Inspection is what was found out about pods when Decide said Inspect.
type Inspection struct {
	// Of are the excursions that Decide asked about.
	Of []Excursion
	// StartedBy is that of the workload. If it differs now, the template has been written since, and the
	// inspection says nothing.
	StartedBy uint64
	// Mixed are the IDs of the excursions that a container may have been started in.
	Mixed []string
}

// of reports whether an inspection is about excursions, and about the template as it is now.
func (i *Inspection) of(w *dependency.Workload, excursions []Excursion) bool {
	return i != nil && i.StartedBy == w.StartedBy && slices.EqualFunc(i.Of, excursions, Excursion.same)
}

// InspectPods finds out in which excursions a container may have been started, so that it may have
// read the content of that time. A container that is waiting will read the current content. Each
// calls look for every pod, one after the other; if it fails, so does InspectPods.
func InspectPods(excursions []Excursion, each func(look func(*corev1.Pod)) error) (*Inspection, error) {
	mixed := make([]bool, len(excursions))
	err := each(func(p *corev1.Pod) {
		for i := range excursions {
			mixed[i] = mixed[i] || excursions[i].mayHaveBeenReadBy(p)
		}
	})
	if err != nil {
		return nil, err
	}
	found := &Inspection{}
	for i := range excursions {
		if mixed[i] {
			found.Mixed = append(found.Mixed, excursions[i].ID)
		}
	}
	return found, nil
}

func (x *Excursion) mayHaveBeenReadBy(p *corev1.Pod) bool {
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range statuses {
			s := &statuses[i]
			if len(x.Containers) > 0 && !slices.Contains(x.Containers, s.Name) {
				continue
			}
			var started time.Time
			switch {
			case s.State.Running != nil:
				started = s.State.Running.StartedAt.Time
			case s.State.Terminated != nil:
				started = s.State.Terminated.StartedAt.Time
			default:
				continue
			}
			if started.After(x.To.Add(dependency.ClockMargin)) || !x.From.IsZero() && started.Before(x.From.Add(-dependency.ClockMargin)) {
				continue
			}
			return true
		}
	}
	return false
}
