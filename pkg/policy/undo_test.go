package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// TestDecide_UndoOfARecordThatSaysMixed: kubectl rollout undo restores the annotations of the
// workload together with its template. Pods that it creates read what is there then, whatever was
// said of those before; but in the middle of a rollout some pods of the template are still there.
func TestDecide_UndoOfARecordThatSaysMixed(t *testing.T) {
	for name, tt := range map[string]struct {
		generation, observed int64 // of the rollout that is undone
		want                 outcome
	}{
		"after the rollout": {2, 2, baseline},
		"in the middle":     {2, 1, rollOut("Secret/db")},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			patch, err := x.evaluate().MixedPatch([]string{"Secret/db"})
			record, _ := annotationsOf(t, patch, err)
			x.edit(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image = "app:2"
				d.Generation, d.Status.ObservedGeneration = tt.generation, tt.observed
			})
			x.tick(time.Minute)
			x.set(secret("db", "password", "2"))
			x.tick(time.Minute)
			x.edit(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image = ""
				d.Generation, d.Status.ObservedGeneration = 3, 3
				d.Annotations[ConfigHashAnnotation], d.Annotations[AppliedSourcesAnnotation] = record["config-hash"], record["applied-sources"]
			})
			x.tick(time.Minute)
			if diff := cmp.Diff(tt.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
