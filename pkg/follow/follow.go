// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package follow watches one object by its name, for which a right to this one object is enough.
package follow

import (
	"context"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Object is an object to be followed. T is what the informer delivers, a pointer.
type Object[T runtime.Object, L runtime.Object] struct {
	Name string
	// Client is the client that List and Watch belong to. It says whether it can watch with initial events, which a
	// fake one cannot.
	Client any
	List   func(context.Context, metav1.ListOptions) (L, error)
	Watch  WatchFunc

	// Present is called with each state of the object. It must not be changed.
	Present func(T)
	// Absent is called when the object goes, and at first if it does not exist; nil: it does not matter.
	Absent func()
}

// Run follows the object until the context is done. The functions are called one at a time.
func (o Object[T, L]) Run(ctx context.Context) {
	var mu sync.Mutex // Absent at first is called by another goroutine than the rest
	present := func(object any) {
		if object, ok := object.(T); ok {
			mu.Lock()
			defer mu.Unlock()
			o.Present(object)
		}
	}
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: o.listerWatcher(),
		ObjectType:    reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T), //nolint:forcetypeassert // it is of that type
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    present,
			UpdateFunc: func(_, object any) { present(object) },
			DeleteFunc: func(any) {
				mu.Lock()
				defer mu.Unlock()
				o.absent()
			},
		},
	})
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		select {
		case <-ctx.Done():
		case <-controller.HasSyncedChecker().Done():
			mu.Lock()
			defer mu.Unlock()
			if len(store.ListKeys()) == 0 {
				o.absent()
			}
		}
	})
	controller.RunWithContext(ctx)
}

func (o Object[T, L]) absent() {
	if o.Absent != nil {
		o.Absent()
	}
}

func (o Object[T, L]) listerWatcher() cache.ListerWatcher {
	only, begin := fields.OneTermEqualSelector(metav1.ObjectNameField, o.Name).String(), ListAfterOutage(o.Watch)
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = only
			return o.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = only
			return begin(ctx, options)
		},
	}, o.Client)
}
