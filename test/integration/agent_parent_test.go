// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An application that the agent runs starts with the files, gets signals and environment variables, and its exit code is the agent's.
func TestAgent_Parent(t *testing.T) {
	t.Parallel()
	p := newAgentShop(t, may("configmaps", "settings"), may("secrets", "env"))
	r := p.agent("--configmap=settings", "--reload-signal=USR1", "--", "sh", "-c",
		`trap 'echo "reload $(cat `+p.dir+`/a)"' USR1; trap 'exit 7' TERM; echo "start $(cat `+p.dir+`/a)"; while :; do sleep 0.01; done`)
	r.unready("does not exist")
	p.write("ConfigMap/settings", "a", "1")
	r.ready("a", "1")
	r.says("start 1\n") // the agent is ready before the application has read anything
	p.write("ConfigMap/settings", "a", "2")
	r.ready("a", "2")
	r.until("the application has reloaded", func(context.Context) error {
		if log := r.text(); strings.Count(log, "start 1\n") != 1 || strings.Count(log, "reload 2\n") != 1 {
			return fmt.Errorf("log: %s", log)
		}
		return nil
	})
	process, err := os.FindProcess(r.pid)
	p.must(err)
	p.must(process.Signal(syscall.SIGTERM))
	r.exits(7)

	p.dir += "-2"
	p.write("Secret/env", "PASSWORD", "one", "not-a-name", "x")
	r = p.agent("--configmap=settings", "--secret=env;env=DB_", "--reload-by-restart", "--restart-uptime=100ms", "--", "sh", "-c", `echo "start $DB_PASSWORD"; exec sleep 1000`)
	r.ready("a", "2")
	r.says("start one\n")
	_, err = kube.CoreV1().Secrets(p.namespace).Update(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "env"}, StringData: map[string]string{"PASSWORD": "two"}}, metav1.UpdateOptions{})
	p.must(err)
	r.says("start two\n")
	r.ready("a", "2")
}

// A container that restarts while the API server is away starts with the files that it had: as a sidecar, and with the application.
func TestAgent_RestartWithoutAPIServer(t *testing.T) {
	t.Parallel()
	p := newAgentShop(t, may("configmaps", "settings"))
	p.write("ConfigMap/settings", "a", "1")
	r := p.agent("--configmap=settings")
	r.ready("a", "1")
	r.stop()
	p.connect = []string{"--api-server=http://" + freeAddress(t)} // where nothing listens
	r = p.agent("--configmap=settings")
	r.until("the sidecar has started", func(ctx context.Context) error {
		code, text, err := r.probe(ctx, "/startupz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("not started: %s", text)
		}
		return err
	})
	r.unready("connection refused")
	r.stop()
	r = p.agent("--configmap=settings", "--", "sh", "-c", `trap 'exit 0' INT; echo "start $(cat `+p.dir+`/a)"; while :; do sleep 0.01; done`)
	r.says("start 1\n")
	r.stop()
	// A new pod has no files, and waits.
	p.dir += "-2"
	r = p.agent("--configmap=settings")
	r.unready("connection refused")
	if code, text, err := r.probe(t.Context(), "/startupz"); err != nil || code != http.StatusServiceUnavailable {
		t.Errorf("without files, /startupz is %d %s, %v", code, text, err)
	}
}

// An application that refuses new content works with the old, also after its container has restarted.
func TestAgent_ParentKeepsWhatItCanRollBackTo(t *testing.T) {
	t.Parallel()
	p := newAgentShop(t, may("configmaps", "settings"))
	p.write("ConfigMap/settings", "a", "good")
	args := []string{"--configmap=settings", "--reload-by-restart", "--restart-uptime=5s", "--rollback-after=1", "--",
		"sh", "-c", `grep -q bad ` + p.dir + `/a && exit 5; trap 'exit 0' INT TERM; echo "start $(cat ` + p.dir + `/a)"; while :; do sleep 0.01; done`}
	r := p.agent(args...)
	r.says("start good\n")
	r.ready("a", "good")
	p.write("ConfigMap/settings", "a", "bad")
	for range 2 {
		r.unready("the files that were applied last are back")
		if got := files(t, p.dir)["a"]; got != "good" {
			t.Errorf("the application has %q", got)
		}
		r.stop()
		r = p.agent(args...)
		r.says("start good\n")
	}
	p.write("ConfigMap/settings", "a", "better")
	r.ready("a", "better")
	r.says("start better\n")
}

