// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/pki"
)

// webhookCaller is the name in the certificate of kube-apiserver, as in docs/install.md.
const webhookCaller = "front-proxy-client"

// callerShop is a shop whose webhook is that of its own server, which answers only to kube-apiserver.
type callerShop struct {
	*shop
	authority *pki.Authority // of certificates of callers
	server    *install.Replica
	dir       string // stands in for /etc/kubernetes/admission
}

func newCallerShop(t *testing.T) *callerShop {
	t.Helper()
	authority, err := pki.NewAuthority("front-proxy-ca")
	if err != nil {
		t.Fatal(err)
	}
	s := &callerShop{shop: newOwnShop(t), authority: authority, dir: t.TempDir()}
	s.file("ca.crt", string(authority.BundlePEM()))
	s.server = s.serve(install.ReplicaOptions{Args: []string{"--webhook-client-ca-file=" + s.path("ca.crt"), "--webhook-client-allowed-names=" + webhookCaller}})
	s.write(db, "password", "x")
	s.call(s.server)
	return s
}

func (s *callerShop) path(name string) string { return filepath.Join(s.dir, name) }

func (s *callerShop) file(name, content string) {
	s.Helper()
	s.must(os.WriteFile(s.path(name), []byte(content), 0o600))
}

// documented returns the manifest of a kind in docs/install.md.
func (s *callerShop) documented(kind string) string {
	s.Helper()
	content, err := os.ReadFile("../../docs/install.md")
	s.must(err)
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

// configure returns the flag with which kube-apiserver shows a certificate to the webhook, as docs/install.md describes it.
func (s *callerShop) configure() (flag string) {
	s.Helper()
	pair, err := s.authority.ClientCert(webhookCaller)
	s.must(err)
	s.file("client.crt", string(pair.Cert))
	s.file("client.key", string(pair.Key))
	kubeconfig := strings.ReplaceAll(s.documented("Config"), "/etc/kubernetes/pki/front-proxy-client", s.path("client"))
	s.file("webhooks.yaml", strings.ReplaceAll(kubeconfig, ".svc:9443", strings.Replace(s.server.WebhookAddress(), "127.0.0.1", ".svc", 1)))
	s.file("admission.yaml", strings.ReplaceAll(s.documented("AdmissionConfiguration"), "/etc/kubernetes/admission", s.dir))
	return "--admission-control-config-file=" + s.path("admission.yaml")
}

// stamped reports whether a new workload has the hash with which its pods would start.
func (s *callerShop) stamped(ctx context.Context) (bool, error) {
	made, err := kube.AppsV1().Deployments(s.namespace).Create(ctx, owned("web"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err == nil && made.Spec.Template.Annotations[record.ConfigHashAnnotation] != "", err
}

func (s *callerShop) answered() {
	s.Helper()
	await.Until(s.T, "kube-apiserver gets an answer with its certificate", func(ctx context.Context) error {
		stamped, err := s.stamped(ctx)
		if err == nil && !stamped {
			err = errors.New("the workload was admitted unchanged")
		}
		return err
	})
}

// refused waits until kube-apiserver has logged that the webhook refused a call, so that it has called the right path. It continues without
// the webhook.
func (s *callerShop) refused() {
	s.Helper()
	await.Until(s.T, "kube-apiserver is refused without a certificate", func(ctx context.Context) error {
		stamped, err := s.stamped(ctx)
		if stamped {
			s.Fatal("kube-apiserver gets an answer without a certificate")
		}
		log, read := os.ReadFile(cluster.Logs("kube-apiserver"))
		if !regexp.MustCompile(regexp.QuoteMeta(s.namespace) + `\.configdep\.io.*the server has asked for the client to provide credentials`).Match(log) {
			read = errors.Join(read, errors.New("kube-apiserver has not logged the refusal"))
		}
		return errors.Join(err, read)
	})
}
