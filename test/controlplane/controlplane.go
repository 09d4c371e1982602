// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// startLimit is how long a control plane may take until it is ready, without the build. On an idle machine, it takes
// seconds.
const startLimit = 3 * time.Minute

// ControlPlane is a running control plane. Its methods may be called concurrently.
type ControlPlane struct {
	options  Options
	dir      string
	binaries string

	credentials *credentials
	ports       ports
	guard       *guard

	mu          sync.Mutex // guards the fields below, and serializes Stop, RestartAPIServer, BackUp and Restore
	processes   map[string]*process
	restartArgs []string // of RestartAPIServer
	stopped     bool
	stopErr     error
}

// Start starts a control plane and returns when it is usable: the API server is ready, controllers have done their
// initial work, the scheduler is up, and the nodes are Ready. The context limits the start, not the lifetime of the
// control plane, which ends with Stop.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	o = o.withDefaults()
	root, err := RepositoryRoot()
	if err != nil {
		return nil, err
	}
	bin, err := binaries(ctx, root, o.Log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready within %v", startLimit))
	defer cancel()

	dir, err := newDir(root)
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{options: o, dir: dir, binaries: bin, processes: map[string]*process{}}
	if err := c.start(ctx); err != nil {
		return nil, fmt.Errorf("start control plane: %w", errors.Join(err, c.end()))
	}
	return c, nil
}

func (c *ControlPlane) start(ctx context.Context) error {
	started := time.Now()
	remove := c.dir
	if c.options.KeepDir {
		remove = ""
	}
	var err error
	if c.guard, err = newGuard(remove); err != nil {
		return err
	}
	if c.credentials, err = newCredentials(c.file("pki"), c.options.ServingIPs); err != nil {
		return err
	}
	if err := c.writeKwokConfig(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.file("logs"), 0o755); err != nil {
		return fmt.Errorf("create folder for logs: %w", err)
	}
	for attempt := 1; ; attempt++ {
		err := c.startComponents(ctx)
		if err == nil {
			break
		}
		if !errors.Is(err, errPortTaken) || attempt == 5 {
			return err
		}
		c.progress("%v; trying others", errPortTaken)
		c.stopComponents()
		if err := os.RemoveAll(c.file("etcd")); err != nil {
			return fmt.Errorf("remove state of the last attempt: %w", err)
		}
	}
	c.progress("ready in %.1f s; KUBECONFIG=%s", time.Since(started).Seconds(), c.Kubeconfig())
	return nil
}

// startComponents starts all components at ports that are free.
func (c *ControlPlane) startComponents(ctx context.Context) error {
	var err error
	if c.ports, err = freePorts(); err != nil {
		return err
	}
	if err := c.writeKubeconfigs(); err != nil {
		return err
	}
	return c.launchAll(ctx)
}

// launchAll starts each component as soon as the components that it needs are ready.
func (c *ControlPlane) launchAll(ctx context.Context) error {
	stages := [][]component{{c.etcd()}}
	if !c.options.EtcdOnly {
		stages = append(stages, []component{c.apiServer()})
	}
	last := []component{}
	if !c.options.APIServerOnly {
		last = append(last, c.controllerManager())
	}
	if !c.options.NoNodes {
		last = append(last, c.scheduler())
	}
	if c.options.Nodes > 0 {
		last = append(last, c.kwok())
	}
	for _, stage := range append(stages, last) {
		started := time.Now()
		for _, one := range stage {
			if one.prepare != nil {
				if err := one.prepare(ctx); err != nil {
					return err
				}
			}
			if err := c.launch(one); err != nil {
				return err
			}
		}
		for _, one := range stage {
			if err := c.await(ctx, one); err != nil {
				return err
			}
			c.progress("%s is ready (%.1f s)", one.name, time.Since(started).Seconds())
		}
	}
	return nil
}

// Dir returns the folder with all files of this control plane.
func (c *ControlPlane) Dir() string { return c.dir }

// Logs returns the path of a component's log file, for example Logs("kube-apiserver").
func (c *ControlPlane) Logs(component string) string { return c.file("logs", component+".log") }

// RESTConfig returns the configuration of an administrator's client without a rate limit. The caller may change it.
func (c *ControlPlane) RESTConfig() *rest.Config {
	return &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", c.ports.apiServer),
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   c.credentials.authority.BundlePEM(),
			CertData: c.credentials.admin.Cert,
			KeyData:  c.credentials.admin.Key,
		},
		QPS: -1, // no limit
	}
}

// ClientConfig returns the configuration of a client that authenticates with a certificate as this user in these groups.
func (c *ControlPlane) ClientConfig(user string, groups ...string) (*rest.Config, error) {
	pair, err := c.credentials.authority.ClientCert(user, groups...)
	if err != nil {
		return nil, err
	}
	cfg := rest.AnonymousClientConfig(c.RESTConfig())
	cfg.CertData, cfg.KeyData = pair.Cert, pair.Key
	return cfg, nil
}

// EtcdURL returns the URL of etcd, for tests that need all changes in their order, even while the API server is down.
func (c *ControlPlane) EtcdURL() string { return loopback("http", c.ports.etcd) }

func (c *ControlPlane) file(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}

func (c *ControlPlane) progress(format string, args ...any) {
	_, _ = fmt.Fprintf(c.options.Log, "control plane: "+format+"\n", args...)
}
