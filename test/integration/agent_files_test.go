// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/await"
)

// freeAddress returns an address at which nothing listens. Until the end of the test a socket has its port, so that others get it only if
// they ask for it by its number. As that socket does not listen, a agent can do so that sets SO_REUSEADDR, as most servers do.
func freeAddress(t *testing.T) string {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(socket) })
	err = unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err = errors.Join(err, unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})); err != nil {
		t.Fatal(err)
	}
	address, err := unix.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(address.(*unix.SockaddrInet4).Port))
}

// Objects are created, changed, deleted and created again, and the files follow, with a Role that names the objects.
func TestAgent_FilesFollow(t *testing.T) {
	t.Parallel()
	p := newAgentShop(t, may("configmaps", "settings", "extra"), may("secrets", "tls"))
	p.write("ConfigMap/settings", "app.conf", "1", "gone", "x")
	r := p.agent("--configmap=settings", "--secret=tls;dir=tls;key=tls.crt:server.pem;mode=0440", "--configmap=extra;optional")
	r.unready("Secret " + p.namespace + "/tls does not exist")
	if code, _, err := r.probe(t.Context(), "/startupz"); err != nil || code != http.StatusServiceUnavailable {
		t.Errorf("started without files: %d, %v", code, err)
	}
	p.write("Secret/tls", "tls.crt", "certificate", "tls.key", "key")
	r.ready("app.conf", "1", "gone", "x", "tls/server.pem", "certificate")
	for path, want := range map[string]os.FileMode{"app.conf": 0o600, "tls/server.pem": 0o440} {
		if info, err := os.Stat(filepath.Join(p.dir, path)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	p.patchSource("ConfigMap/settings", map[string]any{"data": map[string]any{"app.conf": "2", "gone": nil}, "binaryData": map[string]any{"binary": "AP8="}})
	r.ready("app.conf", "2", "binary", "\x00\xff", "tls/server.pem", "certificate")
	p.write("ConfigMap/extra", "more", "m")
	r.ready("app.conf", "2", "binary", "\x00\xff", "more", "m", "tls/server.pem", "certificate")
	p.remove("extra")
	r.ready("app.conf", "2", "binary", "\x00\xff", "tls/server.pem", "certificate")
	p.remove("settings")
	r.unready("ConfigMap " + p.namespace + "/settings does not exist")
	if got := files(t, p.dir)["app.conf"]; got != "2" {
		t.Errorf("without its ConfigMap, app.conf is %q", got)
	}
	p.write("ConfigMap/settings", "app.conf", "3")
	r.ready("app.conf", "3", "tls/server.pem", "certificate")
	p.must(kube.CoreV1().Secrets(p.namespace).Delete(t.Context(), "tls", metav1.DeleteOptions{}))
	p.write("Secret/tls", "tls.key", "key")
	r.unready(`there is no key "tls.crt"`)
	if log := r.text(); strings.Contains(log, "certificate\n") || strings.Contains(log, `"key"`) {
		t.Errorf("the log has content of the Secret: %s", log)
	}
}

// Objects with a label come and go. One that cannot be used is left out, and said so, also as long as nothing else has been applied.
func TestAgent_Selector(t *testing.T) {
	t.Parallel()
	p := newAgentShop(t, may("configmaps"))
	labelled := func(value string) map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{"dashboard": value}, "annotations": map[string]any{"folder": "team/" + value}}}
	}
	p.write("ConfigMap/other", "x", "y")
	r := p.agent("--configmap-selector=dashboard in (yes, maybe);dir={name};dir-annotation=folder", "--configmap-selector=flat=yes")
	r.ready()
	p.write("ConfigMap/a", "a.json", "1")
	p.write("ConfigMap/b", "a.json", "2")
	p.patchSource("ConfigMap/a", labelled("yes"))
	p.patchSource("ConfigMap/b", labelled("maybe"))
	r.ready("a/team/yes/a.json", "1", "b/team/maybe/a.json", "2")
	p.patchSource("ConfigMap/b", labelled("no"))
	r.ready("a/team/yes/a.json", "1")
	p.patchSource("ConfigMap/b", map[string]any{"metadata": map[string]any{"labels": map[string]any{"dashboard": "yes"}}})
	p.patchSource("ConfigMap/a", map[string]any{"metadata": map[string]any{"annotations": map[string]any{"folder": "../../outside"}}})
	r.ready("b/team/no/a.json", "2")
	r.leavesOut("a is left out: annotation folder: ")
	r.stop()
	r = p.agent("--configmap-selector=dashboard in (yes, maybe);dir={name};dir-annotation=folder", "--configmap-selector=flat=yes")
	r.ready("b/team/no/a.json", "2")
	r.leavesOut("a is left out: annotation folder: ")
	p.patchSource("ConfigMap/a", map[string]any{"metadata": map[string]any{"annotations": map[string]any{"folder": p.dir + "/a/team/"}}})
	r.ready("a/team/a.json", "1", "b/team/no/a.json", "2")
	for _, name := range []ref{"ConfigMap/a", "ConfigMap/b"} {
		p.patchSource(name, map[string]any{"metadata": map[string]any{"labels": map[string]any{"flat": "yes", "dashboard": nil}}})
	}
	r.ready("a.json", "1")
	r.leavesOut(fmt.Sprintf(`b is left out: file "a.json" is in both ConfigMap %s/a and ConfigMap %[1]s/b`, p.namespace))
	p.remove("a")
	r.ready("a.json", "2")
}

