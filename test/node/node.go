// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/test/controlplane"
)

// Name is the name of the node in its cluster.
const Name = "real"

const (
	// startLimit is how long a node may take until it is Ready, without the build.
	startLimit = 3 * time.Minute
	// stopLimit is how long processes may take to vanish after they have been killed.
	stopLimit = time.Minute
)

//go:embed node.sh
var script string

// Options are the options of a node.
type Options struct {
	// KeepDir keeps the folder at the end, so that its logs can be read.
	KeepDir bool
	// Log receives lines about progress.
	Log io.Writer
}

// Node is a node.
type Node struct {
	options Options
	root    string // of the repository
	dir     string
	bin     string
	env     []string
	network network
	pid     int // of the first process of the node, in this machine's PID namespace

	supervisor  *process
	alive       io.Closer // the node lives while this is open
	relay       *relay
	stopped     bool
	kubeconfigs map[string]string // paths, by component
	components  []*process
}

// New makes the namespaces and the network of a node, in which nothing runs yet. The control plane for it is started with
// [Node.ControlPlane], before [Node.Start].
func New(ctx context.Context, o Options) (_ *Node, err error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		return nil, err
	}
	n := &Node{options: o, root: root, kubeconfigs: map[string]string{}}
	if n.bin, err = programs(ctx, root, o.Log); err != nil {
		return nil, err
	}
	if n.env, err = environment(ctx, n.bin); err != nil {
		return nil, err
	}
	parent := filepath.Join(root, ".cache", "run")
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, err
	}
	if n.dir, err = os.MkdirTemp(parent, "node-"); err != nil {
		return nil, err
	}
	if err := os.Chmod(n.dir, 0o755); err != nil { // containers run as other users
		return nil, err
	}
	for _, name := range []string{"lib", "log", "logs", "sysctl", "cni"} {
		if err := os.Mkdir(n.file(name), 0o755); err != nil {
			return nil, err
		}
	}
	if err := n.supervise(); err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	if n.network, err = connect(ctx, n.pid); err != nil {
		return nil, errors.Join(fmt.Errorf("connect the node: %w", err), n.Stop())
	}
	return n, nil
}

// supervise starts the first process of the node, and the one outside that cleans up after it.
func (n *Node) supervise() error {
	remove := "remove"
	if n.options.KeepDir {
		remove = ""
	}
	cmd := exec.Command("bash", "-c", script, "node", n.dir, remove)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Dir = "/" // the folder is removed in the end
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	output, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer output.Close()
	cmd.Stdout = write
	n.alive = stdin
	n.supervisor, err = startProcess(cmd, n.file("logs", "node.log"))
	_ = write.Close() // the child has its own
	if err != nil {
		return err
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return fmt.Errorf("start the first process of a node: %w: %s", err, n.supervisor.tail())
	}
	if n.pid, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		return fmt.Errorf("start the first process of a node: %w", err)
	}
	return nil
}

// ControlPlane adds to options what a control plane needs for the node.
func (n *Node) ControlPlane(o controlplane.Options) controlplane.Options {
	o.RealNodes = true
	o.ServiceCIDR = n.network.services.String()
	o.ServingIPs = append(o.ServingIPs, n.network.machine.Addr().AsSlice(), n.network.apiServer().AsSlice())
	return o
}

// Start starts the components and returns when the node is Ready. The context limits the start, not the lifetime of the node.
func (n *Node) Start(ctx context.Context, cluster *controlplane.ControlPlane) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready within %v", startLimit))
	defer cancel()
	started := time.Now()
	if err := n.start(ctx, cluster); err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	n.progress("Ready in %.1f s, with the link %s", time.Since(started).Seconds(), n.network.link)
	return nil
}

