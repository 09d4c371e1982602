// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
)

const (
	watchLatencyApps    = 20
	watchLatencyChanges = 1000
	watchLatencyWarmUp  = 50
	// sightLimit is how long an event may take.
	sightLimit = 30 * time.Second
)

// benchmarkWatchLatency measures the time from a change until a watch of ConfigDependencies shows it, compared with a
// watch of the written object itself.
func benchmarkWatchLatency(ctx context.Context, e *environment) (rows []row, err error) {
	s, err := e.newScene(ctx, "watchlatency")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.end(ctx)) }()
	for i := range watchLatencyApps {
		if err := s.put(ctx, configMap(i, 1<<10), secret(i, 1<<10), deployment(i)); err != nil {
			return nil, err
		}
	}
	stop, err := e.profileCPU(ctx, "watchlatency")
	if err != nil {
		return nil, err
	}
	defer stop()
	for _, v := range []struct {
		name   string
		config *rest.Config
		change func(*scene) changing
		limit  limit
	}{
		{"ConfigMap to event", e.reader, configMapChanges, limit{ratio: 1.5}},
		{"Deployment to event", e.reader, deploymentChanges, limit{ratio: 1.5}},
		{"ConfigMap to event, past the aggregator", e.readerAtServer(), configMapChanges, limit{}},
	} {
		measured, err := s.compareSight(ctx, v.name, v.config, v.change(s), v.limit)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", v.name, err)
		}
		rows = append(rows, measured...)
	}
	rows[0].note = `from before the update is sent until the event of the ConfigDependency is decoded, in JSON by client-go. The
  floor is a watch on the written object, which sees the same change at the same time, on another connection. The path is
  kube-apiserver, the server, the harness's balancer and the aggregator.`
	return rows, nil
}

// changing makes changes of an object and recognizes their events.
type changing struct {
	// write makes the change with a number and returns the version of the object.
	write func(ctx context.Context, i, change int) (version string, err error)
	// watch watches the written object's resource.
	watch func(context.Context, kubernetes.Interface) (watch.Interface, error)
	shows func(d *v1alpha1.ConfigDependency, version string, change int) bool
}

func configMapChanges(s *scene) changing {
	return changing{
		write: func(ctx context.Context, i, change int) (string, error) {
			m := configMap(i, 1<<10)
			m.Data["KEY_0"] = strconv.Itoa(change)
			written, err := s.client.CoreV1().ConfigMaps(s.namespace).Update(ctx, m, updatedBy)
			return written.GetResourceVersion(), err
		},
		watch: func(ctx context.Context, c kubernetes.Interface) (watch.Interface, error) {
			return watchFromNow(ctx, c.CoreV1().ConfigMaps(s.namespace).List, c.CoreV1().ConfigMaps(s.namespace).Watch)
		},
		shows: func(d *v1alpha1.ConfigDependency, version string, _ int) bool {
			for _, source := range d.Status.Sources {
				if source.ResourceVersion == version {
					return true
				}
			}
			return false
		},
	}
}

func deploymentChanges(s *scene) changing {
	return changing{
		write: func(ctx context.Context, i, change int) (string, error) {
			d := deployment(i)
			d.Labels[changeLabel] = strconv.Itoa(change)
			written, err := s.client.AppsV1().Deployments(s.namespace).Update(ctx, d, updatedBy)
			return written.GetResourceVersion(), err
		},
		watch: func(ctx context.Context, c kubernetes.Interface) (watch.Interface, error) {
			return watchFromNow(ctx, c.AppsV1().Deployments(s.namespace).List, c.AppsV1().Deployments(s.namespace).Watch)
		},
		shows: func(d *v1alpha1.ConfigDependency, _ string, change int) bool {
			return d.Labels[changeLabel] == strconv.Itoa(change)
		},
	}
}

