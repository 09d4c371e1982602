// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// A cluster waits longer until it sends a replica that stops no more requests.
const quick = "extraArgs={--shutdown-delay-duration=2s}"

// release is an installation by helm. A post-renderer makes the Service lead to this machine; nothing else differs from the
// installation of a user.
type release struct {
	*install.Installation

	name   string // of the objects
	values []string
}

// newRelease returns a release that is not installed yet. Without a Secret with a certificate, the server makes one.
func newRelease(t *testing.T, name, secret string, values ...string) *release {
	t.Helper()
	server, err := install.Adopt(t.Context(), cluster, name, install.Options{ManagedCertificates: secret == ""})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	makeNamespaces(t, install.Namespace, "shop", "shop-payments", "other")
	if secret != "" {
		o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret}, Data: map[string][]byte{}}
		for _, file := range []string{"tls.crt", "tls.key", "ca.crt"} {
			if o.Data[file], err = os.ReadFile(filepath.Join(server.Dir(), file)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := client.CoreV1().Secrets(install.Namespace).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := plugin(filepath.Join(server.Dir(), "plugins")); err != nil {
		t.Fatal(err)
	}
	return &release{server, name, append(values, quick)}
}

// A release is installed, works, is upgraded without a failed request, and is uninstalled.
func TestLifeOfARelease(t *testing.T) {
	for name, test := range map[string]struct {
		name, secret string
		values       []string
		blind        []string // namespaces that the release must not show
		filled       int      // objects that the server fills
	}{
		"default values":  {name: install.Name, filled: 3},
		"with namespaces": {name: "cfg", values: []string{"fullnameOverride=cfg", "namespaces={shop,shop-payments}"}, blind: []string{"other"}, filled: 3},
		"with an existing Secret": {
			name: install.Name, secret: "mine", values: []string{"tls.mode=existingSecret", "tls.existingSecret=mine"}, filled: 2,
		},
	} {
		passed := t.Run(name, func(t *testing.T) {
			r := newRelease(t, test.name, test.secret, test.values...)
			out := r.helm(t, "install")
			for _, want := range []string{"configdep is installed", "delete secret configdep-hmac-key"} {
				if !strings.Contains(out, want) {
					t.Errorf("the output of helm does not contain %q:\n%s", want, out)
				}
			}
			old := []*install.Replica{r.start(t), r.start(t)}
			before := r.available(t)
			works(t)
			for _, other := range test.blind {
				if found := kubectl(t, "get", "configdependencies", "-n", other, "-o", "name"); found != "" {
					t.Errorf("the server shows %s of namespace %s", found, other)
				}
			}

			kept, requests := awaitKept(t, test.filled), poll(t)
			r.values = append(r.values, "replicas=3", "reload.settle=2s", "logLevel=2")
			r.helm(t, "upgrade")
			deployment := r.deployment(t)
			if args := deployment.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--settle=2s") || !slices.Contains(args, "--v=2") || *deployment.Spec.Replicas != 3 {
				t.Errorf("replicas = %d, arguments = %v, want 3 with the new values", *deployment.Spec.Replicas, args)
			}
			for n := range 3 {
				r.start(t)
				if n < len(old) {
					r.end(t, old[n])
				}
			}
			requests()
			works(t)

			// An upgrade with the same values changes nothing.
			r.helm(t, "upgrade")
			if again := r.deployment(t); again.Generation != deployment.Generation {
				t.Errorf("generation after an equal upgrade = %d, want %d", again.Generation, deployment.Generation)
			}
			if after := bundle(t); after != before {
				t.Errorf("the upgrades changed the CA bundle:\n%s\n%s", before, after)
			}
			checkKept(t, kept)
			r.uninstall(t, test.filled-1)
			r.remove(t)
		})
		if !passed {
			return // what it has left is in the way of the next
		}
	}
}

// helm installs or upgrades the release.
func (r *release) helm(t *testing.T, verb string, more ...string) string {
	t.Helper()
	chart, err := filepath.Abs(filepath.Join(root, "artifacts", "charts", "configdep"))
	if err != nil {
		t.Fatal(err)
	}
	return r.run(t, append([]string{
		verb, "configdep", chart, "--set", strings.Join(r.values, ","), "--post-renderer", postRender,
	}, more...)...)
}

func (r *release) run(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := cluster.Command(ctx, filepath.Join(root, "hack", "helm.sh"), append(args, "--namespace", install.Namespace)...)
	cmd.Env = append(cmd.Env, "HELM_PLUGINS="+filepath.Join(r.Dir(), "plugins"))
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			out = append(out, exit.Stderr...)
		}
		t.Fatalf("helm %s: %v:\n%s", args[0], err, out)
	}
	return string(out)
}

