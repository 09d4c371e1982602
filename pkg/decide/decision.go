// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"time"

	"github.com/configdep/configdep/pkg/record"
)

// State summarizes a workload.
type State string

// The states.
const (
	InSync     State = "InSync"     // its pods run with the current content
	Stale      State = "Stale"      // some do not, and nothing happens by itself
	Unknown    State = "Unknown"    // what its pods run with cannot be known
	Settling   State = "Settling"   // content has changed and must be quiet for a while
	Pending    State = "Pending"    // a restart is due
	RollingOut State = "RollingOut" // its rollout is not complete
	Failed     State = "Failed"     // its rollout does not progress
	Blocked    State = "Blocked"    // it is on hold until a user acts
)

// Action is what the controller does.
type Action string

// The actions.
const (
	None          Action = ""
	WriteRecord   Action = "WriteRecord" // record the content, restart nothing
	Forget        Action = "Forget"      // remove the record, and end a restart that is under way: the workload has opted out
	RollOut       Action = "RollOut"
	Continue      Action = "Continue"      // go on with a restart, such as an eviction: evict the next pod, or end it
	Observe       Action = "Observe"       // only report that the workload would be restarted
	Resume        Action = "Resume"        // resume a Deployment that was paused when it was restarted
	ApplyFields   Action = "ApplyFields"   // set the fields that get their values from sources
	ReleaseFields Action = "ReleaseFields" // give up fields that were set, which keep their values
)

// The reasons of decisions, by state. They are part of the API; those of rollouts are in package kind, and those of the state Unknown in package judge.
const (
	ReasonContentApplied      = "ContentApplied"      // InSync
	ReasonNothingRead         = "NothingRead"         // InSync: the pods read no source whose content counts
	ReasonRecordRemoved       = "RecordRemoved"       // InSync: another client has removed what was recorded
	ReasonNothingTriggers     = "NothingTriggers"     // InSync: no source restarts the workload
	ReasonNoPods              = "NoPods"              // InSync: no pod runs
	ReasonNotStarted          = "NotStarted"          // InSync: no container has started yet
	ReasonSuspended           = "Suspended"           // InSync: the workload is suspended, so that changes start no run
	ReasonNextRunReadsContent = "NextRunReadsContent" // InSync: no run is active, and the next one reads the current content
	ReasonTerminating         = "Terminating"         // InSync, Stale or Unknown: the workload or its namespace is being deleted

	ReasonPodsNotFound = "PodsNotFound" // Unknown: the workload reports pods, and none is found

	ReasonNotOptedIn       = "NotOptedIn"       // Stale: automatic restarts are off
	ReasonOptedInStale     = "OptedInStale"     // Stale: the content was old when the workload opted in, or a restart was undone
	ReasonNotTriggering    = "NotTriggering"    // Stale: the source that has changed does not restart the workload
	ReasonNotifyOnly       = "NotifyOnly"       // Stale: the strategy is notify
	ReasonKindNotRestarted = "KindNotRestarted" // Stale: workloads of the kind have no rollout
	ReasonOwned            = "Owned"            // Stale: the owner of the workload would create it again
	ReasonHeld             = "Held"             // Stale: the pods are replaced only when a user acts

	ReasonSourceChanged   = "SourceChanged"   // Settling, or Pending: a restart is due
	ReasonMinInterval     = "MinInterval"     // Pending: the minimum interval delays a restart
	ReasonWindow          = "Window"          // Pending: a restart is due when a window opens; Blocked: none will
	ReasonApproval        = "Approval"        // Pending: a user has to approve the content
	ReasonPolicyUnknown   = "PolicyUnknown"   // Pending: there may be ReloadPolicies that have not been read
	ReasonOrder           = "Order"           // Pending: workloads of a lower order come first
	ReasonBudget          = "Budget"          // Pending: the maximum number of restarts is in progress
	ReasonStrategyChanged = "StrategyChanged" // Pending: the strategy was changed while pods were being evicted, or restarted in place
	ReasonObserved        = "Observed"        // Stale: the workload would be restarted, but the server only observes
	ReasonPausePeriod     = "PausePeriod"     // Pending: the Deployment was paused when it was restarted, and will be resumed
	ReasonRunActive       = "RunActive"       // Pending: a run is due when the one that is active has finished

	ReasonControllerTold = "ControllerTold" // RollingOut: the controller of a custom resource was told to restart pods, and has yet to do so
	ReasonPodsNotReady   = "PodsNotReady"   // Failed: the rollout waits for a pod that does not become ready
	ReasonRestartFailed  = "RestartFailed"  // Failed: a pod has not come back from its restart in place

	ReasonAgentsApplying = "AgentsApplying" // Pending: agents have yet to report that they have applied the current content
	ReasonAgentsSilent   = "AgentsSilent"   // Pending: pods have reported nothing about what their agents have applied
	ReasonAgentFailed    = "AgentFailed"    // Failed: an agent cannot apply the current content

	ReasonAgentIncomplete    = "AgentIncomplete"    // Blocked: an agent lacks sources that it requires
	ReasonNotByAgents        = "NotByAgents"        // Blocked: containers, and not agents, read the content that has changed
	ReasonSourceMissing      = "SourceMissing"      // Blocked
	ReasonKeyMissing         = "KeyMissing"         // Blocked
	ReasonPaused             = "Paused"             // Blocked: the Deployment is paused
	ReasonOnHold             = "OnHold"             // Blocked: an annotation says that nothing may be restarted
	ReasonPolicySuspended    = "PolicySuspended"    // Blocked: a ReloadPolicy suspends restarts
	ReasonPolicyInvalid      = "PolicyInvalid"      // Blocked: a ReloadPolicy that selects the workload is invalid
	ReasonDenied             = "Denied"             // Blocked: a user has denied the content
	ReasonHalted             = "HaltedAfterFailure" // Blocked: other workloads fail with the same content
	ReasonInvalidAnnotation  = "InvalidAnnotation"  // Blocked
	ReasonTooManyPatterns    = "TooManyPatterns"    // Blocked: the patterns of annotations are valid, but exceed the limits
	ReasonStrategyNotAllowed = "StrategyNotAllowed" // Blocked: the strategy that an annotation asks for is valid, but not enabled
	ReasonTooManySources     = "TooManySources"     // Blocked: the pod template names more sources than are kept
	ReasonRefused            = "Refused"            // Blocked: the API server refuses the request that is due
)

