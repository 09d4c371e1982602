// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"math/rand/v2"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/install"
)

// disrupt disturbs a replica or the API server.
func (s *stage) disrupt(ctx context.Context, d disruption) error {
	if d.what == "replace the key" {
		return s.rekey(ctx)
	}
	r, p := server.Replicas[d.replica], proxies[d.replica]
	switch d.what {
	case "kill", "terminate":
		if d.what == "kill" {
			r.Kill()
		} else if err := r.Terminate(); err != nil {
			return err
		}
		pause(ctx, d.lasts)
		return s.start(ctx, d.replica)
	case "stop": // to the replica, no time seems to have passed
		if err := syscall.Kill(r.PID(), syscall.SIGSTOP); err != nil {
			return err
		}
		pause(ctx, d.lasts)
		return syscall.Kill(r.PID(), syscall.SIGCONT)
	case "sever":
		p.sever()
		pause(ctx, d.lasts)
		p.rejoin()
	case "break watches":
		p.breakAll()
	case "restart API server":
		return cluster.RestartAPIServer(ctx)
	}
	return nil
}

// rekey replaces the key of the hash.
func (s *stage) rekey(ctx context.Context) error {
	secrets := s.client.CoreV1().Secrets(install.Namespace)
	key, err := secrets.Get(ctx, "configdep-hmac-key", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := s.judge(ctx, s.oracle.rekeyed); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(s.history.seed, 3))
	for i := range key.Data["key"] {
		key.Data["key"][i] ^= byte(1 + random.IntN(255)) // so that it differs from the keys of earlier histories
	}
	_, err = secrets.Update(ctx, key, metav1.UpdateOptions{})
	return err
}

// start starts a replica, repeatedly if necessary, as a kubelet would: a replica that cannot read its initial data
// exits.
func (s *stage) start(ctx context.Context, replica int) error {
	r := server.Replicas[replica]
	for {
		if err := r.Start(); err != nil {
			return err
		}
		switch err := r.AwaitReady(ctx); {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return err
		}
	}
}
