// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"compress/gzip"
	"context"
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

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/agent/status"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// freeAddress returns an address at which no process listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Objects are created, changed, deleted and created again, and the files follow, with a Role that names the objects.
func TestFilesFollow(t *testing.T) {
	t.Parallel()
	p := newPlace(t, may("configmaps", "settings", "extra"), may("secrets", "tls"))
	p.configMap("settings", "app.conf", "1", "gone", "x")
	r := p.agent("--configmap=settings", "--secret=tls;dir=tls;key=tls.crt:server.pem;mode=0440", "--configmap=extra;optional")
	r.unready("Secret " + p.namespace + "/tls does not exist")
	if code, _, err := r.probe(t.Context(), "/startupz"); err != nil || code != http.StatusServiceUnavailable {
		t.Errorf("started without files: %d, %v", code, err)
	}
	p.secret("tls", "tls.crt", "certificate", "tls.key", "key")
	r.ready("app.conf", "1", "gone", "x", "tls/server.pem", "certificate")
	for path, want := range map[string]os.FileMode{"app.conf": 0o600, "tls/server.pem": 0o440} {
		if info, err := os.Stat(filepath.Join(p.dir, path)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	p.patch("settings", map[string]any{"data": map[string]any{"app.conf": "2", "gone": nil}, "binaryData": map[string]any{"binary": "AP8="}})
	r.ready("app.conf", "2", "binary", "\x00\xff", "tls/server.pem", "certificate")
	p.configMap("extra", "more", "m")
	r.ready("app.conf", "2", "binary", "\x00\xff", "more", "m", "tls/server.pem", "certificate")
	p.remove("extra")
	r.ready("app.conf", "2", "binary", "\x00\xff", "tls/server.pem", "certificate")
	p.remove("settings")
	r.unready("ConfigMap " + p.namespace + "/settings does not exist")
	if got := files(t, p.dir)["app.conf"]; got != "2" {
		t.Errorf("without its ConfigMap, app.conf is %q", got)
	}
	p.configMap("settings", "app.conf", "3")
	r.ready("app.conf", "3", "tls/server.pem", "certificate")
	p.must(client.CoreV1().Secrets(p.namespace).Delete(t.Context(), "tls", metav1.DeleteOptions{}))
	p.secret("tls", "tls.key", "key")
	r.unready(`has no key "tls.crt"`)
	if log := r.text(); strings.Contains(log, "certificate\n") || strings.Contains(log, `"key"`) {
		t.Errorf("the log has content of the Secret: %s", log)
	}
}

// Content is unpacked, variables are substituted, the application is told which files have changed, and metrics which versions it has.
func TestContentIsMade(t *testing.T) {
	t.Parallel()
	p := newPlace(t, may("configmaps", "rules", "settings"))
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
	tells := func(want string) {
		t.Helper()
		select {
		case got := <-told:
			if got != want {
				t.Errorf("told %s, want %s", got, want)
			}
		case <-time.After(await.Limit):
			t.Fatalf("not told %s", want)
		}
	}
	p.configMap("settings", "app.conf", "1")
	p.configMap("rules")
	p.patch("rules", map[string]any{"binaryData": map[string]any{"rules.yaml.gz": pack("shard: $(SHARD)\n")}})
	p.environment = append(os.Environ(), "SHARD=VALUE-OF-SHARD")
	r := p.agent("--configmap=settings", "--configmap=rules;dir=rules;gunzip;substitute", "--reload-url="+application.URL, `--reload-body={"files": {changed}}`)
	r.ready("app.conf", "1", "rules/rules.yaml", "shard: VALUE-OF-SHARD\n")
	tells(`{"files": ["app.conf","rules/rules.yaml"]}`)
	p.patch("settings", map[string]any{"data": map[string]any{"app.conf": "2"}})
	r.ready("app.conf", "2", "rules/rules.yaml", "shard: VALUE-OF-SHARD\n")
	tells(`{"files": ["app.conf"]}`)
	p.patch("rules", map[string]any{"binaryData": map[string]any{"rules.yaml.gz": pack("shard: $(SHARD)\nname: $(NAME)\n")}})
	r.unready(`ConfigMap ` + p.namespace + `/rules: key "rules.yaml.gz" refers to an environment variable NAME that is not set, in line 2`)
	p.patch("rules", map[string]any{"binaryData": map[string]any{"rules.yaml.gz": nil, "other.yaml": pack("$$(SHARD)")}})
	r.ready("app.conf", "2", "rules/other.yaml", "$VALUE-OF-SHARD")
	tells(`{"files": ["rules/other.yaml","rules/rules.yaml"]}`)
	rules, err := client.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), "rules", metav1.GetOptions{})
	p.must(err)
	want := fmt.Sprintf("configdep_agent_source_info{kind=\"ConfigMap\",namespace=%q,name=\"rules\",resource_version=%q} 1\n", p.namespace, rules.ResourceVersion)
	if _, text, err := r.probe(t.Context(), "/metrics"); err != nil || !strings.Contains(text, want) || strings.Contains(text, "VALUE") {
		t.Errorf("metrics lack %s: %v\n%s", want, err, text)
	}
	if strings.Contains(r.text(), "VALUE") {
		t.Error("the log has the value of a variable")
	}
}

