package policy

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// TestRecordRemovedDuringAnEvictionWithoutPods: the record is written again, and then the eviction
// ends. The other way round, its end would change nothing.
func TestRecordRemovedDuringAnEvictionWithoutPods(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.annotate(StrategyAnnotation, "recreate")
	x.adopt()
	x.annotate(RecreatingAnnotation, noPod)
	x.edit(func(d *appsv1.Deployment) {
		d.Spec.Replicas, d.Status = new(int32), appsv1.DeploymentStatus{}
	})
	x.annotate(ConfigHashAnnotation, "", AppliedSourcesAnnotation, "", RecreatingAnnotation, "")
	for _, want := range []Action{WriteBaseline, Continue} {
		if d := x.act(); d.Action != want {
			t.Fatalf("%+v, want %s", d, want)
		}
	}
}
