// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package callers tests the client certificate with which kube-apiserver authenticates to the webhook:
// kube-apiserver gets the configuration from docs/install.md.
package callers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/pki"
)

// unauthorized is the error of kube-apiserver after a 401, which it logs when it continues without the webhook.
const unauthorized = "the server has asked for the client to provide credentials"

// The webhook answers kube-apiserver only if it shows a certificate of the CA with an allowed name. Otherwise
// workloads are admitted unchanged.
func TestWebhookAnswersToACertificateOfKubeAPIServer(t *testing.T) {
	s := newScene(t)
	s.showsNone()
	s.refused("without a certificate")

	s.shows(s.authority, "front-proxy-client")
	s.answered("with its certificate")

	s.shows(s.authority, "kubelet")
	s.refused("with a certificate of another name")

	s.shows(authority(t), "front-proxy-client")
	s.refused("with a certificate of another CA")

	s.shows(s.authority, "front-proxy-client")
	s.answered("with its certificate again")
}

type scene struct {
	*testing.T

	dir       string // stands in for /etc/kubernetes/admission
	authority *pki.Authority
	cluster   *controlplane.ControlPlane
	server    *install.Installation
	client    kubernetes.Interface
}

const namespace = "shop"

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{T: t, dir: t.TempDir(), authority: authority(t)}
	s.write("admission.yaml", strings.ReplaceAll(s.documented("AdmissionConfiguration"), "/etc/kubernetes/admission", s.dir))
	s.showsNone()
	s.write("ca.crt", string(s.authority.BundlePEM()))
	var err error
	s.cluster, err = controlplane.Start(t.Context(), controlplane.Options{
		APIServerOnly: true, APIServerArgs: []string{"--admission-control-config-file=" + s.path("admission.yaml")}, Log: t.Output(), KeepDir: os.Getenv("CONTROLPLANE_KEEP") != "",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.server, err = install.Install(t.Context(), s.cluster, install.Options{Args: []string{
		"--shutdown-delay-duration=0s", "--webhook-client-ca-file=" + s.path("ca.crt"), "--webhook-client-allowed-names=front-proxy-client",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.server.Stop()
		if err := s.server.CheckLogs(); err != nil {
			t.Error(err)
		}
	})
	if s.client, err = kubernetes.NewForConfig(s.cluster.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	db := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "db"}, StringData: map[string]string{"password": "x"}}
	if _, err := s.client.CoreV1().Secrets(namespace).Create(t.Context(), db, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return s
}

func authority(t *testing.T) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority("front-proxy-ca")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (s *scene) path(name string) string { return filepath.Join(s.dir, name) }

func (s *scene) write(name, content string) {
	s.Helper()
	if err := os.WriteFile(s.path(name), []byte(content), 0o600); err != nil {
		s.Fatal(err)
	}
}

// documented returns the manifest of a kind in docs/install.md.
func (s *scene) documented(kind string) string {
	s.Helper()
	content, err := os.ReadFile("../../../docs/install.md")
	if err != nil {
		s.Fatal(err)
	}
	var found []string
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(content), -1) {
		if strings.Contains(block[1], "\nkind: "+kind+"\n") {
			found = append(found, block[1])
		}
	}
	if len(found) != 1 {
		s.Fatalf("docs/install.md has %d manifests of kind %s", len(found), kind)
	}
	return found[0]
}

func (s *scene) showsNone() {
	s.Helper()
	s.write("webhooks.yaml", "apiVersion: v1\nkind: Config\n")
}

// shows configures the certificate that kube-apiserver shows to the webhook. kube-apiserver reads the kubeconfig
// when it starts.
func (s *scene) shows(ca *pki.Authority, name string) {
	s.Helper()
	pair, err := ca.ClientCert(name)
	if err != nil {
		s.Fatal(err)
	}
	s.write("client.crt", string(pair.Cert))
	s.write("client.key", string(pair.Key))
	kubeconfig := strings.ReplaceAll(s.documented("Config"), "/etc/kubernetes/pki/front-proxy-client", s.path("client"))
	s.write("webhooks.yaml", strings.ReplaceAll(kubeconfig, ".svc:9443", ".svc:"+strconv.Itoa(s.server.WebhookPort())))
	if err := s.cluster.RestartAPIServer(s.Context()); err != nil {
		s.Fatal(err)
	}
}

// stamped reports whether a new workload has the hash with which its pods would start.
func (s *scene) stamped(ctx context.Context) (bool, error) {
	labels := map[string]string{"app": "web"}
	o := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"configdep.io/reload": "auto"}},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "app", Image: "app",
				EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}}},
			}}}},
		},
	}
	made, err := s.client.AppsV1().Deployments(namespace).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return false, err
	}
	return made.Spec.Template.Annotations[policy.ConfigHashAnnotation] != "", nil
}

func (s *scene) answered(how string) {
	s.Helper()
	await.Until(s.T, "kube-apiserver gets an answer "+how, func(ctx context.Context) error {
		stamped, err := s.stamped(ctx)
		if err == nil && !stamped {
			err = errors.New("the workload was admitted unchanged")
		}
		return err
	})
}

// refused waits until kube-apiserver has logged that the webhook refused a call, so that it has called the right
// path.
func (s *scene) refused(how string) {
	s.Helper()
	before := len(s.log())
	await.Until(s.T, "kube-apiserver is refused "+how, func(ctx context.Context) error {
		stamped, err := s.stamped(ctx)
		if stamped {
			s.Fatalf("kube-apiserver gets an answer %s", how)
		}
		if err == nil && !strings.Contains(s.log()[before:], unauthorized) {
			err = errors.New("kube-apiserver has not logged the refusal")
		}
		return err
	})
}

// log returns the log of kube-apiserver.
func (s *scene) log() string {
	s.Helper()
	content, err := os.ReadFile(s.cluster.Logs("kube-apiserver"))
	if err != nil {
		s.Fatal(err)
	}
	return string(content)
}
