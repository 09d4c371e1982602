// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import "github.com/configdep/configdep/pkg/record"

// describe says how far a restart in place is.
func describe(p *record.PodsInPlace, d *Decision) {
	if halted := p.Halted(); halted != "" {
		d.State, d.Reason, d.Message = Failed, ReasonRestartFailed, halted
	} else {
		d.Message = p.Progress() + " The others follow one by one, " + record.AsAllowed
	}
}

// sayNotInPlace adds to a message that the workload asks for restarts in place, but gets rollouts.
func (e *Evaluation) sayNotInPlace(d *Decision) {
	why := e.Policy.NotInPlace(e.Workload)
	switch d.State {
	case InSync, Settling, Pending, RollingOut, Failed:
		if why != "" {
			d.Message += " Restarts are rollouts and not in place, because " + why + "."
		}
	}
}

// superseded returns the strategy of a restart that is under way and must now be done by another strategy; nil: there
// is none.
func (e *Evaluation) superseded() record.Strategy {
	if s := record.UnderWay(e.Workload); s != nil && s != e.Policy.RestartsBy(e.Workload) {
		return s
	}
	return nil
}
