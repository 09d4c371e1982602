// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package webhook tries the admission webhook when something is wrong with it: workloads are
// admitted all the same, and the controller does later what was missed.
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
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/configdep/configdep/pkg/admission"
	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/pki"
)

// What all tests share. They run one after the other.
var (
	cluster *controlplane.ControlPlane
	server  *install.Installation
	client  kubernetes.Interface
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Minute, errors.New("not installed within twenty minutes"))
	defer cancel()
	if cluster, err = controlplane.Start(ctx, controlplane.Options{Nodes: 1, Log: os.Stderr, KeepDir: os.Getenv("CONTROLPLANE_KEEP") != ""}); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	if client, err = kubernetes.NewForConfig(cluster.RESTConfig()); err != nil {
		return 1, err
	}
	if server, err = install.Install(ctx, cluster, install.Options{Replicas: 2, Race: install.RaceDetector, Args: []string{"--shutdown-delay-duration=2s"}}); err != nil {
		return 1, err
	}
	defer func() {
		server.Stop()
		err = errors.Join(err, server.CheckLogs())
	}()
	return m.Run(), nil
}

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

// manifest is what the owner of a workload writes, again and again.
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
		s.Fatalf("a workload is not admitted: %v", err)
	}
	return made
}

// rewrite writes the manifest again, without anything of ours, and changed.
func (s *shop) rewrite(name string, change func(*appsv1.Deployment)) *appsv1.Deployment {
	s.Helper()
	made, err := s.tryRewrite(name, change)
	if err != nil {
		s.Fatalf("a workload is not admitted: %v", err)
	}
	return made
}

func (s *shop) tryRewrite(name string, change func(*appsv1.Deployment)) (made *appsv1.Deployment, err error) {
	deployments := client.AppsV1().Deployments(s.namespace)
	// Patient, because the status changes all the time.
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

// inSync waits until the API says so of a workload, and something more.
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
			err = fmt.Errorf("it is %+v", found.Status)
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

// failedOpen returns how many requests kube-apiserver has admitted without an answer of ours.
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

// reach makes kube-apiserver look for the webhook somewhere else, until the test ends.
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
	ctx := context.WithoutCancel(t.Context()) // it may be done by now
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

// awaitOpen creates workloads until one of them is admitted without us: kube-apiserver
// takes a moment to learn of another configuration.
func (s *shop) awaitOpen() (name string) {
	s.Helper()
	before, n := failedOpen(s.T), 0
	await.Until(s.T, "a workload is admitted without the webhook", func(context.Context) error {
		name = fmt.Sprintf("open-%d", n)
		n++
		made := s.create(name)
		if failedOpen(s.T) == before {
			return errors.New("the webhook has been asked")
		}
		if made.Spec.Template.Annotations != nil {
			s.Errorf("the template has the annotations %v", made.Spec.Template.Annotations)
		}
		return nil
	})
	return name
}

// Whatever kube-apiserver meets where the webhook should be, workloads are created and
// updated, and the controller records and restarts as it does without a webhook.
func TestFailsOpen(t *testing.T) {
	stranger, err := pki.NewAuthority("a stranger")
	if err != nil {
		t.Fatal(err)
	}
	var listening sync.WaitGroup
	t.Cleanup(listening.Wait)
	// listen answers connections until the test ends.
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
		"no server listens":                    {},
		"connections are cut":                  {answer: func(net.Conn) {}},
		"nothing ever comes back":              {answer: func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }},
		"what comes back is no TLS":            {answer: func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n") }},
		"the certificate is not to be trusted": {ca: stranger.BundlePEM()},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			port := server.WebhookPort()
			if tt.answer != nil {
				port = listen(t, tt.answer)
			} else if tt.ca == nil {
				port = 1 // no user may listen there
			}
			reach(t, port, tt.ca)
			web := s.awaitOpen()
			s.inSync(web, nil)
			s.setPassword("y")
			s.inSync(web, func(o *v1alpha1.ConfigDependency) error {
				if o.Status.LastReload == nil {
					return errors.New("it has not been restarted")
				}
				return nil
			})
			rewritten := s.rewrite(web, func(*appsv1.Deployment) {})
			if rewritten.Spec.Template.Annotations != nil {
				t.Errorf("the template has the annotations %v", rewritten.Spec.Template.Annotations)
			}
			s.inSync(web, nil)
		})
	}
	t.Run("and then it is back", func(t *testing.T) {
		s := newShop(t)
		n := 0
		await.Until(t, "new workloads are stamped", func(context.Context) error {
			n++
			if made := s.create(fmt.Sprintf("web-%d", n)); made.Spec.Template.Annotations[policy.ConfigHashAnnotation] == "" {
				return errors.New("this one is not")
			}
			return nil
		})
	})
}

