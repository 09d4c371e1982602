// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

const keySecretPath = "/api/v1/namespaces/" + install.Namespace + "/secrets"

// A server that has not read the cluster yet says so. It must not show incomplete data, and must not get requests.
func TestServerThatIsNotReady(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		interfere func(*http.Request) interference
		why       string
	}{
		"the Secrets are not sent": {
			func(r *http.Request) interference {
				if r.URL.Path == "/api/v1/secrets" {
					return hold
				}
				return pass
			},
			"waiting for the first list of secrets, secrets/helm.sh/release.v1, secrets/kubernetes.io/service-account-token",
		},
		"the key of the config hash cannot be read": {
			func(r *http.Request) interference {
				if strings.HasPrefix(r.URL.Path, keySecretPath) {
					return fail
				}
				return pass
			},
			"waiting for the key of the config hash in Secret configdep-hmac-key; the log says why",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := workloadIn(t)
			proxy := newAPIProxy(t, tt.interfere)
			replica, err := server.StartExtra("waiting-"+namespace, install.ReplicaOptions{Kubeconfig: proxy.kubeconfig})
			if err != nil {
				t.Fatal(err)
			}
			config := replica.AdminConfig()
			awaitOnlyRed(t, replica, "dependency-index-synced", tt.why)

			if got := send(t, config, request{path: "/livez"}); got.code != http.StatusOK {
				t.Errorf("livez: %d: %s", got.code, got.body)
			}
			for _, r := range []request{
				{path: resourcePath(namespace)},
				{path: resourcePath(namespace) + "/deployment.web"},
				{path: resourcePath(namespace) + "/deployment.none"},
				{path: apiPath + "/configdependencies?limit=5"},
				{http.MethodPost, resourcePath(namespace) + "/deployment.web/reload", inJSON, "{}"},
			} {
				got := send(t, config, r)
				checkRefused(t, got, refusal{http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "has not synced yet"})
				if got.header.Get("Retry-After") != "1" {
					t.Errorf("%s: Retry-After = %q", r.path, got.header.Get("Retry-After"))
				}
			}
			// Discovery does not wait, because kubectl and the aggregator need it.
			if got := send(t, config, request{path: apiPath}); got.code != http.StatusOK {
				t.Errorf("discovery: %d: %s", got.code, got.body)
			}

			proxy.release()
			if err := replica.AwaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := send(t, config, request{path: resourcePath(namespace) + "/deployment.web"}); got.code != http.StatusOK {
				t.Errorf("after the server is ready: %d: %s", got.code, got.body)
			}
			if err := replica.Terminate(); err != nil {
				t.Errorf("the replica did not stop in order: %v", err)
			}
		})
	}
}

// awaitOnlyRed waits until exactly one of the checks of readyz fails, and the body of that check contains the
// reason.
func awaitOnlyRed(t *testing.T, replica *install.Replica, check, why string) {
	t.Helper()
	config := replica.AdminConfig()
	red := regexp.MustCompile(`(?m)^\[-\](\S+) failed`)
	await.Until(t, "only the readyz check "+check+" fails", func(ctx context.Context) error {
		got, err := try(ctx, config, request{path: "/readyz"})
		if err != nil {
			return err
		}
		found := red.FindAllStringSubmatch(string(got.body), -1)
		if got.code != http.StatusInternalServerError || len(found) != 1 || found[0][1] != check {
			return fmt.Errorf("%d: %s", got.code, got.body)
		}
		return nil
	})
	await.Until(t, check+" says: "+why, func(ctx context.Context) error {
		got, err := try(ctx, config, request{path: "/readyz/" + check})
		if err == nil && strings.TrimSpace(string(got.body)) != "internal server error: "+why {
			err = fmt.Errorf("%d: %s", got.code, got.body)
		}
		return err
	})
}

// A ready server authenticates callers from the first request on. A connection that starts as anonymous may remain
// so, and the aggregator keeps its connections for days.
func TestServerThatIsReadyKnowsItsCallers(t *testing.T) {
	t.Parallel()
	namespace := workloadIn(t)
	replica, err := server.StartExtra("recognizing", install.ReplicaOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := replica.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		aggregator := replica.RESTConfig()
		aggregator.CertFile = filepath.Join(cluster.Dir(), "pki", "front-proxy-client.crt")
		aggregator.KeyFile = filepath.Join(cluster.Dir(), "pki", "front-proxy-client.key")
		onBehalf := header("X-Remote-User", "jane", "X-Remote-Group", "system:masters")
		if got := send(t, aggregator, request{path: resourcePath(namespace), header: onBehalf}); got.code != http.StatusOK {
			t.Errorf("through the aggregator: %d: %s", got.code, got.body)
		}
		if got := send(t, replica.AdminConfig(), request{path: resourcePath(namespace)}); got.code != http.StatusOK {
			t.Errorf("as a user: %d: %s", got.code, got.body)
		}
		replica.Kill()
		if err := replica.Start(); err != nil {
			t.Fatal(err)
		}
	}
}

