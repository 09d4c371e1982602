// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/configdep/configdep/test/controlplane"
)

// apply applies the manifests in a folder, with a Service that leads to this machine.
func (i *Installation) apply(ctx context.Context, manifests string) error {
	base, err := filepath.Rel(i.Manifests(), manifests)
	if err != nil {
		return err
	}
	patches := []object{{
		"target": object{"kind": "Service"},
		"patch":  string(encode([]object{{"op": "replace", "path": "/spec", "value": object{"type": "ExternalName", "externalName": "localhost"}}})),
	}}
	older, err := i.cluster.Older("1.36")
	if err != nil {
		return err
	}
	if older {
		patches = append(patches, withoutMutatingPolicies)
	}
	if err := os.MkdirAll(i.Manifests(), 0o700); err != nil {
		return err
	}
	// JSON is YAML.
	if err := os.WriteFile(filepath.Join(i.Manifests(), "kustomization.yaml"), encode(object{"resources": []string{base}, "patches": patches}), 0o600); err != nil {
		return err
	}
	_, err = i.cluster.Kubectl(ctx, "apply", "-k", i.Manifests())
	return err
}

// withoutMutatingPolicies is the patch of docs/install.md for clusters below Kubernetes 1.36.
var withoutMutatingPolicies = object{
	"target": object{"kind": "MutatingAdmissionPolicy.*"},
	"patch":  `{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": "any"}, "$patch": "delete"}`,
}

// source returns a folder with a kustomization: the base, or the chart with the values of the options, and with the
// namespace, which Helm creates itself.
func (i *Installation) source(ctx context.Context, root string) (string, error) {
	base := filepath.Join(root, "artifacts", "base")
	if i.options.Values == "" && len(i.options.Set) == 0 {
		return base, nil
	}
	rendered, err := Render(ctx, i.options.Values, i.options.Set...)
	if err != nil {
		return "", err
	}
	namespace, err := os.ReadFile(filepath.Join(base, "namespace.yaml"))
	if err != nil {
		return "", err
	}
	dir := filepath.Join(i.dir, "chart")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	for name, content := range map[string][]byte{
		"kustomization.yaml": encode(object{"resources": []string{"configdep.yaml"}}),
		"configdep.yaml":     slices.Concat(namespace, []byte("---\n"), rendered),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// Render renders the chart with a file in its folder ci, named without .yaml, if any, and with values as those of helm's --set.
func Render(ctx context.Context, values string, set ...string) ([]byte, error) {
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		return nil, err
	}
	chart := filepath.Join(root, "artifacts", "charts", "configdep")
	args := []string{"template", "configdep", chart, "--namespace", Namespace, "--api-versions", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"}
	if values != "" {
		args = append(args, "--values", filepath.Join(chart, "ci", values+".yaml"))
	}
	for _, value := range set {
		args = append(args, "--set", value)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "hack", "helm.sh"), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	rendered, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("rendering the chart: %w: %s", err, stderr.Bytes())
	}
	return rendered, nil
}

type object map[string]any

func encode(value any) []byte {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encoding %v: %v", value, err)) // only maps and strings are encoded
	}
	return raw
}
