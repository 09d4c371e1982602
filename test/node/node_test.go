// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
)

// childVariable makes a process of this test binary start a node and wait to be killed.
const childVariable = "CONFIGDEP_TEST_NODE_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		n, err := New(context.Background(), Options{Log: os.Stderr})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(n.network.link)
		select {}
	}
	asked, code := Asked()
	if !asked {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// machine is what a node could leave on this machine, by what it is. Processes are compared separately.
func machine(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for what, command := range map[string][]string{
		"links":  {"ip", "-o", "-br", "link", "show"},
		"routes": {"ip", "-4", "route", "show", "table", "all"},
	} {
		out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).Output()
		if err != nil {
			t.Fatal(err)
		}
		found[what] = strings.Split(string(out), "\n")
	}
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Fatal(err)
	}
	found["mounts"] = strings.Split(string(mounts), "\n")
	for _, name := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward", "net/netfilter/nf_conntrack_max",
	} {
		value, err := os.ReadFile("/proc/sys/" + name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		found["sysctls"] = append(found["sysctls"], name+" "+string(value))
	}
	for _, pattern := range []string{
		"/sys/fs/cgroup/configdep*", "/sys/fs/cgroup/*/configdep*", "/run/containerd*", "/etc/cni", "/opt/cni",
		"/var/lib/cni", "/var/lib/containerd", "/var/lib/kube*", "/var/log/containers", "/var/log/pods",
	} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found["files"] = append(found["files"], names...)
	}
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	if found["folders"], err = filepath.Glob(filepath.Join(root, ".cache", "run", "node-*")); err != nil {
		t.Fatal(err)
	}
	return found
}

// identity is what no other process of this machine has.
type identity struct{ pid, started string }

// processes returns the names of processes, and of those that they have started, themselves or by others.
func processes(t *testing.T, of ...int) map[identity]string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	found := map[identity]string{}
	below := map[string]bool{}
	for _, pid := range of {
		below[strconv.Itoa(pid)] = true
	}
	for grown := true; grown; {
		grown = false
		for _, file := range files {
			stat, err := os.ReadFile(file)
			if err != nil {
				continue // it has ended
			}
			pid, rest, _ := strings.Cut(string(stat), " (")
			name, rest, _ := strings.Cut(rest, ") ")
			fields := strings.Fields(rest) // from the third on, see proc_pid_stat(5)
			id := identity{pid, fields[19]}
			if _, known := found[id]; known || !below[pid] && !below[fields[1]] {
				continue
			}
			found[id], below[pid], grown = name, true, true
		}
	}
	return found
}

// A machine on which a node has run, with a pod that still runs, is as it was before.
func TestStop_LeavesNothing(t *testing.T) {
	before := machine(t)
	n, err := New(t.Context(), Options{Log: os.Stderr, KeepDir: os.Getenv("CONTROLPLANE_KEEP") != ""})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	cluster, err := controlplane.Start(t.Context(), n.ControlPlane(controlplane.Options{Log: os.Stderr}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := n.Start(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "app"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: AppImage, ImagePullPolicy: corev1.PullNever}}},
	}
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the pod runs", func(ctx context.Context) error {
		got, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil && got.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", got.Status.Phase)
		}
		return err
	})
	roots := []int{n.pid}
	for _, component := range n.components {
		roots = append(roots, component.pid)
	}
	running := processes(t, roots...)
	if names := slices.Collect(maps.Values(running)); !slices.Contains(names, "kubelet") || !slices.Contains(names, "app") {
		t.Fatalf("the processes of the node are %v, without kubelet or app", names)
	}
	during := machine(t)
	for _, what := range []string{"links", "routes", "files", "folders"} {
		if cmp.Equal(before[what], during[what]) {
			t.Errorf("the %s of the machine do not show the node, so that the comparison would show nothing", what)
		}
	}

	if err := n.Stop(); err != nil {
		t.Error(err)
	}
	for id := range processes(t, 1) {
		if name, left := running[id]; left {
			t.Errorf("process %s is left: %s", id.pid, name)
		}
	}
	if diff := cmp.Diff(before, machine(t)); diff != "" {
		t.Errorf("the node has left something (-before +after):\n%s", diff)
	}
}

// Nothing is left either of a node whose process is killed.
func TestKill_LeavesNothing(t *testing.T) {
	before := machine(t)
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childVariable+"=1")
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	link, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before["links"], machine(t)["links"]); !strings.Contains(diff, strings.TrimSpace(link)) {
		t.Errorf("the machine does not show the link %s", link)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // "signal: killed"
	await.Until(t, "nothing is left", func(context.Context) error {
		if diff := cmp.Diff(before, machine(t)); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}
