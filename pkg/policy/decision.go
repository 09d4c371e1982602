// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import "time"

// State summarizes a workload.
type State string

// The states.
const (
	Unmanaged  State = "Unmanaged"  // nothing restarts it by itself
	InSync     State = "InSync"     // its pods run with the current content
	Settling   State = "Settling"   // content has changed and must be quiet for a while
	Pending    State = "Pending"    // a restart is due, or it is not known yet whether one is
	RollingOut State = "RollingOut" // its rollout is not complete
	Failed     State = "Failed"     // its rollout does not progress
	Blocked    State = "Blocked"    // restarts are on hold until a user acts
)

// Action is what the controller does.
type Action string

// The actions.
const (
	None          Action = ""
	WriteBaseline Action = "WriteBaseline" // record the current content, restart nothing
	// Verify: the template has changed too. Look up whether it changed before or after
	// the content, and decide again.
	Verify Action = "Verify"
	// Inspect: look up whether a container was started while the content was different, and
	// decide again.
	Inspect       Action = "Inspect"
	WriteVerified Action = "WriteVerified" // record that no container was
	WriteMixed    Action = "WriteMixed"    // record that some may have been
	RollOut       Action = "RollOut"
	Continue      Action = "Continue"      // go on with a restart, such as an eviction: evict the next pod, or end it
	Observe       Action = "Observe"       // nothing but to report that the workload would be restarted
	Resume        Action = "Resume"        // resume a Deployment that was paused when it was restarted
	ApplyFields   Action = "ApplyFields"   // set the fields that get their values from sources
	ReleaseFields Action = "ReleaseFields" // give up fields that were set, which keep their values
	Abandon       Action = "Abandon"       // end an eviction before all pods are evicted, and record that they differ
)

// The reasons of decisions, by state. They are part of the API; those of rollouts are in package kind.
const (
	ReasonNotOptedIn          = "NotOptedIn"          // Unmanaged: automatic restarts are off
	ReasonTerminating         = "Terminating"         // Unmanaged: the workload or its namespace is being deleted
	ReasonKindNotReloaded     = "KindNotReloaded"     // Unmanaged: workloads of the kind have no rollout
	ReasonOwned               = "Owned"               // Unmanaged: the owner of the workload would create it again
	ReasonNextRunReadsContent = "NextRunReadsContent" // InSync or Unmanaged: so workloads of the kind need no restart

	ReasonContentApplied  = "ContentApplied"  // InSync
	ReasonRecordRemoved   = "RecordRemoved"   // InSync: another client has removed what was recorded
	ReasonNothingTriggers = "NothingTriggers" // InSync: no source restarts the workload
	ReasonNoPods          = "NoPods"          // InSync: no pod runs
	ReasonSuspended       = "Suspended"       // InSync: the workload is suspended, so that changes start no run

	ReasonSourceChanged   = "SourceChanged"   // Settling, or Pending: a restart is due
	ReasonMinInterval     = "MinInterval"     // Pending: the minimum interval delays a restart
	ReasonStrategyChanged = "StrategyChanged" // Pending: the strategy was changed while pods were being evicted, or restarted in place
	ReasonScalingDown     = "ScalingDown"     // Pending: content has changed, and the last pods are terminating
	ReasonNotRecorded     = "NotRecorded"     // Pending: the content with which the pods were started has not been recorded yet
	ReasonObserved        = "Observed"        // Pending: the workload would be restarted, but the server only observes
	ReasonPausePeriod     = "PausePeriod"     // Pending: the Deployment was paused when it was restarted, and will be resumed
	ReasonRunActive       = "RunActive"       // Pending: a run is due when the one that is active has finished
	ReasonVerifying       = "Verifying"       // Pending: the content that pods were started with is being looked up

	ReasonRecreating        = "Recreating"        // RollingOut: pods are being evicted
	ReasonRestartingInPlace = "RestartingInPlace" // RollingOut: pods are being restarted in place
	ReasonRestartFailed     = "RestartFailed"     // Failed: a pod has not come back from its restart in place
	ReasonReplacing         = "Replacing"         // RollingOut: the workload is being replaced by one of the same name

	ReasonAgentsApplying = "AgentsApplying" // Pending: agents have yet to report that they have applied the current content
	ReasonAgentsSilent   = "AgentsSilent"   // Pending: pods have reported nothing about what their agents have applied
	ReasonAgentFailed    = "AgentFailed"    // Failed: an agent cannot apply the current content

	ReasonAgentIncomplete    = "AgentIncomplete"    // Blocked: an agent lacks sources that it requires
	ReasonNotByAgents        = "NotByAgents"        // Blocked: content has changed that containers read themselves, and agents do not apply
	ReasonSourceMissing      = "SourceMissing"      // Blocked
	ReasonKeyMissing         = "KeyMissing"         // Blocked
	ReasonPaused             = "Paused"             // Blocked: the Deployment is paused
	ReasonInvalidAnnotation  = "InvalidAnnotation"  // Blocked
	ReasonTooManyPatterns    = "TooManyPatterns"    // Blocked: the patterns of annotations are valid, but exceed the limits
	ReasonStrategyNotAllowed = "StrategyNotAllowed" // Blocked: the strategy that an annotation asks for is valid, but not enabled
	ReasonTooManySources     = "TooManySources"     // Blocked: the pod template names more sources than are kept
)

