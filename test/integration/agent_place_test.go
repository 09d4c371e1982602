// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// agentShop is a shop with the files of an agent.
type agentShop struct {
	*shop
	dir         string
	connect     []string // flags
	environment []string // of the agent, if not that of the test
}

// newAgentShop returns a shop, and a directory for files. The agent may do in the shop what the rules say.
func newAgentShop(t *testing.T, rules ...rbacv1.PolicyRule) *agentShop {
	t.Helper()
	p := &agentShop{shop: newShop(t), dir: filepath.Join(t.TempDir(), "files")}
	var err error
	p.connect, err = install.AgentAccount(t.Context(), cluster, p.namespace, rules...)
	p.must(err)
	return p
}

// may returns a rule for what an agent needs, for the named objects or for all.
func may(resource string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, ResourceNames: names, Verbs: []string{"list", "watch"}}
}

// running is an agent that runs.
type running struct {
	*agentShop
	url  string
	log  *os.File
	stop func() // and wait until it has ended
	pid  int

	ended chan struct{} // closed at its end
	code  int           // its exit code, once it has ended
}

// agent starts an agent with flags, and maybe a command after "--".
func (p *agentShop) agent(args ...string) *running {
	p.Helper()
	address := freeAddress(p.T)
	all := append([]string{"--dir=" + p.dir, "--namespace=" + p.namespace, "--listen=" + address, "--expose-names", "--settle=100ms"}, args...)
	return p.run(address, slices.Concat([]string{agent}, p.connect, all)...)
}

// run starts a command that serves at an address.
func (p *agentShop) run(address string, all ...string) *running {
	p.Helper()
	log, err := os.Create(filepath.Join(p.TempDir(), "log"))
	p.must(err)
	c := cluster.Command(context.WithoutCancel(p.Context()), all[0], all[1:]...)
	c.Stdout, c.Stderr = log, log
	if p.environment != nil {
		c.Env = p.environment
	}
	p.must(c.Start())
	r := &running{agentShop: p, url: "http://" + address, log: log, pid: c.Process.Pid, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		_ = c.Wait()
		r.code = c.ProcessState.ExitCode()
	}()
	stopped := false
	r.stop = func() {
		if !stopped {
			stopped = true
			_ = c.Process.Signal(os.Interrupt)
			select {
			case <-r.ended:
			case <-time.After(await.Limit):
				p.Error("the agent does not end")
				_ = c.Process.Kill()
			}
		}
	}
	p.Cleanup(func() {
		r.stop()
		if p.Failed() {
			p.Logf("log of the agent:\n%s", r.text())
		}
		_ = log.Close()
	})
	return r
}

func (r *running) text() string {
	text, err := os.ReadFile(r.log.Name())
	r.must(err)
	return string(text)
}

// exits waits until the agent ends by itself, and fails if its exit code is another one.
func (r *running) exits(want int) {
	r.Helper()
	select {
	case <-r.ended:
		if r.code != want {
			r.Errorf("exit code %d, want %d", r.code, want)
		}
	case <-time.After(await.Limit):
		r.Fatalf("the agent does not end; its log:\n%s", r.text())
	}
}

// until waits for something that an agent does, which fails once that has ended.
func (r *running) until(what string, check func(context.Context) error) {
	r.Helper()
	await.Until(r.T, what, func(ctx context.Context) error {
		over := false
		select {
		case <-r.ended:
			over = true
		default:
		}
		err := check(ctx)
		if err != nil && over {
			r.Fatalf("waiting until %s: %v, and the agent has ended with exit code %d", what, err, r.code)
		}
		return err
	})
}

// says waits until the log of the agent, and of its application, has all texts.
func (r *running) says(texts ...string) {
	r.Helper()
	r.until(fmt.Sprintf("the log has %q", texts), func(context.Context) error {
		log := r.text()
		if slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(log, text) }) {
			return fmt.Errorf("log: %s", log)
		}
		return nil
	})
}

// probe returns the status code and the answer of a probe.
func (r *running) probe(ctx context.Context, path string) (int, string, error) {
	got, err := try(ctx, &rest.Config{Host: r.url}, request{path: path})
	if err != nil {
		return 0, "", err
	}
	return got.code, strings.TrimSpace(string(got.body)), nil
}

// ready waits until the agent is ready, and then compares the files: path, content.
func (r *running) ready(pairs ...string) {
	r.Helper()
	want := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		want[pairs[i]] = pairs[i+1]
	}
	r.until(fmt.Sprintf("the files are %v", want), func(ctx context.Context) error {
		if got := files(r.T, r.dir); !maps.Equal(got, want) {
			return fmt.Errorf("they are %v", got)
		}
		code, text, err := r.probe(ctx, "/readyz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("not ready: %s", text)
		}
		return err
	})
}

// unready waits until the agent is not ready, and says why.
func (r *running) unready(why string) {
	r.Helper()
	r.until("the agent says "+why, func(ctx context.Context) error {
		code, text, err := r.probe(ctx, "/readyz")
		if err == nil && (code != http.StatusServiceUnavailable || !strings.Contains(text, why)) {
			err = fmt.Errorf("%d %s", code, text)
		}
		return err
	})
}

// leavesOut waits until the agent is ready, and says what it leaves out.
func (r *running) leavesOut(what string) {
	r.Helper()
	r.until("the agent says "+what, func(ctx context.Context) error {
		code, text, err := r.probe(ctx, "/readyz")
		if err == nil && (code != http.StatusOK || !strings.Contains(text, what)) {
			err = fmt.Errorf("%d %s", code, text)
		}
		return err
	})
}

// files returns the content of the files in a directory.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	data := filepath.Join(dir, "..data")
	set, err := filepath.EvalSymlinks(data)
	if err != nil {
		return out
	}
	err = filepath.WalkDir(set, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(set, path)
		out[name] = string(text)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return out
}

func (p *agentShop) remove(name string) {
	p.Helper()
	p.must(kube.CoreV1().ConfigMaps(p.namespace).Delete(p.Context(), name, metav1.DeleteOptions{}))
}

// sets returns the names of the sets in a directory.
func sets(t *testing.T, dir string) []string {
	t.Helper()
	out, err := filepath.Glob(filepath.Join(dir, "..set-*"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(slices.Values(out))
}
