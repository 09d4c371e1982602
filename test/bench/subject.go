// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/install"
)

// subject is the program that restarts workloads: the installed server, or another program instead.
type subject interface {
	// start starts the subject and does not wait until it is ready.
	start() error
	// kill kills the subject if it is running.
	kill()
	// ended returns an error if the subject has exited by itself.
	ended() error
	// processes returns the IDs of the subject's processes.
	processes() ([]int, error)
	// user returns the name of the subject's user in the API server.
	user() string
	// annotations returns the annotations by which a workload opts in. An eager workload is to be restarted
	// immediately and without a minimum interval, if the subject supports that.
	annotations(eager bool) map[string]string
}

// installed is the server. Workloads opt in by a dialect that it reads.
type installed struct {
	replica *install.Replica
	dialect dialect
}

func (s installed) start() error              { return s.replica.Start() }
func (s installed) kill()                     { s.replica.Kill() }
func (s installed) ended() error              { return nil }
func (s installed) processes() ([]int, error) { return []int{s.replica.PID()}, nil }

func (s installed) user() string {
	return "system:serviceaccount:" + install.Namespace + ":" + install.Name
}

func (s installed) annotations(eager bool) map[string]string {
	if eager {
		return undelayed(s.dialect.auto)
	}
	return union(s.dialect.auto, map[string]string{"configdep.io/settle": "1s"})
}

// external is the program of BENCH_SUBJECT. It has all permissions in the cluster, and its own process group, because
// it may consist of several processes.
type external struct {
	command    string
	optIn      map[string]string
	kubeconfig string
	log        string // path

	cmd    *exec.Cmd     // nil: not running
	exited chan struct{} // closed when the process has exited
}

// subjectName is the name of all objects that belong to an external subject.
const subjectName = "bench-subject"

func newExternal(ctx context.Context, e *environment) (*external, error) {
	kubeconfig, err := e.administrator(ctx, subjectName)
	if err != nil {
		return nil, err
	}
	return &external{
		command: e.command, optIn: e.optIn, kubeconfig: kubeconfig, log: filepath.Join(e.cluster.Dir(), subjectName+".log"),
	}, nil
}

func (s *external) start() error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of the subject: %w", err)
	}
	defer log.Close()
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", s.command) // kill ends it
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the subject: %w", err)
	}
	exited := make(chan struct{})
	s.cmd, s.exited = cmd, exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	return nil
}

func (s *external) kill() {
	if s.cmd == nil {
		return
	}
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) // it may have exited already
	<-s.exited
	s.cmd = nil
}

func (s *external) ended() error {
	if s.cmd == nil {
		return errors.New("the subject is not running")
	}
	select {
	case <-s.exited:
	default:
		return nil
	}
	log, _ := os.ReadFile(s.log)
	return fmt.Errorf("the subject has exited: %v; its log ends with:\n%s", s.cmd.ProcessState, log[max(0, len(log)-2000):])
}

// processes returns the members of the process group. Linux only.
func (s *external) processes() ([]int, error) {
	if s.cmd == nil {
		return nil, s.ended()
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	group := strconv.Itoa(s.cmd.Process.Pid)
	var members []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue // not a process
		}
		// A process that cannot be read has exited meanwhile. The third field is its group.
		if fields, err := statOf(pid); err == nil && fields[2] == group {
			members = append(members, pid)
		}
	}
	if len(members) == 0 {
		return nil, errors.New("the subject has no processes")
	}
	return members, nil
}

func (s *external) user() string { return accountOf(subjectName) }

func (s *external) annotations(bool) map[string]string { return s.optIn }

// administrator creates a ServiceAccount with all permissions, and returns the path of its kubeconfig. Unlike for a
// member of the administrators' group, its requests are authorized as those of any other user.
func (e *environment) administrator(ctx context.Context, name string) (kubeconfig string, err error) {
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: name}},
	}
	if _, err := e.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	token, err := e.newAccount(ctx, name)
	if err != nil {
		return "", err
	}
	path := filepath.Join(e.cluster.Dir(), name+".yaml")
	return path, e.cluster.WriteKubeconfig(path, token)
}

// newAccount creates a ServiceAccount and returns a token that is valid for a day.
func (e *environment) newAccount(ctx context.Context, name string) (token string, err error) {
	accounts := e.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	day := int64(24 * time.Hour / time.Second)
	granted, err := accounts.CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return granted.Status.Token, nil
}

func accountOf(name string) string {
	return "system:serviceaccount:" + metav1.NamespaceDefault + ":" + name
}

// pause stops the processes of the subject until resume is called, so that they do not disturb other measurements.
func (e *environment) pause() (resume func(), err error) {
	pids, err := e.subject.processes()
	if err != nil {
		return nil, err
	}
	signal := func(s syscall.Signal) {
		for _, pid := range pids {
			_ = syscall.Kill(pid, s)
		}
	}
	signal(syscall.SIGSTOP)
	return func() { signal(syscall.SIGCONT) }, nil
}

// subjectCPU returns the processor time of the subject since its start.
func (e *environment) subjectCPU() (time.Duration, error) {
	pids, err := e.subject.processes()
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, pid := range pids {
		one, err := cpuTime(pid)
		if err != nil {
			return 0, err
		}
		sum += one
	}
	return sum, nil
}

// subjectMemory returns the memory of all processes of the subject.
func (e *environment) subjectMemory() (memory, error) {
	pids, err := e.subject.processes()
	if err != nil {
		return memory{}, err
	}
	var sum memory
	for _, pid := range pids {
		one, err := memoryOf(pid)
		if err != nil {
			return memory{}, err
		}
		sum.rss, sum.anonymous, sum.peak = sum.rss+one.rss, sum.anonymous+one.anonymous, sum.peak+one.peak
	}
	return sum, nil
}
