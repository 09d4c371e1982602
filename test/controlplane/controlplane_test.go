// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// limit is the timeout of each kubectl command, on a busy machine.
const limit = "--timeout=120s"

// A control plane supports the operations that tests need, and leaves nothing behind. The steps depend on each other.
func TestControlPlane(t *testing.T) {
	c := start(t, Options{})

	t.Run("a Deployment becomes available", func(t *testing.T) {
		kubectl(t, c, "create", "deployment", "web", "--image=web", "--replicas=2")
		kubectl(t, c, "rollout", "status", "deployment/web", limit)
	})
	t.Run("a Job completes", func(t *testing.T) {
		kubectl(t, c, "create", "job", "once", "--image=once")
		kubectl(t, c, "wait", "job/once", "--for=condition=Complete", limit)
	})
	t.Run("a stuck pod stays Pending until it is freed", func(t *testing.T) {
		kubectl(t, c, "run", "stuck", "--image=stuck", "--annotations="+StuckAnnotation+"=")
		kubectl(t, c, "wait", "pod/stuck", "--for=condition=PodScheduled", limit)
		// A later pod is ready, so the stuck one has been skipped.
		kubectl(t, c, "run", "free", "--image=free")
		kubectl(t, c, "wait", "pod/free", "--for=condition=Ready", limit)
		if phase := kubectl(t, c, "get", "pod/stuck", "-o", "jsonpath={.status.phase}"); phase != "Pending" {
			t.Errorf("phase of the stuck pod = %s, want Pending", phase)
		}
		kubectl(t, c, "annotate", "pod/stuck", StuckAnnotation+"-")
		kubectl(t, c, "wait", "pod/stuck", "--for=condition=Ready", limit)
	})
	t.Run("a namespace is deleted with its content", func(t *testing.T) {
		kubectl(t, c, "create", "namespace", "team")
		kubectl(t, c, "-n", "team", "create", "deployment", "web", "--image=web", "--replicas=2")
		kubectl(t, c, "-n", "team", "rollout", "status", "deployment/web", limit)
		kubectl(t, c, "delete", "namespace", "team", "--wait", limit)
		if left := kubectl(t, c, "get", "pods,replicasets,deployments", "-n", "team"); left != "" {
			t.Errorf("objects left in a deleted namespace:\n%s", left)
		}
	})
	t.Run("a pod is deleted once", func(t *testing.T) {
		log, err := os.ReadFile(c.Logs(kwok))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(log), `"Delete pod"`) {
			t.Error("kwok has deleted no pod")
		}
		if strings.Contains(string(log), "failed to delete pod") {
			t.Errorf("kwok has deleted a pod more than once:\n%s", log)
		}
	})
	t.Run("a kubeconfig for a ServiceAccount", func(t *testing.T) {
		client := newClient(t, c)
		token, err := client.CoreV1().ServiceAccounts("default").
			CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := c.WriteKubeconfig(path, token.Status.Token); err != nil {
			t.Fatal(err)
		}
		checkUser(t, c, path, "system:serviceaccount:default:default")
	})
	t.Run("a kubeconfig for another user", func(t *testing.T) {
		cfg := c.RESTConfig()
		cfg.Impersonate.UserName = "jane"
		path, err := c.KubeconfigFor("jane", cfg)
		if err != nil {
			t.Fatal(err)
		}
		checkUser(t, c, path, "jane")
		if c.RESTConfig().Impersonate.UserName != "" {
			t.Error("RESTConfig does not return a copy")
		}
	})
	t.Run("errors contain kubectl's message", func(t *testing.T) {
		if _, err := c.Kubectl(t.Context(), "get", "pod", "nobody"); err == nil || !strings.Contains(err.Error(), `"nobody" not found`) {
			t.Errorf("unexpected error: %v", err)
		}
	})
	t.Run("etcd is restored from a backup", func(t *testing.T) {
		before := pids(c)
		kubectl(t, c, "create", "configmap", "kept")
		if err := c.BackUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		kubectl(t, c, "delete", "configmap", "kept")
		kubectl(t, c, "create", "configmap", "lost")
		if err := c.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		kubectl(t, c, "get", "configmap", "kept")
		if _, err := c.Kubectl(t.Context(), "get", "configmap", "lost"); err == nil || !strings.Contains(err.Error(), `"lost" not found`) {
			t.Errorf("what was created after the backup: %v", err)
		}
		if after := pids(c); len(after) != len(before) {
			t.Errorf("%d processes run, %d before", len(after), len(before))
		}
	})
	t.Run("controllers work after a restart of the API server", func(t *testing.T) {
		before := c.processes[apiServer].cmd.Process.Pid
		if err := c.RestartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		if running(before) || c.processes[apiServer].cmd.Process.Pid == before {
			t.Error("the old API server is still running")
		}
		kubectl(t, c, "rollout", "restart", "deployment/web")
		kubectl(t, c, "rollout", "status", "deployment/web", limit)
		kubectl(t, c, "delete", "deployment/web", "--cascade=foreground", limit)
	})
	t.Run("nothing is left after Stop", func(t *testing.T) {
		pids := pids(c)
		if len(pids) != 6 {
			t.Fatalf("found %d processes, want 5 and the guard", len(pids))
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		checkNothingLeft(t, c.Dir(), pids)
		if err := c.Stop(); err != nil {
			t.Errorf("second Stop: %v", err)
		}
	})
}

