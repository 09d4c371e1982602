// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// A user starts a server beside the installed one, with their own kubeconfig and nothing but rights to read. It serves that user alone, takes no
// part in the installation, and writes nothing to the cluster.
func TestStandalone(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	write(t, namespace, "ConfigMap/settings", "a", "1")
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("web", envFromConfigMap("settings"), envFromSecret("db")))
	account := create(t, kube.CoreV1().ServiceAccounts(install.Namespace).Create, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{GenerateName: "viewer-"}}).Name
	create(t, kube.RbacV1().ClusterRoleBindings().Create, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: install.Namespace, Name: account}},
	})
	await.Until(t, "the user may read workloads", func(ctx context.Context) error {
		if !mayDo(ctx, account, authorizationv1.ResourceAttributes{Verb: "list", Group: "apps", Resource: "deployments"}) {
			return errors.New("not yet")
		}
		return nil
	})

	recorder, file := startRecorder(t), filepath.Join(t.TempDir(), "standalone.yaml")
	address := freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	var log bytes.Buffer
	command := func(args ...string) *exec.Cmd {
		cmd := cluster.Command(t.Context(), server.Binary(), append(args, "--kubeconfig="+recorder.kubeconfig(t, account), "--observe", "--write-kubeconfig="+file, "--secure-port="+port)...)
		log.Reset()
		cmd.Stdout, cmd.Stderr = &log, &log
		return cmd
	}

	// What the user may not read is named.
	if err := command().Run(); err == nil || !strings.Contains(log.String(), "the user of --kubeconfig may not list and watch secrets; read less with --read-secrets=false, ") {
		t.Errorf("without the right to read Secrets: %v:\n%s", err, &log)
	}
	running := command("--read-secrets=false", "--shutdown-delay-duration=0s")
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- running.Wait() }()
	as := func(ctx context.Context, args ...string) (string, error) {
		return cluster.Kubectl(ctx, append([]string{"--kubeconfig=" + file, "-n", namespace}, args...)...)
	}
	shows := func(sources string) {
		t.Helper()
		await.Until(t, "the user sees "+sources, func(ctx context.Context) error {
			select {
			case err := <-ended:
				t.Fatalf("the server has ended: %v:\n%s", err, &log)
			default:
			}
			out, err := as(ctx, "get", "cfgdep", "-o", `jsonpath={range .items[*]}{.metadata.name}{range .status.sources[*]} {.kind}/{.name}={.present}{end}{end}`)
			if err == nil && out != "deployment.web "+sources {
				err = fmt.Errorf("it shows %s", out)
			}
			return err
		})
	}
	shows("ConfigMap/settings=true Secret/db=")
	remove(t, kube.CoreV1().ConfigMaps(namespace).Delete, "settings")
	shows("ConfigMap/settings=false Secret/db=")

	if _, err := as(t.Context(), "create", "--raw", resourcePath(namespace)+"/deployment.web/reload", "-f", emptyReload(t)); err == nil || !strings.Contains(err.Error(), "configdep only observes (--observe)") {
		t.Errorf("a reload: %v", err)
	}
	direct := server.Replicas[0].RESTConfig()
	direct.Host, direct.CAData, direct.Insecure, direct.ServerName = "https://"+address, nil, true, ""
	direct.BearerToken = tokenOf(t, install.Namespace, install.Name)
	if got := send(t, direct, request{path: resourcePath(namespace)}); got.code != http.StatusUnauthorized {
		t.Errorf("with other credentials: %d: %s", got.code, got.body)
	}

	if err := running.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v:\n%s", err, &log)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the kubeconfig is left behind: %v", err)
	}
	for _, a := range recorder.all() {
		asks := strings.HasSuffix(a.path, "/selfsubjectaccessreviews")
		if !asks && a.method != http.MethodGet || strings.Contains(a.path, install.Namespace) || a.ofSecrets() {
			t.Errorf("request of the server: %s", &a)
		}
	}
}

func emptyReload(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "reload.json")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
