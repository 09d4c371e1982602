// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/registry/view"
	"github.com/configdep/configdep/pkg/render"
	"github.com/configdep/configdep/pkg/wave"
)

type (
	// Views are the ConfigDependencies of all workloads.
	Views = view.View[dependency.WorkloadKey, v1alpha1.ConfigDependency, *v1alpha1.ConfigDependency]
	// REST is the storage of the resource configdependencies.
	REST = view.REST[dependency.WorkloadKey, v1alpha1.ConfigDependency, *v1alpha1.ConfigDependency]
)

// NewViews returns views of workloads of some kinds that have not synced; see view.Config. Waves may be nil.
func NewViews(historyBytes int, kinds kind.Table, waves decide.Waves, c clock.WithTicker) *Views {
	return view.New[dependency.WorkloadKey, v1alpha1.ConfigDependency](view.Config[dependency.WorkloadKey, v1alpha1.ConfigDependency]{
		Resource:     v1alpha1.Resource("configdependencies"),
		Renderer:     renderer{kinds, waves},
		Meant:        renderer{kinds: kinds}.meant,
		HistoryBytes: historyBytes,
		Clock:        c,
	})
}

// NewREST returns a REST that serves from views of workloads of some kinds.
func NewREST(views *Views, kinds kind.Table) *REST {
	of := resource
	of.Allows = reasonsOf(kinds)
	return view.NewREST(views, &of)
}

// renderer implements view.Renderer. Its items are workloads.
type renderer struct {
	kinds kind.Table
	waves decide.Waves // nil: none
}

func (renderer) Concerned(_ decide.Evaluator, change dependency.Delta) []dependency.WorkloadKey {
	return change.Workloads
}

func (renderer) Each(now decide.Evaluator, f func(dependency.WorkloadKey)) {
	now.Graph.EachWorkload(func(w *dependency.Workload) { f(w.WorkloadKey) })
}

func (renderer) Name(w dependency.WorkloadKey) types.NamespacedName {
	return types.NamespacedName{Namespace: w.Namespace, Name: w.ViewName()}
}

// meant implements view.Config.Meant: names that users of kubectl try are that of the workload alone, or begin with another word for its kind.
func (r renderer) meant(name string) (rule string, names []string) {
	first, rest, _ := strings.Cut(name, ".")
	for _, k := range r.kinds.All() {
		prefix := dependency.WorkloadKey{Kind: k.Name}.ViewName()
		if first+"." == prefix {
			return "", nil
		}
		names = append(names, prefix+name, prefix+rest)
	}
	return "names are KIND.NAME, such as deployment.web", names
}

func (r renderer) Render(now decide.Evaluator, key dependency.WorkloadKey, at time.Time) view.Rendered[v1alpha1.ConfigDependency] {
	w := now.Graph.Workload(key)
	if w == nil {
		if r.waves != nil {
			r.waves.Hold(&wave.Member{WorkloadKey: key})
		}
		return view.Rendered[v1alpha1.ConfigDependency]{}
	}
	now.Waves = r.waves
	e := now.Evaluate(w)
	d := e.Decide(at)
	return view.Rendered[v1alpha1.ConfigDependency]{Object: render.ConfigDependency(r.kinds, e, d), Next: d.ShowAgain(at), Timed: d.Timed}
}

func (renderer) Alike(before, now decide.Evaluator, key dependency.WorkloadKey) bool {
	a, b := before.Graph.Workload(key), now.Graph.Workload(key)
	return a != nil && b != nil && a.UID == b.UID && maps.Equal(a.Labels, b.Labels)
}

// Same compares only the status: nothing else depends on the time.
func (renderer) Same(o, before *v1alpha1.ConfigDependency) bool {
	return equality.Semantic.DeepEqual(o.Status, before.Status)
}

func (renderer) Share(o, before *v1alpha1.ConfigDependency)   { share(o, before) }
func (renderer) Size(o, other *v1alpha1.ConfigDependency) int { return sizeOf(o, other) }
func (renderer) State(o *v1alpha1.ConfigDependency) string    { return string(o.Status.State) }
