package policy

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// What counts only since the policy was changed restarts nothing, whoever has recorded
// what there was when the workload was created.
func TestPolicyOfACreatedWorkloadIsChanged(t *testing.T) {
	for name, webhook := range map[string]bool{"recorded by the controller": false, "by the webhook": true} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(envFrom(dependency.Secret, "a"), envFrom(dependency.Secret, "b")), secret("a", "k", "1"), secret("b", "k", "1"))
			x.graph.DeleteWorkload(x.workload().WorkloadKey)
			x.edit(func(d *appsv1.Deployment) {
				d.UID, d.Annotations = "web-2", map[string]string{ReloadAnnotation: "auto", ExcludeAnnotation: "secret/b"}
				if !webhook {
					return
				}
				a := Admission{Evaluation: Evaluate(x.graph, x.digester, dependency.FromDeployment(d.DeepCopy()), x.defaults), NewTemplate: true}
				marks := a.Marks()
				for key, value := range marks.Workload {
					d.Annotations[key] = *value
				}
				d.Spec.Template.Annotations = map[string]string{ConfigHashAnnotation: *marks.Template[ConfigHashAnnotation]}
			})
			if d := x.act(); (d.Action == WriteBaseline) == webhook {
				t.Fatalf("once created: %+v", d)
			}
			x.tick(time.Minute)
			x.set(secret("b", "k", "2"))
			if got := outcomeOf(x.act()); got != nothing {
				t.Fatalf("a change of what is excluded: %+v", got)
			}
			x.tick(time.Minute)
			x.annotate(ExcludeAnnotation, "")
			if got := outcomeOf(x.act()); got != baseline {
				t.Errorf("it is not excluded any more: %+v", got)
			}
		})
	}
}
