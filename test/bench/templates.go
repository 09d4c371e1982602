// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// templates counts changes of the pod templates of the Deployments in a namespace: each change is a rollout. It uses
// one watch, which does not miss changes.
type templates struct {
	stop func() // ends the watch

	mu      sync.Mutex
	seen    map[string]*template
	changed chan struct{} // closed and replaced on every change of a template
	err     error         // why the watch has ended
}

// template is the pod template of one Deployment.
type template struct {
	now     corev1.PodTemplateSpec
	changes int
	last    time.Time // when the last change was observed
}

// watchTemplates starts to count in a namespace, which must not contain Deployments yet.
func watchTemplates(ctx context.Context, client kubernetes.Interface, namespace string) (*templates, error) {
	list, err := client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	if len(list.Items) > 0 {
		return nil, fmt.Errorf("namespace %s is not empty", namespace)
	}
	w, err := watchFrom(ctx, list.ResourceVersion, client.AppsV1().Deployments(namespace).Watch)
	if err != nil {
		return nil, err
	}
	t := &templates{stop: w.Stop, seen: map[string]*template{}, changed: make(chan struct{})}
	go t.run(w)
	return t, nil
}

// watchFrom watches from a version on. When the API server ends the watch, for example because it is too slow, a new
// one resumes where it ended.
func watchFrom(ctx context.Context, version string, begin func(context.Context, metav1.ListOptions) (watch.Interface, error)) (watch.Interface, error) {
	return watchtools.NewRetryWatcherWithContext(ctx, version, &cache.ListWatch{WatchFuncWithContext: begin})
}

func (t *templates) run(w watch.Interface) {
	for event := range w.ResultChan() {
		d, ok := event.Object.(*appsv1.Deployment)
		if !ok {
			t.fail(fmt.Errorf("watching Deployments: %v", event.Object))
			return
		}
		if event.Type != watch.Deleted {
			t.see(d, time.Now())
		}
	}
	t.fail(errors.New("the watch of Deployments has ended"))
}

func (t *templates) see(d *appsv1.Deployment, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.seen[d.Name]
	switch {
	case one == nil:
		t.seen[d.Name] = &template{now: d.Spec.Template}
	case !equality.Semantic.DeepEqual(one.now, d.Spec.Template):
		one.now, one.last = d.Spec.Template, at
		one.changes++
	default:
		return
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *templates) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
	close(t.changed)
	t.changed = make(chan struct{})
}

// of returns how often the template of a Deployment has changed and when it last changed. The channel is closed on the
// next change of any template.
func (t *templates) of(name string) (changes int, last time.Time, next <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.seen[name]; one != nil {
		changes, last = one.changes, one.last
	}
	return changes, last, t.changed, t.err
}

// await waits until the template of a Deployment has changed a number of times, and returns the time of the last
// change.
func (t *templates) await(ctx context.Context, name string, changes int) (time.Time, error) {
	for {
		n, last, next, err := t.of(name)
		switch {
		case n >= changes:
			return last, nil
		case err != nil:
			return last, err
		}
		select {
		case <-ctx.Done():
			return last, context.Cause(ctx)
		case <-next:
		}
	}
}

// rollouts returns the number of changes of all Deployments but the canary, and the number of these Deployments.
func (t *templates) rollouts() (all, deployments int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, one := range t.seen {
		if name != canary && one.changes > 0 {
			all += one.changes
			deployments++
		}
	}
	return all, deployments, t.err
}
