// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
)

// network holds the addresses of a node. All follow from the number of its link.
type network struct {
	link           string       // in this machine's network; the other end is eth0 of the node
	machine, node  netip.Prefix // the two ends of the link
	pods, services netip.Prefix
}

func networkOf(n byte) network {
	prefix := func(a, d byte, bits int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, a, n, d}), bits)
	}
	return network{
		link:     "configdep" + strconv.Itoa(int(n)),
		machine:  prefix(123, 1, 30),
		node:     prefix(123, 2, 30),
		pods:     prefix(124, 0, 24),
		services: prefix(125, 0, 24),
	}
}

// apiServer is the address of the Service "kubernetes", the first of its range.
func (n network) apiServer() netip.Addr { return n.services.Addr().Next() }

// connect links the network namespace of a process to this machine's. The link and the routes over it end with the namespace.
func connect(ctx context.Context, pid int) (network, error) {
	routed, err := routes(ctx)
	if err != nil {
		return network{}, err
	}
	var taken error
	for i := range 256 {
		n := networkOf(byte(i))
		if n.overlaps(routed) {
			continue
		}
		// Another node may take the name at the same time, and only one gets it.
		if taken = run(ctx, "ip", "link", "add", n.link, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(pid)); taken != nil {
			if strings.Contains(taken.Error(), "File exists") {
				continue
			}
			return network{}, taken
		}
		return n, n.configure(ctx, pid)
	}
	return network{}, errors.Join(errors.New("all networks of nodes, 10.123.0.0/16 to 10.125.0.0/16, are routed elsewhere or taken"), taken)
}

func (n network) configure(ctx context.Context, pid int) error {
	for _, command := range [][]string{
		{"ip", "address", "add", n.machine.String(), "dev", n.link},
		{"ip", "link", "set", n.link, "up"},
		inNetwork(pid, "ip", "address", "add", n.node.String(), "dev", "eth0"),
		inNetwork(pid, "ip", "link", "set", "eth0", "up"),
		inNetwork(pid, "ip", "route", "add", "default", "via", n.machine.Addr().String()),
		{"ip", "route", "add", n.pods.String(), "via", n.node.Addr().String(), "dev", n.link},
		{"ip", "route", "add", n.services.String(), "via", n.node.Addr().String(), "dev", n.link},
	} {
		if err := run(ctx, command[0], command[1:]...); err != nil {
			return err
		}
	}
	return nil
}

func inNetwork(pid int, command ...string) []string {
	return append([]string{"nsenter", "--target", strconv.Itoa(pid), "--net"}, command...)
}

func (n network) overlaps(routed []netip.Prefix) bool {
	for _, r := range routed {
		if r.Overlaps(n.machine) || r.Overlaps(n.pods) || r.Overlaps(n.services) {
			return true
		}
	}
	return false
}

// routes returns where this machine's routes lead, without the default route.
func routes(ctx context.Context) ([]netip.Prefix, error) {
	out, err := exec.CommandContext(ctx, "ip", "-o", "-4", "route", "show").Output()
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var found []netip.Prefix
	for line := range strings.Lines(string(out)) {
		destination, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if prefix, err := netip.ParsePrefix(destination); err == nil {
			found = append(found, prefix)
		} else if address, err := netip.ParseAddr(destination); err == nil {
			found = append(found, netip.PrefixFrom(address, 32))
		}
	}
	return found, nil
}

func run(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// relay passes connections to an address of the node's link on to kube-apiserver, which listens on the loopback interface only.
type relay struct{ listener net.Listener }

func newRelay(ctx context.Context, address netip.Addr, to string) (*relay, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", netip.AddrPortFrom(address, 0).String())
	if err != nil {
		return nil, fmt.Errorf("listen for the node's connections to kube-apiserver: %w", err)
	}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return // the listener was closed
			}
			go pass(from, to)
		}
	}()
	return &relay{listener}, nil
}

func (r *relay) port() int { return r.listener.Addr().(*net.TCPAddr).Port }

// pass copies in both directions until either side has ended.
func pass(from net.Conn, address string) {
	defer from.Close()
	to, err := (&net.Dialer{}).Dial("tcp", address)
	if err != nil {
		return // kube-apiserver is being restarted
	}
	defer to.Close()
	ended := make(chan struct{}, 2)
	for _, copied := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(copied[0], copied[1])
			ended <- struct{}{}
		}()
	}
	<-ended
}