// Objects with a label come and go. Two of them must not have the same file.
func TestSelector(t *testing.T) {
	t.Parallel()
	p := newPlace(t, may("configmaps"))
	labelled := func(value string) map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{"dashboard": value}, "annotations": map[string]any{"folder": "team/" + value}}}
	}
	p.configMap("other", "x", "y")
	r := p.agent("--configmap-selector=dashboard in (yes, maybe);dir={name};dir-annotation=folder", "--configmap-selector=flat=yes")
	r.ready()
	p.configMap("a", "a.json", "1")
	p.configMap("b", "a.json", "2")
	p.patch("a", labelled("yes"))
	p.patch("b", labelled("maybe"))
	r.ready("a/team/yes/a.json", "1", "b/team/maybe/a.json", "2")
	p.patch("b", labelled("no"))
	r.ready("a/team/yes/a.json", "1")
	p.patch("a", map[string]any{"metadata": map[string]any{"annotations": map[string]any{"folder": "../../outside"}}})
	r.unready("it must be relative to the directory")
	p.patch("a", map[string]any{"metadata": map[string]any{"annotations": nil, "labels": map[string]any{"flat": "yes", "dashboard": nil}}})
	r.ready("a.json", "1")
	p.patch("b", map[string]any{"metadata": map[string]any{"labels": map[string]any{"flat": "yes"}}})
	r.unready(fmt.Sprintf(`file "a.json" is in both ConfigMap %s/a and ConfigMap %[1]s/b`, p.namespace))
	p.remove("a")
	r.ready("a.json", "2")
}

