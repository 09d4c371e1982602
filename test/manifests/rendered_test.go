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
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// objectKey names an object within what is rendered together.
type objectKey struct{ kind, namespace, name string }

// render renders everything into a folder of the control plane, which removes it in the end, and returns that folder.
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

// watchInputs opens the folders that scripts read from, so that go test does not answer from its cache
// where they have changed: of what tests run, it sees only what they open themselves.
var watchInputs = sync.OnceValue(func() error {
	for _, dir := range []string{"artifacts", "hack"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			return fmt.Errorf("looking at %s: %w", dir, err)
		}
	}
	return nil
})

// renderedFolder returns where everything is that hack/render.sh renders.
func renderedFolder(t *testing.T) string {
	t.Helper()
	dir, err := render()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// renderedFiles are the names of all rendered files that match.
func renderedFiles(t *testing.T, pattern string) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(renderedFolder(t), pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("nothing is rendered into %s (%v)", pattern, err)
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

// The other tests go over the rendered files, so that one that is missing would be tried by none.
func TestEveryVariantIsRendered(t *testing.T) {
	want := []string{"base.yaml", "monitoring.yaml"}
	for dir, prefix := range map[string]string{root + "/artifacts/overlays": "overlay-", chart + "/ci": "chart-"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			want = append(want, prefix+strings.TrimSuffix(entry.Name(), ".yaml")+".yaml")
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, renderedFiles(t, "*")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
