// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/test/seeds"
)

func TestRolloutOfADeployment(t *testing.T) {
	progressing := func(status corev1.ConditionStatus, reason string) []appsv1.DeploymentCondition {
		return []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"},
			{Type: appsv1.DeploymentProgressing, Status: status, Reason: reason},
		}
	}
	for name, tc := range map[string]struct {
		change func(*appsv1.Deployment)
		want   dependency.Rollout
	}{
		"not observed": {
			func(o *appsv1.Deployment) { o.Generation = 3 },
			dependency.Rollout{Phase: dependency.RolloutRunning, Reason: "NotObserved", Message: "its controller has not observed the latest change of the workload yet"},
		},
		"some are new": {
			func(o *appsv1.Deployment) { o.Status.UpdatedReplicas = 1 },
			dependency.Rollout{Phase: dependency.RolloutRunning, Reason: "PodsUpdating", Message: "1 of 3 pods is up to date"},
		},
		"old pods are terminating": {
			func(o *appsv1.Deployment) { o.Status.Replicas = 5 },
			dependency.Rollout{Phase: dependency.RolloutRunning, Reason: "PodsUpdating", Message: "2 old pods are pending termination"},
		},
		"an old pod is terminating": {
			func(o *appsv1.Deployment) { o.Status.Replicas = 4 },
			dependency.Rollout{Phase: dependency.RolloutRunning, Reason: "PodsUpdating", Message: "1 old pod is pending termination"},
		},
		"not available": {
			func(o *appsv1.Deployment) { o.Status.AvailableReplicas = 2 },
			dependency.Rollout{Phase: dependency.RolloutRunning, Reason: "PodsUpdating", Message: "2 of 3 pods are available"},
		},
		"paused during the rollout": {
			func(o *appsv1.Deployment) { o.Spec.Paused, o.Status.UpdatedReplicas = true, 2 },
			dependency.Rollout{Phase: dependency.RolloutHeld, Reason: "Paused", Message: "2 of 3 pods are up to date, and the Deployment is paused"},
		},
		"failed": {
			func(o *appsv1.Deployment) {
				o.Status.UpdatedReplicas, o.Status.Conditions = 1, progressing(corev1.ConditionFalse, "ProgressDeadlineExceeded")
			},
			dependency.Rollout{Phase: dependency.RolloutFailed, Reason: "ProgressDeadlineExceeded", Message: "1 of 3 pods is up to date, and the progress deadline has passed"},
		},
		"one replica by default": {
			func(o *appsv1.Deployment) {
				o.Spec.Replicas, o.Status = nil, appsv1.DeploymentStatus{ObservedGeneration: 2}
			},
			dependency.Rollout{Phase: dependency.RolloutRunning, Reason: "PodsUpdating", Message: "0 of 1 pod is up to date"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](3)}, Status: appsv1.DeploymentStatus{
				ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3,
			}}
			o.Generation = 2
			tc.change(o)
			if diff := cmp.Diff(tc.want, readDeployment(o).Rollout); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRolloutOfAStatefulSet(t *testing.T) {
	partition := func(o *appsv1.StatefulSet, n int32) { o.Spec.UpdateStrategy.RollingUpdate.Partition = &n }
	for name, tc := range map[string]struct {
		change func(*appsv1.StatefulSet)
		want   dependency.Rollout
	}{
		"not observed": {
			func(o *appsv1.StatefulSet) { o.Generation = 3 },
			dependency.Rollout{Phase: dependency.RolloutRunning, Reason: "NotObserved", Message: "its controller has not observed the latest change of the workload yet"},
		},
		"rolled back during a rollout: the revisions are equal, but one pod has another": {
			func(o *appsv1.StatefulSet) { o.Status.UpdatedReplicas = 2 },
			dependency.Rollout{Phase: dependency.RolloutRunning, Reason: "PodsUpdating", Message: "2 of 3 pods are up to date"},
		},
		"not ready": {
			func(o *appsv1.StatefulSet) { o.Status.ReadyReplicas = 2 },
			dependency.Rollout{Phase: dependency.RolloutRunning, Reason: "PodsUpdating", Message: "2 of 3 pods are ready"},
		},
		"the partition holds back": {
			func(o *appsv1.StatefulSet) {
				partition(o, 2)
				o.Status.UpdatedReplicas, o.Status.UpdateRevision = 1, "new"
			},
			dependency.Rollout{Phase: dependency.RolloutHeld, Reason: "Partition", Message: "1 of 3 pods is up to date, and pods below the partition (2) are not updated"},
		},
		"in progress, with a partition": {
			func(o *appsv1.StatefulSet) {
				partition(o, 1)
				o.Status.UpdatedReplicas, o.Status.UpdateRevision = 1, "new"
			},
			dependency.Rollout{Phase: dependency.RolloutRunning, Reason: "PodsUpdating", Message: "1 of 2 pods is up to date, and pods below the partition (1) are not updated"},
		},
		"the partition is larger than the set": {
			func(o *appsv1.StatefulSet) {
				partition(o, 100)
				o.Status.UpdatedReplicas, o.Status.UpdateRevision = 0, "new"
			},
			dependency.Rollout{Phase: dependency.RolloutHeld, Reason: "Partition", Message: "0 of 3 pods are up to date, and pods below the partition (3) are not updated"},
		},
		"on delete": {
			func(o *appsv1.StatefulSet) {
				o.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
				o.Status.UpdatedReplicas, o.Status.UpdateRevision = 1, "new"
			},
			dependency.Rollout{Phase: dependency.RolloutHeld, Reason: "OnDelete", Message: "1 of 3 pods is up to date, and the update strategy is OnDelete: delete the other pods to replace them"},
		},
		"on delete, while a pod starts": {
			func(o *appsv1.StatefulSet) {
				o.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
				o.Status.UpdatedReplicas, o.Status.ReadyReplicas, o.Status.UpdateRevision = 1, 2, "new"
			},
			dependency.Rollout{Phase: dependency.RolloutRunning, Reason: "PodsUpdating", Message: "2 of 3 pods are ready"},
		},
		"on delete, all deleted": {
			func(o *appsv1.StatefulSet) {
				o.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
				o.Status.UpdateRevision = "new" // with this strategy, CurrentRevision is not updated
			},
			dependency.Rollout{Phase: dependency.RolloutComplete},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := &appsv1.StatefulSet{
				Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](3), UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
					Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To[int32](0)},
				}},
				Status: appsv1.StatefulSetStatus{
					ObservedGeneration: 2, Replicas: 3, ReadyReplicas: 3, UpdatedReplicas: 3, CurrentRevision: "old", UpdateRevision: "old",
				},
			}
			o.Generation = 2
			tc.change(o)
			if diff := cmp.Diff(tc.want, readStatefulSet(o).Rollout); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRolloutOfADaemonSet(t *testing.T) {
	onDelete := appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
	for name, tc := range map[string]struct {
		change func(*appsv1.DaemonSet)
		want   dependency.Rollout
	}{
		"not observed": {
			func(o *appsv1.DaemonSet) { o.Generation = 3 },
			dependency.Rollout{Phase: dependency.RolloutRunning, Reason: "NotObserved", Message: "its controller has not observed the latest change of the workload yet"},
		},
		"some are new": {
			func(o *appsv1.DaemonSet) { o.Status.UpdatedNumberScheduled = 1 },
			dependency.Rollout{Phase: dependency.RolloutRunning, Reason: "PodsUpdating", Message: "1 of 3 pods is up to date"},
		},
		"not available": {
			func(o *appsv1.DaemonSet) { o.Status.NumberAvailable = 2 },
			dependency.Rollout{Phase: dependency.RolloutRunning, Reason: "PodsUpdating", Message: "2 of 3 pods are available"},
		},
		"on delete": {
			func(o *appsv1.DaemonSet) { o.Spec.UpdateStrategy, o.Status.UpdatedNumberScheduled = onDelete, 1 },
			dependency.Rollout{Phase: dependency.RolloutHeld, Reason: "OnDelete", Message: "1 of 3 pods is up to date, and the update strategy is OnDelete: delete the other pods to replace them"},
		},
		"on delete, all deleted": {func(o *appsv1.DaemonSet) { o.Spec.UpdateStrategy = onDelete }, dependency.Rollout{Phase: dependency.RolloutComplete}},
	} {
		t.Run(name, func(t *testing.T) {
			o := &appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{
				ObservedGeneration: 2, DesiredNumberScheduled: 3, UpdatedNumberScheduled: 3, NumberAvailable: 3,
			}}
			o.Generation = 2
			tc.change(o)
			if diff := cmp.Diff(tc.want, readDaemonSet(o).Rollout); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestRolloutIsCompleteWhenKubectlSaysSo compares with the rules of kubectl rollout status
// (k8s.io/kubectl, pkg/polymorphichelpers/rollout_status.go) for every small status. There is one
// difference: kubectl considers a rollout complete that has reached its partition.
func TestRolloutIsCompleteWhenKubectlSaysSo(t *testing.T) {
	seeds.Each(t, 1, rolloutIsCompleteWhenKubectlSaysSo)
}

func rolloutIsCompleteWhenKubectlSaysSo(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 4))
	n := func() int32 { return r.Int32N(4) }
	for range 20000 {
		d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(n())}, Status: appsv1.DeploymentStatus{
			ObservedGeneration: 1 + int64(r.IntN(2)), Replicas: n(), UpdatedReplicas: n(), AvailableReplicas: n(),
		}}
		d.Generation = 2
		if r.IntN(5) == 0 {
			d.Status.Conditions = []appsv1.DeploymentCondition{{
				Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded",
			}}
		}
		done, failed := kubectlDeployment(d)
		got := readDeployment(d).Rollout.Phase
		if (got == dependency.RolloutComplete) != done || (got == dependency.RolloutFailed) != failed {
			t.Fatalf("phase = %s; kubectl: done %v, failed %v; spec and status:\n%+v\n%+v", got, done, failed, d.Spec, d.Status)
		}

		s := &appsv1.StatefulSet{
			Spec: appsv1.StatefulSetSpec{Replicas: new(n()), UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(n())},
			}},
			Status: appsv1.StatefulSetStatus{ObservedGeneration: 1 + int64(r.IntN(2)), Replicas: n(), ReadyReplicas: n(), UpdatedReplicas: n()},
		}
		s.Generation = 2
		got = readStatefulSet(s).Rollout.Phase
		atPartition := got == dependency.RolloutHeld && s.Status.UpdatedReplicas < *s.Spec.Replicas
		if done := kubectlStatefulSet(s); (got == dependency.RolloutComplete || atPartition) != done {
			t.Fatalf("phase = %s; kubectl: done %v; spec and status:\n%+v\n%+v", got, done, s.Spec, s.Status)
		}

		ds := &appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{
			ObservedGeneration: 1 + int64(r.IntN(2)), DesiredNumberScheduled: n(), UpdatedNumberScheduled: n(), NumberAvailable: n(),
		}}
		ds.Generation = 2
		st := ds.Status
		kubectl := ds.Generation <= st.ObservedGeneration && st.UpdatedNumberScheduled >= st.DesiredNumberScheduled && st.NumberAvailable >= st.DesiredNumberScheduled
		if got := readDaemonSet(ds).Rollout.Phase; (got == dependency.RolloutComplete) != kubectl {
			t.Fatalf("phase = %s; kubectl: done %v; status:\n%+v", got, kubectl, ds.Status)
		}
	}
}

func kubectlDeployment(o *appsv1.Deployment) (done, failed bool) {
	if o.Generation > o.Status.ObservedGeneration {
		return false, false
	}
	for _, c := range o.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Reason == "ProgressDeadlineExceeded" {
			return false, true
		}
	}
	s := o.Status
	return s.UpdatedReplicas >= *o.Spec.Replicas && s.Replicas <= s.UpdatedReplicas && s.AvailableReplicas >= s.UpdatedReplicas, false
}

func kubectlStatefulSet(o *appsv1.StatefulSet) bool {
	s := o.Status
	return s.ObservedGeneration != 0 && o.Generation <= s.ObservedGeneration &&
		s.ReadyReplicas >= *o.Spec.Replicas &&
		s.UpdatedReplicas >= *o.Spec.Replicas-*o.Spec.UpdateStrategy.RollingUpdate.Partition
}
