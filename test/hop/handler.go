// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package hop

import (
	"errors"
	"fmt"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// handler keeps a copy as most controllers do: it ignores updates with an unchanged version, which an informer
// sends after each list.
type handler struct {
	mu   sync.Mutex
	held map[string]*v1alpha1.ConfigDependency
	errs []error
}

// handle adds such a handler to an informer.
func handle(informer cache.SharedIndexInformer) (*handler, error) {
	h := &handler{held: map[string]*v1alpha1.ConfigDependency{}}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { h.set(o.(*v1alpha1.ConfigDependency)) },
		UpdateFunc: func(old, o any) {
			before, now := old.(*v1alpha1.ConfigDependency), o.(*v1alpha1.ConfigDependency)
			if before.ResourceVersion != now.ResourceVersion {
				h.set(now)
			} else if err := changed(before, now); err != nil {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.errs = append(h.errs, err)
			}
		},
		DeleteFunc: func(o any) {
			if gone, unseen := o.(cache.DeletedFinalStateUnknown); unseen {
				o = gone.Obj
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			delete(h.held, keyOf(o.(*v1alpha1.ConfigDependency)))
		},
	})
	return h, err
}

func keyOf(o *v1alpha1.ConfigDependency) string { return o.Namespace + "/" + o.Name }

func (h *handler) set(o *v1alpha1.ConfigDependency) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[keyOf(o)] = o
}

// Copy returns the handler's objects.
func (h *handler) Copy() map[string]*v1alpha1.ConfigDependency {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.held)
}

func (h *handler) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Join(h.errs...)
}

// changed returns an error if two states of one version differ.
func changed(before, now *v1alpha1.ConfigDependency) error {
	if before.ResourceVersion != now.ResourceVersion || equality.Semantic.DeepEqual(before, now) {
		return nil
	}
	return fmt.Errorf("%s is %s and %s (%s, %s) in version %s", keyOf(now),
		before.Status.State, now.Status.State, before.Status.ConfigHash, now.Status.ConfigHash, now.ResourceVersion)
}
