// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package install

// ReservePort returns a port of the loopback interface that no other process is given until it is
// released, and that a server with --permit-port-sharing can serve on meanwhile.
func ReservePort() (port int, release func(), err error) {
	p, err := reservePort()
	if err != nil {
		return 0, nil, err
	}
	return p.port, p.release, nil
}
