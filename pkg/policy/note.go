// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/record"
)

// Note notes on a workload what its annotations and those of its namespace say about it, and returns the policy.
func Note(w *dependency.Workload, namespace map[string]string, defaults Defaults) Policy {
	p := NewPolicy(AnnotatedOf(w, namespace), defaults)
	w.Opt(p.Mode != Off || len(p.Problems) > 0 && !p.Idle) // one whose annotations have a mistake has tried to opt in
	w.PausedByRestart = w.Pausable && p.Pause.Since != ""
	p.Bound(len(w.References)) // what is not used is not kept either
	return p
}

// Dormant reports whether there is nothing to do for a workload after Note: it has not opted in, nothing is recorded, no restart is under way, no pause has
// to be ended, and no fields have to be given up.
func Dormant(w *dependency.Workload) bool {
	return !w.OptedIn && w.Marks.Hash == "" && w.Marks.Sources == "" && record.UnderWay(w) == nil && !w.PausedByRestart && !record.HasSetFields(w)
}
