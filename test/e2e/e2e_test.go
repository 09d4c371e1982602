// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/node"
)

const root = "../.."

// Names of what the chart installs.
const (
	namespace  = install.Namespace
	name       = install.Name
	apiService = install.APIService
)

// The images, by the names that the chart and the documents use.
const (
	serverImage = "ghcr.io/configdep/configdep"
	agentImage  = "ghcr.io/configdep/configdep-agent:v0.1.0"
)

// The versions of the server: the first is what the chart installs by default, the second is upgraded to.
var versions = []string{"unreleased", "next"}

// All tests share these.
var (
	machine  *node.Node
	cluster  *controlplane.ControlPlane
	client   kubernetes.Interface
	view     versioned.Interface
	helmPath string
	// untouched are the objects of the cluster before the installation.
	untouched []string
)

func TestMain(m *testing.M) {
	asked, code := node.Asked()
	if asked {
		controlplane.Parallel(4) // they wait for pods more than they compute
		code = withNode(m)
	}
	os.Exit(code)
}

// withNode runs the tests on a node.
func withNode(m *testing.M) (code int) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Hour, errors.New("not started within an hour"))
	defer cancel()
	keep := os.Getenv("CONTROLPLANE_KEEP") != ""
	failed := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	var err error
	if machine, err = node.New(ctx, node.Options{Log: os.Stderr, KeepDir: keep}); err != nil {
		failed(err)
		return code
	}
	defer func() {
		failed(machine.Stop()) // before the API server, which pods need
		if cluster != nil {
			failed(cluster.Stop())
		}
	}()
	if cluster, err = controlplane.Start(ctx, machine.ControlPlane(controlplane.Options{Log: os.Stderr, KeepDir: keep})); err != nil {
		failed(err)
		return code
	}
	if err := prepare(ctx); err != nil {
		failed(err)
		return code
	}
	return m.Run()
}

// prepare starts the node, and loads the images.
func prepare(ctx context.Context) error {
	var err error
	if err := machine.Start(ctx, cluster); err != nil {
		return err
	}
	if client, err = kubernetes.NewForConfig(cluster.RESTConfig()); err != nil {
		return err
	}
	if view, err = versioned.NewForConfig(cluster.RESTConfig()); err != nil {
		return err
	}
	for _, version := range versions {
		if err := addImages(ctx, version); err != nil {
			return err
		}
	}
	out, err := exec.CommandContext(ctx, filepath.Join(root, "hack", "tools", "build.sh"), "helm").Output()
	helmPath = strings.TrimSpace(string(out))
	return err
}

// addImages makes the images of a version, as users without docker do, and loads them.
func addImages(ctx context.Context, version string) error {
	dir := filepath.Join(machine.Dir(), "images-"+version)
	archives := exec.CommandContext(ctx, filepath.Join(root, "hack", "image-archive.sh"))
	archives.Env = append(archives.Environ(), "VERSION="+version, "IMAGE="+serverImage+":"+version, "AGENT_IMAGE="+agentImage, "DIST="+dir)
	if out, err := archives.CombinedOutput(); err != nil {
		return fmt.Errorf("make the images: %w: %s", err, out)
	}
	// One version of the agent: if a name is imported twice, containerd does not know the second image by its digest, by which volumes ask.
	pattern := name + "_*.tar"
	if version == versions[0] {
		pattern = "*.tar"
	}
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) == 0 {
		return fmt.Errorf("found the archives %v (%w)", found, err)
	}
	for _, archive := range found {
		if err := machine.Import(ctx, archive); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// TestE2E is the life of an installation, in steps that build on one another.
func TestE2E(t *testing.T) {
	untouched = objects(t)
	if !t.Run("install", testInstall) {
		t.Fatal("there is no installation to test")
	}
	t.Run("tour", testTour)
	t.Run("workloads", func(t *testing.T) { // in namespaces of their own, at the same time
		t.Run("rollout", testRollout)
		t.Run("in place", testInPlace)
		t.Run("drain", testDrain)
		t.Run("sidecar", testSidecar)
		t.Run("volume", testVolume)
		t.Run("examples", testExamples)
		t.Run("truth off", testTruth("off", "", false))
		t.Run("truth annotation", testTruth("annotation", `configdep.io/reload: auto, configdep.io/settle: 1s, configdep.io/min-interval: "0"`, false))
	})
	t.Run("upgrade", testUpgrade)
	t.Run("annotating pods", func(t *testing.T) { // which the upgrade has allowed
		t.Run("in place", testStrategyInPlace)
		t.Run("in place halts", testStrategyInPlaceHalts)
		t.Run("no restarter", testStrategyInPlaceWithoutRestarter)
		t.Run("examples", testExamplesInPlace)
		t.Run("truth", testTruth("in-place", `configdep.io/reload: auto, configdep.io/strategy: in-place, configdep.io/settle: 1s, configdep.io/min-interval: "0"`, true))
	})
	t.Run("uninstall", testUninstall)
	t.Run("quick start", testQuickStart)
}

// helm runs helm as an administrator.
func helm(t *testing.T, args ...string) {
	t.Helper()
	cmd := cluster.Command(t.Context(), helmPath, args...)
	dir := filepath.Join(cluster.Dir(), "helm")
	cmd.Dir = root
	cmd.Env = append(cmd.Env, "HELM_CACHE_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_DATA_HOME="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("helm %s: %v: %s\n%s", strings.Join(args, " "), err, out, podsOf(t, namespace))
	}
}

// kubectl runs kubectl as an administrator and returns its output.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := cluster.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// apply applies manifests to a namespace.
func apply(t *testing.T, namespace, manifests string) {
	t.Helper()
	cmd := cluster.Command(t.Context(), cluster.KubectlPath(), "apply", "-n", namespace, "-f", "-")
	cmd.Stdin = strings.NewReader(manifests)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl apply: %v: %s", err, out)
	}
}

// newNamespace creates a namespace with the strictest Pod Security, which is deleted at the end of the test.
func newNamespace(t *testing.T, name string) string {
	t.Helper()
	kubectl(t, "create", "namespace", name)
	kubectl(t, "label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(podsOf(t, name))
		}
		if _, err := cluster.Kubectl(context.WithoutCancel(t.Context()), "delete", "namespace", name, "--timeout=2m"); err != nil {
			t.Error(err)
		}
	})
	return name
}

// podsOf returns what is known of the pods of a namespace, for the message of a failure.
func podsOf(t *testing.T, namespace string) string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	pods, err := cluster.Kubectl(ctx, "describe", "pods", "-n", namespace)
	if err != nil {
		return err.Error()
	}
	found, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	for _, pod := range found.Items {
		for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			logs, err := cluster.Kubectl(ctx, "logs", "-n", namespace, "--tail=20", pod.Name, "-c", container.Name)
			pods += fmt.Sprintf("\nlogs of %s of %s:\n%s %v", container.Name, pod.Name, logs, err)
		}
	}
	return pods
}
