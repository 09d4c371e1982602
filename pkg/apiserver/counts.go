// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"k8s.io/apiserver/pkg/storage"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// objectCounts tells priority and fairness how large a list is. Without it, every list would count as
// one of a single object, because nothing is stored here.
type objectCounts struct {
	size func() (objects, averageBytes int)
}

// Get implements flowcontrolrequest.StorageObjectCountTracker.
func (c objectCounts) Get(resource string) (storage.Stats, error) {
	if resource != v1alpha1.Resource("configdependencies").String() {
		return storage.Stats{}, flowcontrolrequest.ObjectCountNotFoundErr
	}
	objects, size := c.size()
	return storage.Stats{ObjectCount: int64(objects), EstimatedAverageObjectSizeBytes: int64(size)}, nil
}

// Set implements flowcontrolrequest.StorageObjectCountTracker, and is for what is stored.
func (objectCounts) Set(string, storage.Stats) {}

// RunUntil implements flowcontrolrequest.StorageObjectCountTracker. There is nothing to maintain.
func (objectCounts) RunUntil(stop <-chan struct{}) { <-stop }
