// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/ingest/ingesttest"
)

// pod returns a ready pod of a controller, whose container has just started: of the ReplicaSet web-a if its UID is uid-web-a, or else of a
// StatefulSet.
func pod(name string, owner types.UID) *corev1.Pod {
	p := &corev1.Pod{Spec: template("db").Spec}
	p.Name, p.Labels = name, map[string]string{"app": "web"}
	if owner != "" {
		of := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", UID: owner, Name: strings.TrimPrefix(string(owner), "uid-"), Controller: new(true)}
		if i := strings.LastIndex(of.Name, "-"); i >= 0 {
			of.Kind, p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = "ReplicaSet", of.Name[i+1:]
		}
		p.OwnerReferences = []metav1.OwnerReference{of}
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: runningSince(time.Now())}}
	return p
}

// of makes a pod one of a workload that owns its pods.
func of(w ingesttest.Object, p *corev1.Pod) *corev1.Pod {
	p.OwnerReferences[0].UID, p.OwnerReferences[0].Kind = "uid-web", "StatefulSet"
	if _, is := w.(*appsv1.DaemonSet); is {
		p.OwnerReferences[0].Kind = "DaemonSet"
	}
	p.OwnerReferences[0].Name = "web"
	delete(p.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return p
}

func unready(p *corev1.Pod) *corev1.Pod {
	p.Status.Conditions[0].Status = corev1.ConditionFalse
	return p
}

func runningSince(at time.Time) corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at.Truncate(time.Second))}}
}

// roll replaces the pod of a workload when its template has changed, at once, as its controller and a kubelet do. While the status says that no
// pod is up to date, the old one stays.
func (c *cluster) roll(o ingesttest.Object) {
	var t *corev1.PodTemplateSpec
	kind, replicas, rolls := "", int32(1), true
	switch o := o.(type) {
	case *appsv1.Deployment:
		kind, t, replicas, rolls = "ReplicaSet", &o.Spec.Template, ptr.Deref(o.Spec.Replicas, 1), !o.Spec.Paused && o.Status.UpdatedReplicas > 0
	case *appsv1.StatefulSet:
		kind, t, replicas = "StatefulSet", &o.Spec.Template, ptr.Deref(o.Spec.Replicas, 1)
	case *appsv1.DaemonSet:
		kind, t = "DaemonSet", &o.Spec.Template
	default:
		return
	}
	raw, err := json.Marshal(t)
	if err != nil {
		c.t.Error(err)
	}
	h := fnv.New32a()
	h.Write(raw)
	revision := fmt.Sprintf("%08x", h.Sum32())
	name := o.GetName() + "-" + revision
	if replicas == 0 {
		name = ""
	}
	before := c.running[o.GetName()]
	if before == name || !rolls && replicas > 0 {
		return
	}
	c.drop(o)
	if name == "" {
		return
	}
	c.running[o.GetName()] = name
	p := &corev1.Pod{Spec: t.Spec}
	p.Name, p.Annotations, p.Labels = name, t.Annotations, map[string]string{"pod-template-hash": revision}
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind, Name: o.GetName(), UID: o.GetUID(), Controller: new(true)}
	if kind == "ReplicaSet" {
		owner.Name, owner.UID = name, types.UID("uid-"+name)
	}
	p.OwnerReferences = []metav1.OwnerReference{owner}
	p.Status.Phase = corev1.PodRunning
	for i := range t.Spec.Containers { // each starts a moment later
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: t.Spec.Containers[i].Name, State: runningSince(time.Now().Add(time.Second)),
		})
	}
	c.store(p)
}

// drop removes the pod of a workload.
func (c *cluster) drop(o ingesttest.Object) {
	if name := c.running[o.GetName()]; name != "" {
		delete(c.running, o.GetName())
		c.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
}

// ownPods leaves the pods of the workloads to the test from now on.
func (c *cluster) ownPods() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.running {
		c.drop(deployment(name, ""))
	}
	c.running = nil
}
