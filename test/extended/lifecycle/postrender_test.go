// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// postRender is the first argument when helm runs this program as a plugin.
const postRender = "postrender"

// plugin writes the plugin into helm's folder of plugins.
func plugin(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	manifest, err := sigsyaml.Marshal(map[string]any{
		"name": postRender, "version": "1.0.0", "type": "postrenderer/v1", "apiVersion": "v1", "runtime": "subprocess",
		"runtimeConfig": map[string]any{"platformCommand": []any{map[string]any{"command": self, "args": []any{postRender}}}},
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, postRender), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, postRender, "plugin.yaml"), manifest, 0o600)
}

// toThisMachine changes rendered manifests so that kube-apiserver, which runs on this machine like the replicas, can
// reach them: the Service is an external name for this machine.
func toThisMachine(in io.Reader, out io.Writer) error {
	all, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(all), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(o.Object) == 0 {
			continue
		}
		if o.GetKind() == "Service" {
			o.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "localhost"}
		}
		manifest, err := sigsyaml.Marshal(o.Object)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "---\n%s", manifest); err != nil {
			return err
		}
	}
}
