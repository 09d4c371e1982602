// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/registry/watchcache"
)

// Object is a type of the API whose pointers are objects.
type Object[O any] interface {
	*O
	watchcache.Object
}

// Rendered is what an item is shown as.
type Rendered[O any] struct {
	Object *O        // without a version; nil: the item is not there
	Next   time.Time // when time alone will change it; zero: never
	Timed  bool      // a replica that has read the same may show something else; see watchcache.Change
}

// Renderer computes the objects of a view. An item is what one object shows, such as a workload; K is
// what identifies it. All methods may be called at any time and must not keep the evaluator. Objects must not
// be changed once they have been returned.
type Renderer[K comparable, O any] interface {
	// Concerned returns the items that a change concerns, which may be items that have just gone. It is
	// called while the index waits.
	Concerned(now decide.Evaluator, change dependency.Delta) []K
	// Each calls f for each item that is there.
	Each(now decide.Evaluator, f func(K))
	// Name returns the name of the object of an item, whether or not it is there.
	Name(item K) types.NamespacedName
	Render(now decide.Evaluator, item K, at time.Time) Rendered[O]
	// Alike reports whether selectors that read the item alone (see Resource.Own) match both of two
	// states of it. It must be false if it was not there in one of them, or is another of the same name.
	Alike(before, now decide.Evaluator, item K) bool
	// Same reports whether an object that was rendered again because time has passed shows what it did.
	Same(object, before *O) bool
	// Share lets an object have those parts from its state before that are the same: the history of some
	// minutes holds many states that differ in little. It may change the object.
	Share(object, before *O)
	// Size returns about how many bytes an object holds that another state of it, which may be nil, does not.
	Size(object, other *O) int
	// State returns under what an object is counted; see View.States.
	State(object *O) string
}
