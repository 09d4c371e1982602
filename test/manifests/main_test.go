// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package manifests tests the manifests of an installation: the Helm chart with the values in its folder ci, as
// hack/render.sh renders it.
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

// cluster is a control plane with controllers but without nodes.
var cluster *controlplane.ControlPlane

func TestMain(m *testing.M) {
	if err := install.BuildTools(context.Background(), os.Stderr, "helm"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(controlplane.Run(m, controlplane.Options{NoNodes: true}, func(c *controlplane.ControlPlane) { cluster = c }))
}

// helm runs hack/helm.sh and returns its standard output and standard error.
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

// template renders the chart with the given arguments.
func template(t *testing.T, args ...string) (string, error) {
	t.Helper()
	absolute, err := filepath.Abs(chart)
	if err != nil {
		t.Fatal(err)
	}
	return helm(t, append([]string{"template", "configdep", absolute, "--namespace", namespace}, args...)...)
}

func lines(text string) []string { return strings.Split(strings.TrimRight(text, "\n"), "\n") }