// A server that was never ready still stops when it is told to.
func TestServerThatNeverBecomesReadyEnds(t *testing.T) {
	t.Parallel()
	proxy := newAPIProxy(t, func(r *http.Request) interference {
		if strings.HasPrefix(r.URL.Path, keySecretPath) {
			return fail
		}
		return pass
	})
	replica, err := server.StartExtra("never-ready", install.ReplicaOptions{Kubeconfig: proxy.kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	awaitOnlyRed(t, replica, "dependency-index-synced", "waiting for the key of the config hash in Secret configdep-hmac-key; the log says why")
	if err := replica.Terminate(); err != nil {
		t.Error(err)
	}
}

// version is the resourceVersion of an object or a list: the version of the last change that a replica has read,
// so replicas may differ for a moment.
var version = regexp.MustCompile(`("metadata":\{[^{}]*"resourceVersion":)"\d+"|(?m)^(  +resourceVersion:) "\d+"$`)

// All replicas answer the same, however often they were restarted: hashes are made with one key, and nothing
// depends on the order in which objects were read.
func TestReplicasAgree(t *testing.T) {
	t.Parallel()
	namespace := shop(t)
	extra, err := server.StartExtra("agreeing", install.ReplicaOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := extra.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	answers := func(replica *install.Replica) (all []string) {
		t.Helper()
		for _, accept := range []string{"application/json", "application/yaml"} {
			for _, path := range []string{resourcePath(namespace), resourcePath(namespace) + "/deployment.web", resourcePath(namespace) + "?labelSelector=app%3Ddb"} {
				got := send(t, replica.AdminConfig(), request{path: path, header: header("Accept", accept)})
				if got.code != http.StatusOK {
					t.Fatalf("%s: %d: %s", path, got.code, got.body)
				}
				all = append(all, version.ReplaceAllString(string(got.body), "$1$2"))
			}
		}
		return all
	}
	want := answers(extra)
	if !strings.Contains(want[0], `"configHash":"v1.`) {
		t.Fatalf("nothing to compare in %s", want[0])
	}
	for _, replica := range server.Replicas {
		if diff := cmp.Diff(want, answers(replica)); diff != "" {
			t.Errorf("answers of %s and %s (-want +got):\n%s", extra.Name(), replica.Name(), diff)
		}
	}
	if err := extra.Terminate(); err != nil {
		t.Error(err)
	}
	if err := extra.Start(); err != nil {
		t.Fatal(err)
	}
	if err := extra.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, answers(extra)); diff != "" {
		t.Errorf("answers before and after a restart (-want +got):\n%s", diff)
	}

	secrets, err := kube(t).CoreV1().Secrets(install.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]int{}
	for i := range secrets.Items {
		held[secrets.Items[i].Name] = len(secrets.Items[i].Data)
	}
	// In this installation, the certificate comes from files.
	if diff := cmp.Diff(map[string]int{"configdep-hmac-key": 1, install.CertificateSecret: 0}, held); diff != "" {
		t.Errorf("number of entries of Secrets in the namespace of the server (-want +got):\n%s", diff)
	}
}

// A restart of kube-apiserver has no effect except for the time in between.
func TestRestartOfTheAPIServer(t *testing.T) {
	namespace := newNamespace(t)
	secrets := kube(t).CoreV1().Secrets(namespace)
	made := create(t, secrets.Create, secret("db", map[string]string{"password": "x"}))
	create(t, kube(t).AppsV1().Deployments(namespace).Create, asleep("web", envFromSecret("db")))
	before := view(t, namespace, "deployment.web", at(isSecret, made))

	if err := cluster.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	made = edit(t, secrets, "db", func(s *corev1.Secret) { s.Data["password"] = []byte("y") })
	create(t, kube(t).AppsV1().Deployments(namespace).Create, asleep("new"))
	view(t, namespace, "deployment.new")
	if after := view(t, namespace, "deployment.web", at(isSecret, made)); after.Status.ConfigHash == before.Status.ConfigHash || after.UID != before.UID {
		t.Errorf("hash = %[2]s, was %[1]s", before.Status.ConfigHash, after.Status.ConfigHash)
	}
	remove(t, secrets.Delete, "db")
	view(t, namespace, "deployment.web", present(isSecret, "db", false))

	// Other tests may need controllers that are up to date.
	create(t, kube(t).AppsV1().Deployments(namespace).Create, deployment("back"))
	kubectl(t, "-n", namespace, "rollout", "status", "deployment/back", "--timeout=5m")
}

// The namespace controller asks every API that can delete for the remaining objects of a namespace. The API of
// configdep has none that must be deleted first.
func TestNamespaceIsDeleted(t *testing.T) {
	t.Parallel()
	namespace := shop(t)
	remove(t, kube(t).CoreV1().Namespaces().Delete, namespace)
	await.Until(t, "the namespace is deleted", func(ctx context.Context) error {
		found, err := kube(t).CoreV1().Namespaces().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + namespace})
		if err == nil && len(found.Items) > 0 {
			err = fmt.Errorf("namespace %s: %v", found.Items[0].Status.Phase, found.Items[0].Status.Conditions)
		}
		return err
	})
	for _, where := range everywhere(t) {
		await.Until(t, where.name+" shows no object of the namespace", func(ctx context.Context) error {
			list, err := where.ConfigdepV1alpha1().ConfigDependencies(namespace).List(ctx, metav1.ListOptions{})
			if err == nil && len(list.Items) > 0 {
				err = errors.New(list.Items[0].Name + " is still shown")
			}
			return err
		})
	}
}
