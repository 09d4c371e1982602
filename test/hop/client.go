// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package hop

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	configdepv1alpha1 "github.com/configdep/configdep/pkg/generated/clientset/versioned/typed/configdep/v1alpha1"
)

// Selection selects the objects that a client lists and watches.
type Selection struct {
	Namespace, Labels, Fields string // empty: all
	// Matches reports whether the selectors match an object; nil: every object matches.
	Matches func(*v1alpha1.ConfigDependency) bool
}

// Of returns the objects that are selected.
func (s Selection) Of(all map[string]*v1alpha1.ConfigDependency) map[string]*v1alpha1.ConfigDependency {
	out := map[string]*v1alpha1.ConfigDependency{}
	for key, o := range all {
		if (s.Namespace == "" || o.Namespace == s.Namespace) && (s.Matches == nil || s.Matches(o)) {
			out[key] = o
		}
	}
	return out
}

// Client keeps a copy of the objects of a selection.
type Client struct {
	Name string
	Selection
	// Copy returns the client's objects, by namespace/name.
	Copy func() map[string]*v1alpha1.ConfigDependency
	// Run runs the client until the context is done.
	Run func(context.Context)
	// Tally returns counts of lists and watches for logs, and what was wrong with the answers.
	Tally func() (string, error)
}

// NewFollower returns a Follower, which lists in pages if there is a limit.
func NewFollower(client configdepv1alpha1.ConfigdepV1alpha1Interface, s Selection, limit int64) *Client {
	f := &Follower{
		Client:  client.ConfigDependencies(s.Namespace),
		Options: metav1.ListOptions{LabelSelector: s.Labels, FieldSelector: s.Fields, Limit: limit},
	}
	return &Client{Name: s.name(fmt.Sprintf("a follower with pages of %d", limit)), Selection: s, Copy: f.Copy, Run: f.Run, Tally: func() (string, error) {
		tally, err := f.Tally()
		if tally.Lists == 0 || tally.Watches == 0 {
			err = errors.Join(err, errors.New("the follower has not both listed and watched"))
		}
		return fmt.Sprintf("%+v", tally), err
	}}
}

// NewInformer returns an informer, which starts with a watch, or with a list as client-go does when its feature
// gate WatchListClient is off.
func NewInformer(client configdepv1alpha1.ConfigdepV1alpha1Interface, s Selection, streaming bool) *Client {
	lw, name := cache.ListerWatcher(listWatch(client, s)), "an informer that starts with a watch"
	if !streaming {
		lw, name = listing{listWatch(client, s)}, "an informer that lists"
	}
	informer := cache.NewSharedIndexInformer(lw, &v1alpha1.ConfigDependency{}, 0, nil)
	h, failed := handle(informer)
	return &Client{
		Name: s.name(name), Selection: s,
		Copy: h.Copy, // the informer's store is correct if this copy is
		Run:  informer.RunWithContext,
		Tally: func() (string, error) {
			return "at " + informer.LastSyncResourceVersion(), errors.Join(failed, h.err())
		},
	}
}

func (s Selection) name(what string) string {
	for _, selector := range []string{s.Namespace, s.Labels, s.Fields} {
		if selector != "" {
			what += ", " + selector
		}
	}
	return what
}

func listWatch(client configdepv1alpha1.ConfigdepV1alpha1Interface, s Selection) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector, o.FieldSelector = s.Labels, s.Fields
			return client.ConfigDependencies(s.Namespace).List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector, o.FieldSelector = s.Labels, s.Fields
			return client.ConfigDependencies(s.Namespace).Watch(ctx, o)
		},
	}
}

// listing makes a reflector start with a list.
type listing struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported implements the interface by which client-go detects that.
func (listing) IsWatchListSemanticsUnSupported() bool { return true }
