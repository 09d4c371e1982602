// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// patchCommand, as the first argument, makes this program the floor of restarts: a process that watches the ConfigMaps
// and Secrets of the namespace in the second argument. When one changes, it immediately patches the Deployments whose
// label sourceLabel names it. It makes no decisions and has no state.
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

// patchAtOnce runs the floor.
func patchAtOnce(ctx context.Context, namespace string) error {
	client, err := floorClient()
	if err != nil {
		return err
	}
	users, version, err := usersIn(ctx, client, namespace)
	if err != nil {
		return err
	}
	maps, err := watchFrom(ctx, version, client.CoreV1().ConfigMaps(namespace).Watch)
	if err != nil {
		return err
	}
	secrets, err := watchFrom(ctx, version, client.CoreV1().Secrets(namespace).Watch)
	if err != nil {
		return err
	}
	type order struct{ deployment, version string }
	orders := make(chan order, 10_000)
	var wg sync.WaitGroup
	failed := make(chan error, floorPatches+2)
	for _, w := range []watch.Interface{maps, secrets} {
		wg.Go(func() {
			for event := range w.ResultChan() {
				source, err := meta.Accessor(event.Object)
				if err != nil || event.Type != watch.Modified {
					continue
				}
				for _, deployment := range users[source.GetName()] {
					orders <- order{deployment, source.GetResourceVersion()}
				}
			}
			failed <- errors.New("a watch has ended")
		})
	}
	for range floorPatches {
		wg.Go(func() {
			for o := range orders {
				patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"bench-changed":%q}}}}}`, o.version)
				if _, err := client.AppsV1().Deployments(namespace).Patch(ctx, o.deployment, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	fmt.Println("ready")
	return <-failed
}

// usersIn returns the names of the Deployments to patch when a source changes, by source, and the resource version of
// the list.
func usersIn(ctx context.Context, client kubernetes.Interface, namespace string) (users map[string][]string, version string, err error) {
	list, err := client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{LabelSelector: sourceLabel})
	if err != nil {
		return nil, "", err
	}
	users = map[string][]string{}
	for i := range list.Items {
		d := &list.Items[i]
		users[d.Labels[sourceLabel]] = append(users[d.Labels[sourceLabel]], d.Name)
	}
	return users, list.ResourceVersion, nil
}
