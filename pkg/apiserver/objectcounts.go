// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"k8s.io/apiserver/pkg/storage"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// objectCounts tells priority and fairness how many ConfigDependencies a list has, and about how many bytes each has. Without
// it, every list would count as a list of one object, because the server has no storage that counts objects.
type objectCounts func() (objects, averageBytes int)

// Get implements flowcontrolrequest.StorageObjectCountTracker. The name is RESOURCE.GROUP.
func (c objectCounts) Get(name string) (storage.Stats, error) {
	if name != v1alpha1.Resource("configdependencies").String() {
		return storage.Stats{}, flowcontrolrequest.ObjectCountNotFoundErr
	}
	objects, size := c()
	return storage.Stats{ObjectCount: int64(objects), EstimatedAverageObjectSizeBytes: int64(size)}, nil
}

// Set implements flowcontrolrequest.StorageObjectCountTracker. Nothing calls it, as there is no storage.
func (objectCounts) Set(string, storage.Stats) {}

// RunUntil implements flowcontrolrequest.StorageObjectCountTracker. There is nothing to maintain.
func (objectCounts) RunUntil(stop <-chan struct{}) { <-stop }
