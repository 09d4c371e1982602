// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

// Replica is one process of the server. It keeps its port across restarts.
type Replica struct {
	installation *Installation
	name         string
	port         *reservedPort
	options      ReplicaOptions

	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended
	err    error         // how the process ended; valid after exited is closed
}

// ReplicaOptions are the differences of an extra replica from the installed ones.
type ReplicaOptions struct {
	// Binary is another program with the same arguments.
	Binary string
	// Kubeconfig is another path or identity to reach the cluster.
	Kubeconfig string
	// Args are added to the arguments, and override them.
	Args []string
	// Env is added to the environment.
	Env []string
}

// StartExtra starts a replica that the aggregator does not know: requests must go to its address. StartExtra does
// not wait until the replica is ready. Stop stops the replica, unless it has ended.
func (i *Installation) StartExtra(name string, o ReplicaOptions) (*Replica, error) {
	r, err := i.newReplica(name, o)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.extras = append(i.extras, r)
	return r, r.Start()
}

func (i *Installation) newReplica(name string, o ReplicaOptions) (*Replica, error) {
	port, err := reservePort()
	if err != nil {
		return nil, err
	}
	if o.Binary == "" {
		o.Binary = i.options.Binary
	}
	if o.Kubeconfig == "" {
		o.Kubeconfig = i.kubeconfig
	}
	o.Args = append(append([]string{}, i.options.Args...), o.Args...)
	o.Env = append(append([]string{}, i.options.Env...), o.Env...)
	return &Replica{installation: i, name: name, port: port, options: o}, nil
}

// Name identifies the replica.
func (r *Replica) Name() string { return r.name }

// Address returns the address where the replica serves.
func (r *Replica) Address() string { return r.port.address() }

// RESTConfig returns the configuration of an anonymous client of this replica, without the aggregator. The caller
// may change it.
func (r *Replica) RESTConfig() *rest.Config {
	return &rest.Config{
		Host: "https://" + r.Address(),
		TLSClientConfig: rest.TLSClientConfig{
			CAData:     r.installation.bundle(),
			ServerName: r.installation.serverName(),
		},
		QPS: -1, // no limit
	}
}

// AdminConfig returns the configuration of a client of this replica with all permissions, without the aggregator. The
// caller may change it.
func (r *Replica) AdminConfig() *rest.Config {
	config, admin := r.RESTConfig(), r.installation.cluster.RESTConfig()
	config.CertData, config.KeyData = admin.CertData, admin.KeyData
	return config
}

// Log returns the path of the replica's log.
func (r *Replica) Log() string { return filepath.Join(r.installation.dir, r.name+".log") }

// PID returns the process id.
func (r *Replica) PID() int { return r.cmd.Process.Pid }

// Start starts the process and does not wait for it.
func (r *Replica) Start() error {
	log, err := os.OpenFile(r.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	i := r.installation
	args := append(append([]string{}, i.args...),
		"--kubeconfig="+r.options.Kubeconfig, "--namespace="+Namespace,
		"--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(r.port.port), "--permit-port-sharing",
		"--service-port="+strconv.Itoa(i.balancer.port()),
	)
	args = append(args, i.certificateArgs()...)
	args = append(args, r.options.Args...)
	r.cmd = i.cluster.Command(context.Background(), r.options.Binary, args...)
	r.cmd.Env = append(r.cmd.Env, r.options.Env...)
	r.cmd.Stdout, r.cmd.Stderr = log, log
	if err := r.cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", r.name, err)
	}
	exited, cmd := make(chan struct{}), r.cmd
	r.exited = exited
	go func() {
		r.err = cmd.Wait()
		close(exited)
	}()
	return nil
}

// AwaitReady waits until the replica is ready.
func (r *Replica) AwaitReady(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !r.ready(r.installation.probe) {
		select {
		case <-r.exited:
			return fmt.Errorf("%s ended: %w; its log is %s", r.name, r.err, r.Log())
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s to be ready: %w; its log is %s", r.name, context.Cause(ctx), r.Log())
		case <-tick.C:
		}
	}
	return nil
}

// Terminate asks the replica to stop, waits until it has drained, and returns how it ended.
func (r *Replica) Terminate() error { return r.end(syscall.SIGTERM) }

// Kill kills the replica.
func (r *Replica) Kill() { _ = r.end(syscall.SIGKILL) }

func (r *Replica) end(signal syscall.Signal) error {
	if r.cmd == nil {
		return nil
	}
	_ = r.cmd.Process.Signal(signal) // the process may have ended already
	select {
	case <-r.exited:
	case <-time.After(2 * time.Minute):
		_ = r.cmd.Process.Kill()
		<-r.exited
		return fmt.Errorf("%s did not end within two minutes", r.name)
	}
	return r.err
}
