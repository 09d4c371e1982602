// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/configdep/configdep/pkg/admission"
	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// shop is a namespace with a Secret that workloads read.
type shop struct {
	*testing.T

	namespace string
}

func newShop(t *testing.T) *shop {
	t.Helper()
	made, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Secrets(made.Name).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "db"}, StringData: map[string]string{"password": "x"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &shop{t, made.Name}
}

// manifest is the manifest that the owner of a workload applies again and again.
func manifest(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"configdep.io/reload": "auto", "configdep.io/settle": "0", "configdep.io/min-interval": "0"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "app", Image: "app",
				EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}}},
			}}}},
		},
	}
}

func (s *shop) create(name string) *appsv1.Deployment {
	s.Helper()
	made, err := client.AppsV1().Deployments(s.namespace).Create(s.Context(), manifest(name), metav1.CreateOptions{})
	if err != nil {
		s.Fatalf("creating a workload: %v", err)
	}
	return made
}

// rewrite applies the manifest again, with a change and without configdep's annotations.
func (s *shop) rewrite(name string, change func(*appsv1.Deployment)) *appsv1.Deployment {
	s.Helper()
	made, err := s.tryRewrite(name, change)
	if err != nil {
		s.Fatalf("updating a workload: %v", err)
	}
	return made
}

func (s *shop) tryRewrite(name string, change func(*appsv1.Deployment)) (made *appsv1.Deployment, err error) {
	deployments := client.AppsV1().Deployments(s.namespace)
	// Retries, because the status changes all the time.
	err = retry.RetryOnConflict(wait.Backoff{Steps: 50, Duration: 5 * time.Millisecond, Factor: 1.1, Jitter: 1}, func() error {
		o, err := deployments.Get(s.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		m := manifest(name)
		o.Annotations, o.Spec.Template = m.Annotations, m.Spec.Template
		change(o)
		made, err = deployments.Update(s.Context(), o, metav1.UpdateOptions{})
		return err
	})
	return made, err
}

// inSync waits until the API shows a workload as in sync, and more holds.
func (s *shop) inSync(name string, more func(*v1alpha1.ConfigDependency) error) *v1alpha1.ConfigDependency {
	s.Helper()
	api, err := versioned.NewForConfig(cluster.RESTConfig())
	if err != nil {
		s.Fatal(err)
	}
	var found *v1alpha1.ConfigDependency
	await.Until(s.T, name+" is in sync", func(ctx context.Context) (err error) {
		found, err = api.ConfigdepV1alpha1().ConfigDependencies(s.namespace).Get(ctx, "deployment."+name, metav1.GetOptions{})
		if err == nil && (found.Status.State != v1alpha1.StateInSync || found.Status.AppliedHash != found.Status.ConfigHash) {
			err = fmt.Errorf("status = %+v", found.Status)
		}
		if err == nil && more != nil {
			err = more(found)
		}
		return err
	})
	return found
}

func (s *shop) setPassword(value string) {
	s.Helper()
	data := fmt.Sprintf(`{"stringData": {"password": %q}}`, value)
	if _, err := client.CoreV1().Secrets(s.namespace).Patch(s.Context(), "db", "application/merge-patch+json", []byte(data), metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
}

// failedOpen returns how many requests kube-apiserver has admitted without an answer of the webhook.
func failedOpen(t *testing.T) (n float64) {
	t.Helper()
	raw, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, "apiserver_admission_webhook_fail_open_count{") && strings.Contains(line, "configdep.io") {
			var value float64
			if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &value); err != nil {
				t.Fatal(err)
			}
			n += value
		}
	}
	return n
}

// reach makes kube-apiserver look for the webhook at another address, until the test ends.
func reach(t *testing.T, port int, ca []byte) {
	t.Helper()
	before := setWebhooks(t, func(c *admissionregistrationv1.WebhookClientConfig) {
		c.Service.Port = new(int32(port))
		if ca != nil {
			c.CABundle = ca
		}
	})
	t.Cleanup(func() {
		setWebhooks(t, func(c *admissionregistrationv1.WebhookClientConfig) { *c = before })
	})
}

func setWebhooks(t *testing.T, change func(*admissionregistrationv1.WebhookClientConfig)) (before admissionregistrationv1.WebhookClientConfig) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // the context of the test may be done by now
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		o, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, install.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		before = *o.Webhooks[0].ClientConfig.DeepCopy()
		for i := range o.Webhooks {
			change(&o.Webhooks[i].ClientConfig)
		}
		_, err = client.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, o, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return before
}

// awaitOpen creates workloads until one of them is admitted without the webhook: kube-apiserver reads a new
// configuration with a delay.
func (s *shop) awaitOpen() (name string) {
	s.Helper()
	before, n := failedOpen(s.T), 0
	await.Until(s.T, "a workload is admitted without the webhook", func(context.Context) error {
		name = fmt.Sprintf("open-%d", n)
		n++
		made := s.create(name)
		if failedOpen(s.T) == before {
			return errors.New("the webhook was called")
		}
		if made.Spec.Template.Annotations != nil {
			s.Errorf("annotations of the template = %v", made.Spec.Template.Annotations)
		}
		return nil
	})
	return name
}

// webhookPath returns the path of the webhook, which the leader has written into the configuration.
func webhookPath(t *testing.T) string {
	t.Helper()
	o, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), install.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range o.Webhooks {
		if path := o.Webhooks[i].ClientConfig.Service.Path; path == nil || !strings.HasPrefix(*path, admission.Path+"/") || len(*path) < len(admission.Path)+40 || *path != *o.Webhooks[0].ClientConfig.Service.Path {
			t.Fatalf("path of %s = %v", o.Webhooks[i].Name, path)
		}
	}
	return *o.Webhooks[0].ClientConfig.Service.Path
}