func (n *Node) start(ctx context.Context, cluster *controlplane.ControlPlane) error {
	client, err := kubernetes.NewForConfig(cluster.RESTConfig())
	if err != nil {
		return err
	}
	server, err := url.Parse(cluster.RESTConfig().Host)
	if err != nil {
		return err
	}
	if n.relay, err = newRelay(ctx, n.network.machine.Addr(), server.Host); err != nil {
		return err
	}
	if err := n.publishAPIServer(ctx, client); err != nil {
		return fmt.Errorf("publish the endpoint of kube-apiserver: %w", err)
	}
	if err := n.configure(cluster); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	if err := n.launch("containerd", "--config="+n.file("containerd.toml")); err != nil {
		return err
	}
	if err := n.await(ctx, "containerd answers", func(ctx context.Context) error { return n.ctr(ctx, nil, "version") }); err != nil {
		return err
	}
	if err := n.addOwnImages(ctx); err != nil {
		return err
	}
	if err := n.launch("kubelet", "--config="+n.file("kubelet.yaml"), "--kubeconfig="+n.kubeconfigs["kubelet"],
		"--hostname-override="+Name, "--node-ip="+n.network.node.Addr().String()); err != nil {
		return err
	}
	if err := n.launch("kube-proxy", "--config="+n.file("kube-proxy.yaml"), "--hostname-override="+Name); err != nil {
		return err
	}
	if err := n.await(ctx, "kube-proxy is healthy", func(ctx context.Context) error {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", n.proxyHealth())
		if err != nil {
			return err
		}
		return connection.Close()
	}); err != nil {
		return err
	}
	return n.await(ctx, "the node is Ready", func(ctx context.Context) error {
		node, err := client.CoreV1().Nodes().Get(ctx, Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				if c.Status == corev1.ConditionTrue {
					return nil
				}
				return fmt.Errorf("%s: %s", c.Reason, c.Message)
			}
		}
		return errors.New("the node has no condition Ready")
	})
}

// publishAPIServer lets pods reach kube-apiserver by its Service, as the control plane itself does not.
func (n *Node) publishAPIServer(ctx context.Context, client kubernetes.Interface) error {
	name, port := "https", int32(n.relay.port())
	_, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{n.network.machine.Addr().String()}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}, metav1.CreateOptions{})
	return err
}

func (n *Node) ctr(ctx context.Context, stdin io.Reader, args ...string) error {
	cmd := n.command(ctx, "ctr", args...)
	cmd.Stdin = stdin
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Dir returns the folder of the node, which is removed in the end.
func (n *Node) Dir() string { return n.dir }

// Logs returns the path of a component's log file, for example Logs("kubelet").
func (n *Node) Logs(component string) string { return n.file("logs", component+".log") }

// Stop kills all processes of the node and waits until nothing is left of it. It reports components that had ended before. Pods need
// not be deleted before. It comes before the Stop of the control plane. Further calls have no effect.
func (n *Node) Stop() error {
	if n.stopped {
		return nil
	}
	n.stopped = true
	if n.supervisor == nil {
		return os.RemoveAll(n.dir)
	}
	var failed []error
	for _, component := range n.components {
		failed = append(failed, component.ended())
	}
	_ = n.alive.Close() // ends the first process
	if n.relay != nil {
		_ = n.relay.listener.Close()
	}
	for _, p := range append(n.components, n.supervisor) {
		select {
		case <-p.exited:
		case <-time.After(stopLimit):
			return errors.Join(append(failed, fmt.Errorf("%s did not end within %v", p.name, stopLimit))...)
		}
	}
	if n.supervisor.state != nil {
		failed = append(failed, fmt.Errorf("clean up: %w: %s", n.supervisor.state, n.supervisor.tail()))
	}
	// The kernel removes the namespace of the network, with the link, a moment after its last process.
	if n.network.link != "" {
		gone := func(context.Context) (bool, error) {
			_, err := net.InterfaceByName(n.network.link)
			return err != nil, nil
		}
		failed = append(failed, wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, stopLimit, true, gone))
	}
	return errors.Join(failed...)
}

func (n *Node) file(elements ...string) string {
	return filepath.Join(append([]string{n.dir}, elements...)...)
}

func (n *Node) progress(format string, args ...any) {
	_, _ = fmt.Fprintf(n.options.Log, "node: "+format+"\n", args...)
}
