// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"net"
)

// EndpointIP returns an IPv4 address of this machine that the API server accepts in an EndpointSlice, unlike a loopback
// address.
//
// It is for API servers with --enable-aggregator-routing=true, which do not support Services of type ExternalName for
// aggregated API servers. These then need a Service without a selector, one EndpointSlice per replica, because each
// replica has its own port, and must listen on this address.
func EndpointIP() (net.IP, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list addresses of this machine: %w", err)
	}
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.IsGlobalUnicast() && network.IP.To4() != nil {
			return network.IP, nil
		}
	}
	return nil, errors.New("this machine has no IPv4 address beyond loopback")
}
