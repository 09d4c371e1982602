// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"fmt"
	"slices"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
)

// Rollouts are read by the same rules as in kubectl rollout status.

// The reasons of rollouts. Those of custom resources have others besides.
const (
	reasonUpdating  = "PodsUpdating"
	reasonPaused    = "Paused"
	reasonOnDelete  = "OnDelete"
	reasonPartition = "Partition"
)

// RolloutReasons returns the reasons that rollouts of workloads of the kind can have.
func (k *Kind) RolloutReasons() []string {
	out := []string{dependency.ReasonNotObserved, reasonUpdating, deadlineReason, reasonPaused, reasonOnDelete, reasonPartition}
	if k.layout != nil && k.layout.status != nil {
		for _, t := range slices.Concat(k.layout.status.failed, k.layout.status.held) {
			out = append(out, t.word())
		}
	}
	return out
}

var (
	complete   = dependency.Rollout{Phase: dependency.RolloutComplete}
	unobserved = dependency.Rollout{
		Phase: dependency.RolloutRunning, Reason: dependency.ReasonNotObserved,
		Message: "its controller has not observed the latest change of the workload yet",
	}
)

func running(done, all int32, what string) dependency.Rollout {
	return dependency.Rollout{Phase: dependency.RolloutRunning, Reason: reasonUpdating, Message: dependency.SomePods(done, all, what)}
}

// oldPods says that pods of earlier templates are left.
func oldPods(n int32) string {
	if n == 1 {
		return "1 old pod is pending termination"
	}
	return fmt.Sprintf("%d old pods are pending termination", n)
}

func onDelete(updated, all int32) dependency.Rollout {
	return dependency.Rollout{
		Phase: dependency.RolloutHeld, Reason: reasonOnDelete,
		Message: dependency.SomePods(updated, all, "up to date") + ", and the update strategy is OnDelete: delete the other pods to replace them",
	}
}

func belowPartition(partition int32) string {
	return fmt.Sprintf(", and pods below the partition (%d) are not updated", partition)
}

func replicasOf(spec *int32) int32 {
	if spec == nil {
		return 1
	}
	return *spec
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// onDeleteCaveat is a clause, as Progress.Caveat.
const onDeleteCaveat = "its update strategy is OnDelete: each pod is replaced when it is deleted"

func noReplicas(spec *int32) string {
	if replicasOf(spec) == 0 {
		return "it has no replicas now"
	}
	return ""
}

// typed returns a function for Kind.From that reads objects of one Go type.
func typed[T Object](read func(T) *dependency.Object) func(Object) (*dependency.Object, error) {
	return func(o Object) (*dependency.Object, error) {
		t, ok := o.(T)
		if !ok {
			return nil, fmt.Errorf("a %T came instead of a %T", o, t)
		}
		return read(t), nil
	}
}
