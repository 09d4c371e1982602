// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A release writes ConfigMaps and Secrets first, and the Deployments that read them some time later. If the server
// restarts a Deployment in between, it is rolled out twice. These benchmarks make releases with common tools, in
// namespaces whose Deployments differ only in their settle time, and count the rollouts beyond one for each Deployment.

// settleTimes are the values of the settle annotation that are compared; empty: no annotation, which means the server's
// default. The Deployments of a release have them in turn.
var settleTimes = []string{"", "0", "1s", "2s", "3s", "5s", "10s"}

const (
	// releaseQuiet is the time without changes after which a release is over: longer than the longest settle time.
	releaseQuiet = 35 * time.Second
	// releaseStart is how long pods take to start. One that starts in the second in which content is written is in doubt, which no kubelet is so fast for.
	releaseStart = 2 * time.Second
	// waveDelay is the time that Argo CD waits between two waves (ARGOCD_SYNC_WAVE_DELAY).
	waveDelay = 2 * time.Second
)

// releaseWays are ways to apply all objects of a release.
var releaseWays = []struct {
	name  string
	apply func(context.Context, *scene, *release) error
}{
	{"helm upgrade, 49 objects", helmUpgrade},
	{"Argo CD, Deployments one wave later", argoCD(1)},
	{"Argo CD, Deployments two waves later", argoCD(2)},
	{"Argo CD, Deployments three waves later", argoCD(3)},
}

func benchmarkReleases(ctx context.Context, e *environment) (rows []row, err error) {
	helm, err := helmPath(ctx)
	if err != nil {
		return nil, err
	}
	// Helm is compiled before the measurement.
	if out, err := exec.CommandContext(ctx, helm, "version").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building helm: %w: %s", err, out)
	}
	for i, way := range releaseWays {
		measured, err := e.play(ctx, fmt.Sprintf("release-%d", i), func(s *scene) ([]row, error) {
			return s.release(ctx, way.name, &release{namespace: s.namespace, helm: helm}, way.apply)
		})
		rows = append(rows, measured...)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", way.name, err)
		}
	}
	return rows, nil
}

// helmPath returns the path of a script that builds and runs helm.
func helmPath(ctx context.Context) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("finding the folder of the module: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(root)), "hack", "helm.sh"), nil
}

// release installs a release, upgrades it, and counts the rollouts of the upgrade.
func (s *scene) release(ctx context.Context, name string, r *release, apply func(context.Context, *scene, *release) error) (rows []row, err error) {
	defer func() {
		_, deleteErr := s.cluster.Kubectl(ctx, "delete", "services", "--all", "--namespace", s.namespace, "--wait=false")
		err = errors.Join(err, deleteErr)
	}()
	s.controllers.startAfter(releaseStart)
	if err := errors.Join(apply(ctx, s, r), s.settledFor(ctx, releaseQuiet)); err != nil {
		return nil, err
	}
	before := make([]int, releaseDeployments)
	for i := range before {
		before[i], _, _, _ = s.of(appName(i))
	}
	r.version++
	if err := errors.Join(apply(ctx, s, r), s.settledFor(ctx, releaseQuiet)); err != nil {
		return nil, err
	}
	extra := make([]int, len(settleTimes))
	for i := range before {
		after, _, _, err := s.of(appName(i))
		if err != nil {
			return nil, err
		}
		extra[i%len(settleTimes)] += after - before[i] - 1
	}
	for i, settle := range settleTimes {
		r := row{name: fmt.Sprintf("%s: rollouts too many, settle %s", name, settle), n: releaseDeployments / len(settleTimes), got: exactly(float64(extra[i]))}
		if settle == "" {
			r.name += "by default"
			r.limit = limit{exact: true, value: 0}
		}
		say("%s: %v of %d", r.name, r.got, r.n)
		rows = append(rows, r)
	}
	return rows, nil
}

// The numbers of objects of a release.
const (
	releaseConfigMaps  = 14
	releaseSecrets     = 7
	releaseServices    = 14
	releaseDeployments = 14
)

// release is one version of all objects of an application. A Deployment reads a ConfigMap and a Secret, which other
// Deployments may read too.
type release struct {
	namespace string
	helm      string // path
	version   int
}

func (r *release) configOf(i int) string { return fmt.Sprintf("config-%02d", i%releaseConfigMaps) }
func (r *release) secretOf(i int) string { return fmt.Sprintf("secret-%02d", i%releaseSecrets) }

func (r *release) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: r.namespace, Labels: map[string]string{"app.kubernetes.io/part-of": "shop"}}
}