// Without a right, the agent says which one it lacks, is alive, and goes on when it has it.
func TestAgent_Forbidden(t *testing.T) {
	t.Parallel()
	p := newAgentShop(t)
	p.write("ConfigMap/settings", "a", "1")
	r := p.agent("--configmap=settings")
	r.unready("is forbidden")
	if code, text, err := r.probe(t.Context(), "/livez"); err != nil || code != http.StatusOK {
		t.Errorf("livez: %d %s, %v", code, text, err)
	}
	role, err := kube.RbacV1().Roles(p.namespace).Get(t.Context(), "agent", metav1.GetOptions{})
	p.must(err)
	role.Rules = append(role.Rules, may("configmaps", "settings"))
	_, err = kube.RbacV1().Roles(p.namespace).Update(t.Context(), role, metav1.UpdateOptions{})
	p.must(err)
	r.ready("a", "1")
}

// A source may be of another namespace, where a Role allows it. Of two sources with the same file, an error names both.
func TestAgent_SourceOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	p, other := newAgentShop(t, may("configmaps", "settings")), newAgentShop(t, may("configmaps", "settings"))
	p.write("ConfigMap/settings", "a", "1")
	other.write("ConfigMap/settings", "a", "other")
	theirs := "--configmap=" + other.namespace + "/settings"
	r := p.agent("--configmap=settings", theirs+";dir=shared")
	r.unready("is forbidden")
	binding, err := kube.RbacV1().RoleBindings(other.namespace).Get(t.Context(), "agent", metav1.GetOptions{})
	p.must(err)
	binding.Subjects[0].Namespace = p.namespace
	_, err = kube.RbacV1().RoleBindings(other.namespace).Update(t.Context(), binding, metav1.UpdateOptions{})
	p.must(err)
	r.ready("a", "1", "shared/a", "other")
	other.write("ConfigMap/settings", "a", "changed")
	r.ready("a", "1", "shared/a", "changed")
	r.stop()

	r = p.agent("--configmap=settings", theirs)
	r.unready(fmt.Sprintf(`file "a" is in both ConfigMap %s/settings and ConfigMap %s/settings`, p.namespace, other.namespace))
	if got := files(t, p.dir)["shared/a"]; got != "changed" {
		t.Errorf("the last good set has %q", got)
	}
}

// An init container ends once all files are there. Its files are the start of a sidecar's.
func TestAgent_Once(t *testing.T) {
	t.Parallel()
	p := newAgentShop(t, may("configmaps", "settings"))
	once := p.agent("--configmap=settings", "--once")
	once.says("settings does not exist")
	p.must(syscall.Kill(once.pid, syscall.SIGTERM))
	once.exits(128 + int(syscall.SIGTERM))
	once = p.agent("--configmap=settings", "--once")
	p.write("ConfigMap/settings", "a", "1")
	once.exits(0)
	if got := files(t, p.dir); got["a"] != "1" {
		t.Errorf("files %v", got)
	}
	before := sets(t, p.dir)
	r := p.agent("--configmap=settings")
	r.ready("a", "1")
	if after := sets(t, p.dir); !slices.Equal(before, after) {
		t.Errorf("sets %v, and %v after the sidecar has started", before, after)
	}
}

