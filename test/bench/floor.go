// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// patchCommand, as the first argument, makes this program the floor of restarts: a process that sends the same requests
// as the server. It watches the ConfigMaps, Secrets, Deployments, ReplicaSets and Pods of the namespace in the second
// argument. When a source changes, it immediately patches the Deployments whose label sourceLabel names it, and creates
// an event for each. It makes no decisions, and keeps nothing but the versions of Deployments that a patch must name.
const patchCommand = "patch-at-once"

const sourceLabel = "bench-source"

// floorPatches is the number of concurrent patches of the floor, which is the server's default.
const floorPatches = 8

// floorName is the name of all objects that belong to this floor.
const floorName = "bench-floor"

// startPatchFloor starts the floor and returns when it watches. The function stop ends it.
func (e *environment) startPatchFloor(ctx context.Context, namespace string) (pid int, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, nil, fmt.Errorf("finding this program: %w", err)
	}
	cmd := e.cluster.Command(ctx, self, patchCommand, namespace)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+e.floorKubeconfig)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return 0, nil, fmt.Errorf("starting the floor: %w", err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // "signal: killed"
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		stop()
		return 0, nil, fmt.Errorf("waiting for the floor, which wrote %q: %w", line, err)
	}
	return cmd.Process.Pid, stop, nil
}

// floor is what the floor keeps.
type floor struct {
	mu    sync.Mutex
	users map[string][]*appsv1.Deployment // by source
}

// sourceChanged returns the Deployments to patch.
func (f *floor) sourceChanged(source string) (users []*appsv1.Deployment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append(users, f.users[source]...)
}

// see keeps the current state of a Deployment.
func (f *floor) see(d *appsv1.Deployment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	users := f.users[d.Labels[sourceLabel]]
	for i := range users {
		if users[i].Name == d.Name {
			users[i] = d
			return
		}
	}
	f.users[d.Labels[sourceLabel]] = append(users, d)
}

// patchAtOnce runs the floor.
func patchAtOnce(ctx context.Context, namespace string) error {
	client, err := floorClient()
	if err != nil {
		return err
	}
	list, err := client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{LabelSelector: sourceLabel})
	if err != nil {
		return err
	}
	f := &floor{users: map[string][]*appsv1.Deployment{}}
	for i := range list.Items {
		f.see(&list.Items[i])
	}
	orders, events := make(chan *appsv1.Deployment, 10_000), make(chan *appsv1.Deployment, 10_000)
	var pending atomic.Int64 // patches
	failed := make(chan error, 2*floorPatches)
	core, apps := client.CoreV1(), client.AppsV1()
	for _, begin := range []func(context.Context, metav1.ListOptions) (watch.Interface, error){
		core.ConfigMaps(namespace).Watch, core.Secrets(namespace).Watch, core.Pods(namespace).Watch,
		apps.Deployments(namespace).Watch, apps.ReplicaSets(namespace).Watch,
	} {
		w, err := watchFrom(ctx, list.ResourceVersion, begin)
		if err != nil {
			return err
		}
		go func() {
			for event := range w.ResultChan() {
				switch o := event.Object.(type) {
				case *appsv1.Deployment:
					f.see(o)
				case *corev1.ConfigMap, *corev1.Secret:
					source, err := meta.Accessor(o)
					if err != nil || event.Type != watch.Modified {
						continue
					}
					for _, d := range f.sourceChanged(source.GetName()) {
						pending.Add(1)
						orders <- d
					}
				}
			}
			failed <- errors.New("a watch has ended")
		}()
	}
	for range floorPatches {
		go func() {
			for d := range orders {
				_, err := apps.Deployments(namespace).Patch(ctx, d.Name, types.MergePatchType, patchOf(d), metav1.PatchOptions{FieldManager: "configdep"})
				pending.Add(-1)
				if err != nil {
					failed <- err
					return
				}
				events <- d
			}
		}()
	}
	go func() {
		for d := range events {
			for pending.Load() > 0 { // as the server, which does not delay patches by events
				<-time.After(time.Millisecond)
			}
			if _, err := core.Events(namespace).Create(ctx, eventOf(d), metav1.CreateOptions{}); err != nil {
				failed <- err
				return
			}
		}
	}()
	fmt.Println("ready")
	return <-failed
}

// patchOf returns a patch with the fields, and of the size, of the server's.
func patchOf(d *appsv1.Deployment) []byte {
	now := time.Now().UTC().Format(time.RFC3339Nano)
	hash := "v1.75a52430." + strings.Repeat("8769e00d", 3) + d.ResourceVersion
	sources := fmt.Sprintf(`{"at":%q,"for":%q,"scope":"5f0c8769e00d8769","sources":{"Secret/%s":"9c1e07d2.a2d48769e00d8769e00d8769e00d8769"}}`, now, hash, d.Labels[sourceLabel])
	last := fmt.Sprintf(`{"time":%q,"trigger":"Secret/%s","automatic":%q,"streak":1}`, now, d.Labels[sourceLabel], now)
	return fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q,"annotations":{"configdep.io/config-hash":%q,"configdep.io/applied-sources":%q,"configdep.io/last-reload":%q}},
		"spec":{"template":{"metadata":{"annotations":{"configdep.io/config-hash":%q,"configdep.io/reloaded-at":%q}}}}}`,
		d.UID, d.ResourceVersion, hash, sources, last, hash, now)
}

func eventOf(d *appsv1.Deployment) *corev1.Event {
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: d.Name + "."},
		InvolvedObject: corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: d.Namespace, Name: d.Name, UID: d.UID},
		Type:           corev1.EventTypeNormal, Reason: "ConfigRestarted", Message: "Restarted the pods because Secret/" + d.Labels[sourceLabel] + " has changed.",
		Source: corev1.EventSource{Component: "configdep"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}
