// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle installs, upgrades and removes the server in each way that users have: with the scripts of hack, with
// kubectl, and with helm, in the right and in a wrong order. All tests share one control plane, so they run one after the
// other, and each removes what it has installed.
//
// The pods of the server do not run. Its replicas are processes of the built program, with the arguments of the Deployment
// and the permissions of its ServiceAccount.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

const (
	root  = "../../.."
	base  = root + "/artifacts/base"
	limit = 3 * time.Minute
)

var (
	cluster *controlplane.ControlPlane
	client  kubernetes.Interface
	objects dynamic.Interface
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == postRender { // helm runs this program as a plugin
		if err := toThisMachine(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if err := install.BuildTools(context.Background(), os.Stderr, "helm"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(controlplane.Run(m, controlplane.Options{Nodes: 1}, func(c *controlplane.ControlPlane) {
		cluster, client, objects = c, kubernetes.NewForConfigOrDie(c.RESTConfig()), dynamic.NewForConfigOrDie(c.RESTConfig())
	}))
}

// installed installs the server until the test ends.
func installed(t *testing.T, o install.Options) *install.Installation {
	t.Helper()
	o.Replicas, o.Args = 2, append(o.Args, "--shutdown-delay-duration=1s")
	server, err := install.Install(t.Context(), cluster, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Stop()
		if err := server.CheckLogs(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// script runs a script of hack and returns all its output.
func script(t *testing.T, file string, env ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := cluster.Command(ctx, filepath.Join(root, "hack", file))
	cmd.Env = append(append(cmd.Env, "KUBECTL="+cluster.KubectlPath()), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// undeploy runs the script that users run.
func undeploy(t *testing.T, env ...string) {
	t.Helper()
	if out, err := script(t, "undeploy.sh", env...); err != nil {
		t.Errorf("undeploy: %v\n%s", err, out)
	}
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := cluster.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// withoutPolicies tells whether the cluster is too old for MutatingAdmissionPolicies, which users then leave out, as
// docs/install.md says.
func withoutPolicies(t *testing.T) bool {
	t.Helper()
	older, err := cluster.Older("1.36")
	if err != nil {
		t.Fatal(err)
	}
	return older
}

// bundle returns the base64-encoded caBundle of the APIService.
func bundle(t *testing.T) string {
	t.Helper()
	return kubectl(t, "get", "apiservice", install.APIService, "-o", "jsonpath={.spec.caBundle}")
}

// makeNamespaces creates namespaces. "other" has a workload.
func makeNamespaces(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if name == install.Namespace {
			n.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
		}
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if name == "other" {
			if _, err := client.AppsV1().Deployments(name).Create(t.Context(), workload("db"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// workload returns a Deployment that reads a Secret and has opted in.
func workload(secret string) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "web-", Annotations: map[string]string{policy.ReloadAnnotation: "auto", policy.SettleAnnotation: "1s"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "app", Image: "app",
					EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}},
				}}},
			},
		},
	}
}

// web is a workload, and the Secret that it reads.
type web struct {
	*appsv1.Deployment
	secret *corev1.Secret
}

// newWeb creates a workload with its Secret in a namespace, and waits until it is in sync.
func newWeb(t *testing.T, namespace string, annotations map[string]string) *web {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "db-"}, Data: map[string][]byte{"password": []byte("one")}}
	secret, err := client.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d := workload(secret.Name)
	if annotations != nil {
		d.Annotations = annotations
	}
	d, err = client.AppsV1().Deployments(namespace).Create(t.Context(), d, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := &web{d, secret}
	w.await(t, "condition=InSync")
	return w
}

// await waits until the ConfigDependency meets a condition.
func (w *web) await(t *testing.T, condition string) {
	t.Helper()
	kubectl(t, "wait", "--for="+condition, "configdependency/deployment."+w.Name, "-n", w.Namespace, "--timeout="+limit.String())
}

// change changes the content of the Secret.
func (w *web) change(t *testing.T) {
	t.Helper()
	w.secret.Data["password"] = append(w.secret.Data["password"], "two"...)
	changed, err := client.CoreV1().Secrets(w.Namespace).Update(t.Context(), w.secret, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.secret = changed
}

func (w *web) now(t *testing.T) *appsv1.Deployment {
	t.Helper()
	now, err := client.AppsV1().Deployments(w.Namespace).Get(t.Context(), w.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// awaitReload waits until the workload has another hash than at its creation, and an event says why.
func (w *web) awaitReload(t *testing.T) {
	t.Helper()
	await.Until(t, "the workload is reloaded", func(context.Context) error {
		now := w.now(t)
		hash := now.Annotations[record.ConfigHashAnnotation]
		if now.Generation == w.Generation || hash == "" || hash == w.Annotations[record.ConfigHashAnnotation] {
			return fmt.Errorf("annotations = %v", now.Annotations)
		}
		return nil
	})
	await.Until(t, "there is an event for the reload", func(ctx context.Context) error {
		events, err := client.CoreV1().Events(w.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=ConfigRestarted,involvedObject.name=" + w.Name})
		if err == nil && len(events.Items) == 0 {
			err = errors.New("no event yet")
		}
		return err
	})
}

func namespaceGone(t *testing.T, name string) {
	t.Helper()
	await.Until(t, "namespace "+name+" is deleted", func(ctx context.Context) error {
		found, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("the namespace exists: %+v", found.Status)
		}
		return err
	})
}

// nothingLeft checks that no object of configdep remains.
func nothingLeft(t *testing.T) {
	t.Helper()
	namespaceGone(t, install.Namespace)
	await.Until(t, "the garbage collector has deleted the APIService", func(ctx context.Context) error {
		left, err := cluster.Kubectl(ctx, "get", "apiservice", install.APIService, "--ignore-not-found", "-o", "name")
		if err == nil && left != "" {
			err = errors.New(left + " exists")
		}
		return err
	})
	for _, kind := range []string{"apiservices", "validatingadmissionpolicies", "validatingadmissionpolicybindings", "clusterroles", "clusterrolebindings", "flowschemas", "prioritylevelconfigurations", "rolebindings -n kube-system"} {
		if out := kubectl(t, append([]string{"get", "-o", "name"}, strings.Fields(kind)...)...); strings.Contains(out, "configdep") {
			t.Errorf("some %s remain:\n%s", kind, out)
		}
	}
}
