// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
)

// fillers is the number of concurrent requests.
const fillers = 24

// fill brings the cluster into a shape, which has no fewer objects than the one before, and restarts the server, so
// that the measurements do not depend on how the objects were created. It is quick if the cluster already has the shape.
func (e *environment) fill(ctx context.Context, want shape) error {
	want = want.scaled(e.scale)
	have := e.filled
	if have == want {
		return nil
	}
	if have.workloads > want.workloads || have.sources > want.sources {
		return fmt.Errorf("the cluster has %v already, which is more than %v", have, want)
	}
	say("filling the cluster: %v", want)
	started := time.Now()
	e.server().Kill()
	err := inParallel(ctx, namespaces, func(ctx context.Context, i int) error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(i)}}
		_, err := e.client.CoreV1().Namespaces().Create(ctx, namespace, createdBy)
		return err
	})
	if err != nil {
		return fmt.Errorf("creating namespaces: %w", err)
	}
	f, err := e.newFiller(ctx)
	if err != nil {
		return err
	}
	defer f.etcd.Close()
	err = inParallel(ctx, namespaces, func(ctx context.Context, of int) error {
		var b batch
		for i := of; i < max(want.sources/2, want.workloads); i += namespaces {
			if i < want.sources/2 && (i >= have.sources/2 || have.sourceBytes != want.sourceBytes) {
				f.addSources(&b, i, want.sourceBytes)
			}
			if i < want.workloads && i >= have.workloads {
				f.addWorkload(&b, i)
			}
			if err := f.flush(ctx, &b, batchBytes); err != nil {
				return err
			}
		}
		return f.flush(ctx, &b, 0)
	})
	if err != nil {
		return fmt.Errorf("writing objects: %w", err)
	}
	e.filled = want
	say("filled the cluster in %v", time.Since(started).Round(time.Second))
	if err := e.server().Start(); err != nil {
		return err
	}
	return e.awaitServed(ctx)
}

// filler writes objects into etcd, as kube-apiserver stores them, because hundreds of thousands of requests take long.
type filler struct {
	etcd *clientv3.Client
	// The objects have the managed fields of these, which kube-apiserver has stored.
	configMap, secret, deployment, pod []metav1.ManagedFieldsEntry
	sources, pods                      metav1.Time // when they were created; pods later, so that they have read the sources
}

func (e *environment) newFiller(ctx context.Context) (_ *filler, err error) {
	now := time.Now()
	f := &filler{sources: metav1.NewTime(now.Add(-2 * time.Hour)), pods: metav1.NewTime(now.Add(-time.Hour))}
	core, deployments := e.client.CoreV1(), e.client.AppsV1().Deployments(metav1.NamespaceDefault)
	dryRun := metav1.CreateOptions{FieldManager: kubectl, DryRun: []string{metav1.DryRunAll}}
	c, err := core.ConfigMaps(metav1.NamespaceDefault).Create(ctx, configMap(0, 100), dryRun)
	if err != nil {
		return nil, err
	}
	s, err := core.Secrets(metav1.NamespaceDefault).Create(ctx, secret(0, 100), dryRun)
	if err != nil {
		return nil, err
	}
	d, err := deployments.Create(ctx, deployment(0), dryRun)
	if err != nil {
		return nil, err
	}
	p := podOf(deployment(0), "sample", 0)
	p.Namespace = metav1.NamespaceDefault
	if p, err = core.Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{FieldManager: "kube-controller-manager"}); err != nil {
		return nil, err
	}
	p.Status = runs(p)
	if p, err = core.Pods(p.Namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{FieldManager: "kubelet"}); err != nil {
		return nil, err
	}
	f.configMap, f.secret, f.deployment, f.pod = since(f.sources, c), since(f.sources, s), since(f.sources, d), since(f.pods, p)
	if err := core.Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
		return nil, err
	}
	f.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{e.cluster.EtcdURL()}, Context: ctx})
	return f, err
}