// What happens while the API server cannot be reached, or the agent does not run, is made up for.
func TestInterruptions(t *testing.T) { //nolint:paralleltest // it restarts kube-apiserver
	p := newPlace(t, may("configmaps", "settings"))
	p.configMap("settings", "a", "1")
	r := p.agent("--configmap=settings")
	r.ready("a", "1")
	p.must(cluster.RestartAPIServer(t.Context()))
	p.patch("settings", map[string]any{"data": map[string]any{"a": "2"}})
	r.ready("a", "2")
	before := sets(t, p.dir)
	r.stop()
	r = p.agent("--configmap=settings")
	r.ready("a", "2")
	if after := sets(t, p.dir); len(after) != 1 || len(before) == 0 || after[0] != before[0] && after[0] != before[len(before)-1] {
		t.Errorf("sets %v, before the restart %v: the same content was written again", after, before)
	}
	r.stop()
	p.patch("settings", map[string]any{"data": map[string]any{"a": nil, "b": "3"}})
	p.must(os.WriteFile(filepath.Join(p.dir, "mine"), []byte("of another"), 0o600))
	r = p.agent("--configmap=settings")
	r.ready("b", "3")
	if _, err := os.Lstat(filepath.Join(p.dir, "a")); !os.IsNotExist(err) {
		t.Errorf("a is left: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(p.dir, "mine")); err != nil || string(text) != "of another" {
		t.Errorf("the other's file: %q, %v", text, err)
	}
}

// Without a right, the agent says which one it lacks, is alive, and goes on when it has it.
func TestForbidden(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configMap("settings", "a", "1")
	r := p.agent("--configmap=settings")
	r.unready("is forbidden")
	if code, text, err := r.probe(t.Context(), "/livez"); err != nil || code != http.StatusOK {
		t.Errorf("livez: %d %s, %v", code, text, err)
	}
	role, err := client.RbacV1().Roles(p.namespace).Get(t.Context(), "agent", metav1.GetOptions{})
	p.must(err)
	role.Rules = append(role.Rules, may("configmaps", "settings"))
	_, err = client.RbacV1().Roles(p.namespace).Update(t.Context(), role, metav1.UpdateOptions{})
	p.must(err)
	r.ready("a", "1")
}

// A source may be of another namespace, where a Role allows it. Of two sources with the same file, an error names both.
func TestSourceOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	p, other := newPlace(t, may("configmaps", "settings")), newPlace(t, may("configmaps", "settings"))
	p.configMap("settings", "a", "1")
	other.configMap("settings", "a", "other")
	theirs := "--configmap=" + other.namespace + "/settings"
	r := p.agent("--configmap=settings", theirs+";dir=shared")
	r.unready("is forbidden")
	binding, err := client.RbacV1().RoleBindings(other.namespace).Get(t.Context(), "agent", metav1.GetOptions{})
	p.must(err)
	binding.Subjects[0].Namespace = p.namespace
	_, err = client.RbacV1().RoleBindings(other.namespace).Update(t.Context(), binding, metav1.UpdateOptions{})
	p.must(err)
	r.ready("a", "1", "shared/a", "other")
	other.patch("settings", map[string]any{"data": map[string]any{"a": "changed"}})
	r.ready("a", "1", "shared/a", "changed")
	r.stop()

	r = p.agent("--configmap=settings", theirs)
	r.unready(fmt.Sprintf(`file "a" is in both ConfigMap %s/settings and ConfigMap %s/settings`, p.namespace, other.namespace))
	if got := files(t, p.dir)["shared/a"]; got != "changed" {
		t.Errorf("the last good set has %q", got)
	}
}

// An application that the agent runs starts with the files, gets signals and environment variables, and its exit code is the agent's.
func TestParent(t *testing.T) {
	t.Parallel()
	p := newPlace(t, may("configmaps", "settings"), may("secrets", "env"))
	r := p.agent("--configmap=settings", "--reload-signal=USR1", "--", "sh", "-c",
		`trap 'echo "reload $(cat `+p.dir+`/a)"' USR1; trap 'exit 7' TERM; echo "start $(cat `+p.dir+`/a)"; while :; do sleep 0.01; done`)
	r.unready("does not exist")
	p.configMap("settings", "a", "1")
	r.ready("a", "1")
	r.says("start 1\n") // the agent is ready before the application has read anything
	p.patch("settings", map[string]any{"data": map[string]any{"a": "2"}})
	r.ready("a", "2")
	await.Until(t, "the application has reloaded", func(context.Context) error {
		if log := r.text(); strings.Count(log, "start 1\n") != 1 || strings.Count(log, "reload 2\n") != 1 {
			return fmt.Errorf("log: %s", log)
		}
		return nil
	})
	process, err := os.FindProcess(r.pid)
	p.must(err)
	p.must(process.Signal(syscall.SIGTERM))
	if code := <-r.exit; code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
	r.exit <- 7 // for the end of the test

	p.dir += "-2"
	p.secret("env", "PASSWORD", "one", "not-a-name", "x")
	r = p.agent("--configmap=settings", "--secret=env;env=DB_", "--reload-by-restart", "--restart-uptime=100ms", "--", "sh", "-c", `echo "start $DB_PASSWORD"; exec sleep 1000`)
	r.ready("a", "2")
	r.says("start one\n")
	_, err = client.CoreV1().Secrets(p.namespace).Update(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "env"}, StringData: map[string]string{"PASSWORD": "two"}}, metav1.UpdateOptions{})
	p.must(err)
	r.says("start two\n")
	r.ready("a", "2")
}

