// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"fmt"
	"slices"
	"strings"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/judge"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/record"
)

// reasons are those of decisions, whatever the kind of the workload.
var reasons = []string{
	decide.ReasonContentApplied, decide.ReasonNothingRead, decide.ReasonRecordRemoved, decide.ReasonNothingTriggers, decide.ReasonNoPods,
	decide.ReasonNotStarted, decide.ReasonSuspended, decide.ReasonNextRunReadsContent, decide.ReasonTerminating, decide.ReasonPodsNotFound,
	decide.ReasonNotOptedIn, decide.ReasonOptedInStale, decide.ReasonNotTriggering, decide.ReasonKindNotRestarted, decide.ReasonOwned, decide.ReasonHeld,
	decide.ReasonSourceChanged, decide.ReasonMinInterval, decide.ReasonWindow, decide.ReasonStrategyChanged, decide.ReasonObserved, decide.ReasonPausePeriod, decide.ReasonRunActive,
	decide.ReasonControllerTold, decide.ReasonPodsNotReady, decide.ReasonRestartFailed, decide.ReasonAgentsApplying, decide.ReasonAgentsSilent, decide.ReasonAgentFailed,
	decide.ReasonAgentIncomplete, decide.ReasonNotByAgents, decide.ReasonSourceMissing, decide.ReasonKeyMissing, decide.ReasonPaused, decide.ReasonOnHold,
	decide.ReasonInvalidAnnotation, decide.ReasonTooManyPatterns, decide.ReasonStrategyNotAllowed, decide.ReasonTooManySources, decide.ReasonRefused,
	decide.ReasonFieldsNotAllowed, decide.ReasonFieldConflict, decide.ReasonFieldsRefused, decide.ReasonFieldsDue,
	decide.ReasonNotifyOnly, decide.ReasonApproval, decide.ReasonDenied, decide.ReasonPolicySuspended, decide.ReasonPolicyInvalid, decide.ReasonPolicyUnknown,
	decide.ReasonOrder, decide.ReasonBudget, decide.ReasonHalted,
	judge.ReasonWrittenSinceStart, judge.ReasonFilesChanged, judge.ReasonClockMargin, judge.ReasonNodeClock, judge.ReasonSourceMissing,
	judge.ReasonOlderTemplate, judge.ReasonTooManyPods,
	record.ReasonRecreating, record.ReasonRestartingInPlace, record.ReasonReplacing,
}

// reasonsOf returns a function that refuses values of status.reason which no workload of the kinds can have.
func reasonsOf(kinds kind.Table) func(field, value string) error {
	allowed := slices.Clone(reasons)
	for _, k := range kinds.All() {
		allowed = append(allowed, k.RolloutReasons()...)
	}
	slices.Sort(allowed)
	allowed = slices.Compact(allowed)
	return func(field, value string) error {
		if field != v1alpha1.FieldReason || slices.Contains(allowed, value) {
			return nil
		}
		return fmt.Errorf("field label %q has the value %q; use one of %s", field, value, strings.Join(allowed, ", "))
	}
}
