// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package manifests tries what is installed in a cluster: the kustomize base, its overlays and
// the Helm chart, as hack/render.sh renders them. Of these, testdata/rendered holds the base and the chart
// without values, for those who read a change; make verify checks that it is what is rendered.
package manifests

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

const (
	root      = "../.."
	chart     = root + "/artifacts/charts/configdep"
	namespace = "configdep-system"
	name      = "configdep-apiserver"
	limit     = 3 * time.Minute
)

// cluster has controllers and no nodes.
var cluster *controlplane.ControlPlane

func TestMain(m *testing.M) {
	if err := install.BuildTools(context.Background(), os.Stderr, "helm", "kustomize"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(controlplane.Run(m, controlplane.Options{NoNodes: true}, func(c *controlplane.ControlPlane) { cluster = c }))
}

// helm runs hack/helm.sh and returns all that it prints.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	if err := watchInputs(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(root, "hack", "helm.sh"), args...).CombinedOutput()
	return string(out), err
}

// template renders the chart with values, and returns what comes out.
func template(t *testing.T, args ...string) (string, error) {
	t.Helper()
	absolute, err := filepath.Abs(chart)
	if err != nil {
		t.Fatal(err)
	}
	return helm(t, append([]string{"template", "configdep", absolute, "--namespace", namespace}, args...)...)
}

func lines(text string) []string { return strings.Split(strings.TrimRight(text, "\n"), "\n") }
