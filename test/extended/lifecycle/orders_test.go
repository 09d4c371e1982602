// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// parts are files with the manifests.
type parts struct{ namespace, rights, server string }

// newParts takes the manifests apart.
func newParts(t *testing.T) parts {
	t.Helper()
	var all bytes.Buffer
	if err := toThisMachine(strings.NewReader(kubectl(t, "kustomize", base)), &all); err != nil {
		t.Fatal(err)
	}
	dir, without := t.TempDir(), withoutPolicies(t)
	p := parts{filepath.Join(dir, "namespace.yaml"), filepath.Join(dir, "rights.yaml"), filepath.Join(dir, "server.yaml")}
	content := map[string]string{}
	for manifest := range strings.SplitSeq(all.String(), "---\n") {
		file := p.server
		switch {
		case without && strings.Contains(manifest, "\nkind: MutatingAdmissionPolicy"):
			continue
		case strings.Contains(manifest, "\nkind: Namespace\n"):
			file = p.namespace
		case strings.Contains(manifest, "\napiVersion: rbac.authorization.k8s.io/v1\n") || strings.HasPrefix(manifest, "apiVersion: rbac.authorization.k8s.io/v1\n"):
			file = p.rights
		}
		content[file] += "---\n" + manifest
	}
	for _, file := range []string{p.namespace, p.rights, p.server} {
		if err := os.WriteFile(file, []byte(content[file]), 0o600); err != nil {
			t.Fatal(err)
		}
		if content[file] == "" {
			t.Fatalf("there is nothing for %s", file)
		}
	}
	return p
}

func apply(t *testing.T, files ...string) {
	t.Helper()
	for _, file := range files {
		kubectl(t, "apply", "-f", file)
	}
}

// remove deletes the objects of files in one step, as kubectl delete does with one file.
func remove(t *testing.T, files ...string) {
	t.Helper()
	kubectl(t, "delete", "--ignore-not-found", "--timeout="+limit.String(), "-f", strings.Join(files, ","))
}

// bystanders are namespaces that are created and deleted all the while.
type bystanders struct {
	mu      sync.Mutex
	ignored bool // delays are expected
	names   []string
	failed  map[string]string
}

// slow is how long the deletion of a namespace may take. kube-apiserver calls the discovery of a new API stale for a moment, and
// the namespace controller then tries again some seconds later.
const slow = 3 * time.Minute

func newBystanders(t *testing.T) *bystanders {
	t.Helper()
	b := &bystanders{failed: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			b.look(ctx)
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return b
}

func (b *bystanders) look(ctx context.Context) {
	name, err := tryToDeleteNamespace(ctx)
	found, listErr := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := errors.Join(err, listErr); err != nil {
		if ctx.Err() == nil {
			b.failed[name] = err.Error()
		}
		return
	}
	b.names = append(b.names, name)
	for _, n := range found.Items {
		if n.DeletionTimestamp != nil && time.Since(n.DeletionTimestamp.Time) > slow && !b.ignored {
			b.failed[n.Name] = fmt.Sprint(n.Status.Conditions)
		}
	}
}

// away expects delays from now on, because the server is registered and gone.
func (b *bystanders) away() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ignored = true
}

// check waits until all are gone, and reports unexpected delays.
func (b *bystanders) check(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	names, failed := b.names, maps.Clone(b.failed)
	b.mu.Unlock()
	for _, name := range names {
		namespaceGone(t, name)
	}
	if len(names) < 10 || len(failed) > 0 {
		t.Errorf("of %d deletions of namespaces, %d failed or took longer than %v: %v", len(names), len(failed), slow, failed)
	}
}

// The manifests can be applied and deleted in any order. No other namespace hangs, except while the server is registered and gone,
// which ends when its ClusterRole, and with it the APIService, is deleted.
func TestOrders(t *testing.T) {
	p := newParts(t)
	start := func(t *testing.T, server *install.Installation) {
		t.Helper()
		if _, err := server.AddReplica(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(t *testing.T) {
		t.Helper()
		kubectl(t, "wait", "--for=condition=Available=false", "apiservice/"+install.APIService, "--timeout="+await.Limit.String())
		stuck(t, deleteNamespace(t))
	}
	for name, order := range map[string]struct {
		install   func(t *testing.T, server *install.Installation)
		uninstall func(t *testing.T, server *install.Installation, others *bystanders)
	}{
		"the namespace is the last to come, and the only one to go at first": {
			install: func(t *testing.T, server *install.Installation) {
				t.Helper()
				for _, file := range []string{p.rights, p.server} { // without what is in the namespace
					if _, err := cluster.Kubectl(t.Context(), "apply", "-f", file); err == nil {
						t.Errorf("%s was applied without the namespace", file)
					}
				}
				apply(t, p.namespace, p.rights, p.server)
				start(t, server)
			},
			uninstall: func(t *testing.T, server *install.Installation, others *bystanders) {
				t.Helper()
				others.away()
				kubectl(t, "delete", "-f", p.namespace, "--wait=false")
				server.Stop()
				gone(t)
				remove(t, p.namespace, p.rights, p.server)
			},
		},
		"the rights are the last to come, and the first to go": {
			install: func(t *testing.T, server *install.Installation) {
				t.Helper()
				apply(t, p.namespace, p.server)
				started := make(chan error, 1)
				go func() {
					_, err := server.AddReplica(t.Context())
					for err != nil && strings.Contains(err.Error(), " ended: ") { // started again, as by a kubelet
						_, err = server.AddReplica(t.Context())
					}
					started <- err
				}()
				await.Until(t, "a right is missing", func(context.Context) error {
					log, err := os.ReadFile(filepath.Join(server.Dir(), "replica-0.log"))
					if err == nil && !strings.Contains(string(log), "forbidden") {
						err = errors.New("the log does not say so")
					}
					return err
				})
				apply(t, p.rights)
				if err := <-started; err != nil {
					t.Fatal(err)
				}
			},
			uninstall: func(t *testing.T, server *install.Installation, _ *bystanders) {
				t.Helper()
				remove(t, p.rights)
				kubectl(t, "wait", "--for=delete", "apiservice/"+install.APIService, "--timeout="+await.Limit.String())
				remove(t, p.namespace, p.server)
				server.Stop()
			},
		},
		"the server is the first to come, and the first to go": {
			install: func(t *testing.T, server *install.Installation) {
				t.Helper()
				apply(t, p.namespace, p.server, p.rights)
				start(t, server)
			},
			uninstall: func(t *testing.T, server *install.Installation, others *bystanders) {
				t.Helper()
				others.away()
				server.Stop()
				remove(t, p.server)
				gone(t)
				remove(t, p.rights)
				namespaceGone(t, deleteNamespace(t))
				remove(t, p.namespace)
			},
		},
	} {
		passed := t.Run(name, func(t *testing.T) {
			server, err := install.Adopt(t.Context(), cluster, install.Name, install.Options{ManagedCertificates: true, Args: []string{"--shutdown-delay-duration=0s"}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Stop)
			others := newBystanders(t)
			order.install(t, server)
			if err := server.AwaitAPI(t.Context()); err != nil {
				t.Error(err)
			}
			kubectl(t, "get", "configdependencies", "-A")
			await.Until(t, "kube-apiserver has loaded the OpenAPI documents", func(ctx context.Context) error {
				_, err := cluster.Kubectl(ctx, "explain", "configdependency.status")
				return err
			})
			namespaceGone(t, deleteNamespace(t))
			order.uninstall(t, server, others)
			others.check(t)
			nothingLeft(t)
		})
		if !passed {
			return // what it has left is in the way of the next
		}
	}
}
