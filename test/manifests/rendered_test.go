// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// objectKey identifies an object within a rendered file.
type objectKey struct{ kind, namespace, name string }

// render renders all variants into a folder of the control plane, which removes it at the end, and returns the folder.
var render = sync.OnceValues(func() (string, error) {
	if err := watchInputs(); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	dir := filepath.Join(cluster.Dir(), "rendered")
	if out, err := exec.CommandContext(ctx, filepath.Join(root, "hack", "render.sh"), dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("rendering all variants: %w:\n%s", err, out)
	}
	return dir, nil
})

// watchInputs opens the folders that the scripts read, so that go test does not use cached results when they have
// changed: it only tracks the files that tests open themselves.
var watchInputs = sync.OnceValue(func() error {
	for _, dir := range []string{"artifacts", "hack"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			return fmt.Errorf("reading %s: %w", dir, err)
		}
	}
	return nil
})

// renderedFolder returns the folder with the output of hack/render.sh.
func renderedFolder(t *testing.T) string {
	t.Helper()
	dir, err := render()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// renderedFiles returns the names of the rendered files.
func renderedFiles(t *testing.T) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(renderedFolder(t), "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("nothing is rendered (%v)", err)
	}
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}

// rendered reads a rendered file.
func rendered(t *testing.T, file string) map[objectKey]*unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(renderedFolder(t), file))
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, file, content)
}

// decode decodes rendered objects.
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
			t.Errorf("%s contains %v twice", file, key)
		}
		objects[key] = o
	}
	if len(objects) == 0 {
		t.Fatalf("%s contains only %d objects", file, len(objects))
	}
	return objects
}
