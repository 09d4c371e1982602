// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/configdep/configdep/test/controlplane"
)

// PauseImage is the image of the process that keeps the namespaces of each pod. Its argument "done" makes it end at once.
const PauseImage = "localhost/configdep-test/pause:1"

// containerd's restrict_oom_score_adj is for a root without CAP_SYS_RESOURCE, who may not lower that score.
const containerdConfig = `
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{pause}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true

  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{bin}"]
    conf_dir = "{dir}/cni"

  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"

    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "{bin}/runc"
      SystemdCgroup = false
`

const cniConfig = `{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "cni0",
      "isGateway": true,
      "hairpinMode": true,
      "ipam": {"type": "host-local", "ranges": [[{"subnet": "{pods}"}]], "routes": [{"dst": "0.0.0.0/0"}]}
    }
  ]
}
`

// Nothing is evicted and no image removed because the disk of this machine is nearly full.
const kubeletConfig = `
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {node}
readOnlyPort: 0
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: {dir}/ca.crt}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /{cgroup}
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
resolvConf: {dir}/resolv.conf
evictionHard: {memory.available: 50Mi, nodefs.available: 1%, nodefs.inodesFree: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
`

// The numbers of connection tracking belong to the whole machine.
const proxyConfig = `
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
bindAddress: {node}
healthzBindAddress: {health}
clientConnection: {kubeconfig: {proxyKubeconfig}}
clusterCIDR: {pods}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

// proxyHealth is where kube-proxy tells its health.
func (n *Node) proxyHealth() string { return n.network.node.Addr().String() + ":10256" }

func (n *Node) configure(cluster *controlplane.ControlPlane) error {
	for component, user := range map[string][]string{
		"kubelet":    {"system:node:" + Name, "system:nodes"},
		"kube-proxy": {"system:kube-proxy"},
	} {
		cfg, err := cluster.ClientConfig(user[0], user[1:]...)
		if err != nil {
			return err
		}
		cfg.Host = "https://" + n.relay.listener.Addr().String()
		if n.kubeconfigs[component], err = cluster.KubeconfigFor(component, cfg); err != nil {
			return err
		}
	}
	values := strings.NewReplacer(
		"{dir}", n.dir,
		"{bin}", n.bin,
		"{cgroup}", "configdep-"+filepath.Base(n.dir),
		"{node}", n.network.node.Addr().String(),
		"{pods}", n.network.pods.String(),
		"{health}", n.proxyHealth(),
		"{pause}", PauseImage,
		"{proxyKubeconfig}", n.kubeconfigs["kube-proxy"],
	)
	for name, content := range map[string]string{
		"containerd.toml":   containerdConfig,
		"cni/pods.conflist": cniConfig,
		"kubelet.yaml":      kubeletConfig,
		"kube-proxy.yaml":   proxyConfig,
		"resolv.conf":       "", // there is no DNS
		"ca.crt":            string(cluster.RESTConfig().CAData),
	} {
		if err := os.WriteFile(n.file(name), []byte(values.Replace(content)), 0o644); err != nil {
			return err
		}
	}
	return nil
}
