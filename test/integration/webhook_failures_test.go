// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/configdep/configdep/pkg/admission"
	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/judge"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/pki"
)

// newOwnedShop returns a shop with a Secret that workloads read.
func newOwnedShop(t *testing.T) *shop {
	t.Helper()
	s := newShop(t)
	s.write(db, "password", "x")
	return s
}

// owned is the manifest that the owner of a workload applies again and again.
func owned(name string) *appsv1.Deployment {
	o := single(name, envFromSecret("db"))
	optedIn(o)
	return o
}

// rewrite applies the manifest again, with a change and without configdep's annotations.
func (s *shop) rewrite(name string, change func(*appsv1.Deployment)) (made *appsv1.Deployment, err error) {
	deployments := kube.AppsV1().Deployments(s.namespace)
	// Retries, because the status changes all the time.
	err = retry.RetryOnConflict(wait.Backoff{Steps: 50, Duration: 5 * time.Millisecond, Factor: 1.1, Jitter: 1}, func() error {
		o, err := deployments.Get(s.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		m := owned(name)
		o.Annotations, o.Spec.Template = m.Annotations, m.Spec.Template
		change(o)
		made, err = deployments.Update(s.Context(), o, metav1.UpdateOptions{})
		return err
	})
	return made, err
}

// failedOpen returns how many requests kube-apiserver has admitted without an answer of the webhook.
func failedOpen(t *testing.T) (n float64) {
	t.Helper()
	raw, err := kube.Discovery().RESTClient().Get().AbsPath("/metrics").Do(t.Context()).Raw()
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
func reach(t *testing.T, port int) {
	t.Helper()
	before := setWebhooks(t, func(c *admissionregistrationv1.WebhookClientConfig) {
		c.Service.Port = new(int32(port))
	})
	t.Cleanup(func() {
		setWebhooks(t, func(c *admissionregistrationv1.WebhookClientConfig) { c.Service.Port = before.Service.Port })
	})
}

func setWebhooks(t *testing.T, change func(*admissionregistrationv1.WebhookClientConfig)) (before admissionregistrationv1.WebhookClientConfig) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // the context of the test may be done by now
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		o, err := kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, install.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		before = *o.Webhooks[0].ClientConfig.DeepCopy()
		for i := range o.Webhooks {
			change(&o.Webhooks[i].ClientConfig)
		}
		_, err = kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, o, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return before
}

// createOpen creates workloads until one of them is admitted without the webhook: kube-apiserver reads a new
// configuration with a delay.
func (s *shop) createOpen() (name string) {
	s.Helper()
	before, n := failedOpen(s.T), 0
	await.Until(s.T, "a workload is admitted without the webhook", func(context.Context) error {
		name = fmt.Sprintf("open-%d", n)
		n++
		made := s.create(owned(name))
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
	o, err := kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), install.Name, metav1.GetOptions{})
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

// Whatever kube-apiserver finds at the address of the webhook, workloads are created and updated, and the
// controller records and restarts as without a webhook.
func TestWebhookFailsOpen(t *testing.T) {
	// Not parallel: the webhook fails for all.
	var listening sync.WaitGroup
	t.Cleanup(listening.Wait)
	// listen handles connections until the test ends.
	listen := func(t *testing.T, answer func(net.Conn)) int {
		t.Helper()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		listening.Go(func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				listening.Go(func() {
					defer conn.Close()
					answer(conn)
				})
			}
		})
		return listener.Addr().(*net.TCPAddr).Port
	}
	for name, answer := range map[string]func(net.Conn){
		"no server listens": nil,
		"no answer arrives": func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newOwnedShop(t)
			port := 1 // a privileged port, on which no other process of the user listens
			if answer != nil {
				port = listen(t, answer)
			}
			reach(t, port)
			web := s.createOpen()
			s.view("deployment."+web, applied)
			s.write(db, "password", "y")
			s.view("deployment."+web, applied, restartedFor(string(db)))
			rewritten, err := s.rewrite(web, func(*appsv1.Deployment) {})
			s.must(err)
			if rewritten.Spec.Template.Annotations != nil {
				t.Errorf("annotations of the template = %v", rewritten.Spec.Template.Annotations)
			}
			s.view("deployment."+web, applied)
		})
	}
	t.Run("the webhook is available again", func(t *testing.T) {
		s := newOwnedShop(t)
		n := 0
		await.Until(t, "new workloads are stamped", func(context.Context) error {
			n++
			if made := s.create(owned(fmt.Sprintf("web-%d", n))); made.Spec.Template.Annotations[record.ConfigHashAnnotation] == "" {
				return errors.New("the new workload is not stamped")
			}
			return nil
		})
	})
}

