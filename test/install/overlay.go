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

// Overlays of the manifests: all objects, with a Service that leads to this machine, and the same without the APIService.
const (
	everything        = "all"
	withoutAPIService = "server"
)

// apply applies one of the overlays of the manifests in a folder.
func (i *Installation) apply(ctx context.Context, manifests, overlay string) error {
	base, err := filepath.Rel(filepath.Join(i.dir, everything), manifests)
	if err != nil {
		return err
	}
	caBundle, err := i.caBundle()
	if err != nil {
		return err
	}
	apiService := object{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": object{"name": APIService}, "$patch": "delete"}
	kustomizations := map[string]object{
		everything: {"resources": []string{base}, "patches": []object{
			patch("Service", operation("replace", "/spec", object{"type": "ExternalName", "externalName": "localhost"})),
			patch("APIService", reached(i.balancer.port(), caBundle)...),
		}},
		withoutAPIService: {"resources": []string{"../" + everything}, "patches": []object{{"patch": string(encode(apiService))}}},
	}
	for name, kustomization := range kustomizations {
		dir := filepath.Join(i.dir, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		// JSON is YAML.
		if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), encode(kustomization), 0o600); err != nil {
			return err
		}
	}
	_, err = i.cluster.Kubectl(ctx, "apply", "-k", filepath.Join(i.dir, overlay))
	return err
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

func patch(kind string, operations ...object) object {
	return object{"target": object{"kind": kind}, "patch": string(encode(operations))}
}

func operation(op, path string, value any) object {
	return object{"op": op, "path": path, "value": value}
}

// reached makes kube-apiserver connect to a port of this machine.
func reached(port int, caBundle string) []object {
	operations := []object{operation("replace", "/spec/service/port", port)}
	if caBundle != "" {
		operations = append(operations, operation("add", "/spec/caBundle", caBundle))
	}
	return operations
}

func encode(value any) []byte {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encoding %v: %v", value, err)) // only maps and strings are encoded
	}
	return raw
}
