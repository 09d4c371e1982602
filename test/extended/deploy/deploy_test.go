// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package deploy tests the scripts that install the server into a cluster and remove it, on a control plane whose
// nodes run nothing: the objects must exist and be valid. Whether the server works is tested in package
// integration.
package deploy

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/pki"
)

const (
	root       = "../../.."
	namespace  = "configdep-system"
	name       = "configdep-apiserver"
	apiService = "v1alpha1.configdep.io"
	limit      = 3 * time.Minute
)

// cluster has controllers and no nodes.
var cluster *controlplane.ControlPlane

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{NoNodes: true}, func(c *controlplane.ControlPlane) { cluster = c }))
}

// The lifecycle of an installation, in steps that build on one another.
func TestDeployAndUndeploy(t *testing.T) {
	client, err := kubernetes.NewForConfig(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Run("deploy requires an image", func(t *testing.T) {
		for _, env := range [][]string{{"IMAGE="}, {"IMAGE=a b"}, {"IMAGE=x", "WAIT=maybe"}} {
			out, err := script(t, "deploy.sh", env...)
			if err == nil {
				t.Errorf("%v: deploy succeeded:\n%s", env, out)
			}
		}
		if left := installed(t); len(left) > 0 {
			t.Errorf("objects left: %v", left)
		}
	})
	t.Run("deploy creates every object of the manifests", func(t *testing.T) {
		deploy(t, "configdep/configdep-apiserver:one")
		want := strings.Fields(kubectl(t, "create", "-k", filepath.Join(root, "artifacts", "base"), "--dry-run=client", "-o", "name"))
		if got := installed(t); !slices.Equal(got, want) || len(want) < 10 {
			t.Errorf("objects = %v\nwant %v", got, want)
		}
		deployment, err := client.AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if image := deployment.Spec.Template.Spec.Containers[0].Image; image != "configdep/configdep-apiserver:one" {
			t.Errorf("image = %s", image)
		}
	})
	t.Run("no manifest contains a CA", func(t *testing.T) {
		if got := bundles(t); len(got) < 2 || strings.Join(got, "") != "" {
			t.Errorf("bundles = %q", got)
		}
		if insecure := kubectl(t, "get", "apiservice", apiService, "-o", "jsonpath={.spec.insecureSkipTLSVerify}"); insecure == "true" {
			t.Error("the API is reached without verifying the server")
		}
	})
	t.Run("pods are admitted under the restricted pod security standard", func(t *testing.T) {
		await.Until(t, "there are two pods", func(ctx context.Context) error {
			pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + name})
			if err == nil && len(pods.Items) != 2 {
				err = fmt.Errorf("got %d pods", len(pods.Items))
			}
			return err
		})
	})
	// A diff must only show actual changes. kubectl sends the selector of a PodDisruptionBudget each time
	// (patchStrategy: replace), whatever the manifest contains; the API server then changes nothing.
	t.Run("applying the same manifests changes nothing", func(t *testing.T) {
		base := filepath.Join(root, "artifacts", "base")
		kubectl(t, "apply", "-k", base)
		for line := range strings.Lines(kubectl(t, "apply", "-k", base)) {
			if !strings.HasSuffix(line, " unchanged\n") && !strings.HasPrefix(line, "poddisruptionbudget.policy/") {
				t.Errorf("applied again: %s", line)
			}
		}
	})
	t.Run("deploying again updates the server, and keeps the CA that the server has published", func(t *testing.T) {
		authority, err := pki.NewAuthority("configdep")
		if err != nil {
			t.Fatal(err)
		}
		ca := base64.StdEncoding.EncodeToString(authority.BundlePEM())
		kubectl(t, "patch", "apiservice", apiService, "--type=json", "-p", `[{"op":"add","path":"/spec/caBundle","value":"`+ca+`"}]`)
		for i := range len(bundles(t)) - 1 {
			kubectl(t, "patch", "mutatingwebhookconfiguration", name, "--type=json", "-p",
				fmt.Sprintf(`[{"op":"add","path":"/webhooks/%d/clientConfig/caBundle","value":%q}]`, i, ca))
		}
		deploy(t, "configdep/configdep-apiserver:two")
		if image := kubectl(t, "-n", namespace, "get", "deployment", name, "-o", "jsonpath={..image}"); image != "configdep/configdep-apiserver:two" {
			t.Errorf("image = %s", image)
		}
		for i, got := range bundles(t) {
			if got != ca {
				t.Errorf("bundle %d = %q", i, got)
			}
		}
	})
	t.Run("deploy reports why the server does not become ready", func(t *testing.T) {
		out, err := script(t, "deploy.sh", "IMAGE=configdep/configdep-apiserver:two", "TIMEOUT=1s")
		if err == nil || !strings.Contains(out, "deploy: the server is not ready, so the APIService was left as it is") {
			t.Errorf("%v:\n%s", err, out)
		}
	})
	// While an aggregated API is unavailable, the namespace controller cannot list what is in a namespace.
	// Therefore the order of undeploy matters.
	t.Run("without a server, no namespace can be deleted", func(t *testing.T) {
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "stuck"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := client.CoreV1().Namespaces().Delete(t.Context(), "stuck", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "the namespace controller reports why", func(ctx context.Context) error {
			found, err := client.CoreV1().Namespaces().Get(ctx, "stuck", metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, c := range found.Status.Conditions {
				if c.Type == corev1.NamespaceDeletionDiscoveryFailure && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, "configdep.io/v1alpha1") {
					return nil
				}
			}
			return fmt.Errorf("conditions = %v", found.Status.Conditions)
		})
	})
	t.Run("undeploy removes everything, and namespaces can be deleted", func(t *testing.T) {
		if out, err := script(t, "undeploy.sh"); err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		if left := installed(t); len(left) > 0 {
			t.Errorf("objects left: %v", left)
		}
		if all := kubectl(t, "get", "clusterroles,clusterrolebindings,apiservices,mutatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings", "-o", "name"); strings.Contains(all, "configdep") {
			t.Errorf("objects left:\n%s", all)
		}
		await.Until(t, "the namespace that was stuck is deleted", func(ctx context.Context) error {
			_, err := client.CoreV1().Namespaces().Get(ctx, "stuck", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(errors.New("the namespace still exists"), err)
		})
	})
	t.Run("undeploying again succeeds", func(t *testing.T) {
		if out, err := script(t, "undeploy.sh"); err != nil {
			t.Errorf("%v:\n%s", err, out)
		}
	})
}

