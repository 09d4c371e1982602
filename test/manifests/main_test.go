// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package manifests tries what is installed in a cluster: the kustomize base, its overlays and
// the Helm chart with each values file of its folder ci, as hack/render.sh renders them. Of the base and of the chart
// with its default values, what comes out is checked in, which make verify compares.
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

// folder is where everything has been rendered.
var folder string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if err := install.BuildTools(context.Background(), os.Stderr, "helm", "kustomize"); err != nil {
		return 1, err
	}
	if folder, err = os.MkdirTemp("", "configdep-rendered-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(folder)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if out, err := exec.CommandContext(ctx, filepath.Join(root, "hack", "render.sh"), folder).CombinedOutput(); err != nil {
		return 1, fmt.Errorf("rendering everything: %w\n%s", err, out)
	}
	return controlplane.Run(m, controlplane.Options{NoNodes: true}, func(c *controlplane.ControlPlane) { cluster = c }), nil
}

// objectKey names an object within what is rendered together.
type objectKey struct{ kind, namespace, name string }

// rendered reads what has been rendered into a file.
func rendered(t *testing.T, file string) map[objectKey]*unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, file))
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

// renderedFiles are the names of all rendered files that match.
func renderedFiles(t *testing.T, pattern string) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("nothing has been rendered that matches %s (%v)", pattern, err)
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