// since returns the managed fields of an object as of an earlier time.
func since(at metav1.Time, o metav1.Object) []metav1.ManagedFieldsEntry {
	entries := o.GetManagedFields()
	for i := range entries {
		entries[i].Time = &at
	}
	return entries
}

func (f *filler) addSources(b *batch, i, size int) {
	c, s := configMap(i, size), secret(i, size)
	s.Type = corev1.SecretTypeOpaque
	b.add("configmaps", "v1", "ConfigMap", namespaceOf(i), &c.ObjectMeta, f.sources, f.configMap, c)
	b.add("secrets", "v1", "Secret", namespaceOf(i), &s.ObjectMeta, f.sources, f.secret, s)
}

// revision is the label of the pods of all these Deployments.
const revision = "5d4f8c7b9"

// addWorkload adds a Deployment whose rollout is complete, with its ReplicaSet and its pods.
func (f *filler) addWorkload(b *batch, i int) {
	d := deployment(i)
	d.Annotations = map[string]string{"deployment.kubernetes.io/revision": "1"}
	f.addDeployment(b, namespaceOf(i), d)
	r := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: d.Name + "-" + revision, Annotations: d.Annotations,
			Labels:          map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: revision},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec:   appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, Selector: d.Spec.Selector, Template: d.Spec.Template},
		Status: appsv1.ReplicaSetStatus{Replicas: podsOf, ReadyReplicas: podsOf, AvailableReplicas: podsOf, ObservedGeneration: 1},
	}
	b.add("replicasets", "apps/v1", "ReplicaSet", namespaceOf(i), &r.ObjectMeta, f.sources, f.deployment, r)
}

// addDeployment adds a Deployment whose rollout is complete, and its pods.
func (f *filler) addDeployment(b *batch, namespace string, d *appsv1.Deployment) {
	n := *d.Spec.Replicas
	d.Generation = 1
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
	b.add("deployments", "apps/v1", "Deployment", namespace, &d.ObjectMeta, f.sources, f.deployment, d)
	for i := range int(n) {
		p := podOf(d, revision, i)
		p.Status = runs(p)
		for c := range p.Status.ContainerStatuses {
			p.Status.ContainerStatuses[c].State.Running.StartedAt = metav1.NewTime(f.pods.Add(3 * time.Second))
		}
		b.add("pods", "v1", "Pod", namespace, &p.ObjectMeta, f.pods, f.pod, p)
	}
}

// batch is what is written at once.
type batch struct {
	puts  []clientv3.Op
	bytes int
	err   error
}

const (
	batchOps   = 100
	batchBytes = 500_000
)

// encoder encodes objects as kube-apiserver does.
var encoder = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

// add adds an object.
func (b *batch) add(resource, version, kind, namespace string, m *metav1.ObjectMeta, created metav1.Time, fields []metav1.ManagedFieldsEntry, o runtime.Object) {
	m.Namespace, m.UID, m.CreationTimestamp, m.ManagedFields = namespace, types.UID(fmt.Sprintf("%s-%s-%s", kind, namespace, m.Name)), created, fields
	o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(version, kind))
	var data bytes.Buffer
	b.err = errors.Join(b.err, encoder.Encode(o, &data))
	b.puts = append(b.puts, clientv3.OpPut(strings.Join([]string{"/registry", resource, namespace, m.Name}, "/"), data.String()))
	b.bytes += data.Len()
}

// flush writes the batch if it has a number of bytes, or enough operations.
func (f *filler) flush(ctx context.Context, b *batch, size int) error {
	for len(b.puts) > 0 && b.err == nil && (b.bytes >= size || len(b.puts) >= batchOps) {
		n := min(len(b.puts), batchOps)
		_, err := f.etcd.Txn(ctx).Then(b.puts[:n]...).Commit()
		b.err = err
		b.puts, b.bytes = b.puts[n:], 0
	}
	return b.err
}
