// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// releaseShape has the numbers of objects of a release.
type releaseShape struct{ configMaps, secrets, services, deployments int }

var (
	large = releaseShape{configMaps: 50, secrets: 30, services: 50, deployments: 70} // 200
	small = releaseShape{configMaps: 14, secrets: 7, services: 14, deployments: 14}  // 49
)

// release is one version of all objects of an application. A Deployment reads a ConfigMap and a Secret, which other
// Deployments may read too.
type release struct {
	namespace string
	dialect   dialect
	shape     releaseShape
	few       bool // only one Deployment for each settle time changes between versions
	version   int
}

func appName(i int) string { return fmt.Sprintf("app-%02d", i) }

// configOf and secretOf return the names of the sources of a Deployment.
func (r *release) configOf(i int) string { return fmt.Sprintf("config-%02d", i%r.shape.configMaps) }
func (r *release) secretOf(i int) string { return fmt.Sprintf("secret-%02d", i%r.shape.secrets) }

// changing returns the names of the Deployments that change from one version to the next.
func (r *release) changing() []string {
	n := r.shape.deployments
	if r.few {
		n = len(settleTimes)
	}
	names := make([]string, n)
	for i := range names {
		names[i] = appName(i)
	}
	return names
}

// versionOf returns the version of the i-th object of a kind.
func (r *release) versionOf(i int) string {
	if r.few && i >= len(settleTimes) {
		return "0"
	}
	return strconv.Itoa(r.version)
}

func (r *release) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: r.namespace, Labels: map[string]string{"app.kubernetes.io/part-of": "shop"}}
}

func (r *release) configMaps() (all []runtime.Object) {
	for i := range r.shape.configMaps {
		all = append(all, &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: r.meta(r.configOf(i)),
			Data: map[string]string{"VERSION": r.versionOf(i), "app.conf": content(i, 0, 1000)},
		})
	}
	return all
}

func (r *release) secrets() (all []runtime.Object) {
	for i := range r.shape.secrets {
		all = append(all, &corev1.Secret{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: r.meta(r.secretOf(i)),
			Data: map[string][]byte{"TOKEN": []byte(r.versionOf(i))},
		})
	}
	return all
}

func (r *release) services() (all []runtime.Object) {
	for i := range r.shape.services {
		all = append(all, &corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: r.meta(appName(i)),
			Spec: corev1.ServiceSpec{
				Selector: map[string]string{"app.kubernetes.io/name": appName(i)},
				Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
			},
		})
	}
	return all
}

func (r *release) deployments() (all []runtime.Object) {
	for i := range r.shape.deployments {
		main := reads(r.configOf(i), r.secretOf(i))
		main.Image = r.image(i)
		d := bystander(appName(i), main)
		d.TypeMeta = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}
		d.Namespace = r.namespace
		d.Annotations = optInWith(r.dialect, settleTimes[i%len(settleTimes)])
		all = append(all, d)
	}
	return all
}

func (r *release) image(i int) string { return "registry.example.com/shop/app:1." + r.versionOf(i) }

// manifests returns all objects as YAML.
func (r *release) manifests() ([]byte, error) {
	var b bytes.Buffer
	for _, objects := range [][]runtime.Object{r.deployments(), r.services(), r.secrets(), r.configMaps()} {
		for _, o := range objects {
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
			if err != nil {
				return nil, err
			}
			data, err := json.Marshal(written(fields)) // JSON is valid YAML
			if err != nil {
				return nil, err
			}
			b.WriteString("---\n")
			b.Write(data)
			b.WriteByte('\n')
		}
	}
	return b.Bytes(), nil
}

// written removes fields that manifests do not contain. With them, kubectl would send a patch although nothing has
// changed.
func written(fields map[string]any) map[string]any {
	for key, value := range fields {
		switch value := value.(type) {
		case nil:
			delete(fields, key)
		case map[string]any:
			if len(written(value)) == 0 {
				delete(fields, key)
			}
		case []any:
			for _, item := range value {
				if item, ok := item.(map[string]any); ok {
					written(item)
				}
			}
		}
	}
	return fields
}

// putAtOnce writes objects of one kind concurrently.
func (s *scene) putAtOnce(ctx context.Context, objects []runtime.Object) error {
	return inParallel(ctx, 0, len(objects), func(ctx context.Context, i int) error {
		if d, ok := objects[i].(*appsv1.Deployment); ok {
			return s.setImage(ctx, d)
		}
		return s.putAs(ctx, argoCDManager, objects[i])
	})
}
