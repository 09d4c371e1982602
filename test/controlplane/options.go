// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import "io"

// Options says what to start. The zero value is a full control plane with three nodes.
type Options struct {
	// Dir is the folder for state, credentials and logs. It must not exist yet, or be
	// empty, as Stop removes it. By default it is a new one below .cache/run in the
	// repository.
	Dir string
	// KeepDir leaves Dir in place at the end, so that its logs can be read.
	KeepDir bool

	// Nodes is the number of simulated nodes, 3 by default. Each takes 1000 pods.
	Nodes int
	// NoNodes leaves out nodes, kwok and kube-scheduler: workloads get their pods, and
	// the pods stay Pending.
	NoNodes bool
	// APIServerOnly leaves out kube-controller-manager too: objects are stored and
	// watched, and nothing acts on them. ServiceAccount admission is then off, as
	// nothing creates the accounts that it asks for.
	APIServerOnly bool
	// EtcdOnly leaves out all but etcd, in which another control plane may keep some of its
	// resources.
	EtcdOnly bool

	// APIServerArgs are added to the flags of kube-apiserver and win over the defaults,
	// for example "--enable-aggregator-routing=true".
	APIServerArgs []string
	// EtcdArgs are added to the flags of etcd and win over the defaults.
	EtcdArgs []string

	// Log receives lines about progress, from within Start, RestartAPIServer and Stop.
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
	if o.NoNodes {
		o.Nodes = 0
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	return o
}
