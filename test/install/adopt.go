// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/configdep/configdep/test/controlplane"
)

// Mount is where the Deployment of the chart has the certificate of an existing Secret, for which replicas read the files in
// [Installation.Dir].
const Mount = "/etc/configdep/tls/"

// Adopt returns an installation without replicas for a Deployment that another tool creates in [Namespace], such as helm.
// Its Service must lead to this machine.
func Adopt(ctx context.Context, cluster *controlplane.ControlPlane, deployment string, o Options) (*Installation, error) {
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		return nil, err
	}
	if o.Binary, err = build(ctx, root, o.Race, "./cmd/"+Name); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(cluster.Dir(), deployment+"-")
	if err != nil {
		return nil, err
	}
	i := &Installation{cluster: cluster, options: o, name: deployment, dir: dir}
	if err := i.prepare(); err != nil {
		i.Stop()
		return nil, fmt.Errorf("preparing the installation: %w", err)
	}
	return i, nil
}

// AddReplica starts a replica with the arguments that the Deployment has now, and waits until it is ready.
func (i *Installation) AddReplica(ctx context.Context) (*Replica, error) {
	if err := i.readManifests(ctx); err != nil {
		return nil, err
	}
	for n := range i.args {
		i.args[n] = strings.ReplaceAll(i.args[n], Mount, i.dir+"/")
	}
	r, err := i.newReplica(fmt.Sprintf("replica-%d", i.started), ReplicaOptions{})
	if err != nil {
		return nil, err
	}
	i.Replicas, i.started = append(i.Replicas, r), i.started+1
	if err := r.Start(); err != nil {
		return nil, err
	}
	i.balancer.add(r)
	if err := r.AwaitReady(ctx); err != nil {
		return nil, err
	}
	return r, i.receive(ctx)
}
