package dependency

import "slices"

// waiting tells that the pods of a template cannot have started: something that they
// require was not there when the template came, and has not been since.
type waiting struct {
	begun bool
	// lost is when something that they require was last seen to go, or to change and still
	// not suffice. What comes with an earlier version, because it is read on another stream,
	// may have been there before that.
	lost uint64
}

// mustWait tells whether something was certainly missing when the template of a workload
// came.
func (g *Graph) mustWait(w *Workload) bool {
	return slices.ContainsFunc(w.References, func(r Reference) bool {
		key := SourceKey{r.Kind, w.Namespace, r.Name}
		return g.missing(w, &r) && g.LastChange(key).Version < w.StartVersion
	})
}

func (g *Graph) missing(w *Workload, r *Reference) bool {
	return Resolve(r, g.Source(SourceKey{r.Kind, w.Namespace, r.Name})).Missing
}

// endWaiting lets the pods start that wait for nothing more after a change of a source.
func (g *Graph) endWaiting(key SourceKey, change Change) {
	for _, w := range slices.Clone(g.users[key]) {
		at := slices.IndexFunc(w.References, func(r Reference) bool { return r.Kind == key.Kind && r.Name == key.Name })
		if !w.waiting.begun || w.References[at].Optional() {
			continue
		}
		next := *w // values in the graph are immutable
		switch {
		case g.missing(w, &w.References[at]):
			next.waiting.lost = max(next.waiting.lost, change.Version)
		case !change.Exact, change.Version < next.waiting.lost:
			next.waiting = waiting{} // it is not known when they start
		case slices.ContainsFunc(w.References, func(r Reference) bool { return g.missing(w, &r) }):
			continue
		default:
			next.StartVersion, next.waiting = max(next.StartVersion, change.Version+1), waiting{}
		}
		g.SetWorkload(&next, g.globs[w.Namespace][w.WorkloadKey].patterns)
	}
}