// A failed start must name the component and the cause, and clean up.
func TestStartFails(t *testing.T) {
	taken := takenPort(t)
	tests := map[string]struct {
		options Options
		want    []string
		is      error
	}{
		"flag of etcd": {
			options: Options{EtcdArgs: []string{"--auth-token=odd"}},
			want:    []string{"etcd ended: exit status 1", "odd"},
		},
		"flag of kube-apiserver": {
			options: Options{APIServerArgs: []string{"--service-cluster-ip-range=odd"}},
			want:    []string{"kube-apiserver ended: exit status 1", "service-cluster-ip-range"},
		},
		"port of etcd": {
			options: Options{EtcdArgs: []string{"--listen-peer-urls=http://127.0.0.1:" + taken}},
			want:    []string{"etcd ended", taken},
			is:      errPortTaken,
		},
		"port of kube-apiserver": {
			options: Options{APIServerArgs: []string{"--secure-port=" + taken}},
			want:    []string{"kube-apiserver ended", taken},
			is:      errPortTaken,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.options.APIServerOnly = true
			tt.options.Dir = filepath.Join(t.TempDir(), "controlplane")
			tt.options.Log = t.Output()
			c, err := Start(t.Context(), tt.options)
			if err == nil {
				_ = c.Stop()
				t.Fatal("Start succeeded, want an error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("want %q in the error; got:\n%v", want, err)
				}
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("want an error that is %q; got:\n%v", tt.is, err)
			}
			checkNothingLeft(t, tt.options.Dir, nil)
		})
	}
}

// Stop must not remove a folder with other files, so Start refuses it.
func TestStartRefusesFolderInUse(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "precious")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Start(t.Context(), Options{Dir: dir, APIServerOnly: true}); err == nil {
		_ = c.Stop()
		t.Error("Start succeeded, want an error")
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// Stop must report a component that has exited during a test.
func TestStopReportsWhatEndedBefore(t *testing.T) {
	c := start(t, Options{APIServerOnly: true})
	p := c.processes[etcd]
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.exited
	if err := c.Stop(); err == nil || !strings.Contains(err.Error(), "etcd ended: signal: killed") {
		t.Errorf("unexpected error: %v", err)
	}
	c.stopErr = nil // the cleanup in start would report it again
}

func start(t *testing.T, o Options) *ControlPlane {
	t.Helper()
	o.Log = t.Output()
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func kubectl(t *testing.T, c *ControlPlane, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func newClient(t *testing.T, c *ControlPlane) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func checkUser(t *testing.T, c *ControlPlane, kubeconfig, want string) {
	t.Helper()
	out, err := c.Command(t.Context(), c.KubectlPath(), "--kubeconfig", kubeconfig,
		"auth", "whoami", "-o", "jsonpath={.status.userInfo.username}").Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(out) != want {
		t.Errorf("user = %s, want %s", out, want)
	}
}

func pids(c *ControlPlane) []int {
	all := []int{c.guard.cmd.Process.Pid}
	for _, p := range c.processes {
		all = append(all, p.cmd.Process.Pid)
	}
	return all
}

// checkNothingLeft checks that processes and a folder are gone. It waits, because a killed process does not exit
// immediately.
func checkNothingLeft(t *testing.T, dir string, pids []int) {
	t.Helper()
	var left []int
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		left = nil
		for _, pid := range pids {
			if running(pid) {
				left = append(left, pid)
			}
		}
		_, err := os.Stat(dir)
		return len(left) == 0 && os.IsNotExist(err), nil
	})
	if err != nil {
		_, statErr := os.Stat(dir)
		t.Errorf("still left: processes %v, folder %v", left, statErr == nil)
	}
}

// running reports whether a process runs. A zombie does not run; its parent may be an init that never reaps it.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // Linux only
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

func takenPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
