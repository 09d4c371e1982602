// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"maps"
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

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
)

// owner performs the operations of users in one cell. It knows what it has written, and never reads.
type owner struct {
	client    kubernetes.Interface
	configdep versioned.Interface
	namespace string
	sources   map[string]content
	workloads []*manifest
	writes    int
	// begins tells the oracle that the changes from now on belong together, and together that they are complete.
	begins, together func(context.Context) error
	// requested tells the oracle that a restart of a workload is about to be requested.
	requested func(context.Context, string) error
}

// begin creates everything.
func (o *owner) begin(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.namespace}}
	if _, err := o.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, name := range sourceNames {
		if err := o.create(ctx, name, content{"a": "0", "b": "0", "z": "0"}); err != nil {
			return err
		}
	}
	for _, m := range o.workloads {
		if err := o.createWorkload(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// do performs an operation. An operation that is not possible is replaced by another.
func (o *owner) do(ctx context.Context, op operation) error {
	m := o.workloads[op.workload]
	value := strconv.Itoa(op.number)
	present := o.sources[op.source]
	switch op.do {
	case "set image":
		m.image = op.number
		return o.apply(ctx, m)
	case "switch template":
		m.variant, m.image = (m.variant+1+op.number%(len(variants)-1))%len(variants), op.number
		return o.apply(ctx, m)
	case "rewrite":
		return o.replace(ctx, m)
	case "rewrite with image":
		m.image = op.number
		return o.replace(ctx, m)
	case "opt in":
		m.reload = m.mode
		return o.apply(ctx, m)
	case "opt out":
		m.reload = "off"
		return o.apply(ctx, m)
	case "leave it to the namespace":
		m.reload = ""
		return o.apply(ctx, m)
	case "opt in the namespace":
		return o.annotateNamespace(ctx, `"auto"`)
	case "opt out the namespace":
		return o.annotateNamespace(ctx, [2]string{"null", `"off"`}[op.number%2])
	case "request":
		return o.request(ctx, m)
	case "write again":
		if op.number%2 == 0 {
			return o.apply(ctx, m)
		}
	case "delete a pod":
		return o.deletePod(ctx, m)
	case "change together":
		return o.changeTogether(ctx, value)
	case "release":
		return o.release(ctx, m, op)
	case "scale to zero":
		m.replicas = 0
		return o.apply(ctx, m)
	case "scale up":
		m.replicas = replicas
		return o.apply(ctx, m)
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
	case "recreate workload":
		if m.kind == "DaemonSet" {
			// Its controller, which tracks expected pods by name, may wait five minutes for pods of the old one.
			m.image = op.number
			return o.replace(ctx, m)
		}
		if err := o.deleteWorkload(ctx, m); err != nil {
			return err
		}
		m.renameReplicaSet(op.number)
		return o.createWorkload(ctx, m)
	}
	if present == nil { // the remaining operations change content
		return o.create(ctx, op.source, content{"a": value, "b": value, "z": value})
	}
	changed := maps.Clone(present)
	switch op.do {
	case "change", "restore":
		changed[op.key] = value
	case "add key":
		changed["k"+strconv.Itoa(op.number%3)] = value
	case "remove key":
		if delete(changed, op.key); len(changed) == 0 {
			return nil
		}
	case "change and back":
		changed[op.key] = value
		if err := o.update(ctx, op.source, changed); err != nil {
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
		return o.create(ctx, op.source, changed)
	case "write again":
	default:
		return fmt.Errorf("%q is not an operation", op.do)
	}
	return o.update(ctx, op.source, changed)
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
	if err := o.update(ctx, source, changed); err != nil {
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
			if err := o.update(ctx, name, content{"a": value, "b": value, "z": value}); err != nil {
				return err
			}
		}
	}
	if time.Since(began) > longSettle/4 {
		return nil // too slow to be certain
	}
	return o.together(ctx)
}

// request requests a restart.
func (o *owner) request(ctx context.Context, m *manifest) error {
	if err := o.requested(ctx, m.name); err != nil {
		return err
	}
	dependencies := o.configdep.ConfigdepV1alpha1().ConfigDependencies(o.namespace)
	// A replica may not yet have read a workload that was just created, or created again.
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		_, err := dependencies.Reload(ctx, strings.ToLower(m.kind)+"."+m.name, &v1alpha1.Reload{}, metav1.CreateOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return false, nil
		}
		return err == nil, err
	})
}

