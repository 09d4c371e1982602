// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/search"
)

// Users hear of restarts, whatever other destinations do, and the log tells no URL and no key.
func TestNotifications(t *testing.T) {
	t.Parallel()
	secret, key, received := rand.Text(), rand.Text(), newReceiver(t)
	s := newOwnShop(t)
	r := s.serve(install.ReplicaOptions{
		Args: []string{"-v=7", "--cluster-name=eu-1", "--notifications-config=" + configure(t, received.url, secret, key)},
		Env: []string{
			"ALERT_ADDITIONAL_INFO=Cluster eu-1",
			// This host does not exist: the proxy answers.
			"ALERT_WEBHOOK_URL=http://alerts.example.invalid/alert/" + secret, "ALERT_WEBHOOK_PROXY=" + received.url,
		},
	})
	s.write(db, "password", "x")
	web := s.create(owned("web"))
	s.view("deployment.web", applied)
	s.write(db, "password", "y")

	restarted := received.await(t, "events", key, "Restarted", "Secret/db")
	if time.Since(restarted.Time) > await.Limit || restarted.ID == "" {
		t.Errorf("time = %v, id = %q", restarted.Time, restarted.ID)
	}
	want := cloudEvent{
		SpecVersion: "1.0", ID: restarted.ID, Source: "/configdep/eu-1", Type: "io.configdep.workload.Restarted",
		Subject: s.namespace + "/Deployment/web", Time: restarted.Time, DataContentType: "application/json",
	}
	want.Data.What, want.Data.Trigger, want.Data.Message = "Restarted", "Secret/db", restarted.Data.Message
	want.Data.Workload.Kind, want.Data.Workload.Namespace, want.Data.Workload.Name, want.Data.Workload.UID = "Deployment", s.namespace, "web", string(web.UID)
	if diff := cmp.Diff(want, restarted); diff != "" || !strings.HasPrefix(restarted.Data.Message, "Restarted because ") {
		t.Errorf("event (-want +got):\n%s\nmessage = %q", diff, restarted.Data.Message)
	}

	blocked := single("blocked", envFromSecret("missing"))
	optedIn(blocked)
	s.create(blocked)
	if blocked := received.await(t, "events", key, "SourceMissing", ""); blocked.Subject != s.namespace+"/Deployment/blocked" {
		t.Errorf("event = %+v", blocked)
	}

	if _, err := s.api().Reload(t.Context(), "deployment.web", &v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Reason: "rotated"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if reload := received.await(t, "events", key, "Restarted", "Request"); !strings.HasSuffix(reload.Data.Message, ": rotated") ||
		reload.Data.RequestedBy == "" || !strings.Contains(reload.Data.Message, reload.Data.RequestedBy) {
		t.Errorf("message = %q, requested by %q", reload.Data.Message, reload.Data.RequestedBy)
	}
	await.Until(t, "the destination of the environment receives both restarts", func(context.Context) error {
		var got []string
		for _, q := range received.at("alert") {
			got = append(got, q.host+": "+q.contentType+": "+strings.Split(string(q.body), ": Restarted at")[0])
		}
		if diff := cmp.Diff([]string{
			"alerts.example.invalid: text/plain; charset=utf-8: Cluster eu-1 : configdep detected changes in db of type SECRET in namespace " + s.namespace + ". Hence reloaded web of type Deployment in namespace " + s.namespace,
			"alerts.example.invalid: text/plain; charset=utf-8: Cluster eu-1 : configdep reloaded web of type Deployment in namespace " + s.namespace,
		}, got); diff != "" {
			return fmt.Errorf("requests (-want +got):\n%s", diff)
		}
		return nil
	})
	await.Until(t, "the losses are counted", func(ctx context.Context) error {
		got, err := try(ctx, r.AdminConfig(), request{path: "/metrics"})
		if err != nil {
			return err
		}
		noSecrets(t, "the metrics", got.body, secret, key)
		for _, line := range []string{
			`configdep_notifications_total{destination="wrong",result="rejected"} 1`, `configdep_notifications_total{destination="events",result="delivered"} `,
			`configdep_notifications_total{destination="alert",result="delivered"} `, `configdep_notifications_total{destination="stuck",result="failed"} 0`,
		} {
			if !strings.Contains(string(got.body), line) {
				return fmt.Errorf("the metrics lack %s", line)
			}
		}
		return nil
	})

	if err := r.Terminate(); err != nil { // the stuck destination prevents nothing
		t.Errorf("%s: %v", r.Name(), err)
	}
	logged, err := os.ReadFile(r.Log())
	if err != nil {
		t.Fatal(err)
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
}

// Of two replicas, one tells of each restart.
func TestNotifications_AreSentOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	web := reading("web", auto, nil, db, config)
	s.write(db, "key", "x")
	s.write(config, "key", "x")
	s.create(web)
	s.view("deployment.web", applied)
	for _, r := range []ref{db, config} {
		s.view("deployment.web", applied, at(s.write(r, "key", "y")))
	}
	await.Until(t, "both restarts are told", func(context.Context) error {
		told := alerts.about("in namespace " + s.namespace)
		if len(told) != 2 || !strings.Contains(told[0], "changes in db of") || !strings.Contains(told[1], "changes in app-config of") {
			return fmt.Errorf("messages = %q", told)
		}
		return nil
	})
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