// watchFromNow lists objects and watches from the version of the list.
func watchFromNow[L metav1.ListInterface](ctx context.Context,
	list func(context.Context, metav1.ListOptions) (L, error), begin func(context.Context, metav1.ListOptions) (watch.Interface, error),
) (watch.Interface, error) {
	now, err := list(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return begin(ctx, metav1.ListOptions{ResourceVersion: now.GetResourceVersion()})
}

// sight is an event with the time at which it was decoded.
type sight struct {
	event watch.Event
	at    time.Time
}

// sights returns a channel with the events of a watch. It is closed when the watch ends.
func sights(w watch.Interface) <-chan sight {
	seen := make(chan sight, 16)
	go func() {
		defer close(seen)
		for event := range w.ResultChan() {
			seen <- sight{event, time.Now()}
		}
	}()
	return seen
}

// compareSight opens both watches and makes changes that both see.
func (s *scene) compareSight(ctx context.Context, name string, config *rest.Config, change changing, most limit) ([]row, error) {
	inJSON := func(config *rest.Config) *rest.Config {
		config = ownConnection(config)
		config.ContentType = runtime.ContentTypeJSON
		return config
	}
	client, err := versioned.NewForConfig(inJSON(config))
	if err != nil {
		return nil, err
	}
	plain, err := kubernetes.NewForConfig(inJSON(s.reader))
	if err != nil {
		return nil, err
	}
	ours, err := watchFromNow(ctx, client.ConfigdepV1alpha1().ConfigDependencies(s.namespace).List, client.ConfigdepV1alpha1().ConfigDependencies(s.namespace).Watch)
	if err != nil {
		return nil, err
	}
	defer ours.Stop()
	theirs, err := change.watch(ctx, plain)
	if err != nil {
		return nil, err
	}
	defer theirs.Stop()
	p := pairOfWatches{change: change, ours: sights(ours), theirs: sights(theirs)}
	var took, least samples
	for i := range watchLatencyWarmUp + s.count(watchLatencyChanges) {
		our, their, err := p.follow(ctx, i)
		if err != nil {
			return nil, err
		}
		if i >= watchLatencyWarmUp {
			took.addTime(our, time.Millisecond)
			least.addTime(their, time.Millisecond)
		}
		<-time.After(breath)
	}
	var rows []row
	for _, q := range []struct {
		name  string
		share float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		r := row{
			name: name + " " + q.name, unit: "ms", n: len(took), got: exactly(took.quantile(q.share)),
			floor: exactly(least.quantile(q.share)), floorName: "watch on the written object", limit: most,
		}
		say("%s: %v ms, of the written object %v ms", r.name, r.got, r.floor)
		rows = append(rows, r)
	}
	return rows, nil
}

// pairOfWatches are two watches that show the same changes.
type pairOfWatches struct {
	change       changing
	ours, theirs <-chan sight
}

// follow makes a change and returns the times until each watch shows it. The next event of each must be the one of this
// change.
func (p *pairOfWatches) follow(ctx context.Context, n int) (ours, theirs time.Duration, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, sightLimit, fmt.Errorf("no event within %v", sightLimit))
	defer cancel()
	started := time.Now()
	version, err := p.change.write(ctx, n%watchLatencyApps, n)
	if err != nil {
		return 0, 0, err
	}
	next := func(seen <-chan sight, shows func(runtime.Object) bool) (time.Duration, error) {
		select {
		case s, open := <-seen:
			switch {
			case !open:
				return 0, errors.New("the watch has ended")
			case s.event.Type != watch.Modified || !shows(s.event.Object):
				return 0, fmt.Errorf("want the event of change %d, version %s; got %s: %v", n, version, s.event.Type, s.event.Object)
			}
			return s.at.Sub(started), nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	if theirs, err = next(p.theirs, func(o runtime.Object) bool {
		written, ok := o.(metav1.Object)
		return ok && written.GetResourceVersion() == version
	}); err != nil {
		return 0, 0, fmt.Errorf("the floor: %w", err)
	}
	ours, err = next(p.ours, func(o runtime.Object) bool {
		d, ok := o.(*v1alpha1.ConfigDependency)
		return ok && p.change.shows(d, version, n)
	})
	return ours, theirs, err
}
