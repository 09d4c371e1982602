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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
)

// controllers does in a scene what the Deployment controller and kubelets do: each Deployment has a pod of its current
// template, which runs, and a status that says so. It writes nothing while a measurement holds it, because it would use
// the processors that both sides need.
type controllers struct {
	client kubernetes.Interface
	queue  workqueue.TypedInterface[string]
	held   sync.RWMutex // by a measurement

	mu     sync.Mutex
	latest map[string]*appsv1.Deployment
	pods   map[string]string // the pod of each Deployment
	last   time.Time         // when the last pod was started
	starts time.Duration     // how long a pod takes to start
	failed error
}

func startControllers(ctx context.Context, client kubernetes.Interface) *controllers {
	r := &controllers{client: client, queue: workqueue.NewTyped[string](), latest: map[string]*appsv1.Deployment{}, pods: map[string]string{}}
	for range fillers {
		go r.work(ctx)
	}
	return r
}

// startAfter sets how long pods take to start; by default, no time.
func (r *controllers) startAfter(starts time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starts = starts
}

// see takes the current state of a Deployment.
func (r *controllers) see(d *appsv1.Deployment) {
	if d.Status.ObservedGeneration >= d.Generation {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latest[d.Name] = d
	r.queue.Add(d.Name)
}

func (r *controllers) work(ctx context.Context) {
	for {
		name, ended := r.queue.Get()
		if ended {
			return
		}
		r.held.RLock()
		r.mu.Lock()
		d := r.latest[name]
		r.mu.Unlock()
		if err := r.rollOut(ctx, d); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			r.mu.Lock()
			r.failed = errors.Join(r.failed, err)
			r.mu.Unlock()
		}
		r.held.RUnlock()
		r.queue.Done(name)
	}
}

// rollOut replaces the pod of a Deployment if the template has changed, and writes the status.
func (r *controllers) rollOut(ctx context.Context, d *appsv1.Deployment) error {
	pods := r.client.CoreV1().Pods(d.Namespace)
	p := podOf(d, fmt.Sprint("g", d.Generation), 0)
	r.mu.Lock()
	before, starts := r.pods[d.Name], r.starts
	r.pods[d.Name] = p.Name
	r.mu.Unlock()
	if before == p.Name { // something else of the Deployment was written meanwhile
		return nil
	}
	created, err := pods.Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := sleep(ctx, starts); err != nil {
		return err
	}
	created.Status = runs(created)
	r.mu.Lock()
	r.last = time.Now()
	r.mu.Unlock()
	if _, err := pods.UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if before != "" {
		if err := pods.Delete(ctx, before, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
			return err
		}
	}
	status := fmt.Appendf(nil, `{"status":{"observedGeneration":%d,"replicas":1,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1}}`, d.Generation)
	_, err = r.client.AppsV1().Deployments(d.Namespace).Patch(ctx, d.Name, types.MergePatchType, status, metav1.PatchOptions{}, "status")
	return err
}

// complete waits until all rollouts are complete.
func (s *scene) complete(ctx context.Context) error {
	var failed error
	err := poll(ctx, 20*time.Millisecond, func() bool {
		s.controllers.mu.Lock()
		failed = s.controllers.failed
		s.controllers.mu.Unlock()
		list, err := s.client.AppsV1().Deployments(s.namespace).List(ctx, metav1.ListOptions{})
		if failed = errors.Join(failed, err); failed != nil {
			return true
		}
		for i := range list.Items {
			if d := &list.Items[i]; d.Status.ObservedGeneration < d.Generation {
				return false
			}
		}
		return true
	})
	return errors.Join(failed, err)
}

// aged waits until it is certain, within all margins, that no pod has started at the time of the next change. Otherwise, a restart would be in
// doubt, and wait.
func (s *scene) aged(ctx context.Context) error {
	s.controllers.mu.Lock()
	last := s.controllers.last
	s.controllers.mu.Unlock()
	return sleep(ctx, time.Until(last.Add(8*time.Second)))
}

// podOf returns a pod of the template of a Deployment, as its ReplicaSet creates it.
func podOf(d *appsv1.Deployment, revision string, number int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: *d.Spec.Template.ObjectMeta.DeepCopy(), Spec: *d.Spec.Template.Spec.DeepCopy()}
	p.Namespace, p.Name = d.Namespace, fmt.Sprintf("%s-%s-%d", d.Name, revision, number)
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = revision
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: d.Name + "-" + revision, UID: "r" + d.UID, Controller: new(true), BlockOwnerDeletion: new(true),
	}}
	p.Spec.NodeName = fmt.Sprintf("node-%d", number)
	return p
}

// runs returns the status of a pod that has just started, as its kubelet writes it.
func runs(p *corev1.Pod) corev1.PodStatus {
	now := metav1.Now()
	s := corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &now, QOSClass: p.Status.QOSClass,
		HostIP: "10.1.2.3", HostIPs: []corev1.HostIP{{IP: "10.1.2.3"}}, PodIP: "10.128.1.2", PodIPs: []corev1.PodIP{{IP: "10.128.1.2"}},
	}
	for _, c := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for i := range p.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
			Name: p.Spec.Containers[i].Name, Image: p.Spec.Containers[i].Image, ImageID: p.Spec.Containers[i].Image + "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			ContainerID: "containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			Ready:       true, Started: new(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return s
}
