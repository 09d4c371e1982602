package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A container that may have been started while content was other is found, as far as clocks
// may be wrong, and no other is.
func TestInspectPods(t *testing.T) {
	started := func(after time.Duration) corev1.ContainerState {
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(epoch.Add(after))}}
	}
	ended := func(after time.Duration) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(epoch.Add(after))}}
	}
	for name, tt := range map[string]struct {
		excursion Excursion // from a minute until two minutes after the epoch, unless it says otherwise
		init      bool
		state     corev1.ContainerState
		want      bool
	}{
		"in between":                             {state: started(90 * time.Second), want: true},
		"before, by less than the margin":        {state: started(-time.Minute), want: true},
		"before":                                 {state: started(-time.Minute - 1)},
		"after, by less than the margin":         {state: started(4 * time.Minute), want: true},
		"after":                                  {state: started(4*time.Minute + 1)},
		"before, and the beginning is unknown":   {excursion: Excursion{To: epoch.Add(2 * time.Minute)}, state: started(-time.Hour), want: true},
		"after, and the beginning is unknown":    {excursion: Excursion{To: epoch.Add(2 * time.Minute)}, state: started(time.Hour)},
		"it has ended":                           {state: ended(90 * time.Second), want: true},
		"it has ended, and started before":       {state: ended(-time.Hour)},
		"it waits":                               {state: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}},
		"it waits, and the beginning is unknown": {excursion: Excursion{To: epoch.Add(2 * time.Minute)}, state: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}},
		"an init container":                      {init: true, state: started(90 * time.Second), want: true},
		"one that reads it":                      {excursion: Excursion{Containers: []string{"app"}}, state: started(90 * time.Second), want: true},
		"one that does not":                      {excursion: Excursion{Containers: []string{"other"}}, state: started(90 * time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			x := tt.excursion
			x.ID = "Secret/db"
			if x.To.IsZero() {
				x.From, x.To = epoch.Add(time.Minute), epoch.Add(2*time.Minute)
			}
			// A container before it must not keep it from being looked at.
			statuses := []corev1.ContainerStatus{{Name: "first", State: started(-time.Hour)}, {Name: "app", State: tt.state}}
			if x.From.IsZero() {
				statuses = statuses[1:]
			}
			pod := corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: statuses}}
			if tt.init {
				pod.Status = corev1.PodStatus{InitContainerStatuses: statuses}
			}
			var want []string
			if tt.want {
				want = []string{"Secret/db"}
			}
			found, err := InspectPods([]Excursion{x}, func(look func(*corev1.Pod)) error {
				look(&corev1.Pod{})
				look(&pod)
				look(&corev1.Pod{})
				return nil
			})
			if diff := cmp.Diff(&Inspection{Mixed: want}, found); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}
