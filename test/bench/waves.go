// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/test/controlplane"
)

const (
	waveWorkloads = 50_000
	waveEach      = 25 // workloads in each namespace
	waveSource    = "bundle"
	// waveLimit is how long one wave may take.
	waveLimit = 20 * time.Minute
)

// waves is a cluster in which a ConfigMap of the same name in many namespaces changes.
type waves struct {
	*environment
	controllers *controllers
	namespaces  int
	requester   rest.Interface // of the server
	events      atomic.Int64   // of ConfigDependencies
}

// benchmarkWave measures until all workloads have been restarted that read the ConfigMaps, as many at a time as a ReloadPolicy allows.
func benchmarkWave(ctx context.Context, e *environment) (rows []row, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &waves{environment: e, controllers: startControllers(ctx, e.client), namespaces: (e.count(waveWorkloads) + waveEach - 1) / waveEach}
	defer w.controllers.queue.ShutDown()
	if err := w.fill(ctx); err != nil {
		return nil, err
	}
	if err := w.countEvents(ctx); err != nil {
		return nil, err
	}
	for _, budget := range []int{100, 1000} {
		measured, err := w.play(ctx, budget)
		if rows = append(rows, measured...); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

func waveNamespace(i int) string { return fmt.Sprintf("wave-%04d", i) }

// fill creates the workloads, whose rollouts are complete, and waits until the server has recorded what they run with. Because that is an annotation,
// this program then replaces the pods, as it does for each generation.
func (w *waves) fill(ctx context.Context) error {
	say("filling the cluster: %d workloads with a pod each in %d namespaces", w.namespaces*waveEach, w.namespaces)
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		return err
	}
	if _, err := w.cluster.Kubectl(ctx, "apply", "-k", filepath.Join(root, "artifacts", "policies")); err != nil {
		return err
	}
	w.server().Kill()
	f, err := w.newFiller(ctx)
	if err != nil {
		return err
	}
	defer f.etcd.Close()
	names := make([][]string, w.namespaces)
	err = inParallel(ctx, w.namespaces, func(ctx context.Context, i int) error {
		namespace := waveNamespace(i)
		if _, err := w.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, createdBy); err != nil {
			return err
		}
		var b batch
		c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: waveSource}, Data: map[string]string{"ca.crt": "first"}}
		b.add("configmaps", "v1", "ConfigMap", namespace, &c.ObjectMeta, f.sources, f.configMap, c)
		for j := range waveEach {
			d := bystander(deploymentName(i*waveEach+j), reads(waveSource, ""))
			d.Annotations = optInBy(true)
			f.addDeployment(&b, namespace, d)
			names[i] = append(names[i], d.Name)
		}
		return f.flush(ctx, &b, 0)
	})
	if err != nil {
		return err
	}
	for _, all := range names {
		for _, name := range all {
			w.controllers.pods[name] = fmt.Sprintf("%s-%s-0", name, revision)
		}
	}
	first, err := w.client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	deployments, err := watchFrom(ctx, first.ResourceVersion, w.client.AppsV1().Deployments("").Watch)
	if err != nil {
		return err
	}
	go func() {
		for event := range deployments.ResultChan() {
			if d, is := event.Object.(*appsv1.Deployment); is && event.Type == watch.Modified {
				w.controllers.see(d)
			}
		}
	}()
	if w.requester, err = newRequester(w.server().AdminConfig()); err != nil {
		return err
	}
	if err := errors.Join(w.server().Start(), w.awaitServed(ctx)); err != nil {
		return err
	}
	err = poll(ctx, time.Second/2, func() bool {
		leads, err := w.metric(ctx, "configdep_leader")
		return err == nil && leads == 1
	})
	if err := errors.Join(err, w.idle(ctx)); err != nil {
		return err
	}
	return poll(ctx, time.Second/2, func() bool { return w.controllers.queue.Len() == 0 })
}

