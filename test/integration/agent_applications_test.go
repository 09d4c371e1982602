// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

//go:build extended

package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/test/await"
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

// nginx gets a signal after its own check has found new configuration to be good, and goes on with the old one if it is not.
func TestAgent_Nginx(t *testing.T) {
	t.Parallel()
	nginx := filepath.Join(application(t, "nginx"), "usr", "sbin", "nginx")
	p := newAgentShop(t, may("configmaps", "nginx"))
	address := freeAddress(t)
	run := t.TempDir()
	conf := func(text string) string {
		return fmt.Sprintf("user root; pid %[1]s/pid; error_log stderr;\nevents {}\nhttp { access_log off; client_body_temp_path %[1]s/1; proxy_temp_path %[1]s/2; fastcgi_temp_path %[1]s/3; uwsgi_temp_path %[1]s/4; scgi_temp_path %[1]s/5;\nserver { listen %s; %s } }\n", run, address, text)
	}
	set := func(text string) {
		t.Helper()
		p.write("ConfigMap/nginx", "nginx.conf", conf(text))
	}
	p.write("ConfigMap/nginx", "nginx.conf", conf(`return 200 "one";`))
	r := p.agent("--configmap=nginx", "--check-command="+nginx+" -t -q -c {dir}/nginx.conf", "--reload-signal=HUP", "--probe-url=http://"+address, "--", nginx, "-c", filepath.Join(p.dir, "nginx.conf"), "-g", "daemon off;")
	r.serves("http://"+address, "one")
	set(`return 200 "two";`)
	r.serves("http://"+address, "two")
	set(`retrun 200 "three";`)
	r.unready("check: " + nginx + ": exit code 1")
	r.serves("http://"+address, "two")
	if log := r.text(); !strings.Contains(log, `unknown directive "retrun"`) {
		t.Errorf("the log lacks what nginx says: %s", log)
	}
	set(`return 200 "four";`)
	r.serves("http://"+address, "four")
	r.ready("nginx.conf", conf(`return 200 "four";`))
}

