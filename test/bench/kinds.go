// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/configdep/configdep/test/install"
)

const (
	kindsRounds    = 3
	kindsNamespace = "kinds"
	kindsObjects   = 10_000
	kindsBytes     = 50 << 10
	settingBytes   = 2 << 10
)

// parks is a kind that does not come with configdep.
var parks = schema.GroupVersionResource{Group: "bench.example.com", Version: "v1", Resource: "parks"}

const parkKinds = `apiVersion: config.configdep.io/v1alpha1
kind: WorkloadKinds
kinds:
- {group: bench.example.com, kind: Park, resource: parks, versions: [v1], sources: [{kind: Secret, name: ".spec.secretName"}], reload: {by: Event}}
`

// benchmarkKinds measures what custom resources cost: nothing of them is kept but what the description of their kind names, so their size
// must not matter.
func benchmarkKinds(ctx context.Context, e *environment) (rows []row, err error) {
	n := e.count(kindsObjects)
	e.server().Kill()
	replica, err := e.kindsReplica(ctx)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(e.cluster.RESTConfig())
	if err != nil {
		return nil, err
	}
	all := client.Resource(parks).Namespace(kindsNamespace)
	defer func() {
		err = errors.Join(err, all.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	}()
	if err := e.defineParks(ctx, client); err != nil {
		return nil, fmt.Errorf("defining a kind: %w", err)
	}
	var measured [3]kindsSamples
	for i, size := range []int{0, 100, kindsBytes} {
		if size > 0 {
			if err := fillParks(ctx, all, n, size); err != nil {
				return nil, fmt.Errorf("creating custom resources: %w", err)
			}
		}
		for range kindsRounds {
			if err := e.addKindsStart(ctx, replica, size > 0, &measured[i]); err != nil {
				return nil, err
			}
		}
		say("with custom resources of %d bytes: %.1f MB, peak %.1f MB", size, measured[i].rss.quantile(0.5), measured[i].peak.quantile(0.5))
	}
	if _, err := e.restart(ctx); err != nil {
		return nil, err
	}
	without, small, large := &measured[0], &measured[1], &measured[2]
	const of = "the same with small ones"
	return []row{
		{
			name: "memory beside custom resources", unit: "MB", n: kindsRounds, got: large.rss.summary(), floor: small.rss.summary(), floorName: of, limit: limit{ratio: 1.1},
			note: fmt.Sprintf("%d custom resources of %d KB, of a kind that is described in a file, after the start. Of each, one reference is kept.", n, kindsBytes>>10),
		},
		{name: "memory beside custom resources: peak", unit: "MB", n: kindsRounds, got: large.peak.summary(), floor: small.peak.summary(), floorName: of, limit: limit{ratio: 1.2}},
		{name: "memory of a custom resource", unit: "kB", n: 1, got: exactly((large.rss.quantile(0.5) - without.rss.quantile(0.5)) * 1e3 / float64(n))},
		{name: "start until custom resources are shown", unit: "s", n: kindsRounds, got: large.time.summary(), floor: small.time.summary(), floorName: of},
	}, e.awaitServed(ctx)
}

// kindsSamples are measurements of starts.
type kindsSamples struct{ time, rss, peak samples }

// addKindsStart starts a replica alone, waits until it shows the custom resources, if there are some, and stops it once its memory has settled.
func (e *environment) addKindsStart(ctx context.Context, replica *install.Replica, some bool, out *kindsSamples) error {
	begin := time.Now()
	if _, err := e.startOf(ctx, replica); err != nil {
		return err
	}
	if some {
		if err := e.awaitParks(ctx, replica); err != nil {
			return err
		}
	}
	took := time.Since(begin)
	used, err := e.settledMemoryOf(ctx, func() (memory, error) { return memoryOf(replica.PID()) })
	if err != nil {
		return err
	}
	replica.Kill()
	out.time.addTime(took, time.Second)
	out.rss, out.peak = append(out.rss, used.rss), append(out.peak, used.peak)
	return nil
}

// awaitParks waits until a replica shows the custom resources. It reads them in one list, so one stands for all.
func (e *environment) awaitParks(ctx context.Context, replica *install.Replica) error {
	config := replica.RESTConfig()
	config.BearerToken = e.reader.BearerToken
	user, err := newRequester(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("the custom resources were not shown within %v", startLimit))
	defer cancel()
	return poll(ctx, 20*time.Millisecond, func() bool {
		_, err := user.read(ctx, request{path: "/apis/configdep.io/v1alpha1/namespaces/" + kindsNamespace + "/configdependencies/park.park-00000"})
		return err == nil
	})
}

// kindsReplica returns a stopped replica that reads the kind with the rights of an administrator.
func (e *environment) kindsReplica(ctx context.Context) (*install.Replica, error) {
	file := filepath.Join(e.dir, "kinds.yaml")
	if err := os.WriteFile(file, []byte(parkKinds), 0o600); err != nil {
		return nil, err
	}
	kubeconfig, err := e.administrator(ctx, "bench-kinds")
	if err != nil {
		return nil, err
	}
	replica, err := e.install.StartExtra("kinds", install.ReplicaOptions{Kubeconfig: kubeconfig, Args: []string{"--kinds-config=" + file}})
	if err != nil {
		return nil, err
	}
	replica.Kill()
	return replica, nil
}

// defineParks creates the definition of the kind, and its namespace.
func (e *environment) defineParks(ctx context.Context, client dynamic.Interface) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kindsNamespace}}
	if _, err := e.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": parks.GroupResource().String()},
		"spec": map[string]any{
			"group": parks.Group, "scope": "Namespaced", "names": map[string]any{"kind": "Park", "listKind": "ParkList", "plural": "parks", "singular": "park"},
			"versions": []any{map[string]any{"name": parks.Version, "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		},
	}}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := definitions.Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the definition was not served within a minute"))
	defer cancel()
	return poll(ctx, 100*time.Millisecond, func() bool {
		_, err := client.Resource(parks).Namespace(kindsNamespace).List(ctx, metav1.ListOptions{})
		return err == nil
	})
}

// fillParks replaces all custom resources by some of a size.
func fillParks(ctx context.Context, all dynamic.ResourceInterface, n, size int) error {
	if err := all.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return err
	}
	var settings []any // few and large ones: kube-apiserver keeps decoded objects, in which each value costs many times its size
	for i := 0; i < size; i += settingBytes {
		settings = append(settings, map[string]any{"name": fmt.Sprintf("setting-%06d", i), "value": strings.Repeat("x", min(size, settingBytes))})
	}
	return inParallel(ctx, 0, n, func(ctx context.Context, i int) error {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": parks.GroupVersion().String(), "kind": "Park", "metadata": map[string]any{"name": fmt.Sprintf("park-%05d", i)},
			"spec": map[string]any{"secretName": fmt.Sprintf("secret-%05d", i), "settings": settings},
		}}
		_, err := all.Create(ctx, o, metav1.CreateOptions{})
		return err
	})
}
