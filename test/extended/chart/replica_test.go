// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// replica is a process of the server.
type replica struct {
	t       *testing.T
	release *release
	log     string
	port    int
	webhook int // 0: none
	cmd     *exec.Cmd
	exited  chan struct{} // closed when the process has exited
	err     error         // how the process exited; valid after exited is closed
}

// startReplica starts the server with the arguments of the Deployment in the cluster, waits until it is ready, and adds
// it to the endpoints.
func (r *release) startReplica(t *testing.T) *replica {
	t.Helper()
	deployment, err := client.AppsV1().Deployments(namespace).Get(t.Context(), r.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := deployment.Spec.Template.Spec
	day := int64(24 * time.Hour / time.Second)
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), pod.ServiceAccountName,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.replicas++
	base := filepath.Join(r.dir, fmt.Sprintf("replica-%d", r.replicas))
	if err := cluster.WriteKubeconfig(base+".yaml", token.Status.Token); err != nil {
		t.Fatal(err)
	}
	p := &replica{t: t, release: r, log: base + ".log", exited: make(chan struct{})}
	p.port = reserve(t)
	args := slices.Clone(pod.Containers[0].Args)
	// The test has written the files of the mounted Secret to another folder.
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "/etc/configdep/tls/", r.dir+"/")
	}
	args = append(args, "--kubeconfig="+base+".yaml", "--bind-address=127.0.0.1", "--permit-port-sharing", "--secure-port="+strconv.Itoa(p.port))
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--webhook-secure-port=") }) {
		p.webhook = reserve(t)
		args = append(args, "--webhook-secure-port="+strconv.Itoa(p.webhook))
	}
	log, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.cmd = cluster.Command(t.Context(), server, args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(p.cmd.Env, "POD_NAMESPACE="+namespace)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
	})
	await.Until(t, "the replica is ready", p.ready)
	r.api.add(p.port)
	if p.webhook != 0 {
		r.webhook.add(p.webhook)
	}
	return p
}

func reserve(t *testing.T) int {
	t.Helper()
	port, release, err := install.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return port
}

// ready probes the replica as the kubelet does, but verifies the certificate.
func (p *replica) ready(ctx context.Context) error {
	select {
	case <-p.exited:
		content, _ := os.ReadFile(p.log)
		p.t.Fatalf("the replica exited: %v\n%s", p.err, content)
	default:
	}
	bundle, err := p.release.authorities(ctx)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return errors.New("no CA certificate yet")
	}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: p.release.name + "." + namespace + ".svc"},
		DisableKeepAlives: true,
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/readyz", p.port), nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: transport, Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz: %s", response.Status)
	}
	return nil
}

// terminate starts the termination of the replica as in a cluster: it is removed from the endpoints and gets SIGTERM.
func (p *replica) terminate() {
	p.release.api.remove(p.port)
	p.release.webhook.remove(p.webhook)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
}

// awaitEnd waits until the replica has exited without an error.
func (p *replica) awaitEnd() {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(limit):
		p.t.Fatalf("the replica does not exit; its log is %s", p.log)
	}
	if p.err != nil {
		p.t.Errorf("the replica exited with an error: %v", p.err)
	}
}

// checkLog fails the test if the log contains a missing permission or a panic.
func (p *replica) checkLog() {
	p.t.Helper()
	content, err := os.ReadFile(p.log)
	if err != nil || len(content) == 0 {
		p.t.Fatalf("reading the log: %d bytes (%v)", len(content), err)
	}
	for line := range strings.SplitSeq(string(content), "\n") {
		for _, never := range []string{"forbidden", "Forbidden", "panic", "unknown flag"} {
			if strings.Contains(line, never) {
				p.t.Errorf("the log of the replica contains\n%s", line)
			}
		}
	}
}
