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

	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// A server that has not read the cluster yet says so. It must not show incomplete data, and must not get requests.
func TestServerThatIsNotReady(t *testing.T) {
	t.Parallel()
	const neverReady = "the key of the config hash cannot be read"
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
		neverReady: {
			func(r *http.Request) interference {
				if strings.Contains(r.URL.String(), ingest.KeySecret) {
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
			r := startReplica(t, "waiting-"+namespace, install.ReplicaOptions{Kubeconfig: proxy.kubeconfig})
			config := r.AdminConfig()
			awaitOnlyRed(t, r, "dependency-index-synced", tt.why)

			if got := send(t, config, request{path: "/livez"}); got.code != http.StatusOK {
				t.Errorf("livez: %d: %s", got.code, got.body)
			}
			for _, q := range []request{
				{path: resourcePath(namespace)},
				{path: resourcePath(namespace) + "/deployment.web"},
				{path: resourcePath(namespace) + "/deployment.none"},
				{path: apiPath + "/configdependencies?limit=5"},
				{http.MethodPost, resourcePath(namespace) + "/deployment.web/reload", inJSON, "{}"},
			} {
				got := send(t, config, q)
				checkRefused(t, got, refusal{http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "has not synced yet"})
				if got.header.Get("Retry-After") != "1" {
					t.Errorf("%s: Retry-After = %q", q.path, got.header.Get("Retry-After"))
				}
			}
			// Discovery does not wait, because kubectl and the aggregator need it.
			if got := send(t, config, request{path: apiPath}); got.code != http.StatusOK {
				t.Errorf("discovery: %d: %s", got.code, got.body)
			}

			if name == neverReady {
				if err := r.Terminate(); err != nil {
					t.Errorf("a replica that was never ready did not stop in order: %v", err)
				}
				return
			}
			proxy.release()
			if err := r.AwaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := send(t, config, request{path: resourcePath(namespace) + "/deployment.web"}); got.code != http.StatusOK {
				t.Errorf("after the server is ready: %d: %s", got.code, got.body)
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
	r := replica(t, "recognizing", install.ReplicaOptions{})
	for range 3 {
		aggregator := r.RESTConfig()
		aggregator.CertFile = filepath.Join(cluster.Dir(), "pki", "front-proxy-client.crt")
		aggregator.KeyFile = filepath.Join(cluster.Dir(), "pki", "front-proxy-client.key")
		onBehalf := header("X-Remote-User", "jane", "X-Remote-Group", "system:masters")
		if got := send(t, aggregator, request{path: resourcePath(namespace), header: onBehalf}); got.code != http.StatusOK {
			t.Errorf("through the aggregator: %d: %s", got.code, got.body)
		}
		if got := send(t, r.AdminConfig(), request{path: resourcePath(namespace)}); got.code != http.StatusOK {
			t.Errorf("as a user: %d: %s", got.code, got.body)
		}
		r.Kill()
		restart(t, r)
	}
}

// version is the resourceVersion of an object or a list: the version of the last change that a replica has read,
// so replicas may differ for a moment.
var version = regexp.MustCompile(`("metadata":\{[^{}]*"resourceVersion":)"\d+"`)

// All replicas answer the same, however often they were restarted: hashes are made with one key, and nothing
// depends on the order in which objects were read.
func TestReplicasAgree(t *testing.T) {
	t.Parallel()
	namespace := sharing(t)
	extra := replica(t, "agreeing", install.ReplicaOptions{})
	answers := func(replica *install.Replica) (all []string) {
		t.Helper()
		for _, path := range []string{resourcePath(namespace), resourcePath(namespace) + "/deployment.web", resourcePath(namespace) + "?labelSelector=app%3Ddb"} {
			got := send(t, replica.AdminConfig(), request{path: path})
			if got.code != http.StatusOK {
				t.Fatalf("%s: %d: %s", path, got.code, got.body)
			}
			all = append(all, version.ReplaceAllString(string(got.body), "$1"))
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
	restart(t, extra)
	if diff := cmp.Diff(want, answers(extra)); diff != "" {
		t.Errorf("answers before and after a restart (-want +got):\n%s", diff)
	}

	secrets, err := kube.CoreV1().Secrets(install.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]int{}
	for i := range secrets.Items {
		held[secrets.Items[i].Name] = len(secrets.Items[i].Data)
	}
	// That of the certificate has a CA, a certificate, and the keys of both.
	if diff := cmp.Diff(map[string]int{"configdep-hmac-key": 1, install.CertificateSecret: 4}, held); diff != "" {
		t.Errorf("number of entries of Secrets in the namespace of the server (-want +got):\n%s", diff)
	}
}

// A restart of kube-apiserver has no effect except for the time in between, neither on the server nor on agents.
func TestRestartOfTheAPIServer(t *testing.T) {
	// Not parallel: kube-apiserver is restarted for all.
	namespace := newNamespace(t)
	secrets := kube.CoreV1().Secrets(namespace)
	made := write(t, namespace, "Secret/db", "password", "x")
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("web", envFromSecret("db")))
	before := view(t, namespace, "deployment.web", at(made))
	p := newAgentShop(t, may("configmaps", "settings"))
	p.write("ConfigMap/settings", "a", "1")
	running := p.agent("--configmap=settings")
	running.ready("a", "1")

	if err := cluster.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.write("ConfigMap/settings", "a", "2")
	running.ready("a", "2")
	made = edit(t, secrets, "db", func(s *corev1.Secret) { s.Data["password"] = []byte("y") })
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("new"))
	view(t, namespace, "deployment.new")
	if after := view(t, namespace, "deployment.web", at(made)); after.Status.ConfigHash == before.Status.ConfigHash || after.UID != before.UID {
		t.Errorf("hash = %[2]s, was %[1]s", before.Status.ConfigHash, after.Status.ConfigHash)
	}
	remove(t, secrets.Delete, "db")
	view(t, namespace, "deployment.web", present(isSecret, "db", false))

	// Other tests may need controllers that are up to date.
	create(t, kube.AppsV1().Deployments(namespace).Create, deployment("back"))
	kubectl(t, "-n", namespace, "rollout", "status", "deployment/back", "--timeout=5m")
}

// The namespace controller asks every API that can delete for the remaining objects of a namespace. The API of
// configdep has none that must be deleted first.
func TestNamespaceIsDeleted(t *testing.T) {
	t.Parallel()
	namespace := workloadIn(t)
	remove(t, kube.CoreV1().Namespaces().Delete, namespace)
	await.Until(t, "the namespace is deleted", func(ctx context.Context) error {
		found, err := kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + namespace})
		if err == nil && len(found.Items) > 0 {
			err = fmt.Errorf("namespace %s: %v", found.Items[0].Status.Phase, found.Items[0].Status.Conditions)
		}
		return err
	})
	for _, where := range everywhere {
		await.Until(t, where.name+" shows no object of the namespace", func(ctx context.Context) error {
			list, err := where.ConfigdepV1alpha1().ConfigDependencies(namespace).List(ctx, metav1.ListOptions{})
			if err == nil && len(list.Items) > 0 {
				err = errors.New(list.Items[0].Name + " is still shown")
			}
			return err
		})
	}
}