// Replicas are killed while owners write. Each write succeeds, and in the end all workloads
// are known to run with what is there.
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
					t.Errorf("a workload is not admitted: %v", err)
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
		t.Errorf("they all read the same Secret, and run with %v", hashes)
	}
}

// When a replica is replaced in order, no write goes without an answer.
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
				t.Errorf("a workload is not admitted: %v", err)
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
		t.Errorf("%g of %d writes were admitted without an answer", n, writes)
	}
	if writes < 20 {
		t.Errorf("there were %d writes only", writes)
	}
}

// webhookPath returns where the webhook is served, which the leader has written into the configuration.
func webhookPath(t *testing.T) string {
	t.Helper()
	o, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), install.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range o.Webhooks {
		if path := o.Webhooks[i].ClientConfig.Service.Path; path == nil || !strings.HasPrefix(*path, admission.Path+"/") || len(*path) < len(admission.Path)+40 || *path != *o.Webhooks[0].ClientConfig.Service.Path {
			t.Fatalf("the path of %s is %v", o.Webhooks[i].Name, path)
		}
	}
	return *o.Webhooks[0].ClientConfig.Service.Path
}

// What another client writes over the path is put right, so that kube-apiserver finds the webhook again.
func TestPathIsPutRight(t *testing.T) {
	s, path := newShop(t), webhookPath(t)
	setWebhooks(t, func(c *admissionregistrationv1.WebhookClientConfig) { c.Service.Path = new("/elsewhere") })
	await.Until(t, "the path is put right", func(ctx context.Context) error {
		o, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, install.Name, metav1.GetOptions{})
		for i := range o.Webhooks {
			if got := o.Webhooks[i].ClientConfig.Service.Path; got == nil || *got != path {
				return fmt.Errorf("the path of %s is %v", o.Webhooks[i].Name, got)
			}
		}
		return err
	})
	await.Until(t, "workloads are stamped again", func(ctx context.Context) error {
		o := manifest("dry")
		made, err := client.AppsV1().Deployments(s.namespace).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && made.Annotations[policy.ConfigHashAnnotation] == "" {
			err = errors.New("it has no hash")
		}
		return err
	})
}

// Who reaches the port and sends something else gets an error of HTTP, and the API is not
// there. With a CA for callers, others are refused.
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
		{"too much", path, strings.Repeat(" ", 9<<20), server.Replicas[0], nil, http.StatusRequestEntityTooLarge},
		{"a path that all know", admission.Path, review, server.Replicas[0], nil, http.StatusNotFound},
		{"a guess", path[:len(path)-1] + "-", review, server.Replicas[0], nil, http.StatusNotFound},
		{"more than the path", path + "/", review, server.Replicas[0], nil, http.StatusNotFound},
		{"another path", "/apis/configdep.io/v1alpha1/configdependencies", review, server.Replicas[0], nil, http.StatusNotFound},
		{"metrics", "/metrics", review, server.Replicas[0], nil, http.StatusNotFound},
		{"with a CA, no certificate", path, review, closed, nil, http.StatusUnauthorized},
		{"with a CA, a stranger's", path, review, closed, []tls.Certificate{certificate(stranger)}, http.StatusUnauthorized},
		{"with a CA, one of it", path, review, closed, []tls.Certificate{certificate(authority)}, http.StatusOK},
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
			t.Errorf("%s: the answer is %d: %s", tt.name, response.StatusCode, body)
		}
	}
	if err := closed.Terminate(); err != nil {
		t.Error(err)
	}
}