// countEvents counts events of the server.
func (w *waves) countEvents(ctx context.Context) error {
	now, err := list(ctx, w.requester, dependencies+"?limit=1")
	if err != nil {
		return err
	}
	body, err := get(w.requester, dependencies+"?watch=true&resourceVersion="+now.Metadata.ResourceVersion).Stream(ctx)
	if err != nil {
		return err
	}
	go func() {
		defer body.Close()
		for lines := linesOf(body); lines.Scan(); {
			w.events.Add(1)
		}
		w.events.Add(math.MinInt32) // ended early
	}()
	return nil
}

// play changes the ConfigMaps, and waits until all workloads are up to date.
func (w *waves) play(ctx context.Context, budget int) ([]row, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, waveLimit, fmt.Errorf("the wave took more than %v", waveLimit))
	defer cancel()
	n, policy := w.namespaces*waveEach, fmt.Sprint("wave-", budget)
	err := w.client.CoreV1().RESTClient().Patch(types.ApplyPatchType).AbsPath("/apis/policy.configdep.io/v1alpha1/reloadpolicies", policy).Param("fieldManager", kubectl).
		Body(fmt.Appendf(nil, "{apiVersion: policy.configdep.io/v1alpha1, kind: ReloadPolicy, metadata: {name: %s}, spec: {budgets: [{workloads: %d}]}}", policy, budget)).Do(ctx).Error()
	if err != nil {
		return nil, err
	}
	if _, err := w.cluster.Kubectl(ctx, "wait", "--for=condition=Accepted", "reloadpolicy/"+policy, "--timeout=1m"); err != nil {
		return nil, err
	}
	if err := errors.Join(w.idle(ctx), sleep(ctx, 8*time.Second)); err != nil { // no change is in doubt then
		return nil, err
	}
	pid := w.server().PID()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil { // forget the peak
		return nil, err
	}
	done, err := w.metric(ctx, "configdep_current_after_seconds_count")
	if err != nil {
		return nil, err
	}
	used, err := cpuTime(pid)
	if err != nil {
		return nil, err
	}
	events, began := w.events.Load(), time.Now()
	err = inParallel(ctx, w.namespaces, func(ctx context.Context, i int) error {
		c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: waveSource}, Data: map[string]string{"ca.crt": policy}}
		_, err := w.client.CoreV1().ConfigMaps(waveNamespace(i)).Update(ctx, c, updatedBy)
		return err
	})
	if err != nil {
		return nil, err
	}
	wrote := time.Since(began)
	told := began
	err = errors.Join(poll(ctx, time.Second/2, func() bool {
		now, failed := w.metric(ctx, "configdep_current_after_seconds_count")
		if err = failed; time.Since(told) > 20*time.Second {
			told = time.Now()
			say("%s: %.0f of %d are up to date", policy, now-done, n)
		}
		return err != nil || int(now-done) >= n
	}), err)
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	used2, err := cpuTime(pid)
	if err != nil {
		return nil, err
	}
	m, err := memoryOf(pid)
	if err != nil {
		return nil, err
	}
	_, err = w.cluster.Kubectl(ctx, "delete", "reloadpolicy", policy)
	name := fmt.Sprintf("wave of %d, %d at a time: ", n, budget)
	return []row{
		{name: name + "until all are up to date", unit: "s", n: 1, got: exactly(took.Seconds()), note: fmt.Sprintf("of which %v to write the ConfigMaps.", wrote)},
		{name: name + "CPU of the server", unit: "s", n: 1, got: exactly((used2 - used).Seconds())},
		{name: name + "memory peak", unit: "MB", n: 1, got: exactly(m.peak)},
		{name: name + "events of a watch", unit: "per workload", n: 1, got: exactly(float64(w.events.Load()-events) / float64(n))},
	}, err
}

// metric returns a metric of the server that has no labels.
func (w *waves) metric(ctx context.Context, name string) (float64, error) {
	text, err := get(w.requester, "/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	_, value, _ := strings.Cut(string(text), "\n"+name+" ")
	value, _, _ = strings.Cut(value, "\n")
	return strconv.ParseFloat(value, 64)
}