// Decision is the state of a workload and what happens next.
type Decision struct {
	State State
	// Reason is one word; Message says to users what happens next and why.
	Reason, Message string
	Action          Action
	// Trigger names the source that has changed if a restart is due or under way, and otherwise the trigger of
	// the last restart; if there are several, one of them.
	Trigger string
	// Because names all that has changed, in a clause.
	Because string
	// RecheckAt is when time alone changes the decision; zero: it does not.
	RecheckAt time.Time
	// Stale reports whether the pods are assumed to run with other content than the current.
	Stale bool
	// DueAt is when the restart was due, according to the policy and the time at which
	// the change was seen; zero if that is not known.
	DueAt time.Time
	// Fails says, in a clause, which pod fails since the workload was restarted, and how; empty: none is known to.
	Fails string
	// Record is what is to be recorded, for WriteRecord.
	Record record.Record
	// Pods is what the pods run with; nil: that was not looked at.
	Pods *Judgement
	// Timed: a replica that has read the same may decide otherwise, because it is another time there, or because it began to read at another time.
	Timed bool

	due []*due
	// unrecorded: the first record is due, without which no change restarts the workload.
	unrecorded bool
}

// refusalRecheck is how often views check again whether the request that is due is refused.
const refusalRecheck = 10 * time.Second

// ShowAgain returns when time alone changes what is shown; zero: never.
func (d *Decision) ShowAgain(now time.Time) time.Time {
	if d.RecheckAt.IsZero() && d.Action != None && (d.State == Pending || d.Reason == ReasonRefused || d.unrecorded) {
		return now.Add(refusalRecheck)
	}
	return d.RecheckAt
}
