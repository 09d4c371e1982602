// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// floorCommand, as the first argument, makes this program the floor of the startup: a process that lists once the
// objects that the server reads, and exits. The second argument is the mode.
const floorCommand = "list-everything"

// The modes of the floor.
const (
	floorPlain      = "plain"      // one request per resource, concurrently, uncompressed
	floorCompressed = "compressed" // the same with gzip, as clients request by default
	floorPaged      = "paged"      // pages of 500, uncompressed
)

// runFloor runs the floor as the server's ServiceAccount, so that it is treated the same, and returns the time from
// before the process was started until it had exited.
func (e *environment) runFloor(ctx context.Context, mode string) (effort, error) {
	self, err := os.Executable()
	if err != nil {
		return effort{}, fmt.Errorf("finding this program: %w", err)
	}
	cmd := e.cluster.Command(ctx, self, floorCommand, mode)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+e.serverKubeconfig(), fmt.Sprintf("BENCH_EXPECT=%d", e.filled.workloads+e.filled.sources))
	started := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		return effort{}, fmt.Errorf("listing everything: %w: %s", err, out)
	}
	return effort{time.Since(started), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}, nil
}

// listEverything lists the objects that the server reads, with the same selectors, into typed objects.
func listEverything(ctx context.Context, mode string) error {
	client, err := floorClient(mode == floorCompressed)
	if err != nil {
		return err
	}
	options := metav1.ListOptions{}
	if mode == floorPaged {
		options.Limit = 500
	}
	var wg sync.WaitGroup
	lists := everything(client)
	counts, errs := make([]int, len(lists)), make([]error, len(lists))
	for i, list := range lists {
		wg.Go(func() { counts[i], errs[i] = list(ctx, options) })
	}
	wg.Wait()
	total := 0
	for i := range lists {
		if errs[i] != nil {
			return errs[i]
		}
		total += counts[i]
	}
	// A process that has listed fewer objects would not be a floor.
	var expected int
	if _, err := fmt.Sscan(os.Getenv("BENCH_EXPECT"), &expected); err != nil || total < expected {
		return fmt.Errorf("listed %d objects, want at least %s", total, os.Getenv("BENCH_EXPECT"))
	}
	return nil
}

// floorClient returns a client that is configured as the server's client.
func floorClient(compressed bool) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.DisableCompression = !compressed
	return kubernetes.NewForConfig(config)
}

type lister func(context.Context, metav1.ListOptions) (int, error)

func everything(client kubernetes.Interface) []lister {
	all := metav1.NamespaceAll
	apps, batch, core := client.AppsV1(), client.BatchV1(), client.CoreV1()
	return []lister{
		listOf(apps.Deployments(all).List, "", ""),
		listOf(apps.StatefulSets(all).List, "", ""),
		listOf(apps.DaemonSets(all).List, "", ""),
		listOf(batch.CronJobs(all).List, "", ""),
		listOf(batch.Jobs(all).List, "", ""),
		listOf(apps.ReplicaSets(all).List, "!pod-template-hash", ""),
		listOf(core.Pods(all).List, "!pod-template-hash,!controller-revision-hash,!batch.kubernetes.io/controller-uid", "status.phase!=Succeeded,status.phase!=Failed"),
		listOf(core.ConfigMaps(all).List, "", ""),
		listOf(core.Secrets(all).List, "", ""),
		listOf(core.Namespaces().List, "", ""),
	}
}

// listOf counts the objects of one resource, in pages if the options have a limit.
func listOf[L interface {
	runtime.Object
	metav1.ListInterface
}](list func(context.Context, metav1.ListOptions) (L, error), labels, fields string) lister {
	return func(ctx context.Context, options metav1.ListOptions) (int, error) {
		options.LabelSelector, options.FieldSelector = labels, fields
		total := 0
		for {
			page, err := list(ctx, options)
			if err != nil {
				return total, fmt.Errorf("listing: %w", err)
			}
			total += meta.LenList(page)
			if options.Continue = page.GetContinue(); options.Continue == "" {
				return total, nil
			}
		}
	}
}
