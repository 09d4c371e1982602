// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// Objects are numbered. Equal numbers mean equal objects, so that a shape can grow. The number of an
// object's namespace is the object's number modulo this constant.
const namespaces = 100

// kubectl is the field manager of writes: the name that kubectl apply --server-side uses.
const kubectl = "kubectl"

var (
	createdBy = metav1.CreateOptions{FieldManager: kubectl}
	updatedBy = metav1.UpdateOptions{FieldManager: kubectl}
)

func namespaceOf(i int) string    { return fmt.Sprintf("bench-%02d", i%namespaces) }
func configMapName(i int) string  { return fmt.Sprintf("settings-%05d", i) }
func secretName(i int) string     { return fmt.Sprintf("credentials-%05d", i) }
func deploymentName(i int) string { return fmt.Sprintf("service-%05d", i) }

// keysPerSource is independent of the size of the content, because there is a digest for each key.
const keysPerSource = 4

func configMap(i, size int) *corev1.ConfigMap {
	data := map[string]string{}
	for k := range keysPerSource {
		data[fmt.Sprintf("KEY_%d", k)] = content(i, k, size/keysPerSource)
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: configMapName(i), Labels: labelsOf(i)}, Data: data}
}

func secret(i, size int) *corev1.Secret {
	data := map[string][]byte{}
	for k := range keysPerSource {
		data[fmt.Sprintf("KEY_%d", k)] = []byte(content(-i, k, size/keysPerSource))
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName(i), Labels: labelsOf(i)}, Data: data}
}

// content returns text of a given size, as in configuration files, that differs between keys.
func content(i, key, size int) string {
	var b strings.Builder
	for line := 0; b.Len() < size; line++ {
		fmt.Fprintf(&b, "server.option-%d.value-%d = %x\n", line, key, uint64(i*31+key*7+line)*0x9e3779b97f4a7c15)
	}
	return b.String()[:size]
}

func labelsOf(i int) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":       deploymentName(i),
		"app.kubernetes.io/instance":   namespaceOf(i),
		"app.kubernetes.io/part-of":    "shop",
		"app.kubernetes.io/managed-by": "kubectl",
		"team":                         fmt.Sprintf("team-%d", i%7),
	}
}

// deployment returns a Deployment as in manifests, with one or two containers and two to four sources, which exist. It
// is smaller than in a running cluster, where Deployments have a status with its managedFields, and often the
// last-applied annotation of kubectl; lists of such Deployments take longer.
func deployment(i int) *appsv1.Deployment {
	selector := map[string]string{"app.kubernetes.io/name": deploymentName(i), "app.kubernetes.io/instance": namespaceOf(i)}
	containers := []corev1.Container{mainContainer(i)}
	if i%2 == 1 {
		containers = append(containers, sidecar(i))
	}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: deploymentName(i), Labels: labelsOf(i)},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](podsOf),
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels:      labelsOf(i),
					Annotations: map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "9090"},
				},
				Spec: corev1.PodSpec{Containers: containers},
			},
		},
	}
	// The third and the fourth source are shared with other Deployments in the namespace.
	pod := &d.Spec.Template.Spec
	if shared := i - namespaces; i%3 >= 1 && shared >= 0 {
		mount(pod, "config", "/etc/service", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: configMapName(shared)},
			Items:                []corev1.KeyToPath{{Key: "KEY_0", Path: "service.conf"}, {Key: "KEY_1", Path: "routes.conf"}},
		}})
	}
	if shared := i - 2*namespaces; i%3 == 2 && shared >= 0 {
		mount(pod, "tls", "/etc/tls", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secretName(shared)}})
	}
	return d
}

func mainContainer(i int) corev1.Container {
	password := corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secretName(i)}, Key: "KEY_0"}
	user := password
	user.Key = "KEY_1"
	return corev1.Container{
		Name:    "service",
		Image:   fmt.Sprintf("registry.example.com/shop/%s:1.%d.0", deploymentName(i), i%40),
		Ports:   []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "metrics", ContainerPort: 9090}},
		EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMapName(i)}}}},
		Env: []corev1.EnvVar{
			{Name: "LOG_LEVEL", Value: "info"},
			{Name: "LISTEN_ADDRESS", Value: ":8080"},
			{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			{Name: "DB_USER", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &user}},
			{Name: "DB_PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &password}},
		},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
		},
		LivenessProbe:  probe("/livez"),
		ReadinessProbe: probe("/readyz"),
	}
}

func sidecar(i int) corev1.Container {
	return corev1.Container{
		Name:  "proxy",
		Image: "registry.example.com/platform/proxy:2.3.1",
		Args:  []string{"--upstream=127.0.0.1:8080", fmt.Sprintf("--service=%s", deploymentName(i))},
		Ports: []corev1.ContainerPort{{Name: "proxy", ContainerPort: 15001}},
		Env: []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: secretName(i)}, Key: "KEY_2",
		}}}},
	}
}

func probe(path string) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("http")}}}
}

// mount adds a volume to a pod and mounts it into its first container.
func mount(pod *corev1.PodSpec, name, path string, source corev1.VolumeSource) {
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	first := &pod.Containers[0]
	first.VolumeMounts = append(first.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: true})
}

// podsOf is how many pods a workload has.
const podsOf = 3

// shape is the content of the cluster, in addition to the objects of the installation.
type shape struct {
	workloads   int // Deployments, with podsOf pods each
	sources     int // half of them ConfigMaps, half Secrets; at least two per workload
	sourceBytes int // the size of the content of each
}

// The shapes at scale 1, in the order in which benchmarks use them.
var (
	peers    = shape{workloads: 2_000, sources: 10_000, sourceBytes: 20 << 10} // in which other programs were measured
	standard = shape{workloads: 10_000, sources: 20_000, sourceBytes: 4 << 10}
	largest  = shape{workloads: 50_000, sources: 100_000, sourceBytes: 1 << 10}
)

func (s shape) String() string {
	return fmt.Sprintf("%d workloads, %d pods and %d sources of %d KB", s.workloads, s.workloads*podsOf, s.sources, s.sourceBytes>>10)
}

// scaled scales the numbers of objects, not their size, and rounds up, so that all namespaces get the same number.
func (s shape) scaled(by float64) shape {
	round := func(n, to int) int { return int(math.Ceil(float64(n)*by/float64(to))) * to }
	s.workloads, s.sources = round(s.workloads, namespaces), round(s.sources, 2*namespaces)
	return s
}

// inParallel calls f for each number below end, several at a time, and returns the first error.
func inParallel(ctx context.Context, end int, f func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range fillers {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= end {
					return
				}
				// A retry after a timeout may find that the first attempt has succeeded.
				if err := f(ctx, i); err != nil && !apierrors.IsAlreadyExists(err) {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