// deploy deploys without waiting, because no pods will run.
func deploy(t *testing.T, image string) {
	t.Helper()
	out, err := script(t, "deploy.sh", "IMAGE="+image, "WAIT=false")
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	// The API server warns of fields that are deprecated or unknown, and of pod security.
	if strings.Contains(out, "Warning:") {
		t.Errorf("warnings:\n%s", out)
	}
}

// script runs a script of hack and returns all its output.
func script(t *testing.T, file string, env ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := cluster.Command(ctx, filepath.Join(root, "hack", file))
	cmd.Env = append(append(cmd.Env, "KUBECTL="+cluster.KubectlPath()), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// installed returns the names of the manifests' objects that are in the cluster.
func installed(t *testing.T) []string {
	t.Helper()
	return strings.Fields(kubectl(t, "get", "-k", filepath.Join(root, "artifacts", "base"), "--ignore-not-found", "-o", "name"))
}

// bundles returns the base64-encoded caBundle of the APIService and of each webhook.
func bundles(t *testing.T) []string {
	t.Helper()
	all := []string{kubectl(t, "get", "apiservice", apiService, "-o", "jsonpath={.spec.caBundle}")}
	of := kubectl(t, "get", "mutatingwebhookconfiguration", name, "-o", `jsonpath={range .webhooks[*]}{.name}={.clientConfig.caBundle}{"\n"}{end}`)
	for line := range strings.Lines(of) {
		_, bundle, _ := strings.Cut(strings.TrimSpace(line), "=")
		all = append(all, bundle)
	}
	return all
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := cluster.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
