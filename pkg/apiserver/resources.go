// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/registry/configdependency"
)

// feed is a view of any resource, with the methods that the server needs.
type feed interface {
	ingest.Sink
	Run(ctx context.Context)
	Reset()
	Ready() error
	Drain(within time.Duration)
	Watches() (open, events int)
	Size() (objects, averageBytes int)
}

// resource is an API resource that is served from a view.
type resource struct {
	view    feed
	storage rest.Storage
}

// resources are all resources that are served from views, by name.
type resources map[string]resource

// newResources returns the resources of the API group, without subresources.
func newResources(dependencies *configdependency.Views, kinds kind.Table) resources {
	return resources{
		"configdependencies": {dependencies, configdependency.NewREST(dependencies, kinds)},
	}
}

// storage returns the storage of each resource, by name.
func (r resources) storage() map[string]rest.Storage {
	all := map[string]rest.Storage{}
	for name, resource := range r {
		all[name] = resource.storage
	}
	return all
}

// sinks returns the views as sinks of the index, ordered by the names of the resources.
func (r resources) sinks() (sinks []ingest.Sink) {
	for _, name := range slices.Sorted(maps.Keys(r)) {
		sinks = append(sinks, r[name].view)
	}
	return sinks
}

func (r resources) reset() {
	for _, resource := range r {
		resource.view.Reset()
	}
}

// ready returns nil once all views are ready.
func (r resources) ready() error {
	for _, resource := range r {
		if err := resource.view.Ready(); err != nil {
			return err
		}
	}
	return nil
}

func (r resources) drain(within time.Duration) {
	for _, resource := range r {
		resource.view.Drain(within)
	}
}

func (r resources) watches() (open, events int) {
	for _, resource := range r {
		o, e := resource.view.Watches()
		open, events = open+o, events+e
	}
	return open, events
}

// objectCounts tells priority and fairness how many objects a list has. Without it, every list would
// count as a list of one object, because the server has no storage that counts objects.
type objectCounts struct{ resources }

// Get implements flowcontrolrequest.StorageObjectCountTracker. The name is RESOURCE.GROUP.
func (c objectCounts) Get(name string) (storage.Stats, error) {
	for resource, served := range c.resources {
		if v1alpha1.Resource(resource).String() == name {
			objects, size := served.view.Size()
			return storage.Stats{ObjectCount: int64(objects), EstimatedAverageObjectSizeBytes: int64(size)}, nil
		}
	}
	return storage.Stats{}, flowcontrolrequest.ObjectCountNotFoundErr
}

// Set implements flowcontrolrequest.StorageObjectCountTracker. Nothing calls it, as there is no storage.
func (objectCounts) Set(string, storage.Stats) {}

// RunUntil implements flowcontrolrequest.StorageObjectCountTracker. There is nothing to maintain.
func (objectCounts) RunUntil(stop <-chan struct{}) { <-stop }
