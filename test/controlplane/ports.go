// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"net"
)

// ports are where the components listen, all on the loopback interface.
type ports struct {
	etcd, etcdPeer, apiServer, controllerManager, scheduler int
}

// freePorts asks the kernel for ports that are not in use. Another process can still take
// one before its component listens on it, so a start must be ready to try again.
func freePorts() (ports, error) {
	var p ports
	for _, port := range []*int{&p.etcd, &p.etcdPeer, &p.apiServer, &p.controllerManager, &p.scheduler} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return ports{}, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // when all are known, so that they differ
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return p, nil
}
