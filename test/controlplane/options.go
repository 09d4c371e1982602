// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"io"
	"net"
)

// Options are the options of a control plane. The zero value is a full control plane with three nodes.
type Options struct {
	// KeepDir keeps the folder at the end, so that its logs can be read.
	KeepDir bool

	// Nodes is the number of simulated nodes, 3 by default. Each has capacity for 1000 pods.
	Nodes int
	// NoNodes omits nodes, kwok and kube-scheduler: workloads get their pods, and the pods stay Pending.
	NoNodes bool
	// APIServerOnly omits kube-controller-manager too: objects can be stored and watched, but no controller acts on
	// them. ServiceAccount admission is then off, because no controller creates the accounts that it requires.
	APIServerOnly bool
	// RealNodes omits the simulated nodes and kwok, but not kube-scheduler: nodes of package node join later.
	RealNodes bool
	// EtcdOnly starts only etcd, in which another control plane may store some of its resources.
	EtcdOnly bool

	// ServiceCIDR is the range of the addresses of Services, 10.96.0.0/16 by default.
	ServiceCIDR string
	// ServingIPs are addresses for which the certificate of kube-apiserver is valid too, besides 127.0.0.1.
	ServingIPs []net.IP
	// APIServerArgs are added to the flags of kube-apiserver and override the defaults,
	// for example "--enable-aggregator-routing=true".
	APIServerArgs []string

	// Log receives lines about progress, from within Start, RestartAPIServer, BackUp, Restore and Stop.
	Log io.Writer
}

func (o Options) withDefaults() Options {
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.EtcdOnly {
		o.APIServerOnly = true
	}
	if o.APIServerOnly {
		o.NoNodes = true
	}
	if o.NoNodes || o.RealNodes {
		o.Nodes = 0
	}
	if o.ServiceCIDR == "" {
		o.ServiceCIDR = "10.96.0.0/16"
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	return o
}
