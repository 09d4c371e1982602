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

// aged makes a pod that was just created older, so that there is no doubt (judge.ClockMargin) that its containers have not read what changes now.
func aged(p *corev1.Pod) *corev1.Pod {
	at := runningSince(time.Now().Add(-30 * time.Second))
	p.CreationTimestamp, p.Status.Conditions[0].LastTransitionTime = at.Running.StartedAt, at.Running.StartedAt
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range statuses {
			statuses[i].State = at
		}
	}
	return p
}

func unready(p *corev1.Pod) *corev1.Pod {
	p.Status.Conditions[0].Status = corev1.ConditionFalse
	return p
}

func runningSince(at time.Time) corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at.Truncate(time.Second))}}
}

// roll replaces the pod of a Deployment when its template has changed, at once, as its controller and a kubelet do. While the status says that no
// pod is up to date, the old one stays.
func (c *cluster) roll(o ingesttest.Object) {
	d, is := o.(*appsv1.Deployment)
	if !is || d.Spec.Paused || d.Status.UpdatedReplicas == 0 {
		return
	}
	t := &d.Spec.Template
	raw, err := json.Marshal(t)
	if err != nil {
		c.t.Error(err)
	}
	h := fnv.New32a()
	h.Write(raw)
	revision := fmt.Sprintf("%08x", h.Sum32())
	name := d.Name + "-" + revision
	if c.running[d.Name] == name {
		return
	}
	c.drop(d)
	c.running[d.Name] = name
	p := &corev1.Pod{Spec: t.Spec}
	p.Name, p.Annotations, p.Labels = name, t.Annotations, map[string]string{"pod-template-hash": revision}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: types.UID("uid-" + name), Controller: new(true)}}
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: runningSince(time.Now().Add(time.Second))}} // a moment later
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

// replace does what the kubelets and the ReplicaSet do: it deletes terminating pods, and creates new ones.
func (c *cluster) replace(ready bool) {
	c.t.Helper()
	pods, err := c.client.CoreV1().Pods(namespace).List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			continue
		}
		c.remove(&p)
		heir := pod("new-"+p.Name, "")
		heir.OwnerReferences, heir.Labels = p.OwnerReferences, p.Labels
		if !ready {
			unready(heir)
		}
		c.set(heir)
	}
}

// ready makes a pod ready.
func (c *cluster) ready(name string) {
	c.t.Helper()
	edit(c, pod(name, ""), func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue })
}

// unavailable sets how many pods of the Deployment web are not available, and updated how many are up to date.
func (c *cluster) unavailable(n int32) {
	c.t.Helper()
	edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.AvailableReplicas = d.Status.Replicas - n })
}

func (c *cluster) updated(n int32) {
	c.t.Helper()
	edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = n })
}
