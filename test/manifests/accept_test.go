// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
)

// prepare creates the prerequisites of the manifests: the namespaces, of which the server's enforces the strictest
// Pod Security Standard, and CustomResourceDefinitions of other projects.
func prepare(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, "apply", "-f", filepath.Join(root, "artifacts", "base", "namespace.yaml"))
	for _, other := range []string{"shop", "shop-payments"} {
		kubectl(t, "create", "namespace", other)
	}
	kubectl(t, "apply", "-f", filepath.Join("testdata", "crds.yaml"))
	kubectl(t, "wait", "--for=condition=Established", "--timeout=2m", "-f", filepath.Join("testdata", "crds.yaml"))
	return client
}

// Every manifest is valid by the API server's own schemas, without unknown fields or deprecated APIs, and its pods
// comply with Pod Security.
func TestAPIServerAcceptsEveryManifest(t *testing.T) {
	client := prepare(t)
	for _, file := range renderedFiles(t) {
		t.Run(file, func(t *testing.T) {
			path := filepath.Join(renderedFolder(t), file)
			out, err := kubectlAll(t, "apply", "--dry-run=server", "--validate=strict", "-f", path)
			if err != nil {
				t.Fatalf("%v:\n%s", err, out)
			}
			if got, want := strings.Count(out, "(server dry run)"), len(rendered(t, file)); got != want {
				t.Errorf("the dry run has %d objects, want %d:\n%s", got, want, out)
			}
			var warnings []string
			for _, line := range lines(out) {
				if strings.Contains(line, "Warning:") {
					warnings = append(warnings, line)
				}
			}
			switch {
			case file == "host-network.yaml":
				// hostNetwork violates the standard; the warning shows that the standard is applied.
				if len(warnings) != 1 || !strings.Contains(warnings[0], "hostNetwork=true") {
					t.Errorf("warnings = %q, want one about hostNetwork", warnings)
				}
			case len(warnings) > 0:
				t.Errorf("warnings = %q, want none", warnings)
			}
		})
	}
	t.Run("pods", func(t *testing.T) { podsAreAdmitted(t, client) })
}

// podsAreAdmitted creates a pod of each Deployment in a dry run, as its ReplicaSet would.
func podsAreAdmitted(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ctx := t.Context()
	gvisor := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Handler: "gvisor"}
	if _, err := client.NodeV1().RuntimeClasses().Create(ctx, gvisor, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, file := range renderedFiles(t) {
		t.Run(file, func(t *testing.T) {
			deployments := 0
			for key, o := range rendered(t, file) {
				if key.kind != "Deployment" {
					continue
				}
				deployments++
				var d appsv1.Deployment
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d); err != nil {
					t.Fatal(err)
				}
				account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: d.Spec.Template.Spec.ServiceAccountName}}
				if _, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
					t.Fatal(err)
				}
				pod := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
				pod.GenerateName = "configdep-"
				made, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if file == "host-network.yaml" {
					if err == nil || !strings.Contains(err.Error(), `violates PodSecurity "restricted:latest"`) {
						t.Errorf("creating the pod: error = %v, want a violation of Pod Security", err)
					}
					continue
				}
				if err != nil {
					t.Error(err)
					continue
				}
				checkPod(t, made)
			}
			if deployments != 1 {
				t.Errorf("the manifest has %d Deployments, want 1", deployments)
			}
		})
	}
}

// checkPod checks properties that Pod Security does not require.
func checkPod(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	c := pod.Spec.Containers[0]
	if c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
		t.Error("the root file system is writable")
	}
	checkToken(t, pod)
	for _, m := range c.VolumeMounts {
		if m.SubPath != "" {
			t.Errorf("%s is mounted as a subPath, which the kubelet never updates", m.MountPath)
		}
	}
	for probe, p := range map[string]*corev1.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
		if p == nil || p.HTTPGet == nil || p.HTTPGet.Scheme != corev1.URISchemeHTTPS || p.HTTPGet.Path == "/metrics" {
			t.Errorf("%s probe = %v, want HTTPS and another path than /metrics", probe, p)
		}
	}
}

// checkToken checks that the token of the ServiceAccount is mounted where the server reads it, and that a stolen token
// expires soon: kube-apiserver accepts a token of 3,607 seconds, as the kubelet mounts it by default, for a year.
func checkToken(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	mounts := pod.Spec.Containers[0].VolumeMounts
	i := slices.IndexFunc(mounts, func(m corev1.VolumeMount) bool {
		return m.MountPath == "/var/run/secrets/kubernetes.io/serviceaccount"
	})
	if i < 0 {
		t.Fatal("the pod has no token")
	}
	var files []string
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		if v.Name != mounts[i].Name {
			t.Errorf("the pod has another projected volume, %s", v.Name)
			continue
		}
		if mode := v.Projected.DefaultMode; mode == nil || *mode != 0o644 {
			t.Error("the files of the projected volume are not readable for every user that the pod may run as")
		}
		for _, s := range v.Projected.Sources {
			switch {
			case s.ServiceAccountToken != nil:
				files = append(files, s.ServiceAccountToken.Path)
				if seconds := s.ServiceAccountToken.ExpirationSeconds; seconds == nil || *seconds != 3600 || s.ServiceAccountToken.Audience != "" {
					t.Errorf("token = %+v, want 3600 seconds and the default audience", s.ServiceAccountToken)
				}
			case s.ConfigMap != nil && s.ConfigMap.Name == "kube-root-ca.crt":
				files = append(files, s.ConfigMap.Items[0].Path)
			case s.DownwardAPI != nil:
				files = append(files, s.DownwardAPI.Items[0].Path)
			}
		}
	}
	if !slices.Equal(files, []string{"token", "ca.crt", "namespace"}) {
		t.Errorf("projected files = %v, want token, ca.crt and namespace", files)
	}
}

func kubectl(t *testing.T, args ...string) {
	t.Helper()
	if _, err := cluster.Kubectl(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

// kubectlAll runs kubectl and returns its standard output and standard error.
func kubectlAll(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := cluster.Command(t.Context(), cluster.KubectlPath(), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}