// Observed is what Decide knows besides the evaluation.
type Observed struct {
	Now time.Time
	// StaleSince is when content was first seen to differ, or zero. A change that never
	// settles is rolled out after ten times the settle time.
	StaleSince time.Time
	// Verified is set when the last Decide said Verify.
	Verified *Verification
	// Decided is the place, in the order of reading (see dependency.Moment), of the latest change
	// that had been read when this process decided on the record of the workload: the record says
	// nothing about later changes. 0: the record is not ours.
	Decided uint64
	// Written is the version of the workload that our write of that record created. If the
	// workload already had the same record, its annotations do not show that it was written
	// again. 0: not known.
	Written uint64
	// Inspected is set if the last Decide said Inspect; on a replica that stands by, also later.
	Inspected *Inspection
	// StandsBy: another replica leads. If this one is in doubt because it was cut off, and has not itself seen what
	// pods may have read, it leaves the doubt to the leader and reports what the record says.
	StandsBy bool
}

// doubtRecheck is when a doubt is checked again: another replica may have become the leader.
const doubtRecheck = 30 * time.Second

// Verification is what was found out about pods when Decide said Verify.
type Verification struct {
	// Newer reports whether all pods of the template were created after the last write of the
	// content.
	Newer bool
	// WrittenAt is copied from the Decision, and StartedBy from the workload. If they differ
	// now, the content or the template has been written since, and the verification is void.
	WrittenAt time.Time
	StartedBy uint64
}

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
	// Stale reports whether the pods are assumed to run with other content than the
	// current.
	Stale bool
	// DueAt is when the restart was due, according to the policy and the time at which
	// the change was seen; zero if that is not known.
	DueAt time.Time
	// WrittenAt is when the content was last written, for Verify.
	WrittenAt time.Time
	// KnownBy is a version up to which everything has to be read before anything is done: another replica's record
	// differs, and is to be replaced, or no later change explains it. That replica may know newer content than this
	// process. 0: there is no such record.
	KnownBy uint64
	// Excursions are the periods in question, for Inspect. Mixed are the IDs of those in which
	// some containers may have been started, for WriteMixed.
	Excursions []Excursion
	Mixed      []string
	// Timed: a replica that has read the same may decide otherwise, because it has not seen the same happen, or
	// because it is another time there. What that one decides is Timed as well, unless this one is Provisional:
	// only what this process has seen speaks for it.
	Timed, Provisional bool
}
