// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package notifications tests that events reach destinations outside of the cluster, from a server that is installed with
// the manifests.
package notifications

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/search"
)

var cluster *controlplane.ControlPlane

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{Nodes: 1}, func(c *controlplane.ControlPlane) { cluster = c }))
}

// Users hear of restarts, whatever other destinations do, and the log tells no URL and no key.
func TestEventsReachTheirDestinations(t *testing.T) {
	secret, key, received := rand.Text(), rand.Text(), newReceiver(t)
	server, err := install.Install(t.Context(), cluster, install.Options{
		Replicas: 2, Race: install.RaceDetector,
		Args: []string{"--shutdown-delay-duration=1s", "-v=7", "--cluster-name=eu-1", "--notifications-config=" + configure(t, received.url, secret, key)},
		Env: []string{
			"ALERT_ON_RELOAD=true", "ALERT_ADDITIONAL_INFO=Cluster eu-1",
			// This host does not exist: the proxy answers.
			"ALERT_WEBHOOK_URL=http://alerts.example.invalid/alert/" + secret, "ALERT_WEBHOOK_PROXY=" + received.url,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()

	client := kubernetes.NewForConfigOrDie(cluster.RESTConfig())
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	password := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "db"}, StringData: map[string]string{"password": "x"}}
	if _, err := client.CoreV1().Secrets("shop").Create(t.Context(), password, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	web := create(t, client, "web", "db")
	password.StringData["password"] = "y"
	if _, err := client.CoreV1().Secrets("shop").Update(t.Context(), password, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	restarted := received.await(t, "events", key, "Restarted", "Secret/db")
	if time.Since(restarted.Time) > await.Limit || restarted.ID == "" {
		t.Errorf("time = %v, id = %q", restarted.Time, restarted.ID)
	}
	want := cloudEvent{
		SpecVersion: "1.0", ID: restarted.ID, Source: "/configdep/eu-1", Type: "io.configdep.workload.Restarted",
		Subject: "shop/Deployment/web", Time: restarted.Time, DataContentType: "application/json",
	}
	want.Data.What, want.Data.Trigger, want.Data.Message = "Restarted", "Secret/db", restarted.Data.Message
	want.Data.Workload.Kind, want.Data.Workload.Namespace, want.Data.Workload.Name, want.Data.Workload.UID = "Deployment", "shop", "web", string(web.UID)
	if diff := cmp.Diff(want, restarted); diff != "" || !strings.HasPrefix(restarted.Data.Message, "Restarted because ") {
		t.Errorf("event (-want +got):\n%s\nmessage = %q", diff, restarted.Data.Message)
	}

	create(t, client, "blocked", "missing")
	if blocked := received.await(t, "events", key, "SourceMissing", ""); blocked.Subject != "shop/Deployment/blocked" {
		t.Errorf("event = %+v", blocked)
	}

	reloads := versioned.NewForConfigOrDie(cluster.RESTConfig()).ConfigdepV1alpha1().ConfigDependencies("shop")
	if _, err := reloads.Reload(t.Context(), "deployment.web", &v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Reason: "rotated"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if reload := received.await(t, "events", key, "Restarted", "Request"); !strings.HasSuffix(reload.Data.Message, ": rotated") ||
		reload.Data.RequestedBy == "" || !strings.Contains(reload.Data.Message, reload.Data.RequestedBy) {
		t.Errorf("message = %q, requested by %q", reload.Data.Message, reload.Data.RequestedBy)
	}
	events, err := received.events("events", key)
	if err != nil {
		t.Fatal(err)
	}
	if count := len(events); count != 3 { // of two replicas, one sends each
		t.Errorf("events = %+v, want 3", events)
	}

	await.Until(t, "the destination of the environment receives both restarts", func(context.Context) error {
		var got []string
		for _, q := range received.at("alert") {
			got = append(got, q.host+": "+q.contentType+": "+strings.Split(string(q.body), ": Restarted at")[0])
		}
		if diff := cmp.Diff([]string{
			"alerts.example.invalid: text/plain; charset=utf-8: Cluster eu-1 : configdep detected changes in db of type SECRET in namespace shop. Hence reloaded web of type Deployment in namespace shop",
			"alerts.example.invalid: text/plain; charset=utf-8: Cluster eu-1 : configdep reloaded web of type Deployment in namespace shop",
		}, got); diff != "" {
			return fmt.Errorf("requests (-want +got):\n%s", diff)
		}
		return nil
	})
	await.Until(t, "the losses are counted", func(ctx context.Context) error {
		var all []byte
		for _, r := range server.Replicas {
			metrics, err := scrape(ctx, r)
			if err != nil {
				return err
			}
			all = append(all, metrics...)
		}
		noSecrets(t, "the metrics", all, secret, key)
		for _, line := range []string{
			`configdep_notifications_total{destination="wrong",result="rejected"} 1`, `configdep_notifications_total{destination="events",result="delivered"} `,
			`configdep_notifications_total{destination="alert",result="delivered"} `, `configdep_notifications_total{destination="stuck",result="failed"} 0`,
		} {
			if !strings.Contains(string(all), line) {
				return fmt.Errorf("no replica reports %s", line)
			}
		}
		return nil
	})

	var logged []byte
	for _, r := range server.Replicas {
		if err := r.Terminate(); err != nil { // the stuck destination prevents nothing
			t.Errorf("%s: %v", r.Name(), err)
		}
		log, err := os.ReadFile(r.Log())
		if err != nil {
			t.Fatal(err)
		}
		logged = append(logged, log...)
	}
	noSecrets(t, "the log", logged, secret, key)
	for _, line := range []string{
		`"Sending events" webhook="events"`, `"Sending events" webhook="alert"`,
		`"Lost events" err="the destination answered 404 Not Found" webhook="wrong"`, `"Lost events" webhook="stuck"`,
	} {
		if !strings.Contains(string(logged), line) {
			t.Errorf("the log lacks %s", line)
		}
	}
	if err := server.CheckLogs(); err != nil {
		t.Error(err)
	}
}

// configure returns a file with destinations at a receiver.
func configure(t *testing.T, url, secret, key string) string {
	t.Helper()
	folder := t.TempDir()
	for name, content := range map[string]string{
		"url": url + "/events/" + secret + "\n",
		"key": key + "\n",
		"config.yaml": `
apiVersion: config.configdep.io/v1alpha1
kind: Notifications
destinations:
- name: stuck
  format: gchat
  url: ` + url + `/stuck/` + secret + `
- name: wrong
  format: slack
  url: ` + url + `/wrong/` + secret + `
  events: [SourceMissing]
- name: events
  format: generic
  urlFile: url
  keyFile: key
- name: other
  format: teams
  url: ` + url + `/other/` + secret + `
  namespaces: [bank]
`,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(folder, "config.yaml")
}

// create creates a Deployment that reads a Secret, and waits until the API shows it.
func create(t *testing.T, client kubernetes.Interface, name, secret string) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"app": name}
	made, err := client.AppsV1().Deployments("shop").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{policy.ReloadAnnotation: "auto", policy.SettleAnnotation: "0"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "app", Image: "app",
				EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	shown := versioned.NewForConfigOrDie(cluster.RESTConfig()).ConfigdepV1alpha1().ConfigDependencies("shop")
	await.Until(t, name+" is shown with its state", func(ctx context.Context) error {
		found, err := shown.Get(ctx, "deployment."+name, metav1.GetOptions{})
		if err == nil && found.Status.State != v1alpha1.StateInSync && found.Status.State != v1alpha1.StateBlocked {
			err = fmt.Errorf("status = %+v", found.Status)
		}
		return err
	})
	return made
}

// scrape returns the metrics of a replica.
func scrape(ctx context.Context, r *install.Replica) ([]byte, error) {
	config := r.AdminConfig()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(q)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return io.ReadAll(answer.Body)
}

// noSecrets fails the test if a text contains a secret in any form.
func noSecrets(t *testing.T, what string, text []byte, secrets ...string) {
	t.Helper()
	for _, secret := range secrets {
		for _, form := range search.Forms(secret) {
			for _, at := range search.Find(text, form) {
				t.Errorf("%s contains a secret at %d:\n%q", what, at, search.Around(text, at))
			}
		}
	}
}
