// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package rights tests the permissions of the server: no permission is missing when the server does all its work,
// and it uses each permission, for something that no other permits.
package rights

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

var (
	cluster *controlplane.ControlPlane
	client  kubernetes.Interface
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "rights-")
	if err != nil {
		panic(err)
	}
	args, err := auditArgs(dir)
	if err != nil {
		panic(err)
	}
	code := controlplane.Run(m, controlplane.Options{APIServerArgs: args}, func(c *controlplane.ControlPlane) {
		cluster, client = c, kubernetes.NewForConfigOrDie(c.RESTConfig())
	})
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// refused returns the requests of the server that were denied for a missing permission.
func refused(all []call) (out []call) {
	for _, c := range all {
		if c.User.Username == account && c.ResponseStatus.Code == 403 {
			out = append(out, c)
		}
	}
	return out
}

// directly returns a client of one replica with a token, which makes the server authenticate it. Each client has a
// new connection, because certificates change.
func directly(t *testing.T, r *install.Replica) versioned.Interface {
	t.Helper()
	config := r.AdminConfig()
	config.TLSClientConfig = rest.TLSClientConfig{Insecure: true, CertData: config.CertData, KeyData: config.KeyData} // TLS verification is not part of this test
	config.Timeout = 20 * time.Second
	api, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// installed installs a replica until the test ends, and creates a shop, and while the replica runs, the definition of ReloadPolicies. It returns the
// position in the audit log from which on the server works for that.
func installed(t *testing.T, values string) (replica *install.Replica, s *shop, begin int64) {
	t.Helper()
	policies := filepath.Join("..", "..", "..", "artifacts", "policies")
	t.Cleanup(func() { // once the server has ended
		if _, err := cluster.Kubectl(context.WithoutCancel(t.Context()), "delete", "-k", policies, "--ignore-not-found", "--timeout=2m"); err != nil {
			t.Error(err)
		}
	})
	server, err := install.Install(t.Context(), cluster, install.Options{
		Values: values, ManagedCertificates: true, Race: install.RaceDetector, Args: []string{"--shutdown-delay-duration=0s"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Stop()
		if err := server.CheckLogs(); err != nil {
			t.Error(err)
		}
	})
	replica = server.Replicas[0]
	if _, begin, err = calls(0); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"apply", "-k", policies}, {"wait", "--for=condition=Established", "customresourcedefinitions", "--all", "--timeout=2m"}} {
		if _, err := cluster.Kubectl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = newShop(t.Context()); err != nil {
		t.Fatal(err)
	}
	api, since := directly(t, replica), time.Now()
	await.Until(t, "the policy limits a workload", func(ctx context.Context) error {
		found, err := api.ConfigdepV1alpha1().ConfigDependencies(s.namespace).Get(ctx, "deployment.web", metav1.GetOptions{})
		if err == nil && !slices.Equal(found.Status.Policies, []string{s.namespace}) {
			err = fmt.Errorf("policies = %v", found.Status.Policies)
		}
		return err
	})
	if took := time.Since(since); took > time.Minute { // about ten seconds on a machine that does nothing else
		t.Errorf("the server has noticed the definition after %v", took)
	}
	return replica, s, begin
}

func TestRights(t *testing.T) {
	replica, s, begin := installed(t, "recreate") // has all permissions
	all, err := grants(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, isAbsent)
	if len(all) < 15 {
		t.Fatalf("got %d rules: %v", len(all), all)
	}

	t.Run("no permission is missing, and every granted verb is used", func(t *testing.T) {
		replica.Kill()
		if err := errors.Join(s.whileAway(t.Context()), replica.Start(), replica.AwaitReady(t.Context())); err != nil {
			t.Fatal(err)
		}
		var found []call
		await.Until(t, "every permission was used", func(ctx context.Context) error {
			if err := errors.Join(s.loseKey(ctx), s.provoke(ctx, directly(t, replica))); err != nil {
				return err
			}
			if found, _, err = calls(begin); err != nil {
				return err
			}
			var unused []string
			for _, g := range all {
				unused = append(unused, unusedOf(&g, found)...)
			}
			if len(unused) > 0 {
				return fmt.Errorf("unused permissions:\n%s", strings.Join(unused, "\n"))
			}
			return nil
		})
		for _, c := range refused(found) {
			t.Errorf("missing permission: %s", &c)
		}
		for _, g := range all {
			if !slices.ContainsFunc(found, func(c call) bool { return g.permits(&c) && permitting(all, &c) == 1 }) {
				t.Errorf("nothing fails without %s: other rules permit it all", &g)
			}
		}
	})
	t.Run("the audit log shows who restarted what", func(t *testing.T) {
		config := cluster.RESTConfig()
		config.Impersonate = rest.ImpersonationConfig{UserName: "kim", Groups: []string{"system:masters"}}
		api, err := versioned.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		await.Until(t, "a reload through the aggregator", func(ctx context.Context) error {
			_, err := api.ConfigdepV1alpha1().ConfigDependencies(s.namespace).Reload(ctx, "deployment.web", &v1alpha1.Reload{}, metav1.CreateOptions{})
			return err
		})
		await.Until(t, "the audit log contains the reload", func(context.Context) error {
			found, _, err := calls(begin)
			if err != nil {
				return err
			}
			for _, c := range found {
				if c.resource() == "configdependencies/reload" && c.ImpersonatedUser.Username == "kim" && c.Verb == "create" &&
					c.ObjectRef.Namespace == s.namespace && c.ObjectRef.Name == "deployment.web" && c.ResponseStatus.Code == 201 {
					return nil
				}
			}
			return errors.New("no entry yet")
		})
	})
}

// isAbsent reports whether a rule is about custom resources that this cluster lacks, so that it is not used; test/integration/{kinds,csi}
// have some of them.
func isAbsent(g grant) bool {
	return slices.ContainsFunc(g.rule.APIGroups, func(group string) bool {
		return group == "secrets-store.csi.x-k8s.io" || slices.ContainsFunc(kind.Presets(), func(p kind.Preset) bool { return p.Descriptor.Group == group })
	})
}

// unusedOf returns the permissions of a rule that no successful request of the server has used.
func unusedOf(g *grant, found []call) (unused []string) {
	names := g.rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range g.rule.APIGroups {
		for _, resource := range g.rule.Resources {
			for _, verb := range g.rule.Verbs {
				for _, name := range names {
					one := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}}
					if name != "" {
						one.ResourceNames = []string{name}
					}
					// A watch includes the initial list where kube-apiserver supports that; otherwise a list is
					// sent.
					if verb == "list" && slices.Contains(g.rule.Verbs, "watch") {
						one.Verbs = append(one.Verbs, "watch")
					}
					if !slices.ContainsFunc(found, func(c call) bool { return c.User.Username == account && c.ResponseStatus.Code != 403 && c.needs(&one) }) {
						unused = append(unused, fmt.Sprintf("%s: %s %s %s.%s", g.role, verb, name, resource, group))
					}
				}
			}
		}
	}
	return unused
}
