// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

//go:build extended

package integration

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/test/debian"
)

// application unpacks packages of Debian, and returns the folder that has them.
func application(t *testing.T, packages ...string) string {
	t.Helper()
	root, err := debian.Unpack(t.Context(), packages...)
	if errors.Is(err, debian.ErrNone) {
		t.Skip(err) //nolint:forbidigo // the real programs are packages of Debian, which CI has; without network there this fails
	}
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// serves waits until an application serves a text at an address.
func (r *running) serves(url, want string) {
	r.Helper()
	r.until(url+" serves "+want, func(ctx context.Context) error {
		got, err := try(ctx, &rest.Config{Host: url}, request{})
		if err == nil && !strings.Contains(string(got.body), want) {
			err = fmt.Errorf("it serves %q", got.body)
		}
		return err
	})
}

// haproxy is the agent of HAProxy, and a place whose ConfigMap has its configuration: it answers "one".
type haproxy struct {
	*agentShop
	program, address string
}

func newHAProxy(t *testing.T) *haproxy {
	t.Helper()
	root := application(t, "haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")
	h := &haproxy{newAgentShop(t, may("configmaps", "haproxy")), filepath.Join(root, "usr", "sbin", "haproxy"), freeAddress(t)}
	h.write("ConfigMap/haproxy", "haproxy.cfg", h.conf("one"))
	h.environment = debian.Environment(root)
	return h
}

// conf returns a configuration that answers with a text.
func (h *haproxy) conf(text string) string {
	return "defaults\n  mode http\n  timeout client 5s\n  timeout connect 5s\n  timeout server 5s\nfrontend web\n  bind " + h.address +
		"\n  http-request return status 200 content-type text/plain string \"" + text + "\"\n"
}

// HAProxy loads new configuration at a signal to its master, which is the child of the agent.
func TestAgent_HAProxy(t *testing.T) {
	t.Parallel()
	h := newHAProxy(t)
	r := h.agent("--configmap=haproxy", "--reload-signal=USR2", "--", h.program, "-W", "-f", filepath.Join(h.dir, "haproxy.cfg"))
	r.serves("http://"+h.address, "one")
	for _, text := range []string{"two", "three"} {
		h.write("ConfigMap/haproxy", "haproxy.cfg", h.conf(text))
		r.serves("http://"+h.address, text)
		r.ready("haproxy.cfg", h.conf(text))
	}
}