// Replicas are killed while owners write. Each write succeeds, and in the end no workload is known to run with old content.
func TestWebhookIsKilledWhileOwnersWrite(t *testing.T) {
	// Not parallel: the replicas are killed for all.
	s := newOwnedShop(t)
	const owners, writes = 8, 12
	name := func(i int) string { return fmt.Sprintf("web-%d", i) }
	var writing sync.WaitGroup
	progress := make(chan struct{}, owners*writes)
	for i := range owners {
		s.create(owned(name(i)))
		writing.Go(func() {
			for n := range writes {
				if _, err := s.rewrite(name(i), func(o *appsv1.Deployment) { o.Spec.Template.Spec.Containers[0].Image = fmt.Sprint("app:", n/2) }); err != nil {
					t.Errorf("a write failed: %v", err)
				}
				progress <- struct{}{}
			}
		})
	}
	for i := range owners * writes {
		<-progress
		if i%(owners*writes/4) != owners {
			continue
		}
		victim := server.Replicas[i/(owners*writes/4)%2]
		victim.Kill()
		s.write(db, "password", fmt.Sprint("password ", i))
		if err := victim.Start(); err != nil {
			t.Error(err)
		}
	}
	writing.Wait()
	for _, r := range server.Replicas {
		if err := r.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// Where an owner removed the record while no replica was there to see it, it cannot be known.
	settled := func(o *v1alpha1.ConfigDependency) error {
		if r := o.Status.Reason; o.Status.State == v1alpha1.StateUnknown && (r == judge.ReasonWrittenSinceStart || r == judge.ReasonClockMargin) {
			return nil
		}
		return applied(o)
	}
	hashes := map[string]bool{}
	for i := range owners {
		if o := s.view("deployment."+name(i), settled); o.Status.State == v1alpha1.StateInSync {
			hashes[o.Status.AppliedHash] = true
		}
	}
	if len(hashes) != 1 {
		t.Errorf("all workloads read the same Secret, but their hashes are %v", hashes)
	}
}

// If another client overwrites the path, the leader restores it, so that kube-apiserver reaches the webhook again.
func TestWebhookPathIsPutRight(t *testing.T) {
	// Not parallel: the webhook is out of reach for all.
	s, path := newOwnedShop(t), webhookPath(t)
	setWebhooks(t, func(c *admissionregistrationv1.WebhookClientConfig) { c.Service.Path = new("/elsewhere") })
	await.Until(t, "the path is restored", func(ctx context.Context) error {
		o, err := kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, install.Name, metav1.GetOptions{})
		for i := range o.Webhooks {
			if got := o.Webhooks[i].ClientConfig.Service.Path; got == nil || *got != path {
				return fmt.Errorf("path of %s = %v", o.Webhooks[i].Name, got)
			}
		}
		return err
	})
	await.Until(t, "workloads are stamped again", func(ctx context.Context) error {
		o := owned("dry")
		made, err := kube.AppsV1().Deployments(s.namespace).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && made.Annotations[record.ConfigHashAnnotation] == "" {
			err = errors.New("the workload has no hash")
		}
		return err
	})
}

// Other requests to the port get an HTTP error, and the port does not serve the API. With a CA for callers,
// callers without a certificate of the CA are rejected.
func TestWebhookListener(t *testing.T) {
	t.Parallel()
	authority, err := pki.NewAuthority("callers")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "callers.crt")
	if err := os.WriteFile(file, authority.BundlePEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	closed := replica(t, "callers", install.ReplicaOptions{Args: []string{"--webhook-client-ca-file=" + file, "--webhook-client-allowed-names=" + webhookCaller}})
	certificate := func(a *pki.Authority, name string) tls.Certificate {
		pair, err := a.ClientCert(name)
		if err != nil {
			t.Fatal(err)
		}
		loaded, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		return loaded
	}
	stranger, err := pki.NewAuthority("callers")
	if err != nil {
		t.Fatal(err)
	}
	path := webhookPath(t)
	const review = `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "operation": "DELETE", "kind": {"group": "apps", "kind": "Deployment"}, "namespace": "shop", "object": {}}}`
	for _, tt := range []struct {
		name, path, body string
		to               *install.Replica
		with             []tls.Certificate
		code             int
	}{
		{"a review", path, review, server.Replicas[0], nil, http.StatusOK},
		{"garbage", path, "\x16\x03", server.Replicas[0], nil, http.StatusBadRequest},
		{"a body above the limit", path, strings.Repeat(" ", 9<<20), server.Replicas[0], nil, http.StatusRequestEntityTooLarge},
		{"the well-known path", admission.Path, review, server.Replicas[0], nil, http.StatusNotFound},
		{"a guessed path", path[:len(path)-1] + "-", review, server.Replicas[0], nil, http.StatusNotFound},
		{"a longer path", path + "/", review, server.Replicas[0], nil, http.StatusNotFound},
		{"another path", "/apis/configdep.io/v1alpha1/configdependencies", review, server.Replicas[0], nil, http.StatusNotFound},
		{"metrics", "/metrics", review, server.Replicas[0], nil, http.StatusNotFound},
		{"with a CA: no certificate", path, review, closed, nil, http.StatusUnauthorized},
		{"with a CA: a certificate of another CA", path, review, closed, []tls.Certificate{certificate(stranger, webhookCaller)}, http.StatusUnauthorized},
		{"with a CA: a certificate of this CA", path, review, closed, []tls.Certificate{certificate(authority, webhookCaller)}, http.StatusOK},
		{"with a CA: a certificate of this CA with another name", path, review, closed, []tls.Certificate{certificate(authority, "kubelet")}, http.StatusUnauthorized},
	} {
		config := tt.to.RESTConfig()
		tlsConfig, err := rest.TLSConfigFor(config)
		if err != nil {
			t.Fatal(err)
		}
		tlsConfig.Certificates = tt.with
		caller := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+tt.to.WebhookAddress()+tt.path, bytes.NewReader([]byte(tt.body)))
		if err != nil {
			t.Fatal(err)
		}
		request.Header = http.Header{"Content-Type": {"application/json"}, "Expect": {"100-continue"}}
		response, err := caller.Do(request)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != tt.code || tt.code == http.StatusOK && !bytes.Contains(body, []byte(`"allowed":true`)) {
			t.Errorf("%s: answer = %d: %s", tt.name, response.StatusCode, body)
		}
	}
}
