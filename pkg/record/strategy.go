// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"slices"
	"strings"

	"github.com/configdep/configdep/pkg/dependency"
)

// Strategy is a way to restart a workload. Each has a file here, with what it writes and how it is described, and a
// file in package strategy, with what it does to the cluster.
type Strategy interface {
	// Name is its value of StrategyAnnotation.
	Name() string
	// NamesPods reports whether a restart names the pods that exist; see Restart.
	NamesPods() bool
	// MarksTemplate reports whether a restart is a rollout: the pod template gets the hash.
	MarksTemplate() bool
	// Describe returns what a restart does. Caveat is what keeps a rollout from replacing pods; empty: nothing does.
	Describe(caveat string) Description
	// UnderWay reports whether a restart has begun that the controller has to continue.
	UnderWay(w *dependency.Workload) bool
	// Progress describes a restart that is under way.
	Progress() Progress

	// begin adds the annotations that begin a restart to the patch that records it.
	begin(w *dependency.Workload, r *Restart, out *restartPatch)
}

// strategies are those that annotations can ask for, and continued are those whose restarts the controller continues.
var (
	strategies = []Strategy{Annotate, EnvVar, Agent, Notify, Recreate, InPlace}
	continued  = []Strategy{Recreate, InPlace, Rerun}
)

// Strategies returns the strategies that annotations can ask for. The first needs no rights that a server may lack.
func Strategies() []Strategy { return slices.Clone(strategies) }

// ParseStrategy parses a value of StrategyAnnotation.
func ParseStrategy(value string) (Strategy, error) {
	names := make([]string, len(strategies))
	for i, s := range strategies {
		if value == s.Name() {
			return s, nil
		}
		names[i] = s.Name()
	}
	return nil, fmt.Errorf("must be one of %s", strings.Join(names, ", "))
}

// StrategyOfKind returns the strategy of workloads of a kind that ask for none, if it is not the default of the server.
func StrategyOfKind(t *dependency.Traits) Strategy {
	if t.Reruns {
		return Rerun
	}
	if t.Restart != nil {
		return OfRestart(t.Restart)
	}
	return Annotate
}

// UnderWay returns the strategy by which a restart was begun that has yet to be continued; nil: none is under way.
func UnderWay(w *dependency.Workload) Strategy {
	for _, s := range continued {
		if s.UnderWay(w) {
			return s
		}
	}
	return nil
}

// Description says in words what a restart does: "The {What} of Deployment web {Done}; but {Caveat}."
type Description struct {
	What   string
	Done   string
	Would  string // in the place of Done, in a dry run
	Caveat string
}

// Progress says in words that a restart is under way.
type Progress struct {
	Reason  string // of the decision
	Message string
	Already string // completes "Not restarted: "
	While   string // completes "The strategy was changed while "
	Waits   string // that the next step has to wait; what it waits for follows
	Step    string // what a step does, such as "Evicting the pods", if it fails
}

// The reasons of the state RollingOut while restarts are under way. They are part of the API.
const (
	ReasonRecreating        = "Recreating"        // RollingOut: pods are being evicted
	ReasonRestartingInPlace = "RestartingInPlace" // RollingOut: pods are being restarted in place
	ReasonReplacing         = "Replacing"         // RollingOut: the workload is being replaced by one of the same name
)

// restartPatch is the content of a patch that restarts a workload.
type restartPatch struct {
	workload, template object // annotations; no template: it stays as it is
	fields             object // others of the workload
	variables          []variable
	last               LastReload
}

// variable is an environment variable that is set where it is, or added to a container.
type variable struct{ container, name, value string }

// MaxPods is how many pods a restart can name, so that the annotation stays far below the limit of 256 KiB for all
// annotations of an object. A workload with more is restarted by a rollout.
const MaxPods = 10_000
