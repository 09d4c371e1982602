// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

const (
	agentNamespace   = "config-agent"
	agentSources     = 100
	agentSourceBytes = 20 << 10
	agentRounds      = 200
	agentCalm        = 3 * time.Second // memory is measured when nothing has happened for so long
)

// benchmarkAgent measures the config agent: its memory, its size, and how fast files follow a change.
func benchmarkAgent(ctx context.Context, e *environment) (rows []row, err error) {
	dir, err := agentDir()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if rows, err = agentSizes(ctx, dir); err != nil {
		return nil, err
	}
	flags, err := e.agentUser(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("creating the user of the agent: %w", err)
	}
	n := max(2, int(math.Ceil(agentSources*e.scale)))
	for i := range n {
		if _, err := e.client.CoreV1().ConfigMaps(agentNamespace).Create(ctx, agentSource(i, 0), createdBy); err != nil {
			return nil, err
		}
	}
	for _, sources := range []int{1, n} {
		if _, err := e.client.CoreV1().ConfigMaps(agentNamespace).Update(ctx, agentSource(0, 0), updatedBy); err != nil {
			return rows, err
		}
		a, err := e.startAgent(ctx, dir, sources, flags)
		if err != nil {
			return nil, err
		}
		measured, err := e.followAgent(ctx, a, sources)
		err = errors.Join(err, a.stop())
		if err != nil {
			return rows, err
		}
		rows = append(rows, measured...)
	}
	restarter, err := startProgram(ctx, filepath.Join(dir, "configdep-restarter"), "--file="+filepath.Join(dir, "restart"), "--listen=127.0.0.1:0")
	if err != nil {
		return rows, err
	}
	err = sleep(ctx, agentCalm)
	used, memoryErr := memoryOf(restarter.Process.Pid)
	if err := errors.Join(err, memoryErr, end(restarter)); err != nil {
		return rows, err
	}
	return append(rows, row{name: "agent: memory of the restarter", unit: "MB", n: 1, got: exactly(used.rss), limit: limit{value: 8}}), nil
}

// agentDir returns a directory in memory, as volumes for configuration should be.
func agentDir() (string, error) {
	parent := "/dev/shm"
	if _, err := os.Stat(parent); err != nil {
		parent = ""
	}
	return os.MkdirTemp(parent, "bench-agent-")
}

// agentSizes builds the programs of the agent as a release does.
func agentSizes(ctx context.Context, dir string) (rows []row, err error) {
	c := exec.CommandContext(ctx, "hack/build.sh", dir, "./cmd/configdep-agent", "./cmd/configdep-restarter")
	c.Env = append(os.Environ(), "VERSION=bench")
	if out, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the agent: %w: %s", err, out)
	}
	for _, program := range []string{"agent", "restarter"} {
		info, err := os.Stat(filepath.Join(dir, "configdep-"+program))
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{name: "agent: program of the " + program, unit: "MB", n: 1, got: exactly(float64(info.Size()) / 1e6)})
	}
	return rows, nil
}

// agentSource is a ConfigMap whose content has a number.
func agentSource(i, number int) *corev1.ConfigMap {
	line := fmt.Sprintf("%09d\n", number)
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace, Name: fmt.Sprintf("source-%d", i)},
		Data:       map[string]string{"file": strings.Repeat(line, agentSourceBytes/len(line))},
	}
}

// agentUser creates the namespace and the ServiceAccount of the agent, and returns the flags with which it reaches kube-apiserver.
func (e *environment) agentUser(ctx context.Context, dir string) ([]string, error) {
	meta := metav1.ObjectMeta{Namespace: agentNamespace, Name: "agent"}
	_, err := e.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agentNamespace}}, createdBy)
	if err != nil {
		return nil, err
	}
	if _, err := e.client.CoreV1().ServiceAccounts(agentNamespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, createdBy); err != nil {
		return nil, err
	}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}}}}
	if _, err := e.client.RbacV1().Roles(agentNamespace).Create(ctx, role, createdBy); err != nil {
		return nil, err
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: agentNamespace, Name: meta.Name}},
	}
	if _, err := e.client.RbacV1().RoleBindings(agentNamespace).Create(ctx, binding, createdBy); err != nil {
		return nil, err
	}
	token, err := e.client.CoreV1().ServiceAccounts(agentNamespace).CreateToken(ctx, meta.Name, &authenticationv1.TokenRequest{}, createdBy)
	if err != nil {
		return nil, err
	}
	config := e.cluster.RESTConfig()
	tokenFile, caFile := filepath.Join(dir, "token"), filepath.Join(dir, "ca.crt")
	err = errors.Join(os.WriteFile(tokenFile, []byte(token.Status.Token), 0o600), os.WriteFile(caFile, config.CAData, 0o600))
	return []string{"--api-server=" + config.Host, "--api-server-token-file=" + tokenFile, "--api-server-ca-file=" + caFile, "--namespace=" + agentNamespace}, err
}

