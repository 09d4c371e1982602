// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func (c *ControlPlane) apiServer() component {
	// With the first, new nodes would have a taint that only the node lifecycle controller removes, after a while.
	disabledAdmission := "TaintNodesByCondition"
	if c.options.APIServerOnly {
		disabledAdmission += ",ServiceAccount"
	}
	return component{
		name: apiServer,
		args: slices.Concat([]string{
			"--etcd-servers=" + loopback("http", c.ports.etcd),
			"--bind-address=127.0.0.1",
			"--advertise-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(c.ports.apiServer),
			// The address cannot be an endpoint of the Service "kubernetes", because endpoints must not be on the
			// loopback interface.
			"--endpoint-reconciler-type=none",
			"--tls-cert-file=" + c.credentials.servingCertFile,
			"--tls-private-key-file=" + c.credentials.servingKeyFile,
			"--client-ca-file=" + c.credentials.caFile,
			"--authorization-mode=Node,RBAC",
			"--disable-admission-plugins=" + disabledAdmission,
			"--allow-privileged=true",
			"--service-cluster-ip-range=" + c.options.ServiceCIDR,
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-signing-key-file=" + c.credentials.serviceAccountKeyFile,
			"--service-account-key-file=" + c.credentials.serviceAccountKeyFile,
			// Logs and exec of pods on real nodes, whose names no DNS knows.
			"--kubelet-preferred-address-types=InternalIP",
			"--kubelet-client-certificate=" + c.credentials.adminCertFile,
			"--kubelet-client-key=" + c.credentials.adminKeyFile,
			// How aggregated API servers are told the user of a request.
			"--proxy-client-cert-file=" + c.credentials.proxyCertFile,
			"--proxy-client-key-file=" + c.credentials.proxyKeyFile,
			"--requestheader-client-ca-file=" + c.credentials.proxyCAFile,
			"--requestheader-allowed-names=front-proxy-client",
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-uid-headers=X-Remote-Uid",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			// Benchmarks must not measure the default limits for concurrent requests.
			"--max-requests-inflight=3000",
			"--max-mutating-requests-inflight=1000",
			// Otherwise a server that is being stopped waits for its watches to end.
			"--shutdown-watch-termination-grace-period=1s",
		}, c.options.APIServerArgs, c.restartArgs),
		ready: c.apiServerReady,
	}
}

// apiServerReady returns nil once the server's own preparations are done, such as the RBAC defaults, and the objects
// exist that aggregated API servers and users expect in every cluster.
func (c *ControlPlane) apiServerReady(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return fmt.Errorf("readyz: %w", err)
	}
	if _, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("get namespace default: %w", err)
	}
	authentication, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get what extension API servers need for authentication: %w", err)
	}
	if authentication.Data["requestheader-client-ca-file"] == "" {
		return errors.New("extension-apiserver-authentication lacks the aggregator's authority")
	}
	return nil
}

func (c *ControlPlane) client() (*kubernetes.Clientset, error) {
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	return client, nil
}
