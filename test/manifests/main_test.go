// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package manifests tries what is installed in a cluster: the kustomize base, its overlays and
// the Helm chart, as hack/render.sh has rendered them into testdata/rendered. That those
// files are what comes out today is checked by make verify.
package manifests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

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

// objectKey names an object within what is rendered together.
type objectKey struct{ kind, namespace, name string }

// rendered reads a file of testdata/rendered.
func rendered(t *testing.T, file string) map[objectKey]*unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", "rendered", file))
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, file, content)
}

// decode reads what has been rendered.
func decode(t *testing.T, file string, content []byte) map[objectKey]*unstructured.Unstructured {
	t.Helper()
	objects := map[objectKey]*unstructured.Unstructured{}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(o.Object) == 0 {
			continue
		}
		key := objectKey{o.GetKind(), o.GetNamespace(), o.GetName()}
		if objects[key] != nil {
			t.Errorf("%s holds %v twice", file, key)
		}
		objects[key] = o
	}
	if len(objects) == 0 {
		t.Fatalf("%s holds %d objects", file, len(objects))
	}
	return objects
}

// renderedFiles are the names of all files of testdata/rendered that match.
func renderedFiles(t *testing.T, pattern string) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", "rendered", pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("there is no %s in testdata/rendered (%v): run make manifests", pattern, err)
	}
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}

// helm runs hack/helm.sh and returns all that it prints.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
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