// The exit code tells what kept an agent from starting, as documented.
func TestAgent_ExitCodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	volume, text := filepath.Join(dir, "volume"), filepath.Join(dir, "text")
	if err := errors.Join(os.Mkdir(volume, 0o700), os.WriteFile(text, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	sources := []string{"--volume=" + volume, "--dir=" + filepath.Join(dir, "files"), "--listen="}
	for _, tt := range []struct {
		args []string
		want int
	}{
		{[]string{"--nope"}, 2},
		{[]string{"nope"}, 2},
		{[]string{"--dir=" + dir}, 2},
		{append(slices.Clone(sources), "--settle=x"), 2},
		{append(slices.Clone(sources), "--listen=nowhere"), 1},
		{append(slices.Clone(sources), "--dir=/proc/none", "--", "true"), 1}, // not 127: this is about the files
		{append(slices.Clone(sources), "--", filepath.Join(dir, "absent")), 127},
		{append(slices.Clone(sources), "--", text), 126},
		{append(slices.Clone(sources), "--", "sh", "-c", "exit 5"), 5},
		{append(slices.Clone(sources), "--once"), 0},
	} {
		out, err := exec.CommandContext(t.Context(), agent, tt.args...).CombinedOutput()
		code := 0
		if exit, is := errors.AsType[*exec.ExitError](err); is {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if code != tt.want {
			t.Errorf("%q: exit code %d, want %d: %s", tt.args, code, tt.want, out)
		}
	}
}

// Content is unpacked, variables are substituted, the application is told that files have changed, and metrics which versions it has.
func TestAgent_ContentIsMade(t *testing.T) {
	t.Parallel()
	p := newAgentShop(t, may("configmaps", "rules", "settings"))
	pack := func(text string) []byte {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, err := io.WriteString(w, text)
		p.must(errors.Join(err, w.Close()))
		return out.Bytes()
	}
	told := make(chan string, 10)
	application := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		told <- string(text)
	}))
	t.Cleanup(application.Close)
	const body = `{"reload": true}`
	tells := func() {
		t.Helper()
		select {
		case got := <-told:
			if got != body {
				t.Errorf("told %s, want %s", got, body)
			}
		case <-time.After(await.Limit):
			t.Fatal("not told")
		}
	}
	p.write("ConfigMap/settings", "app.conf", "1")
	p.write("ConfigMap/rules")
	p.patchSource("ConfigMap/rules", map[string]any{"binaryData": map[string]any{"rules.yaml.gz": pack("shard: $(SHARD)\n")}})
	p.environment = append(os.Environ(), "SHARD=VALUE-OF-SHARD", "OTHER=VALUE-OF-OTHER")
	r := p.agent("--configmap=settings", "--configmap=rules;dir=rules;gunzip;substitute=SHARD", "--reload-url="+application.URL, "--reload-body="+body)
	r.ready("app.conf", "1", "rules/rules.yaml", "shard: VALUE-OF-SHARD\n")
	tells()
	p.write("ConfigMap/settings", "app.conf", "2")
	r.ready("app.conf", "2", "rules/rules.yaml", "shard: VALUE-OF-SHARD\n")
	tells()
	p.patchSource("ConfigMap/rules", map[string]any{"binaryData": map[string]any{"rules.yaml.gz": pack("shard: $(SHARD)\nother: $(OTHER)\n")}})
	r.ready("app.conf", "2", "rules/rules.yaml", "shard: VALUE-OF-SHARD\nother: $(OTHER)\n")
	tells()
	p.patchSource("ConfigMap/rules", map[string]any{"binaryData": map[string]any{"rules.yaml.gz": nil, "other.yaml": pack("$$(SHARD)")}})
	r.ready("app.conf", "2", "rules/other.yaml", "$VALUE-OF-SHARD")
	tells()
	rules, err := kube.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), "rules", metav1.GetOptions{})
	p.must(err)
	want := fmt.Sprintf("configdep_agent_source_info{kind=\"ConfigMap\",namespace=%q,name=\"rules\",resource_version=%q} 1\n", p.namespace, rules.ResourceVersion)
	if _, text, err := r.probe(t.Context(), "/metrics"); err != nil || !strings.Contains(text, want) || strings.Contains(text, "VALUE") {
		t.Errorf("metrics lack %s: %v\n%s", want, err, text)
	}
	if strings.Contains(r.text(), "VALUE") {
		t.Error("the log has the value of a variable")
	}
}
