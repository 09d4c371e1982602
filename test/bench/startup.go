// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	startupRounds = 7
	// startLimit is how long the server may take to be ready.
	startLimit = 5 * time.Minute
)

// benchmarkStartup measures the time from the start of the server's process until it is ready, compared with a process
// that only lists the same objects.
func benchmarkStartup(ctx context.Context, e *environment) ([]row, error) {
	if err := e.fill(ctx, standard); err != nil {
		return nil, err
	}
	var took, least, cpu, leastCPU samples
	for range startupRounds {
		ours, err := e.restart(ctx)
		if err != nil {
			return nil, err
		}
		oursCPU, err := cpuTime(e.server().PID())
		if err != nil {
			return nil, err
		}
		e.server().Kill() // it must be idle while the floor is measured
		floor, floorCPU, err := e.runListFloor(ctx)
		if err != nil {
			return nil, err
		}
		took.addTime(ours, time.Second)
		cpu.addTime(oursCPU, time.Second)
		least.addTime(floor, time.Second)
		leastCPU.addTime(floorCPU, time.Second)
		say("ready after %v (CPU %v); only lists: %v (CPU %v)", ours, oursCPU, floor, floorCPU)
	}
	const of = "concurrent full lists, a process of its own"
	rows := []row{
		{name: "startup", unit: "s", n: startupRounds, got: took.summary(), floor: least.summary(), floorName: of, limit: limit{ratio: 1.5}},
		{name: "startup: CPU", unit: "s", n: startupRounds, got: cpu.summary(), floor: leastCPU.summary(), floorName: of},
	}
	rows[0].note = "from the start of the process to ready, with " + e.filled.String() + `. The floor lists the same resources
  concurrently but for ReplicaSets, without pages, in protobuf, uncompressed, with client-go, from the start of its process to its end. CPU is
  the CPU of the process only, and varies less than the time if other programs use the machine.`
	if err := e.server().Start(); err != nil {
		return nil, err
	}
	return rows, e.awaitServed(ctx)
}

// restart restarts the server and returns the time from before its process was started until it was ready.
func (e *environment) restart(ctx context.Context) (time.Duration, error) {
	server := e.server()
	server.Kill()
	probe, err := newRequester(server.RESTConfig())
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("the server was not ready within %v; its log is %s", startLimit, server.Log()))
	defer cancel()
	started := time.Now()
	if err := server.Start(); err != nil {
		return 0, err
	}
	err = poll(ctx, 10*time.Millisecond, func() bool { return get(probe, "/readyz").Do(ctx).Error() == nil })
	return time.Since(started), err
}

// listCommand, as the first argument, makes this program the floor of the startup: a process that lists once the
// objects that the server reads, and exits.
const listCommand = "list-everything"

// runListFloor runs the floor as the server's ServiceAccount, so that it is treated the same, and returns the time from
// before the process was started until it had exited, and its processor time.
func (e *environment) runListFloor(ctx context.Context) (took, cpu time.Duration, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, 0, fmt.Errorf("finding this program: %w", err)
	}
	cmd := e.cluster.Command(ctx, self, listCommand)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+filepath.Join(e.install.Dir(), "kubeconfig.yaml"),
		fmt.Sprintf("BENCH_EXPECT=%d", e.filled.workloads*(1+podsOf)+e.filled.sources))
	started := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, 0, fmt.Errorf("listing everything: %w: %s", err, out)
	}
	return time.Since(started), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// listEverything lists the objects that the server reads, with the same selectors, into typed objects.
func listEverything(ctx context.Context) error {
	client, err := floorClient()
	if err != nil {
		return err
	}
	all := metav1.NamespaceAll
	apps, batch, core := client.AppsV1(), client.BatchV1(), client.CoreV1()
	lists := []lister{
		listOf(apps.Deployments(all).List, "", ""),
		listOf(apps.StatefulSets(all).List, "", ""),
		listOf(apps.DaemonSets(all).List, "", ""),
		listOf(batch.CronJobs(all).List, "", ""),
		listOf(batch.Jobs(all).List, "", ""),
		listOf(core.Pods(all).List, "", "status.phase!=Succeeded,status.phase!=Failed"),
		listOf(core.ConfigMaps(all).List, "", ""),
		listOf(core.Secrets(all).List, "", ""),
		listOf(core.Namespaces().List, "", ""),
	}
	var group errgroup.Group
	counts := make([]int, len(lists))
	for i, list := range lists {
		group.Go(func() (err error) {
			counts[i], err = list(ctx)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	// A process that has listed fewer objects would not be a floor.
	var expected int
	if _, err := fmt.Sscan(os.Getenv("BENCH_EXPECT"), &expected); err != nil || total < expected {
		return fmt.Errorf("listed %d objects, want at least %s", total, os.Getenv("BENCH_EXPECT"))
	}
	return nil
}

// lister lists one resource and returns the number of objects.
type lister func(context.Context) (int, error)

func listOf[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error), labels, fields string) lister {
	return func(ctx context.Context) (int, error) {
		all, err := list(ctx, metav1.ListOptions{LabelSelector: labels, FieldSelector: fields})
		if err != nil {
			return 0, err
		}
		return meta.LenList(all), nil
	}
}

// floorClient returns a client that is configured as the server's client.
func floorClient() (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.DisableCompression = true
	return kubernetes.NewForConfig(config)
}
