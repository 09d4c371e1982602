// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"net"
	"strconv"

	"golang.org/x/sys/unix"
)

// reservedPort is a port of the loopback interface that no other process gets while it is open: it is bound such
// that the server can share it, but nothing listens on it.
type reservedPort struct {
	fd   int
	port int
}

func reservePort() (*reservedPort, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("reserving a port: %w", err)
	}
	p := &reservedPort{fd: fd}
	if err := p.bind(); err != nil {
		p.release()
		return nil, fmt.Errorf("reserving a port: %w", err)
	}
	return p, nil
}

func (p *reservedPort) bind() error {
	unix.CloseOnExec(p.fd)
	if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return err
	}
	if err := unix.Bind(p.fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	address, err := unix.Getsockname(p.fd)
	if err != nil {
		return err
	}
	p.port = address.(*unix.SockaddrInet4).Port
	return nil
}

func (p *reservedPort) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

func (p *reservedPort) release() { _ = unix.Close(p.fd) }