// A container that restarts while the API server is away starts with the files that it had: as a sidecar, and with the application.
func TestRestartWithoutAPIServer(t *testing.T) {
	t.Parallel()
	p := newPlace(t, may("configmaps", "settings"))
	p.configMap("settings", "a", "1")
	r := p.agent("--configmap=settings")
	r.ready("a", "1")
	r.stop()
	p.api = []string{"--api-server=http://" + freeAddress(t)} // where nothing listens
	r = p.agent("--configmap=settings")
	await.Until(t, "the sidecar has started", func(ctx context.Context) error {
		code, text, err := r.probe(ctx, "/startupz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("not started: %s", text)
		}
		return err
	})
	r.unready("connection refused")
	r.stop()
	r = p.agent("--configmap=settings", "--", "sh", "-c", `trap 'exit 0' INT; echo "start $(cat `+p.dir+`/a)"; while :; do sleep 0.01; done`)
	r.says("start 1\n")
	r.stop()
	// A new pod has no files, and waits.
	p.dir += "-2"
	r = p.agent("--configmap=settings")
	r.unready("connection refused")
	if code, text, err := r.probe(t.Context(), "/startupz"); err != nil || code != http.StatusServiceUnavailable {
		t.Errorf("without files, /startupz is %d %s, %v", code, text, err)
	}
}

// An application that refuses new content works with the old, also after its container has restarted.
func TestParent_KeepsWhatItCanRollBackTo(t *testing.T) {
	t.Parallel()
	p := newPlace(t, may("configmaps", "settings"))
	p.configMap("settings", "a", "good")
	args := []string{"--configmap=settings", "--reload-by-restart", "--restart-uptime=5s", "--rollback-after=1", "--",
		"sh", "-c", `grep -q bad ` + p.dir + `/a && exit 5; trap 'exit 0' INT TERM; echo "start $(cat ` + p.dir + `/a)"; while :; do sleep 0.01; done`}
	r := p.agent(args...)
	r.says("start good\n")
	r.ready("a", "good")
	p.patch("settings", map[string]any{"data": map[string]any{"a": "bad"}})
	for range 2 {
		r.unready("the files that were applied last are back")
		if got := files(t, p.dir)["a"]; got != "good" {
			t.Errorf("the application has %q", got)
		}
		r.stop()
		r = p.agent(args...)
		r.says("start good\n")
	}
	p.patch("settings", map[string]any{"data": map[string]any{"a": "better"}})
	r.ready("a", "better")
	r.says("start better\n")
}

// If newer content cannot be written after the application has stopped, its container ends.
func TestParent_EndsWithTheApplication(t *testing.T) {
	t.Parallel()
	p := newPlace(t, may("configmaps", "settings"))
	p.configMap("settings", "a", "good")
	r := p.agent("--configmap=settings", "--reload-by-restart", "--restart-uptime=5s", "--rollback-after=9", "--retry-min=1m", "--retry-max=1m",
		`--check-command=["sh", "-c", "! grep -q wrong {dir}/a"]`, "--",
		"sh", "-c", `grep -q bad `+p.dir+`/a && exit 5; trap 'exit 0' INT TERM; while :; do sleep 0.01; done`)
	r.ready("a", "good")
	p.patch("settings", map[string]any{"data": map[string]any{"a": "bad"}})
	r.unready("the application ended after its start")
	p.patch("settings", map[string]any{"data": map[string]any{"a": "wrong"}})
	if code := <-r.exit; code != 5 {
		t.Errorf("exit code %d, want that of the application", code)
	}
	r.exit <- 5 // for the end of the test
}

// As the first process of a container, the agent waits for the orphans of all others, and ends with its child.
func TestFirstProcess(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root may make process namespaces") //nolint:forbidigo // the kernel refuses it to others; CI in a container, or any run as root, tests it
	}
	p := newPlace(t, may("configmaps", "settings"))
	p.configMap("settings", "a", "1")
	p.wrapper = []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"}
	// Twenty orphans end while the application runs; it then sees which zombies the first process has.
	r := p.agent("--configmap=settings", "--", "sh", "-c", `for i in $(seq 20); do (setsid true &); done; trap 'echo "zombies: $(grep -l "^State:.Z" /proc/[0-9]*/status 2>/dev/null | wc -l)"; exit 9' TERM; echo "child of $PPID"; while :; do sleep 0.05; done`)
	r.says("child of 1\n")
	r.ready("a", "1")
	child := childOf(t, r.pid)
	await.Until(t, "no zombie is left", func(context.Context) error {
		if stats := zombiesOf(t, child); len(stats) != 0 {
			return fmt.Errorf("zombies %v", stats)
		}
		return nil
	})
	p.must(syscall.Kill(child, syscall.SIGTERM))
	if code := <-r.exit; code != 9 {
		t.Errorf("exit code %d, want 9", code)
	}
	r.exit <- 9 // for the end of the test
	if log := r.text(); !strings.Contains(log, "zombies: 0\n") {
		t.Errorf("log: %s", log)
	}
}