func (r *release) deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	found, err := client.AppsV1().Deployments(install.Namespace).Get(t.Context(), r.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// start starts a replica of the Deployment.
func (r *release) start(t *testing.T) *install.Replica {
	t.Helper()
	replica, err := r.AddReplica(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return replica
}

// end stops a replica in order.
func (r *release) end(t *testing.T, replica *install.Replica) {
	t.Helper()
	if err := replica.Terminate(); err != nil {
		t.Errorf("%s ended: %v", replica.Name(), err)
	}
}

// available waits until the API is available, for which the server has registered itself, and returns the CA bundle.
func (r *release) available(t *testing.T) string {
	t.Helper()
	if err := r.AwaitAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	return bundle(t)
}

// uninstall uninstalls the release while its replicas run, and checks the number of Secrets that are left. Then it ends the replicas, which must have had all rights until then.
func (r *release) uninstall(t *testing.T, secrets int) {
	t.Helper()
	r.checkLogs(t)
	manifest := filepath.Join(r.Dir(), "manifest.yaml")
	if err := os.WriteFile(manifest, []byte(r.run(t, "get", "manifest", "configdep")), 0o600); err != nil {
		t.Fatal(err)
	}
	if there := strings.Fields(kubectl(t, "get", "-f", manifest, "-o", "name")); len(there) < 15 {
		t.Errorf("the release contains only %v", there)
	}
	r.run(t, "uninstall", "configdep")
	keep := []string{"secret/" + keySecret, "secret/" + install.CertificateSecret}[:secrets]
	await.Until(t, "only the Secrets that the server has filled are left of the release", func(ctx context.Context) error {
		out, err := cluster.Kubectl(ctx, "get", "-f", manifest, "--ignore-not-found", "-o", "name")
		if left := strings.Fields(out); err == nil && !slices.Equal(slices.Sorted(slices.Values(left)), keep) {
			err = fmt.Errorf("remaining objects: %s", left)
		}
		return err
	})
	if key, err := client.CoreV1().Secrets(install.Namespace).Get(t.Context(), keySecret, metav1.GetOptions{}); err != nil || len(key.Data) == 0 {
		t.Errorf("the HMAC key does not outlive the release: %d entries, error = %v", len(key.Data), err)
	}
	var ending sync.WaitGroup
	for _, replica := range r.Replicas {
		ending.Go(func() { r.end(t, replica) })
	}
	ending.Wait()
	r.Replicas = nil
}

// remove deletes the namespaces. That of the release has the Secrets that Helm keeps, and the Lease of the server.
func (r *release) remove(t *testing.T) {
	t.Helper()
	kubectl(t, "delete", "namespace", "shop", "shop-payments", "other", install.Namespace, "--timeout=2m")
}

// checkLogs fails the test if a log shows a missing permission or a panic.
func (r *release) checkLogs(t *testing.T) {
	t.Helper()
	if err := r.CheckLogs(); err != nil {
		t.Error(err)
	}
	for _, replica := range r.Replicas {
		content, err := os.ReadFile(replica.Log())
		if err != nil || len(content) == 0 {
			t.Errorf("reading the log: %d bytes (%v)", len(content), err)
		}
		for line := range strings.Lines(string(content)) {
			if strings.Contains(strings.ToLower(line), "forbidden") {
				t.Errorf("the log of %s contains\n%s", replica.Name(), line)
			}
		}
	}
}

// works checks that a change of content reloads a workload.
func works(t *testing.T) {
	t.Helper()
	w := newWeb(t, "shop", nil)
	w.change(t)
	w.awaitReload(t)
}

// poll sends requests to the API through kube-apiserver, until the returned function is called, which reports all
// failed requests.
func poll(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var failed []error
	asked := 0
	one := func() error {
		return client.CoreV1().RESTClient().Get().AbsPath("/apis/configdep.io/v1alpha1/namespaces/shop/configdependencies").Do(ctx).Error()
	}
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := one(); err != nil && ctx.Err() == nil {
				failed = append(failed, err)
			}
			asked++
		}
	})
	return func() {
		t.Helper()
		cancel()
		wg.Wait()
		if asked < 50 || len(failed) > 0 {
			t.Errorf("of %d requests, %d failed, want at least 50 and no failure: %v", asked, len(failed), errors.Join(failed...))
		}
	}
}
