// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package install

// ReservePort returns a port of the loopback interface that no other process gets until it is released, and on
// which a server with --permit-port-sharing can serve.
func ReservePort() (port int, release func(), err error) {
	p, err := reservePort()
	if err != nil {
		return 0, nil, err
	}
	return p.port, p.release, nil
}
