// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package strategy carries out restarts: what each strategy does to the cluster after the patch that begins a restart.
// Package policy has what it writes and how it is described.
package strategy

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/workload"
)

// Effects are what a strategy does besides the patch that begins a restart.
type Effects interface {
	// Begin does what comes before the patch that begins a restart. If it returns more than the zero value, the restart has to
	// wait. Errors are those of the API server.
	Begin(ctx context.Context, client workload.Client, b *Beginning) (Next, error)
	// Continue takes the next step of a restart that is under way. Errors are those of the API server.
	Continue(ctx context.Context, client workload.Client, r *Restart) (Next, error)
}

// effects are the effects of each strategy.
var effects = map[record.Strategy]Effects{
	record.Annotate: rollout{},
	record.EnvVar:   rollout{},
	record.Agent:    rollout{},
	record.Notify:   rollout{},
	record.Recreate: eviction{},
	record.InPlace:  inPlace{},
	record.Rerun:    rerun{},
}

// Of returns the effects of a strategy.
func Of(s record.Strategy) Effects {
	if e, found := effects[s]; found {
		return e
	}
	return rollout{} // by what the kind of a custom resource says
}

// Beginning is a restart that is about to begin.
type Beginning struct {
	*dependency.Workload

	// Present is the record of the current content.
	Present record.Record
	// TryRecord tries the patch that begins the restart, as a dry run, for what must not be done if that is refused; nil: it
	// is not tried.
	TryRecord func(context.Context) error
}

// Restart is a restart that is under way.
type Restart struct {
	*dependency.Workload

	// Pods are those of the workload, in order, as the index knows them, and Pod returns the one of a name in its namespace; nil: there is none.
	Pods []*dependency.Pod
	Pod  func(name string) *dependency.Pod
	// Revision is the label of the pods that have the current template; empty: it is not known.
	Revision string
	// Hash is that of the current content.
	Hash string
	// Superseded: the workload must now be restarted by another strategy.
	Superseded bool
	Now        time.Time
	Memory     *Memory
	// Budgets has the UIDs of the PodDisruptionBudgets by which it is being decided whether a pod may be told to restart in place: by one workload at a
	// time. Between two decisions, nothing has to be remembered, because each one reads which pods have been told. It is the same for all workloads.
	Budgets *sync.Map
	// Digester seals copies of Jobs.
	Digester *dependency.Digester
}

// Memory is what is remembered about a workload between two steps. The zero value has seen
// nothing.
type Memory struct {
	// ending is since when pods have been seen to be terminating, by their UIDs.
	ending map[types.UID]time.Time
	// last is the pod to which something was done last, in the version that was known then. Until another one is, the index lags behind.
	last struct {
		uid     types.UID
		version uint64
		at      time.Time
	}
	// refused is the place of the pod that could not be told last, and refusedSince is since when none could be; zero: one could, or none
	// has been tried.
	refused      place
	refusedSince time.Time
}

// Next is what to do after a step. The zero value: nothing, until the workload changes.
type Next struct {
	// After is when to take the next step, if no change comes before.
	After time.Duration
	// Waits is what the restart waits for; empty: nothing holds it up. Why may differ each time.
	Waits, Why string
	// Failed says to users why the restart ends or halts without success; empty: it does not.
	Failed string
	// InPlace is what the step of a restart in place has found; nil: nothing new.
	InPlace *InPlace
	// Done: the restart is complete, which has to be recorded with policy.EndPatch.
	Done bool
	// RollOut: the restart must begin again, by the current strategy. Because says why, if the decision does not.
	RollOut bool
	Because string
}

// InPlace is what a step of a restart in place has found.
type InPlace struct {
	// Progress has to be recorded before the next step; nil: it has not changed.
	Progress *record.PodsInPlace
	// Pods are those to which something has happened.
	Pods []PodStep
}

// PodStep is a step of the restart of a pod in place: it was told to restart, or it is back.
type PodStep struct {
	Name string
	UID  types.UID
	Back bool
}

// PodsOf returns the pods of a workload.
func PodsOf(g *dependency.Graph, w *dependency.Workload) (pods []*dependency.Pod) {
	g.PodsOf(w, func(p *dependency.Pod) bool {
		pods = append(pods, p)
		return true
	})
	return pods
}

// Names returns the UIDs of the pods that a restart by a strategy has to name, at most one more than can be named, and policy.Restart.Unfit.
func Names(s record.Strategy, pods []*dependency.Pod) (uids []types.UID, unfit string) {
	if !s.NamesPods() {
		return nil, ""
	}
	for _, p := range pods {
		if s == record.InPlace {
			if !p.Deleted.IsZero() { // it needs no restart, and what replaces it has read the content
				continue
			}
			if p.InPlace == nil || p.InPlace.Restarter == "" {
				unfit = "pod " + p.Name + " has no restarter"
			}
		}
		if len(uids) <= record.MaxPods {
			uids = append(uids, p.UID)
		}
	}
	return uids, unfit
}
