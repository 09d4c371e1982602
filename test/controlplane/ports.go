// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"net"
)

// ports are the ports of the components, all on the loopback interface.
type ports struct {
	etcd, etcdPeer, apiServer, controllerManager, scheduler int
}

// freePorts returns unused ports from the kernel. Another process can still take one before its component listens on
// it, so the start must be retried in that case.
func freePorts() (ports, error) {
	var p ports
	for _, port := range []*int{&p.etcd, &p.etcdPeer, &p.apiServer, &p.controllerManager, &p.scheduler} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return ports{}, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // after all ports are known, so that they differ
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return p, nil
}
