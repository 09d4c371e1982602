// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// journal follows all events in the cells, in order, and passes them to the oracle. It watches etcd, whose
// revisions are the resourceVersions: one watch for all resources, which does not end with the API server.
type journal struct {
	client *clientv3.Client

	mu       sync.Mutex
	moved    chan struct{} // closed at the next event
	revision int64
	err      error
	oracle   *oracle
}

const registry = "/registry/"

// follow starts a journal, which ends with the context.
func follow(ctx context.Context, url string, o *oracle) (*journal, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, Context: ctx})
	if err != nil {
		return nil, err
	}
	now, err := client.Get(ctx, registry, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return nil, err
	}
	j := &journal{client: client, moved: make(chan struct{}), oracle: o}
	go j.run(ctx, now.Header.Revision+1)
	return j, nil
}

func (j *journal) run(ctx context.Context, from int64) {
	for response := range j.client.Watch(ctx, registry, clientv3.WithPrefix(), clientv3.WithRev(from)) {
		err := response.Err()
		for _, event := range response.Events {
			if err == nil {
				err = j.apply(event)
			}
		}
		j.mu.Lock()
		j.revision, j.err = max(j.revision, response.Header.Revision), errors.Join(j.err, err)
		close(j.moved)
		j.moved = make(chan struct{})
		j.mu.Unlock()
	}
}

func (j *journal) apply(event *clientv3.Event) error {
	parts := strings.Split(strings.TrimPrefix(string(event.Kv.Key), registry), "/")
	if len(parts) == 2 && parts[0] == "namespaces" {
		parts = append(parts, "")
	}
	if len(parts) != 3 {
		return nil
	}
	resource, namespace, name := parts[0], parts[1], parts[2]
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.oracle.cells[namespace]
	if c == nil || resource == "events" {
		return nil
	}
	c.revision, c.at = event.Kv.ModRevision, time.Now()
	var object runtime.Object
	if event.Type == clientv3.EventTypePut {
		switch resource {
		case "configmaps", "secrets", "deployments", "statefulsets", "daemonsets", "pods", "namespaces":
		default:
			return nil
		}
		var err error
		if object, _, err = scheme.Codecs.UniversalDeserializer().Decode(event.Kv.Value, nil, nil); err != nil {
			return fmt.Errorf("decoding %s: %w", event.Kv.Key, err)
		}
	}
	switch resource {
	case "configmaps", "secrets":
		c.setSource(name, contentOf(object))
	case "deployments", "statefulsets", "daemonsets":
		if w := c.workloads[name]; w != nil {
			w.set(stateOf(object))
		}
	case "namespaces":
		if namespace, ok := object.(*corev1.Namespace); ok {
			c.setReload(namespace.Annotations[reloadAnnotation])
		}
	case "pods":
		pod, _ := object.(*corev1.Pod)
		c.setPod(name, pod)
	}
	return nil
}

func contentOf(object runtime.Object) content {
	c := content{}
	switch o := object.(type) {
	case *corev1.ConfigMap:
		maps.Copy(c, o.Data)
	case *corev1.Secret:
		for key, value := range o.Data {
			c[key] = string(value)
		}
	default:
		return nil
	}
	return c
}

// state is the part of a workload that the oracle reads; nil: the workload does not exist.
type state struct {
	labels, annotations map[string]string
	template            corev1.PodTemplateSpec
	complete            bool  // according to its status
	pods                int32 // the wanted number of pods
	paused              bool
	deleting            bool
}

func stateOf(object runtime.Object) *state {
	switch o := object.(type) {
	case *appsv1.Deployment:
		s, n := o.Status, *o.Spec.Replicas
		return &state{
			complete: s.ObservedGeneration >= o.Generation && s.UpdatedReplicas == n && s.Replicas == n && s.AvailableReplicas == n,
			labels:   o.Labels, annotations: o.Annotations, template: o.Spec.Template, pods: n, paused: o.Spec.Paused, deleting: o.DeletionTimestamp != nil,
		}
	case *appsv1.StatefulSet:
		s, n := o.Status, *o.Spec.Replicas
		return &state{
			complete: s.ObservedGeneration >= o.Generation && (s.UpdateRevision == s.CurrentRevision || n == 0) && s.Replicas == n && s.ReadyReplicas == n,
			labels:   o.Labels, annotations: o.Annotations, template: o.Spec.Template, pods: n, deleting: o.DeletionTimestamp != nil,
		}
	case *appsv1.DaemonSet:
		s, n := o.Status, o.Status.DesiredNumberScheduled
		return &state{
			complete: s.ObservedGeneration >= o.Generation && n > 0 && s.UpdatedNumberScheduled == n && s.NumberAvailable == n,
			labels:   o.Labels, annotations: o.Annotations, template: o.Spec.Template, pods: n, deleting: o.DeletionTimestamp != nil,
		}
	default:
		return nil
	}
}

// catchUp waits until the journal has seen everything that has happened until now.
func (j *journal) catchUp(ctx context.Context) error {
	now, err := j.client.Get(ctx, registry, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	for {
		j.mu.Lock()
		revision, err, moved := j.revision, j.err, j.moved
		j.mu.Unlock()
		if err != nil || revision >= now.Header.Revision {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (j *journal) tally() tally {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.oracle.tally
}
