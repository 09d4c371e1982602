// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
)

func (c *ControlPlane) etcd() component {
	client := loopback("http", c.ports.etcd)
	peer := loopback("http", c.ports.etcdPeer)
	name := filepath.Base(c.dir)
	return component{
		name: etcd,
		args: []string{
			"--name=" + name,
			"--data-dir=" + c.file("etcd"),
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=" + name + "=" + peer,
			"--unsafe-no-fsync", // no data must survive a power failure
			// The member elects itself after this time in milliseconds. The default is a second.
			"--election-timeout=200",
			"--heartbeat-interval=20",
			"--quota-backend-bytes=8589934592",
			"--log-level=warn",
			// As kubeadm sets it. Without progress notifications, the API server's watch cache lags behind for
			// resources that do not change.
			"--watch-progress-notify-interval=5s",
		},
		ready: func(ctx context.Context) error { return etcdReady(ctx, client, name) },
	}
}

// etcdReady lists the members of the cluster. This requires a leader, and distinguishes this etcd from another process
// that may have taken the port.
func etcdReady(ctx context.Context, url, name string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v3/cluster/member/list", strings.NewReader("{}"))
	if err != nil {
		return fmt.Errorf("ask for members: %w", err)
	}
	transport := &http.Transport{DisableKeepAlives: true} // without a proxy
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("ask for members: %w", err)
	}
	defer response.Body.Close()
	var list struct {
		Members []struct {
			Name string `json:"name"`
		} `json:"members"`
	}
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return fmt.Errorf("decode members (%s): %w", response.Status, err)
	}
	if len(list.Members) != 1 || list.Members[0].Name != name {
		return fmt.Errorf("members = %v, want only %s", list.Members, name)
	}
	return nil
}

func loopback(scheme string, port int) string { return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port) }