// If newer content cannot be written after the application has stopped, its container ends.
func TestAgent_ParentEndsWithTheApplication(t *testing.T) {
	t.Parallel()
	p := newAgentShop(t, may("configmaps", "settings"))
	p.write("ConfigMap/settings", "a", "good")
	r := p.agent("--configmap=settings", "--reload-by-restart", "--restart-uptime=5s", "--rollback-after=9", "--retry-min=1m", "--retry-max=1m",
		`--check-command=["sh", "-c", "! grep -q wrong {dir}/a"]`, "--",
		"sh", "-c", `grep -q bad `+p.dir+`/a && exit 5; trap 'exit 0' INT TERM; while :; do sleep 0.01; done`)
	r.ready("a", "good")
	p.write("ConfigMap/settings", "a", "bad")
	r.unready("the application ended after its start")
	p.write("ConfigMap/settings", "a", "wrong")
	r.exits(5) // as the application
}

// asFirstProcess lets the agents of a place be the first process of a namespace, as in a container.
func (p *agentShop) asFirstProcess() {
	p.Helper()
	if os.Getuid() != 0 {
		p.Skip("only root may make process namespaces") // the kernel refuses it to others; CI in a container, or any run as root, tests it
	}
	p.wrapper = []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"}
}

// As the first process of a container, the agent waits for the orphans of all others, and ends with its child.
func TestAgent_FirstProcess(t *testing.T) {
	t.Parallel()
	p := newAgentShop(t, may("configmaps", "settings"))
	p.write("ConfigMap/settings", "a", "1")
	p.asFirstProcess()
	// Twenty orphans end while the application runs; it then sees which zombies the first process has.
	r := p.agent("--configmap=settings", "--", "sh", "-c", `for i in $(seq 20); do (setsid true &); done; trap 'echo "zombies: $(grep -l "^State:.Z" /proc/[0-9]*/status 2>/dev/null | wc -l)"; exit 9' TERM; echo "child of $PPID"; while :; do sleep 0.05; done`)
	r.says("child of 1\n")
	r.ready("a", "1")
	child := childOf(t, r.pid)
	r.until("no zombie is left", func(context.Context) error {
		if stats := zombiesOf(t, child); len(stats) != 0 {
			return fmt.Errorf("zombies %v", stats)
		}
		return nil
	})
	p.must(syscall.Kill(child, syscall.SIGTERM))
	r.exits(9)
	if log := r.text(); !strings.Contains(log, "zombies: 0\n") {
		t.Errorf("log: %s", log)
	}
}

// A sidecar waits for the orphans of its commands.
func TestAgent_FirstProcessSidecar(t *testing.T) {
	t.Parallel()
	p := newAgentShop(t)
	volume := t.TempDir()
	p.must(os.WriteFile(filepath.Join(volume, "a"), []byte("1"), 0o600))
	p.asFirstProcess()
	r := p.agent("--volume="+volume, `--reload-command=["sh", "-c", "for i in $(seq 20); do (setsid true &); done"]`)
	r.ready("a", "1")
	first := childOf(t, r.pid)
	r.until("no zombie is left", func(context.Context) error {
		if stats := zombiesOf(t, first); len(stats) != 0 {
			return fmt.Errorf("zombies %v", stats)
		}
		return nil
	})
	p.must(syscall.Kill(first, syscall.SIGTERM))
	r.exits(0)
}

// children returns the lines of /proc/*/stat, after the name, of the children of a process.
func children(t *testing.T, pid int) map[int]string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	out := map[int]string{}
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		number, rest, _ := strings.Cut(string(stat), " (")
		_, rest, _ = strings.Cut(rest, ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(pid) {
			id, _ := strconv.Atoi(number)
			out[id] = rest
		}
	}
	return out
}

func childOf(t *testing.T, pid int) int {
	t.Helper()
	for child := range children(t, pid) {
		return child
	}
	t.Fatalf("process %d has no child", pid)
	return 0
}

func zombiesOf(t *testing.T, pid int) (out []int) {
	t.Helper()
	for child, rest := range children(t, pid) {
		if strings.HasPrefix(rest, "Z") {
			out = append(out, child)
		}
	}
	return out
}
