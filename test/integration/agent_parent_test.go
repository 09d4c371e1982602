// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"
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
	r = p.agent("--configmap=settings", "--secret=env;env=DB_", "--reload-by-restart", "--", "sh", "-c", `echo "start $DB_PASSWORD"; exec sleep 1000`)
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
