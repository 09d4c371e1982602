// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"fmt"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/workload"
)

// behind returns a clause that says how many pods of a workload have an older pod template, and why; empty if
// none has.
func behind(l *workload.Live) string {
	switch {
	case !l.Observed:
		return fmt.Sprintf("the controller of the %s has not observed its latest change yet", l.Kind)
	case l.Outdated <= 0:
		return ""
	}
	why := "they are being replaced"
	switch {
	case l.Paused:
		why = fmt.Sprintf("the %s is paused, and they will be replaced when it is resumed", l.Kind)
	case l.Caveat != "":
		why = l.Caveat
	case l.Rollout.Phase == dependency.RolloutFailed:
		why = "the rollout is not progressing"
	}
	verb := "have"
	if l.Outdated == 1 {
		verb = "has"
	}
	return fmt.Sprintf("%d of %d pods %s an older pod template; %s", l.Outdated, l.Pods, verb, why)
}