func (o *owner) annotateNamespace(ctx context.Context, reload string) error {
	data := []byte(`{"metadata":{"annotations":{"configdep.io/reload":` + reload + `}}}`)
	return try(ctx, "annotating the namespace", func(ctx context.Context) error {
		_, err := o.client.CoreV1().Namespaces().Patch(ctx, o.namespace, types.MergePatchType, data, metav1.PatchOptions{})
		return err
	})
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

func (o *owner) object(name string, c content) (*corev1.ConfigMap, *corev1.Secret) {
	meta := metav1.ObjectMeta{Name: name, Namespace: o.namespace}
	if slices.Contains(matchedSources, name) {
		meta.Annotations = map[string]string{matchAnnotation: "true"}
	}
	return &corev1.ConfigMap{ObjectMeta: meta, Data: c}, &corev1.Secret{ObjectMeta: meta, StringData: c}
}

func (o *owner) create(ctx context.Context, name string, c content) error {
	o.sources[name] = c
	return try(ctx, "creating "+name, func(ctx context.Context) (err error) {
		cm, secret := o.object(name, c)
		if kindOf(name) == "Secret" {
			_, err = o.client.CoreV1().Secrets(o.namespace).Create(ctx, secret, metav1.CreateOptions{})
		} else {
			_, err = o.client.CoreV1().ConfigMaps(o.namespace).Create(ctx, cm, metav1.CreateOptions{})
		}
		if apierrors.IsAlreadyExists(err) {
			return nil // the answer to the first try was lost
		}
		return err
	})
}

// update replaces the content; other keys are removed.
func (o *owner) update(ctx context.Context, name string, c content) error {
	o.sources[name] = c
	return try(ctx, "updating "+name, func(ctx context.Context) (err error) {
		cm, secret := o.object(name, c)
		if kindOf(name) == "Secret" {
			_, err = o.client.CoreV1().Secrets(o.namespace).Update(ctx, secret, metav1.UpdateOptions{})
		} else {
			_, err = o.client.CoreV1().ConfigMaps(o.namespace).Update(ctx, cm, metav1.UpdateOptions{})
		}
		return err
	})
}

func (o *owner) annotate(ctx context.Context, name, value string) error {
	data := []byte(`{"metadata":{"annotations":{"soak.test/note":"` + value + `"}}}`)
	return try(ctx, "annotating "+name, func(ctx context.Context) (err error) {
		if kindOf(name) == "Secret" {
			_, err = o.client.CoreV1().Secrets(o.namespace).Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{})
		} else {
			_, err = o.client.CoreV1().ConfigMaps(o.namespace).Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{})
		}
		return err
	})
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
	return try(ctx, "deleting "+name, func(ctx context.Context) (err error) {
		if kindOf(name) == "Secret" {
			err = o.client.CoreV1().Secrets(o.namespace).Delete(ctx, name, metav1.DeleteOptions{})
		} else {
			err = o.client.CoreV1().ConfigMaps(o.namespace).Delete(ctx, name, metav1.DeleteOptions{})
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// workload starts a request to the API server.
func (o *owner) workload(m *manifest, begin func(rest.Interface) *rest.Request) *rest.Request {
	return begin(o.client.AppsV1().RESTClient()).Namespace(o.namespace).Resource(resourceOf(m.kind))
}

func (o *owner) createWorkload(ctx context.Context, m *manifest) error {
	o.writes++
	m.write = o.writes
	return try(ctx, "creating "+m.name, func(ctx context.Context) error {
		err := o.workload(m, func(c rest.Interface) *rest.Request { return c.Post() }).Body(m.object()).Do(ctx).Error()
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// apply writes the fields of the owner.
func (o *owner) apply(ctx context.Context, m *manifest) error {
	o.writes++
	m.write = o.writes
	data, err := m.patch()
	if err != nil {
		return err
	}
	return try(ctx, "patching "+m.name, func(ctx context.Context) error {
		return o.workload(m, func(c rest.Interface) *rest.Request { return c.Patch(types.MergePatchType) }).Name(m.name).Body(data).Do(ctx).Error()
	})
}

// replace writes the whole manifest, without additions of other clients.
func (o *owner) replace(ctx context.Context, m *manifest) error {
	o.writes++
	m.write = o.writes
	return try(ctx, "replacing "+m.name, func(ctx context.Context) error {
		return o.workload(m, func(c rest.Interface) *rest.Request { return c.Put() }).Name(m.name).Body(m.object()).Do(ctx).Error()
	})
}

func (o *owner) deleteWorkload(ctx context.Context, m *manifest) error {
	return try(ctx, "deleting "+m.name, func(ctx context.Context) error {
		err := o.workload(m, func(c rest.Interface) *rest.Request { return c.Delete() }).Name(m.name).
			Body(&metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}).Do(ctx).Error()
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// deletePod deletes one of the pods, which is then created again.
func (o *owner) deletePod(ctx context.Context, m *manifest) error {
	return try(ctx, "deleting a pod of "+m.name, func(ctx context.Context) error {
		pods, err := o.client.CoreV1().Pods(o.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + m.name})
		if err != nil || len(pods.Items) == 0 {
			return err
		}
		err = o.client.CoreV1().Pods(o.namespace).Delete(ctx, pods.Items[0].Name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}
