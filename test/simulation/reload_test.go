// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/registry/reload"
)

// reloadRequest is a Reload that a user has created.
type reloadRequest struct {
	mode v1alpha1.ReloadRequestMode
	done chan struct{}
}

// views returns the ConfigDependency of any workload.
type views struct {
	d *workload
}

// Lookup implements reload.Views.
func (v views) Lookup(string, string) (*v1alpha1.ConfigDependency, error) {
	owner := v.d.owner()
	return &v1alpha1.ConfigDependency{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v.d.key().ViewName(), UID: "view"},
		Spec: v1alpha1.ConfigDependencySpec{WorkloadRef: v1alpha1.WorkloadReference{
			APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}},
	}, nil
}

// reload creates a Reload at a server. It is answered before anything else happens.
func (s *simulation) reload(server *server, slot int, mode v1alpha1.ReloadRequestMode) bool {
	d := s.world.workloads[slot]
	if d == nil || !server.alive || !server.view.synced {
		return false
	}
	request := &reloadRequest{mode: mode, done: make(chan struct{})}
	storage := &reload.REST{
		Views: views{d}, Index: server.index, Client: server.client(request), Sink: notify.Sinks{},
		Clock: server.controller.Clock,
	}
	go func() {
		defer close(request.done)
		ctx := genericapirequest.WithNamespace(quiet, namespace)
		answer, err := storage.Create(ctx, d.key().ViewName(), &v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Mode: mode}}, nil, &metav1.CreateOptions{})
		if err == nil && answer.(*v1alpha1.Reload).Status.Triggered {
			s.world.oracle.tally["restarts on request"]++
		}
	}()
	s.drain()
	if s.world.oracle.violation == "" {
		<-request.done
	}
	return true
}
