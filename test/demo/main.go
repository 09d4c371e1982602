// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// The command demo runs the tours of the documents on its own control plane.
//
// It starts a real control plane, installs the server, applies artifacts/examples, runs
// the commands of docs/getting-started.md and README.md one after the other, and prints their output. Then it runs until it is
// interrupted. With DEMO_EXIT=1, it exits immediately, with an error if the output of a command differs from the
// document. With DEMO_UPDATE=1, it writes the output of the commands into the documents. hack/demo.sh builds it, the
// server and the plugin, and shows the steps before it starts.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/tour"
)

const bin = ".cache/bin/demo" // of the programs

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	say("step 5 of 8: starting the control plane")
	cluster, err := controlplane.Start(ctx, controlplane.Options{Log: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()

	say("step 6 of 8: installing the server")
	server, err := install.Install(ctx, cluster, install.Options{Replicas: 2, Binary: filepath.Join(bin, "configdep-apiserver"), Before: createNamespace})
	if err != nil {
		return err
	}
	defer server.Stop()

	say("step 7 of 8: applying artifacts/examples")
	if err := applyExamples(ctx, cluster); err != nil {
		return err
	}
	var differs error
	plugin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	say("step 8 of 8: the tours of docs/getting-started.md and README.md")
	for _, document := range []string{"docs/getting-started.md", "README.md"} { // the second continues where the first ends
		wrong, err := tour.Run(ctx, cluster, document, tour.Options{Root: ".", Plugin: plugin, Update: os.Getenv("DEMO_UPDATE") == "1"})
		if err != nil {
			return err
		}
		differs = errors.Join(differs, wrong)
	}
	if os.Getenv("DEMO_EXIT") == "1" {
		return differs
	}
	fmt.Printf("\nThe cluster is yours until Ctrl-C, with two replicas of the server:\n\n  export KUBECONFIG=%s\n  export PATH=%s:%s:$PATH\n\n",
		cluster.Kubeconfig(), filepath.Dir(cluster.KubectlPath()), plugin)
	<-ctx.Done()
	return nil
}

// createNamespace creates the namespace of the server a second before its simulated pods, which start at once. What they
// may have read is not known if they start in the second in which kube-root-ca.crt is created there.
func createNamespace(ctx context.Context, cluster *controlplane.ControlPlane) error {
	if _, err := cluster.Kubectl(ctx, "apply", "-f", "artifacts/base/namespace.yaml"); err != nil {
		return err
	}
	if _, err := cluster.Kubectl(ctx, "-n", install.Namespace, "wait", "--for=create", "configmap/kube-root-ca.crt", "--timeout=1m"); err != nil {
		return err
	}
	select {
	case <-time.After(time.Until(time.Now().Truncate(time.Second).Add(time.Second))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// applyExamples applies the example shop and waits until its Deployments are available, even the one without its
// Secret, which simulated nodes do not notice.
func applyExamples(ctx context.Context, cluster *controlplane.ControlPlane) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("the examples were not ready within five minutes"))
	defer cancel()
	if _, err := cluster.Kubectl(ctx, "apply", "-k", "artifacts/examples"); err != nil {
		return err
	}
	for _, namespace := range []string{"shop", "shop-payments"} {
		if _, err := cluster.Kubectl(ctx, "-n", namespace, "wait", "--for=condition=Available", "deployment", "--all", "--timeout=5m"); err != nil {
			return err
		}
	}
	// The simulated pods of the server itself are shown, too.
	_, err := cluster.Kubectl(ctx, "-n", install.Namespace, "wait", "--for=jsonpath={.status.reason}=ContentApplied", "configdependency/deployment.configdep-apiserver", "--timeout=5m")
	return err
}

func say(message string) { fmt.Fprintln(os.Stderr, "demo:", message) }