// A sidecar waits for the orphans of its commands.
func TestFirstProcess_Sidecar(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root may make process namespaces") //nolint:forbidigo // the kernel refuses it to others; CI in a container, or any run as root, tests it
	}
	p := newPlace(t)
	volume := t.TempDir()
	p.must(os.WriteFile(filepath.Join(volume, "a"), []byte("1"), 0o600))
	p.wrapper = []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"}
	r := p.agent("--volume="+volume, `--reload-command=["sh", "-c", "for i in $(seq 20); do (setsid true &); done"]`)
	r.ready("a", "1")
	first := childOf(t, r.pid)
	await.Until(t, "no zombie is left", func(context.Context) error {
		if stats := zombiesOf(t, first); len(stats) != 0 {
			return fmt.Errorf("zombies %v", stats)
		}
		return nil
	})
	p.must(syscall.Kill(first, syscall.SIGTERM))
	if code := <-r.exit; code != 0 {
		t.Errorf("exit code %d", code)
	}
	r.exit <- 0 // for the end of the test
}

// children returns the lines of /proc/*/stat, after the name, of the children of a process.
func children(t *testing.T, pid int) map[int]string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	out := map[int]string{}
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		number, rest, _ := strings.Cut(string(stat), " (")
		_, rest, _ = strings.Cut(rest, ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(pid) {
			id, _ := strconv.Atoi(number)
			out[id] = rest
		}
	}
	return out
}

func childOf(t *testing.T, pid int) int {
	t.Helper()
	for child := range children(t, pid) {
		return child
	}
	t.Fatalf("process %d has no child", pid)
	return 0
}

func zombiesOf(t *testing.T, pid int) (out []int) {
	t.Helper()
	for child, rest := range children(t, pid) {
		if strings.HasPrefix(rest, "Z") {
			out = append(out, child)
		}
	}
	return out
}

// An init container ends once all files are there. Its files are the start of a sidecar's.
func TestOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t, may("configmaps", "settings"))
	once := p.agent("--configmap=settings", "--once")
	await.Until(t, "it waits for its ConfigMap", func(context.Context) error {
		if log := once.text(); !strings.Contains(log, "settings does not exist") {
			return fmt.Errorf("log: %s", log)
		}
		return nil
	})
	p.must(syscall.Kill(once.pid, syscall.SIGTERM))
	if code := <-once.exit; code != 128+int(syscall.SIGTERM) {
		t.Errorf("exit code %d without the files", code)
	}
	once.exit <- 0 // for the end of the test
	once = p.agent("--configmap=settings", "--once")
	p.configMap("settings", "a", "1")
	if code := <-once.exit; code != 0 {
		t.Errorf("exit code %d", code)
	}
	once.exit <- 0 // for the end of the test
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

// A volume needs no API server, and no right.
func TestVolume(t *testing.T) {
	t.Parallel()
	volume := t.TempDir()
	p := newPlace(t)
	p.api = nil
	p.must(os.WriteFile(filepath.Join(volume, "a"), []byte("1"), 0o600))
	r := p.agent("--volume=" + volume + ";dir=copy")
	r.ready("copy/a", "1")
	p.must(os.WriteFile(filepath.Join(volume, "b"), []byte("2"), 0o600))
	r.ready("copy/a", "1", "copy/b", "2")
}

