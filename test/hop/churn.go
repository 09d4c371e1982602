// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package hop

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// Label is set to "yes" on about half of the workloads of a Churn, for clients with a label selector.
const Label = "hop"

const reloadAnnotation = "configdep.io/reload"

// resource is a resource of workloads or of sources.
type resource struct {
	schema.GroupVersionResource
	kind string
}

var (
	workloadResources = []resource{
		{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "Deployment"},
		{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}, "StatefulSet"},
		{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}, "DaemonSet"},
		{schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}, "CronJob"},
	}
	sourceResources = []resource{
		{schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, "Secret"},
		{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap"},
	}
	namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// Churn creates workloads and their sources, and changes them one by one, in an order drawn from a seed.
type Churn struct {
	client     dynamic.Interface
	rand       *rand.Rand
	namespaces []string
	workloads  int // in each namespace
	there      map[string]bool
	value      int
}

// NewChurn returns a Churn of namespaces that do not exist yet, with at most the given number of workloads in
// each.
func NewChurn(client dynamic.Interface, seed uint64, workloads int, namespaces ...string) *Churn {
	return &Churn{
		client: client, rand: rand.New(rand.NewPCG(seed, 0)),
		namespaces: namespaces, workloads: workloads, there: map[string]bool{},
	}
}

// sources returns the number of Secrets in a namespace, which is also the number of ConfigMaps.
func (c *Churn) sources() int { return max(2, c.workloads/10) }

// thing names an object that may exist or not.
type thing struct {
	resource
	namespace, name string
}

func (t thing) String() string { return t.Resource + "/" + t.namespace + "/" + t.name }

func (c *Churn) of(t thing) dynamic.ResourceInterface {
	return c.client.Resource(t.GroupVersionResource).Namespace(t.namespace)
}

func (c *Churn) workload(namespace string, i int) thing {
	return thing{workloadResources[i%len(workloadResources)], namespace, fmt.Sprintf("app-%04d", i)}
}

func (c *Churn) source(namespace string, i int) thing {
	return thing{sourceResources[i%len(sourceResources)], namespace, fmt.Sprintf("source-%03d", i)}
}

// shared is the Secret that all workloads of a namespace use.
func (c *Churn) shared(namespace string) thing {
	return thing{sourceResources[0], namespace, "shared"}
}

// Fill creates the namespaces, their sources and their workloads.
func (c *Churn) Fill(ctx context.Context) error {
	type made struct {
		thing
		object map[string]any
	}
	var all []made
	for _, n := range c.namespaces {
		all = append(all, made{c.shared(n), c.content()})
		for i := range 2 * c.sources() {
			all = append(all, made{c.source(n, i), c.content()})
		}
		for i := range c.workloads {
			all = append(all, made{c.workload(n, i), c.spec(i)})
		}
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": n}}}
		if _, err := c.client.Resource(namespaceResource).Create(ctx, o, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, m := range all {
		c.there[m.String()] = true
		g.Go(func() error { return c.create(ctx, m.thing, m.object) })
	}
	return g.Wait()
}

// Step makes one change and returns its description.
func (c *Churn) Step(ctx context.Context) (string, error) {
	namespace := c.namespaces[c.rand.IntN(len(c.namespaces))]
	i := c.rand.IntN(c.workloads)
	t, o := c.workload(namespace, i), c.spec(i)
	if c.rand.IntN(2) == 0 {
		t, o = c.source(namespace, c.rand.IntN(2*c.sources())), c.content()
	}
	verb, remove := "create", c.rand.IntN(4) == 0
	var err error
	switch there := c.there[t.String()]; {
	case there && remove:
		verb = "delete"
		err = c.of(t).Delete(ctx, t.name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
	case there:
		verb = "change"
		err = c.patch(ctx, t, o)
	default:
		err = c.create(ctx, t, o)
	}
	if err != nil {
		return "", fmt.Errorf("%s %v: %w", verb, t, err)
	}
	c.there[t.String()] = verb != "delete"
	return verb + " " + t.String(), nil
}

func (c *Churn) create(ctx context.Context, t thing, o map[string]any) error {
	u := &unstructured.Unstructured{Object: o}
	u.SetGroupVersionKind(t.GroupVersion().WithKind(t.kind))
	u.SetName(t.name)
	created, err := c.of(t).Create(ctx, u, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // the answer to an earlier attempt was lost
		created, err = c.of(t).Get(ctx, t.name, metav1.GetOptions{})
	}
	if err != nil {
		return err
	}
	return c.observe(ctx, t, created)
}

func (c *Churn) patch(ctx context.Context, t thing, o map[string]any) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	patched, err := c.of(t).Patch(ctx, t.name, types.MergePatchType, raw, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	return c.observe(ctx, t, patched)
}

// observe does what the controller of a workload without replicas does. Without it, each server would wait
// forever for the last pods to terminate, and what it shows meanwhile depends on the events that it has seen.
func (c *Churn) observe(ctx context.Context, t thing, o *unstructured.Unstructured) error {
	if _, managed := o.GetAnnotations()[reloadAnnotation]; !managed {
		return nil
	}
	status := fmt.Appendf(nil, `{"status":{"observedGeneration":%d}}`, o.GetGeneration())
	_, err := c.of(t).Patch(ctx, t.name, types.MergePatchType, status, metav1.PatchOptions{}, "status")
	return err
}

// content returns new content for a source.
func (c *Churn) content() map[string]any {
	c.value++
	return map[string]any{"data": map[string]any{"value": fmt.Sprintf("%08d", c.value)}} // eight digits are valid base64 too
}

// spec returns the part of workload i that may change: its labels, and references to two of the sources that come
// and go, beside the one that all workloads use. One in eight workloads is a Deployment whose recorded hash the
// server updates when they change.
func (c *Churn) spec(i int) map[string]any {
	c.value++
	labels := map[string]any{Label: []string{"yes", "no"}[c.rand.IntN(2)], "value": fmt.Sprint(c.value)}
	annotations := map[string]any{}
	if i%8 == 0 {
		annotations[reloadAnnotation] = "auto"
	}
	from := []any{map[string]any{"secretRef": map[string]any{"name": c.shared("").name}}}
	for range 2 {
		s := c.source("", c.rand.IntN(2*c.sources()))
		ref := "secretRef"
		if s.kind == "ConfigMap" {
			ref = "configMapRef"
		}
		from = append(from, map[string]any{ref: map[string]any{"name": s.name}})
	}
	app := map[string]any{"app": fmt.Sprint(i)}
	pod := map[string]any{"containers": []any{map[string]any{"name": "app", "image": "app", "envFrom": from}}}
	template := map[string]any{"metadata": map[string]any{"labels": app}, "spec": pod}
	spec := map[string]any{"template": template, "selector": map[string]any{"matchLabels": app}}
	switch workloadResources[i%len(workloadResources)].kind {
	case "Deployment", "StatefulSet":
		spec["replicas"] = int64(0)
	case "CronJob":
		pod["restartPolicy"] = "Never"
		spec = map[string]any{
			"schedule": "0 0 1 1 *", "suspend": true,
			"jobTemplate": map[string]any{"spec": map[string]any{"template": template}},
		}
	}
	return map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}, "spec": spec}
}

// Touch updates the Secrets that all workloads of a namespace use.
func (c *Churn) Touch(ctx context.Context) error {
	for _, n := range c.namespaces {
		if err := c.patch(ctx, c.shared(n), c.content()); err != nil {
			return err
		}
	}
	return nil
}
