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

// startLimit is how long a control plane may take until it is ready, without the build.
// It takes seconds, unless others keep the machine busy.
const startLimit = 3 * time.Minute

// ControlPlane is a running control plane. Its methods may be called concurrently.
type ControlPlane struct {
	options  Options
	dir      string
	binaries string

	credentials *credentials
	ports       ports
	guard       *guard

	mu        sync.Mutex // guards what follows, and lets one of Stop and RestartAPIServer run
	processes map[string]*process
	stopped   bool
	stopErr   error
}

// Start starts a control plane and returns when it is of use: the API server is ready,
// controllers have done what they do first, the scheduler is up, and the nodes are Ready.
// The context limits the start, not the life of the control plane, which Stop ends.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	o = o.withDefaults()
	root, err := repositoryRoot()
	if err != nil {
		return nil, err
	}
	bin, err := binaries(ctx, root, o.Log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready within %v", startLimit))
	defer cancel()

	dir, err := newDir(root, o.Dir)
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
	if c.credentials, err = newCredentials(c.file("pki")); err != nil {
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

// startComponents starts each component as soon as those that it needs are ready.
func (c *ControlPlane) startComponents(ctx context.Context) error {
	var err error
	if c.ports, err = freePorts(); err != nil {
		return err
	}
	if err := c.writeKubeconfigs(); err != nil {
		return err
	}
	stages := [][]component{{c.etcd()}, {c.apiServer()}}
	last := []component{}
	if !c.options.APIServerOnly {
		last = append(last, c.controllerManager())
	}
	if !c.options.NoNodes {
		last = append(last, c.scheduler(), c.kwok())
	}
	for _, stage := range append(stages, last) {
		started := time.Now()
		for _, one := range stage {
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

// Stop ends all processes, waits until they are gone, and removes the folder. It reports
// components that had ended before, as a test that passed without them has tested less
// than it seems. Calling it again does no more.
func (c *ControlPlane) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return c.stopErr
	}
	c.stopped = true
	var ended []error
	for _, p := range c.processes {
		ended = append(ended, p.ended())
	}
	c.stopErr = errors.Join(append(ended, c.end())...)
	return c.stopErr
}

// end undoes start, however far that came.
func (c *ControlPlane) end() error {
	c.stopComponents()
	remove := func() error {
		if c.options.KeepDir {
			return nil
		}
		return os.RemoveAll(c.dir)
	}
	if c.guard == nil {
		return remove()
	}
	// The guard goes when there is nothing left to guard. A command that goes with it
	// may write to the folder until then, hence once more.
	_ = remove()
	return errors.Join(c.guard.release(), remove())
}

// stopComponents ends clients before what they are clients of, so that their last
// requests succeed and nobody waits for an answer that never comes.
func (c *ControlPlane) stopComponents() {
	for _, stage := range [][]string{{kwok, scheduler, controllerManager}, {apiServer}, {etcd}} {
		var stopping sync.WaitGroup
		for _, name := range stage {
			if p, ok := c.processes[name]; ok {
				stopping.Go(p.stop)
				delete(c.processes, name)
			}
		}
		stopping.Wait()
	}
}

// RestartAPIServer stops kube-apiserver and starts it again at the same address. All
// connections break, and all watches with them. It returns when the new one is ready.
func (c *ControlPlane) RestartAPIServer(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errors.New("restart kube-apiserver: the control plane has been stopped")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready within %v", startLimit))
	defer cancel()
	started := time.Now()
	if p, ok := c.processes[apiServer]; ok {
		p.stop()
		delete(c.processes, apiServer)
	}
	for {
		err := c.launch(c.apiServer())
		if err == nil {
			err = c.await(ctx, c.apiServer())
		}
		if err == nil {
			c.progress("%s is ready again (%.1f s)", apiServer, time.Since(started).Seconds())
			return nil
		}
		// Somebody's outgoing connection may have been given the port meanwhile.
		if !errors.Is(err, errPortTaken) || ctx.Err() != nil {
			return fmt.Errorf("restart kube-apiserver: %w", err)
		}
	}
}

// Dir is the folder with everything that belongs to this control plane.
func (c *ControlPlane) Dir() string { return c.dir }

// Logs is the path of a component's log file, for example Logs("kube-apiserver").
func (c *ControlPlane) Logs(component string) string { return c.file("logs", component+".log") }

// RESTConfig is the configuration of a client that may do everything, as often as it
// wants. The caller may change it.
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

func (c *ControlPlane) file(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}

func (c *ControlPlane) progress(format string, args ...any) {
	_, _ = fmt.Fprintf(c.options.Log, "control plane: "+format+"\n", args...)
}

// newDir makes the folder for a control plane. One that is not empty is refused, as it
// is somebody else's and would be removed in the end.
func newDir(root, dir string) (string, error) {
	if dir == "" {
		parent := filepath.Join(root, ".cache", "run")
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return "", fmt.Errorf("create folder for control planes: %w", err)
		}
		dir, err := os.MkdirTemp(parent, "")
		if err != nil {
			return "", fmt.Errorf("create folder for control plane: %w", err)
		}
		return dir, nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find folder for control plane: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("create folder for control plane: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("read folder for control plane: %w", err)
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("folder for control plane is not empty: %s", dir)
	}
	return dir, nil
}
