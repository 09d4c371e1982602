// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/configdep/configdep/pkg/dependency"
)

// Note notes on a workload what its annotations and those of its namespace say about it;
// version is the version with which some of them came. It returns the policy.
func Note(w, previous *dependency.Workload, namespace map[string]string, defaults Defaults, version string, at dependency.Arrival) Policy {
	said := annotated(w, namespace)
	p := NewPolicy(said, defaults)
	in := p.Mode != Off || len(p.Problems) > 0 // one whose annotations have a mistake has tried to opt in
	opting := dependency.Opting{In: in, Scope: dependency.ShareText(defaults.Dialects.scope(said))}
	if previous != nil {
		opting.Over = defaults.Dialects.own(previous.Annotations)
	}
	w.Opt(opting, previous, version, at)
	w.PausedByRestart = w.Pausable && p.Pause.Since != ""
	late := version != w.ResourceVersion && w.OptedAfter(version) // it is that of the namespace
	if previous != nil && in && late && w.OptedOver == "" && NewPolicy(Annotated{Namespace: namespace}, defaults).Mode != Off {
		w.OptBefore(version)
	}
	p.bound(len(w.References)) // what is not used is not kept either
	return p
}

// Dormant reports whether there is nothing to decide for a workload after Note: it has not opted in, no restart is under way, no pause
// has to be ended, and no fields have to be given up.
func Dormant(w *dependency.Workload) bool {
	return !w.OptedIn && UnderWay(w) == nil && !w.PausedByRestart && !hasSetFields(w)
}
