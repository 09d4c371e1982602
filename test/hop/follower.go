// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package hop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	configdepv1alpha1 "github.com/configdep/configdep/pkg/generated/clientset/versioned/typed/configdep/v1alpha1"
)

// Follower keeps a copy of objects. It lists once, and then watches from the last version that it has seen,
// whichever replica answers; it lists again only when that version has expired.
type Follower struct {
	Client configdepv1alpha1.ConfigDependencyInterface
	// Options select the objects to list and watch. With a limit, they are listed in pages.
	Options metav1.ListOptions

	mu      sync.Mutex
	held    map[string]*v1alpha1.ConfigDependency
	version string
	tally   Tally
	errs    []error
}

// Tally counts the requests of a Follower and the events that it has received.
type Tally struct{ Lists, Watches, Events int }

// Copy returns the Follower's objects, by namespace/name.
func (f *Follower) Copy() map[string]*v1alpha1.ConfigDependency {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.held)
}

// Tally returns the counts, and what was wrong with the answers.
func (f *Follower) Tally() (Tally, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tally, errors.Join(f.errs...)
}

// Run follows until the context is done.
func (f *Follower) Run(ctx context.Context) {
	for ctx.Err() == nil {
		f.mu.Lock()
		version := f.version
		f.mu.Unlock()
		if version == "" {
			f.list(ctx)
			continue
		}
		options := f.Options
		options.Limit, options.ResourceVersion, options.AllowWatchBookmarks = 0, version, true
		w, err := f.Client.Watch(ctx, options)
		if err != nil {
			pause(ctx) // the connection was broken or refused
			continue
		}
		f.mu.Lock()
		f.tally.Watches++
		f.mu.Unlock()
		for e := range w.ResultChan() {
			f.take(e)
		}
		w.Stop()
	}
}

// pause waits a little before a retry.
func pause(ctx context.Context) {
	select {
	case <-time.After(wait.Jitter(10*time.Millisecond, rand.Float64())):
	case <-ctx.Done():
	}
}

// list lists in pages, each of which may come from another replica.
func (f *Follower) list(ctx context.Context) {
	held, options := map[string]*v1alpha1.ConfigDependency{}, f.Options
	for {
		list, err := f.Client.List(ctx, options)
		switch {
		case ctx.Err() != nil:
			return
		case apierrors.IsResourceExpired(err) || storage.IsTooLargeResourceVersion(err):
			held, options.Continue = map[string]*v1alpha1.ConfigDependency{}, ""
			continue
		case err != nil:
			pause(ctx)
			continue
		}
		for i := range list.Items {
			held[keyOf(&list.Items[i])] = &list.Items[i]
		}
		if list.Continue == "" {
			f.mu.Lock()
			defer f.mu.Unlock()
			for key, o := range held {
				f.compare(key, o)
			}
			f.held, f.version = held, list.ResourceVersion
			f.tally.Lists++
			return
		}
		options.Continue = list.Continue
	}
}

func (f *Follower) take(e watch.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tally.Events++
	if e.Type == watch.Error {
		switch err := apierrors.FromObject(e.Object); {
		case apierrors.IsResourceExpired(err):
			f.version = ""
		case apierrors.IsServiceUnavailable(err): // the replica has just started
		case apierrors.IsInternalError(err): // client-go's error if the connection broke within an event
		default:
			f.errs = append(f.errs, fmt.Errorf("a watch received an error: %w", err))
		}
		return
	}
	o := e.Object.(*v1alpha1.ConfigDependency)
	if c, err := resourceversion.CompareResourceVersion(f.version, o.ResourceVersion); err != nil {
		f.errs = append(f.errs, err)
	} else if c > 0 {
		f.errs = append(f.errs, fmt.Errorf("received version %s after %s", o.ResourceVersion, f.version))
	}
	f.version = o.ResourceVersion
	switch key := keyOf(o); e.Type {
	case watch.Added, watch.Modified:
		f.compare(key, o)
		f.held[key] = o
	case watch.Deleted:
		delete(f.held, key)
	}
}

// compare records an error if two states of an object have the same version.
func (f *Follower) compare(key string, o *v1alpha1.ConfigDependency) {
	if before := f.held[key]; before != nil {
		if err := changed(before, o); err != nil {
			f.errs = append(f.errs, err)
		}
	}
}
