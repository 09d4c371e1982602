// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package webhook tests failures of the admission webhook: workloads are still admitted, and the controller
// catches up later.
package webhook

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

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/admission"
	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/pki"
)

// All tests share these. They run one after the other.
var (
	cluster *controlplane.ControlPlane
	server  *install.Installation
	client  kubernetes.Interface
)

func TestMain(m *testing.M) {
	os.Exit(install.Run(m, controlplane.Options{Nodes: 1}, install.Options{
		Replicas: 2, Race: install.RaceDetector, Args: []string{"--shutdown-delay-duration=2s"},
	}, func(c *controlplane.ControlPlane, i *install.Installation) {
		cluster, server, client = c, i, kubernetes.NewForConfigOrDie(c.RESTConfig())
	}))
}

// Whatever kube-apiserver finds at the address of the webhook, workloads are created and updated, and the
// controller records and restarts as without a webhook.
func TestFailsOpen(t *testing.T) {
	stranger, err := pki.NewAuthority("a stranger")
	if err != nil {
		t.Fatal(err)
	}
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
	for name, tt := range map[string]struct {
		answer func(net.Conn)
		ca     []byte
	}{
		"no server listens":              {},
		"connections are closed":         {answer: func(net.Conn) {}},
		"no answer arrives":              {answer: func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }},
		"the answer is not TLS":          {answer: func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n") }},
		"the certificate is not trusted": {ca: stranger.BundlePEM()},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			port := server.WebhookPort()
			if tt.answer != nil {
				port = listen(t, tt.answer)
			} else if tt.ca == nil {
				port = 1 // a privileged port, on which no other process of the user listens
			}
			reach(t, port, tt.ca)
			web := s.awaitOpen()
			s.inSync(web, nil)
			s.setPassword("y")
			s.inSync(web, func(o *v1alpha1.ConfigDependency) error {
				if o.Status.LastReload == nil {
					return errors.New("not restarted yet")
				}
				return nil
			})
			rewritten := s.rewrite(web, func(*appsv1.Deployment) {})
			if rewritten.Spec.Template.Annotations != nil {
				t.Errorf("annotations of the template = %v", rewritten.Spec.Template.Annotations)
			}
			s.inSync(web, nil)
		})
	}
	t.Run("the webhook is available again", func(t *testing.T) {
		s := newShop(t)
		n := 0
		await.Until(t, "new workloads are stamped", func(context.Context) error {
			n++
			if made := s.create(fmt.Sprintf("web-%d", n)); made.Spec.Template.Annotations[policy.ConfigHashAnnotation] == "" {
				return errors.New("the new workload is not stamped")
			}
			return nil
		})
	})
}

// Replicas are killed while owners write. Each write succeeds, and in the end all workloads are known to run with
// the current content.
func TestKilledWhileOwnersWrite(t *testing.T) {
	s := newShop(t)
	const owners, writes = 8, 12
	name := func(i int) string { return fmt.Sprintf("web-%d", i) }
	var writing sync.WaitGroup
	progress := make(chan struct{}, owners*writes)
	for i := range owners {
		s.create(name(i))
		writing.Go(func() {
			for n := range writes {
				if _, err := s.tryRewrite(name(i), func(o *appsv1.Deployment) { o.Spec.Template.Spec.Containers[0].Image = fmt.Sprint("app:", n/2) }); err != nil {
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
		s.setPassword(fmt.Sprint("password ", i))
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
	hashes := map[string]bool{}
	for i := range owners {
		hashes[s.inSync(name(i), nil).Status.AppliedHash] = true
	}
	if len(hashes) != 1 {
		t.Errorf("all workloads read the same Secret, but their hashes are %v", hashes)
	}
}

// When replicas are replaced gracefully, the webhook answers every request.
func TestReplacedInOrder(t *testing.T) {
	s := newShop(t)
	s.create("web")
	before, done := failedOpen(t), make(chan struct{})
	var writing sync.WaitGroup
	writes := 0
	writing.Go(func() {
		for ; ; writes++ {
			select {
			case <-done:
				return
			default:
			}
			if _, err := s.tryRewrite("web", func(o *appsv1.Deployment) { o.Spec.Template.Spec.Containers[0].Image = fmt.Sprint("app:", writes) }); err != nil {
				t.Errorf("a write failed: %v", err)
			}
		}
	})
	for _, r := range server.Replicas {
		err := errors.Join(r.Terminate(), r.Start(), r.AwaitReady(t.Context()))
		if err != nil {
			t.Error(err)
		}
	}
	close(done)
	writing.Wait()
	if n := failedOpen(t) - before; n != 0 {
		t.Errorf("%g of %d writes were admitted without an answer of the webhook", n, writes)
	}
	if writes < 20 {
		t.Errorf("only %d writes", writes)
	}
}

// If another client overwrites the path, the leader restores it, so that kube-apiserver reaches the webhook again.
func TestPathIsPutRight(t *testing.T) {
	s, path := newShop(t), webhookPath(t)
	setWebhooks(t, func(c *admissionregistrationv1.WebhookClientConfig) { c.Service.Path = new("/elsewhere") })
	await.Until(t, "the path is restored", func(ctx context.Context) error {
		o, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, install.Name, metav1.GetOptions{})
		for i := range o.Webhooks {
			if got := o.Webhooks[i].ClientConfig.Service.Path; got == nil || *got != path {
				return fmt.Errorf("path of %s = %v", o.Webhooks[i].Name, got)
			}
		}
		return err
	})
	await.Until(t, "workloads are stamped again", func(ctx context.Context) error {
		o := manifest("dry")
		made, err := client.AppsV1().Deployments(s.namespace).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && made.Annotations[policy.ConfigHashAnnotation] == "" {
			err = errors.New("the workload has no hash")
		}
		return err
	})
}

// Other requests to the port get an HTTP error, and the port does not serve the API. With a CA for callers,
// callers without a certificate of the CA are rejected.
func TestListener(t *testing.T) {
	authority, err := pki.NewAuthority("callers")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(server.Dir(), "callers.crt")
	if err := os.WriteFile(file, authority.BundlePEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	closed, err := server.StartExtra("callers", install.ReplicaOptions{Args: []string{"--webhook-client-ca-file=" + file}})
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	certificate := func(a *pki.Authority) tls.Certificate {
		pair, err := a.ClientCert("kube-apiserver")
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
		{"with a CA: a certificate of another CA", path, review, closed, []tls.Certificate{certificate(stranger)}, http.StatusUnauthorized},
		{"with a CA: a certificate of this CA", path, review, closed, []tls.Certificate{certificate(authority)}, http.StatusOK},
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
	if err := closed.Terminate(); err != nil {
		t.Error(err)
	}
}
