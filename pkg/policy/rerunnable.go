// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

// rerunnable says how a workload that is Traits.Reruns is opted in: by its own annotations of Reloader, because what runs once
// must not be run again by a default. It returns false if they do not, or another annotation of the workload, or the selector of
// namespaces, turns it off.
func (p *Policy) rerunnable(a *Annotated, defaults *Defaults) bool {
	if _, unselected := a.Namespace[DeclaredBySelector]; unselected || !a.Reruns {
		return false
	}
	own := *a
	own.Namespace = map[string]string{}
	for key, value := range a.Namespace {
		if key != ReloadAnnotation && key != SourcesAnnotation { // what else it says are settings
			own.Namespace[key] = value
		}
	}
	again := defaults.policy()
	d := Declaration{Annotated: own, defaults: defaults, policy: &again, base: KindMode{Off, DeclaredByDefault}}
	native{}.Declare(&d)
	if d.off != "" || len(again.Problems) > 0 {
		return false
	}
	d.in, d.own, d.instead = nil, [len(d.own)]KindMode{}, [len(d.instead)]string{} // what configdep's own annotation declares starts no run
	for _, dialect := range defaults.Dialects.orAll() {
		if _, is := dialect.(*reloader); is {
			d.of(dialect)
		}
	}
	d.finish()
	if again.Mode == Off && len(again.Problems) == 0 {
		return false
	}
	again.Reruns, again.Problems = true, append(again.Problems, d.idle...)
	asked := native{}.settings(&again, &d)
	again.fit(&a.Traits, asked)
	again.boundNames()
	*p = again
	return true
}