// runningAgent is an agent that runs.
type runningAgent struct {
	process *exec.Cmd
	files   string
	changes *fsnotify.Watcher
}

func startProgram(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	c := exec.CommandContext(ctx, name, args...)
	return c, c.Start()
}

// end ends a program by SIGTERM.
func end(c *exec.Cmd) error {
	if err := c.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	if err := c.Wait(); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(c.Path), err)
	}
	return nil
}

func (a *runningAgent) stop() error { return errors.Join(a.changes.Close(), end(a.process)) }

// startAgent starts an agent with some sources, each in a directory of its own, and waits until it has their files.
func (e *environment) startAgent(ctx context.Context, dir string, sources int, flags []string) (*runningAgent, error) {
	a := &runningAgent{files: filepath.Join(dir, fmt.Sprintf("files-%d", sources))}
	args := append([]string{"--dir=" + a.files, "--listen=127.0.0.1:0", "--settle=0s"}, flags...)
	for i := range sources {
		args = append(args, fmt.Sprintf("--configmap=source-%d;dir=dir-%[1]d", i))
	}
	if err := os.Mkdir(a.files, 0o700); err != nil {
		return nil, err
	}
	var err error
	if a.changes, err = fsnotify.NewWatcher(); err != nil {
		return nil, err
	}
	if err := a.changes.Add(a.files); err != nil {
		return nil, errors.Join(err, a.changes.Close())
	}
	if a.process, err = startProgram(ctx, filepath.Join(dir, "configdep-agent"), args...); err != nil {
		return nil, errors.Join(err, a.changes.Close())
	}
	if err := a.await(ctx, 0); err != nil {
		return nil, errors.Join(err, a.stop())
	}
	return a, nil
}

// await waits until the first file has a number.
func (a *runningAgent) await(ctx context.Context, number int) error {
	want := fmt.Sprintf("%09d\n", number)
	buffer := make([]byte, len(want))
	for {
		if f, err := os.Open(filepath.Join(a.files, "dir-0", "file")); err == nil {
			n, _ := f.Read(buffer)
			_ = f.Close()
			if string(buffer[:n]) == want {
				return nil
			}
		}
		select {
		case <-a.changes.Events:
		case err := <-a.changes.Errors:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// followAgent changes a source again and again, and measures when a watch, and when the files, show it.
func (e *environment) followAgent(ctx context.Context, a *runningAgent, sources int) ([]row, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	watch, err := e.client.CoreV1().ConfigMaps(agentNamespace).Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", "source-0").String()})
	if err != nil {
		return nil, err
	}
	defer watch.Stop()
	<-watch.ResultChan() // it begins with the object
	seen := make(chan time.Time, agentRounds)
	go func() {
		for range watch.ResultChan() {
			seen <- time.Now()
		}
	}()
	rounds := max(5, int(agentRounds*min(1, e.scale)))
	var event, switched samples
	for i := range rounds {
		number := sources*1_000_000 + i + 1
		began := time.Now()
		if _, err := e.client.CoreV1().ConfigMaps(agentNamespace).Update(ctx, agentSource(0, number), updatedBy); err != nil {
			return nil, err
		}
		if err := a.await(ctx, number); err != nil {
			return nil, fmt.Errorf("change %d: %w", i, err)
		}
		switched.addTime(time.Since(began), time.Millisecond)
		select {
		case at := <-seen:
			event.addTime(at.Sub(began), time.Millisecond)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if err := sleep(ctx, agentCalm); err != nil {
		return nil, err
	}
	used, err := memoryOf(a.process.Process.Pid)
	if err != nil {
		return nil, err
	}
	of := strconv.Itoa(sources) + " source"
	if sources > 1 {
		of += "s"
	}
	latency := row{name: "agent: files follow a change, " + of, unit: "ms", n: rounds, got: switched.summary(), floor: event.summary(), floorName: "the event of a watch", limit: limit{ratio: 1.5}}
	memory := row{name: "agent: memory, " + of, unit: "MB", n: 1, got: exactly(used.rss), limit: limit{value: 20}}
	if sources > 1 {
		latency.limit = limit{}
		memory.note = fmt.Sprintf(`each source is a ConfigMap of %d KB, read by its name. Memory is after %d changes. Files follow when a program that is told of
  changes of the directory reads the new content; the directory is in memory, and nothing reloads. The floor is a watch of the
  same ConfigMap, of the same changes.`, agentSourceBytes>>10, rounds)
	}
	return []row{latency, memory}, nil
}