func (r *release) configMap(i int) runtime.Object {
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: r.meta(r.configOf(i)),
		Data: map[string]string{"VERSION": strconv.Itoa(r.version), "app.conf": content(i, 0, 1000)},
	}
}

func (r *release) secret(i int) runtime.Object {
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: r.meta(r.secretOf(i)),
		Data: map[string][]byte{"TOKEN": []byte(strconv.Itoa(r.version))},
	}
}

func (r *release) service(i int) runtime.Object {
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: r.meta(appName(i)),
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app.kubernetes.io/name": appName(i)},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
}

func (r *release) deployment(i int) runtime.Object {
	main := reads(r.configOf(i), r.secretOf(i))
	main.Image = fmt.Sprintf("registry.example.com/shop/app:1.%d", r.version)
	d := bystander(appName(i), main)
	d.TypeMeta = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}
	d.Namespace = r.namespace
	d.Annotations = map[string]string{"configdep.io/reload": "auto", "configdep.io/min-interval": "0"}
	if settle := settleTimes[i%len(settleTimes)]; settle != "" {
		d.Annotations["configdep.io/settle"] = settle
	}
	return d
}

// releaseKind is a kind of objects of a release.
type releaseKind struct {
	n      int
	object func(i int) runtime.Object
}

// manifests returns all objects as YAML.
func (r *release) manifests() ([]byte, error) {
	var b bytes.Buffer
	for _, kind := range []releaseKind{
		{releaseDeployments, r.deployment}, {releaseServices, r.service}, {releaseSecrets, r.secret}, {releaseConfigMaps, r.configMap},
	} {
		for i := range kind.n {
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(kind.object(i))
			if err != nil {
				return nil, err
			}
			// Manifests contain no status. JSON is valid YAML.
			maps.DeleteFunc(fields, func(key string, _ any) bool { return key == "status" })
			data, err := json.Marshal(fields)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "---\n%s\n", data)
		}
	}
	return b.Bytes(), nil
}

// helmUpgrade runs helm upgrade --install with a chart that has all objects in one template.
func helmUpgrade(ctx context.Context, s *scene, r *release) error {
	dir := filepath.Join(s.cluster.Dir(), s.namespace)
	if err := os.MkdirAll(filepath.Join(dir, "templates"), 0o700); err != nil {
		return err
	}
	objects, err := r.manifests()
	if err != nil {
		return err
	}
	chart := fmt.Sprintf("apiVersion: v2\nname: shop\nversion: 0.%d.0\n", r.version)
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "Chart.yaml"), []byte(chart), 0o600),
		os.WriteFile(filepath.Join(dir, "templates", "objects.yaml"), objects, 0o600),
	); err != nil {
		return err
	}
	cmd := s.cluster.Command(ctx, r.helm, "upgrade", "--install", "shop", dir, "--namespace", r.namespace)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+s.cluster.Kubeconfig())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("helm upgrade: %w: %s", err, out)
	}
	return nil
}

const argoCDManager = "argocd-controller"

// argoCD applies objects as Argo CD documents: the kinds of a wave one after the other, the objects of a kind at once,
// and a delay between two waves. ConfigMaps and Secrets are in the first wave, Deployments some waves later. It does
// not wait for health, because the objects of the first waves are healthy immediately, nor for the controller of Argo
// CD, which may take longer than the delay.
func argoCD(waves int) func(context.Context, *scene, *release) error {
	return func(ctx context.Context, s *scene, r *release) error {
		put := func(n int, object func(int) runtime.Object) error {
			return inParallel(ctx, n, func(ctx context.Context, i int) error {
				if d, ok := object(i).(*appsv1.Deployment); ok {
					return s.setImage(ctx, d)
				}
				return s.putAs(ctx, argoCDManager, object(i))
			})
		}
		if err := put(releaseConfigMaps, r.configMap); err != nil {
			return err
		}
		if err := put(releaseSecrets, r.secret); err != nil {
			return err
		}
		if err := sleep(ctx, time.Duration(waves)*waveDelay); err != nil {
			return err
		}
		return put(releaseDeployments, r.deployment)
	}
}

// setImage creates a Deployment, or changes only its image and keeps fields that other clients have added.
func (s *scene) setImage(ctx context.Context, d *appsv1.Deployment) error {
	container := d.Spec.Template.Spec.Containers[0]
	patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":%q,"image":%q}]}}}}`, container.Name, container.Image)
	deployments := s.client.AppsV1().Deployments(s.namespace)
	_, err := deployments.Patch(ctx, d.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: argoCDManager})
	if apierrors.IsNotFound(err) {
		_, err = deployments.Create(ctx, d, metav1.CreateOptions{FieldManager: argoCDManager})
	}
	return err
}
