// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// owner performs the operations of users in one cell. It knows what it has written, and never reads.
type owner struct {
	client    kubernetes.Interface
	namespace string
	sources   map[string]content
	workloads []*manifest
	writes    int
	// begins tells the oracle that the changes from now on belong together, and together that they are complete.
	begins, together func(context.Context) error
}

// begin creates everything.
func (o *owner) begin(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.namespace}}
	if _, err := o.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, name := range sourceNames {
		if err := o.write(ctx, http.MethodPost, name, content{"a": "0", "b": "0", "z": "0"}); err != nil {
			return err
		}
	}
	pause(ctx, 2*time.Second) // as on a real node, no pod starts in the second in which its sources were written
	for _, m := range o.workloads {
		if err := o.createWorkload(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// do performs an operation.
func (o *owner) do(ctx context.Context, op operation) error {
	m := o.workloads[op.workload]
	switch op.do { // that write the manifest
	case "set image", "rewrite with image":
		m.image = op.number
	case "switch template":
		m.variant, m.image = (m.variant+1+op.number%(len(variants)-1))%len(variants), op.number
	case "set the minimum interval":
		m.minInterval = "2s"
	case "opt in":
		m.reload = m.mode
	case "opt out":
		m.reload = "off"
	case "leave it to the namespace":
		m.reload = ""
	case "scale to zero":
		m.replicas = 0
	case "scale up":
		m.replicas = replicas
	case "apply", "rewrite":
	default:
		return o.doMore(ctx, m, op)
	}
	if strings.HasPrefix(op.do, "rewrite") {
		return o.replace(ctx, m)
	}
	return o.apply(ctx, m)
}

// doMore performs the other operations. One that is not possible is replaced by another.
func (o *owner) doMore(ctx context.Context, m *manifest, op operation) error {
	value := strconv.Itoa(op.number)
	switch op.do {
	case "opt in the namespace":
		return o.annotateNamespace(ctx, `"auto"`)
	case "opt out the namespace":
		return o.annotateNamespace(ctx, [2]string{"null", `"off"`}[op.number%2])
	case "delete a pod":
		return o.deletePod(ctx, m)
	case "change together":
		return o.changeTogether(ctx, value)
	case "release":
		return o.release(ctx, m, op)
	case "scale there and back":
		return o.scaleThereAndBack(ctx, m, op)
	case "pause and resume":
		return o.pauseAndResume(ctx, m, op)
	case "stalled release":
		return o.stalledRelease(ctx, m, op)
	case "operator":
		return o.operate(ctx, m, op)
	case "change there and back":
		return o.changeThereAndBack(ctx, m, op)
	case "delete in the foreground":
		return o.deleteInTheForeground(ctx, m, op)
	}
	present := o.sources[op.source]
	if present == nil { // the remaining operations change content
		return o.write(ctx, http.MethodPost, op.source, content{"a": value, "b": value, "z": value})
	}
	changed := maps.Clone(present)
	switch op.do {
	case "change":
		changed[op.key] = value
	case "add key":
		changed["k"+strconv.Itoa(op.number%3)] = value
	case "remove key":
		if delete(changed, op.key); len(changed) == 0 {
			return nil
		}
	case "change and back":
		changed[op.key] = value
		if err := o.write(ctx, http.MethodPut, op.source, changed); err != nil {
			return err
		}
		changed = present
	case "edit metadata":
		return o.annotate(ctx, op.source, value)
	case "delete":
		return o.delete(ctx, op.source)
	case "recreate", "recreate equal":
		if op.do == "recreate" {
			changed[op.key] = value
		}
		if err := o.delete(ctx, op.source); err != nil {
			return err
		}
		return o.write(ctx, http.MethodPost, op.source, changed)
	case "write again":
	default:
		return fmt.Errorf("%q is not an operation", op.do)
	}
	return o.write(ctx, http.MethodPut, op.source, changed)
}

// release changes content, and then the image, before the change has settled: the pods of the new image have read
// the content.
func (o *owner) release(ctx context.Context, m *manifest, op operation) error {
	m.settle = "30s"
	if err := o.apply(ctx, m); err != nil {
		return err
	}
	source := variants[m.variant][0].source
	changed := maps.Clone(o.sources[source])
	if changed == nil {
		return nil
	}
	changed["a"] = strconv.Itoa(op.number)
	if err := o.write(ctx, http.MethodPut, source, changed); err != nil {
		return err
	}
	m.image = op.number
	if err := o.apply(ctx, m); err != nil {
		return err
	}
	m.settle = ""
	return o.apply(ctx, m)
}

// longSettle is much longer than writes may take.
const longSettle = 4 * time.Second

// changeTogether changes all sources twice.
func (o *owner) changeTogether(ctx context.Context, value string) error {
	for _, m := range o.workloads {
		m.settle = longSettle.String() // until the calm
		if err := o.apply(ctx, m); err != nil {
			return err
		}
	}
	if err := o.begins(ctx); err != nil {
		return err
	}
	began := time.Now()
	for i := range 2 {
		for _, name := range sourceNames {
			if o.sources[name] == nil {
				continue
			}
			value := value + "." + strconv.Itoa(i)
			if err := o.write(ctx, http.MethodPut, name, content{"a": value, "b": value, "z": value}); err != nil {
				return err
			}
		}
	}
	if time.Since(began) > longSettle/4 {
		return nil // too slow to be certain
	}
	return o.together(ctx)
}

// try repeats requests that fail while the API server is down.
func try(ctx context.Context, what string, f func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		err := f(ctx)
		if last == nil || ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w: %w", what, err, last)
	}
	return nil
}

// resources are the resources of kinds.
var resources = map[string]string{
	"ConfigMap": "configmaps", "Secret": "secrets", "Pod": "pods", "Deployment": "deployments", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets",
}

// request returns a request about an object, or without a name about all.
func (o *owner) request(verb, kind, name string) *rest.Request {
	client := o.client.AppsV1().RESTClient()
	if kind == "ConfigMap" || kind == "Secret" || kind == "Pod" {
		client = o.client.CoreV1().RESTClient()
	}
	r := client.Verb(verb).Namespace(o.namespace).Resource(resources[kind])
	if name != "" {
		r = r.Name(name)
	}
	if verb == http.MethodPatch {
		r = r.SetHeader("Content-Type", string(types.MergePatchType))
	}
	return r
}

// send sends a request until it succeeds. The answer to an earlier try may have been lost.
func (o *owner) send(ctx context.Context, verb, kind, name string, body any) error {
	in := name
	if verb == http.MethodPost {
		in = ""
	}
	return try(ctx, verb+" "+kind+" "+name, func(ctx context.Context) error {
		r := o.request(verb, kind, in)
		if body != nil {
			r = r.Body(body)
		}
		err := r.Do(ctx).Error()
		if verb == http.MethodPost && apierrors.IsAlreadyExists(err) || verb == http.MethodDelete && apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

func (o *owner) annotateNamespace(ctx context.Context, reload string) error {
	data := []byte(`{"metadata":{"annotations":{"configdep.io/reload":` + reload + `}}}`)
	return try(ctx, "annotating the namespace", func(ctx context.Context) error {
		_, err := o.client.CoreV1().Namespaces().Patch(ctx, o.namespace, types.MergePatchType, data, metav1.PatchOptions{})
		return err
	})
}

// write writes the content of a source; other keys are removed.
func (o *owner) write(ctx context.Context, verb, name string, c content) error {
	o.sources[name] = c
	meta := metav1.ObjectMeta{Name: name, Namespace: o.namespace}
	if slices.Contains(matchedSources, name) {
		meta.Annotations = map[string]string{matchAnnotation: "true"}
	}
	if kindOf(name) == "Secret" {
		return o.send(ctx, verb, "Secret", name, &corev1.Secret{ObjectMeta: meta, StringData: c})
	}
	return o.send(ctx, verb, "ConfigMap", name, &corev1.ConfigMap{ObjectMeta: meta, Data: c})
}

func (o *owner) annotate(ctx context.Context, name, value string) error {
	return o.send(ctx, http.MethodPatch, kindOf(name), name, []byte(`{"metadata":{"annotations":{"soak.test/note":"`+value+`"}}}`))
}

// touch writes the metadata of all sources, so that a server that has read them has read all earlier writes.
func (o *owner) touch(ctx context.Context, value string) error {
	for _, name := range sourceNames {
		if o.sources[name] == nil {
			continue
		}
		if err := o.annotate(ctx, name, value); err != nil {
			return err
		}
	}
	return nil
}

func (o *owner) delete(ctx context.Context, name string) error {
	o.sources[name] = nil
	return o.send(ctx, http.MethodDelete, kindOf(name), name, nil)
}

func (o *owner) createWorkload(ctx context.Context, m *manifest) error {
	o.writes++
	m.write = o.writes
	return o.send(ctx, http.MethodPost, m.kind, m.name, m.object())
}

// apply writes the fields of the owner.
func (o *owner) apply(ctx context.Context, m *manifest) error {
	o.writes++
	m.write = o.writes
	data, err := m.patch()
	if err != nil {
		return err
	}
	return o.send(ctx, http.MethodPatch, m.kind, m.name, data)
}

// replace writes the whole manifest, without additions of other clients.
func (o *owner) replace(ctx context.Context, m *manifest) error {
	o.writes++
	m.write = o.writes
	return o.send(ctx, http.MethodPut, m.kind, m.name, m.object())
}

// deletePod deletes one of the pods, which is then created again.
func (o *owner) deletePod(ctx context.Context, m *manifest) error {
	var pods *corev1.PodList
	err := try(ctx, "listing the pods of "+m.name, func(ctx context.Context) (err error) {
		pods, err = o.client.CoreV1().Pods(o.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + m.name})
		return err
	})
	if err != nil || len(pods.Items) == 0 {
		return err
	}
	return o.send(ctx, http.MethodDelete, "Pod", pods.Items[0].Name, nil)
}
