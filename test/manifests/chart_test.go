// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// The charts have what catalogs show, and links to files of the repository lead somewhere. Only a release has a version.
func TestChartMetadata(t *testing.T) {
	for _, name := range []string{"configdep", "configdep-policies"} {
		t.Run(name, func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join(chart, "..", name, "Chart.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			var metadata struct {
				Version, AppVersion, Home, Icon string
				Sources, Keywords               []string
				Maintainers                     []struct{ Name, URL string }
				Annotations                     map[string]string
			}
			if err := yaml.Unmarshal(content, &metadata); err != nil {
				t.Fatal(err)
			}
			if metadata.Version != "0.0.0" || metadata.AppVersion != "unreleased" {
				t.Errorf("version = %s, appVersion = %s, want those of no release", metadata.Version, metadata.AppVersion)
			}
			if metadata.Home == "" || len(metadata.Sources) == 0 || len(metadata.Keywords) == 0 || len(metadata.Maintainers) == 0 {
				t.Errorf("home, sources, keywords or maintainers are missing:\n%s", content)
			}
			for _, key := range []string{"category", "license", "links"} {
				if metadata.Annotations["artifacthub.io/"+key] == "" {
					t.Errorf("the annotation artifacthub.io/%s is missing", key)
				}
			}
			var links []struct{ Name, URL string }
			if err := yaml.Unmarshal([]byte(metadata.Annotations["artifacthub.io/links"]), &links); err != nil || len(links) < 3 {
				t.Errorf("links = %v (%v)", links, err)
			}
			urls := []string{metadata.Icon}
			for _, maintainer := range metadata.Maintainers {
				urls = append(urls, maintainer.URL)
			}
			for _, link := range links {
				urls = append(urls, link.URL)
			}
			files := 0
			for _, url := range urls {
				for _, prefix := range []string{"https://raw.githubusercontent.com/configdep/configdep/main/", metadata.Home + "/blob/main/", metadata.Home + "/tree/main/"} {
					path, isFile := strings.CutPrefix(url, prefix)
					if !isFile {
						continue
					}
					files++
					if _, err := os.Stat(filepath.Join(root, path)); err != nil {
						t.Errorf("%s: %v", url, err)
					}
				}
			}
			if files < 4 {
				t.Errorf("only %d of these are files of the repository: %v", files, urls)
			}
		})
	}
}

// helm test asks for the API through kube-apiserver, in a pod that needs no rights and that the strictest level of Pod Security admits.
// The pod is not part of an installation.
func TestHelmTest(t *testing.T) {
	const image = "registry.example/kubectl:v1"
	out, err := template(t, "--show-only", "templates/test-api.yaml", "--set", "tests.image="+image+",global.imagePullSecrets[0].name=regcred")
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for key, pod := range decode(t, "test-api.yaml", []byte(out)) {
		if key.kind != "Pod" || key.namespace != namespace || pod.GetAnnotations()["helm.sh/hook"] != "test" {
			t.Errorf("want a Pod that only helm test creates; got:\n%s", out)
		}
		containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
		delete(pod.Object["spec"].(map[string]any), "containers")
		if diff := cmp.Diff(map[string]any{
			"restartPolicy":    "Never",
			"imagePullSecrets": []any{map[string]any{"name": "regcred"}},
			"securityContext": map[string]any{
				"runAsNonRoot": true, "runAsUser": float64(65532), "seccompProfile": map[string]any{"type": "RuntimeDefault"},
			},
		}, pod.Object["spec"]); diff != "" {
			t.Errorf("pod (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]any{map[string]any{
			"name": "kubectl", "image": image, "command": []any{"kubectl", "get", "--raw", "/apis/configdep.io/v1alpha1"},
			"securityContext": map[string]any{
				"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": map[string]any{"drop": []any{"ALL"}},
			},
		}}, containers); diff != "" {
			t.Errorf("containers (-want +got):\n%s", diff)
		}
	}
	for _, file := range renderedFiles(t) {
		for key, o := range rendered(t, file) {
			if o.GetAnnotations()["helm.sh/hook"] != "" {
				t.Errorf("%s: %v is a hook", file, key)
			}
		}
	}
	base, err := os.ReadFile(filepath.Join(root, "artifacts", "base", "configdep.yaml"))
	if err != nil || strings.Contains(string(base), "kubectl:") {
		t.Errorf("artifacts/base has the pod of helm test (%v)", err)
	}
}