// Prometheus is asked over HTTP, by an agent that runs beside it. Configuration that it refuses comes back as it was.
func TestAgent_Prometheus(t *testing.T) {
	t.Parallel()
	prometheus := filepath.Join(application(t, "prometheus"), "usr", "bin", "prometheus")
	p := newAgentShop(t, may("configmaps", "prometheus"))
	address := freeAddress(t)
	conf := func(label string) string {
		return "global: {external_labels: {stage: " + label + "}}\n"
	}
	p.write("ConfigMap/prometheus", "prometheus.yml", conf("one"))
	// As a native sidecar does, the agent makes the files before Prometheus starts.
	r := p.agent("--configmap=prometheus", "--reload-url=http://"+address+"/-/reload", "--probe-url=http://"+address+"/-/ready", "--rollback-after=2", "--retry-min=100ms")
	r.until("the agent has started", func(ctx context.Context) error {
		code, text, err := r.probe(ctx, "/startupz")
		if err == nil && code != http.StatusOK {
			err = errors.New(text)
		}
		return err
	})
	c := exec.CommandContext(t.Context(), prometheus, "--config.file="+filepath.Join(p.dir, "prometheus.yml"), "--storage.tsdb.path="+t.TempDir(), "--web.listen-address="+address, "--web.enable-lifecycle", "--log.level=error")
	p.must(c.Start())
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	loaded := "http://" + address + "/api/v1/status/config"
	r.serves(loaded, "stage: one")
	r.ready("prometheus.yml", conf("one"))
	p.write("ConfigMap/prometheus", "prometheus.yml", conf("two"))
	r.serves(loaded, "stage: two")
	r.ready("prometheus.yml", conf("two"))
	p.write("ConfigMap/prometheus", "prometheus.yml", "globla: {}\n")
	r.unready("reload: POST http://" + address + "/-/reload: the answer is 500 Internal Server Error; the files that were applied last are back")
	if got := files(t, p.dir)["prometheus.yml"]; got != conf("two") {
		t.Errorf("the file is %q", got)
	}
	r.serves(loaded, "stage: two")
	p.write("ConfigMap/prometheus", "prometheus.yml", conf("three"))
	r.serves(loaded, "stage: three")
	r.ready("prometheus.yml", conf("three"))
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

// HAProxy starts new workers when its master gets a signal.
func TestAgent_HAProxy(t *testing.T) {
	t.Parallel()
	h := newHAProxy(t)
	r := h.agent("--configmap=haproxy", "--check-command="+h.program+" -c -q -f {dir}/haproxy.cfg", "--reload-signal=USR2", "--", h.program, "-W", "-f", filepath.Join(h.dir, "haproxy.cfg"))
	r.serves("http://"+h.address, "one")
	h.write("ConfigMap/haproxy", "haproxy.cfg", h.conf("two"))
	r.serves("http://"+h.address, "two")
	h.write("ConfigMap/haproxy", "haproxy.cfg", "nonsense\n")
	r.unready("check: ")
	h.write("ConfigMap/haproxy", "haproxy.cfg", h.conf("three"))
	r.serves("http://"+h.address, "three")
}

// HAProxy is told at its master socket, which needs no shell, no signal and no shared process namespace.
func TestAgent_HAProxyMasterSocket(t *testing.T) {
	t.Parallel()
	h := newHAProxy(t)
	run, err := os.MkdirTemp("/tmp", "haproxy-") //nolint:usetesting // sockets have short paths
	h.must(err)
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	socket := filepath.Join(run, "master.sock")
	version := exec.CommandContext(t.Context(), h.program, "-v")
	version.Env = h.environment
	text, err := version.Output()
	h.must(err)
	args := []string{"--configmap=haproxy", `--reload-send=reload\n`, "--reload-send-to=unix://" + socket}
	if !strings.Contains(string(text), "version 2.6.") { // which ends the connection, and does not tell how it went
		args = append(args, "--reload-send-expect=Success=1")
	}
	r := h.agent(append(args, "--", h.program, "-W", "-S", socket, "-f", filepath.Join(h.dir, "haproxy.cfg"))...)
	r.serves("http://"+h.address, "one")
	for _, text := range []string{"two", "three"} {
		h.write("ConfigMap/haproxy", "haproxy.cfg", h.conf(text))
		r.serves("http://"+h.address, text)
		r.ready("haproxy.cfg", h.conf(text))
	}
}

// PostgreSQL reads its settings again after SIGHUP. It runs as another user, who owns the files.
func TestAgent_PostgreSQL(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root may give files to the user of PostgreSQL") //nolint:forbidigo // the kernel refuses it to others; CI in a container, or any run as root, tests it
	}
	root := application(t, "postgresql-15", "postgresql-client-15", "libpq5", "libllvm14", "libz3-4")
	bin := filepath.Join(root, "usr", "lib", "postgresql", "15", "bin")
	p := newAgentShop(t, may("configmaps", "postgresql"))
	p.environment = debian.Environment(root)
	const user = "65534"
	work, err := os.MkdirTemp("/tmp", "pg-") //nolint:usetesting // sockets have short paths, and the user may enter it
	p.must(err)
	t.Cleanup(func() { _ = os.RemoveAll(work) })
	p.must(os.Chmod(work, 0o777))
	p.dir = filepath.Join(work, "conf")
	data := filepath.Join(work, "data")
	as := []string{"setpriv", "--reuid=" + user, "--regid=" + user, "--clear-groups"}
	c := exec.CommandContext(t.Context(), as[0], append(as[1:], filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "--auth=trust", "--no-sync", "-L", filepath.Join(root, "usr", "share", "postgresql", "15"))...)
	c.Env = p.environment
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	_, port, err := net.SplitHostPort(freeAddress(t))
	p.must(err)
	conf := func(memory string) string {
		return fmt.Sprintf("data_directory = '%s'\nhba_file = '%[1]s/pg_hba.conf'\nident_file = '%[1]s/pg_ident.conf'\nlisten_addresses = ''\nunix_socket_directories = '%s'\nport = %s\njit = off\nfsync = off\nwork_mem = '%s'\n", data, work, port, memory)
	}
	p.write("ConfigMap/postgresql", "postgresql.conf", conf("1MB"))
	p.agent(append([]string{"--configmap=postgresql", "--owner=" + user + ":" + user, "--reload-signal=HUP", "--"}, append(as, filepath.Join(bin, "postgres"), "-c", "config_file="+filepath.Join(p.dir, "postgresql.conf"))...)...)
	shows := func(want string) {
		t.Helper()
		await.Until(t, "work_mem is "+want, func(ctx context.Context) error {
			c := exec.CommandContext(ctx, filepath.Join(bin, "psql"), "-h", work, "-p", port, "-U", "postgres", "-Atc", "SHOW work_mem")
			c.Env = p.environment
			out, err := c.CombinedOutput()
			if err != nil || strings.TrimSpace(string(out)) != want {
				return fmt.Errorf("%s, %w", out, err)
			}
			return nil
		})
	}
	shows("1MB")
	p.write("ConfigMap/postgresql", "postgresql.conf", conf("2MB"))
	shows("2MB")
}