// Wrong flags are told, each by its name, with the exit code 2.
func TestWrongFlags(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args, want string
	}{
		{"--dir=/tmp/x", "there is no source"},
		{"--configmap=a", "--dir: it is required"},
		{"--dir=/tmp/x --configmap=a nginx", `"nginx" is no flag: a command comes after --`},
		{"--dir=/tmp/x --configmap=A", `name "A"`},
		{"--unknown", "unknown flag: --unknown"},
	} {
		c := cluster.Command(t.Context(), program, strings.Fields(tt.args)...)
		out, err := c.CombinedOutput()
		if err == nil || !strings.HasPrefix(string(out), "configdep-agent: ") || !strings.Contains(string(out), tt.want) || strings.Contains(string(out), "Usage:") {
			t.Errorf("%s: %v: %s", tt.args, err, out)
		}
	}
}

// The restarter ends with its exit code once the annotation changes, and with 0 when the pod ends.
func TestRestarter(t *testing.T) {
	t.Parallel()
	if _, err := install.Build(t.Context(), "./cmd/configdep-restarter", install.RaceDetector); err != nil {
		t.Fatal(err)
	}
	for _, annotate := range []bool{true, false} {
		file, address := filepath.Join(t.TempDir(), "restart"), freeAddress(t)
		c := cluster.Command(t.Context(), program, "restarter", "--file="+file, "--listen="+address, "--min-uptime=10s", "--unready=0s", "--exit-code=77")
		var log strings.Builder
		c.Stderr = &log
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		r := &running{place: &place{T: t}, url: "http://" + address}
		await.Until(t, "the restarter has started", func(ctx context.Context) error {
			code, text, err := r.probe(ctx, "/startupz")
			if err == nil && code != http.StatusOK {
				err = errors.New(text)
			}
			return err
		})
		want := 0
		if annotate {
			want = 77
			if err := os.WriteFile(file, []byte("v1"), 0o600); err != nil {
				t.Fatal(err)
			}
		} else if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()
		if code := c.ProcessState.ExitCode(); code != want {
			t.Errorf("exit code %d, want %d: %s", code, want, log.String())
		}
	}
}

// The exit code tells what kept an agent from starting, as documented.
func TestExitCodes(t *testing.T) {
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
		out, err := exec.CommandContext(t.Context(), program, tt.args...).CombinedOutput()
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

// The pod of an agent shows what it has applied, and why not, and so do Events.
func TestReport(t *testing.T) {
	t.Parallel()
	p := newPlace(t, may("configmaps", "settings"),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{"web-1"}, Verbs: []string{"patch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"}})
	pods := client.CoreV1().Pods(p.namespace)
	_, err := client.CoreV1().ServiceAccounts(p.namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	pod, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}}}, metav1.CreateOptions{})
	p.must(err)
	p.environment = append(os.Environ(), "POD_NAME=web-1", "POD_UID="+string(pod.UID))
	failing := p.agent("--configmap=settings", "--report", "--events", "--check-command=false")
	reports := func(want string) {
		t.Helper()
		await.Until(t, "the pod reports "+want, func(ctx context.Context) error {
			pod, err := pods.Get(ctx, "web-1", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got := pod.Annotations[status.Annotation]; got != want {
				return fmt.Errorf("it reports %s", got)
			}
			return nil
		})
	}
	reports(fmt.Sprintf(`{"state":"Incomplete","message":"ConfigMap %s/settings does not exist"}`, p.namespace))
	p.configMap("settings", "a", "1")
	reports(`{"state":"Failed","message":"check: false: exit code 1"}`)
	failing.stop()
	p.agent("--configmap=settings", "--report")
	made, err := client.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), "settings", metav1.GetOptions{})
	p.must(err)
	reports(fmt.Sprintf(`{"state":"Applied","sources":[{"kind":"ConfigMap","namespace":%q,"name":"settings","uid":%q,"resourceVersion":%q}]}`, p.namespace, made.UID, made.ResourceVersion))
	await.Until(t, "there are Events", func(ctx context.Context) error {
		events, err := client.CoreV1().Events(p.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, e := range events.Items {
			if e.InvolvedObject.UID == pod.UID {
				got = append(got, e.Reason)
			}
		}
		if !slices.Contains(got, "ConfigSourceMissing") || !slices.Contains(got, "ConfigNotApplied") {
			return fmt.Errorf("events %v", got)
		}
		return nil
	})
}
