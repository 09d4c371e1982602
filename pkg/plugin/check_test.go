// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

const shopManifests = `# Source: shop/templates/web.yaml
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  annotations: {configdep.io/relaod: auto}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: app
        image: app
        envFrom: [{secretRef: {name: db}}]
        env:
        - name: LEVEL
          valueFrom: {configMapKeyRef: {name: web, key: level}}
        - name: BANNER
          valueFrom: {configMapKeyRef: {name: web, key: banner, optional: true}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data: {colour: red}
---
apiVersion: example.com/v1
kind: Unknown
metadata: {name: x}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: tool, namespace: other}
  spec:
    containers: [{name: app, image: app, envFrom: [{secretRef: {name: made}}]}]
- apiVersion: v1
  kind: Secret
  metadata: {name: made, namespace: other}
  stringData: {a: b}
`

// run runs a command without a cluster.
func run(t *testing.T, in string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--kubeconfig=" + kubeconfig}, args...)
	code = Run(t.Context(), args, genericiooptions.IOStreams{In: strings.NewReader(in), Out: &stdout, ErrOut: &stderr})
	return code, stdout.String(), stderr.String()
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "below", "shop.yaml")
	for path, content := range map[string]string{file: shopManifests, filepath.Join(dir, "notes.txt"): "{"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := `FILE:2: deployment/web in namespace default: ConfigMap web lacks level (KeyMissing)
FILE:2: deployment/web in namespace default: Secret db is missing (SourceMissing)
FILE:2: deployment/web in namespace default: unknown annotation configdep.io/relaod (did you mean configdep.io/reload?) (InvalidAnnotation)
3 findings in 4 manifests.
`
	for name, args := range map[string][]string{"a folder": {"-f", dir}, "a file": {"-f", file}, "standard input": {"-f", "-"}} {
		code, out, errOut := run(t, shopManifests, append([]string{"check"}, args...)...)
		out = strings.ReplaceAll(strings.ReplaceAll(out, file, "FILE"), "-:2", "FILE:2")
		if diff := cmp.Diff(want, out); code != exitFound || diff != "" || errOut != "" {
			t.Errorf("%s: code %d, %s; output (-want +got):\n%s", name, code, errOut, diff)
		}
	}
}

// What a file says is no command for a terminal.
func TestCheck_Escapes(t *testing.T) {
	in := strings.ReplaceAll(shopManifests, "{configdep.io/relaod: auto}", `{configdep.io/reload: "\e[2J"}`)
	for _, format := range []string{"text", "json", "sarif", "junit"} {
		if code, out, errOut := run(t, in, "check", "-f", "-", "-o", format); code != exitFound || strings.ContainsAny(out+errOut, "\x1b\r") {
			t.Errorf("%s: code %d, %q, %s", format, code, out, errOut)
		}
	}
}

func TestCheck_Formats(t *testing.T) {
	_, out, _ := run(t, shopManifests, "check", "-f", "-", "-o", "sarif")
	var sarif struct {
		Version string
		Runs    []struct {
			Results []struct {
				RuleID    string
				Locations []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine int }
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &sarif); err != nil || sarif.Version != "2.1.0" || len(sarif.Runs) != 1 || len(sarif.Runs[0].Results) != 3 ||
		sarif.Runs[0].Results[0].RuleID != "KeyMissing" || sarif.Runs[0].Results[0].Locations[0].PhysicalLocation.Region.StartLine != 2 {
		t.Errorf("SARIF: %v, %s", err, out)
	}
	_, out, _ = run(t, shopManifests, "check", "-f", "-", "-o", "junit")
	var suite testSuite
	if err := xml.Unmarshal([]byte(out), &suite); err != nil || suite.Failures != 3 || len(suite.Cases) != 3 || suite.Cases[0].Failure == nil {
		t.Errorf("JUnit: %v, %s", err, out)
	}
	_, out, _ = run(t, shopManifests, "check", "-f", "-", "-o", "json")
	var findings []finding
	if err := json.Unmarshal([]byte(out), &findings); err != nil || len(findings) != 3 {
		t.Errorf("JSON: %v, %s", err, out)
	}
	const fine = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	for _, format := range []string{"text", "json", "sarif", "junit"} {
		if code, out, errOut := run(t, fine, "check", "-f", "-", "-o", format); code != exitDone || out == "" {
			t.Errorf("no finding as %s: code %d, %q, %s", format, code, out, errOut)
		}
	}
}

func TestCheck_Refuses(t *testing.T) {
	for want, args := range map[string][]string{
		"want text, json, sarif or junit": {"-f", "-", "-o", "yaml"},
		"with -f":                         {},
		"no such file":                    {"-f", "/nowhere"},
		"stat /missing":                   {"-f", "-", "-n", "shop", "--kubeconfig=/missing"}, // it would say which namespace is meant
	} {
		if code, _, errOut := run(t, "", append([]string{"check"}, args...)...); code != exitError || !strings.Contains(errOut, want) {
			t.Errorf("%v: code %d, %s", args, code, errOut)
		}
	}
	if code, _, errOut := run(t, "", "check", "-f", "-"); code != exitError || !strings.Contains(errOut, "no manifest") {
		t.Errorf("nothing: code %d, %s", code, errOut)
	}
}

// What cannot be read is a finding, and what is beside it is checked all the same.
func TestCheck_InvalidManifest(t *testing.T) {
	for _, invalid := range []string{"a: b: c\n", "apiVersion: v1\nkind: Secret\ndata: 5\n"} {
		code, out, errOut := run(t, invalid+"---\n"+shopManifests, "check", "-f", "-")
		if code != exitFound || errOut != "" || !strings.Contains(out, "-:1: ") || !strings.Contains(out, "(InvalidManifest)") || !strings.Contains(out, "4 findings") {
			t.Errorf("%q: code %d, %s%s", invalid, code, out, errOut)
		}
	}
}

// What cannot be parsed may be a Secret, and its content is not printed.
func TestCheck_InvalidManifest_PrintsNoContent(t *testing.T) {
	for _, secret := range []string{"password: *hunter2", "password: !!int hunter2", "password: [hunter2", "data: {password: hunter2!}"} {
		for _, command := range []string{"check", "impact"} {
			code, out, errOut := run(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: db}\n"+secret+"\n", command, "--kubeconfig="+os.DevNull, "-f", "-")
			if code == exitDone || strings.Contains(out+errOut, "hunter2") {
				t.Errorf("%s of %s: code %d, %s%s", command, secret, code, out, errOut)
			}
		}
	}
}

// Manifests without a name are several, and a List in a List, which takes long to read, is refused.
func TestCheck_EachManifest(t *testing.T) {
	const job = "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: run-}\nspec: {template: {spec: {containers: [{name: app, image: app, envFrom: [{secretRef: {name: db}}]}]}}}\n"
	if code, out, errOut := run(t, job+"---\n"+job, "check", "-f", "-"); code != exitFound || errOut != "" || strings.Count(out, "Secret db is missing") != 2 {
		t.Errorf("generateName: code %d, %s%s", code, out, errOut)
	}
	const nested = `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "List", "items": []}]}`
	if code, out, _ := run(t, nested, "check", "-f", "-"); code != exitFound || !strings.Contains(out, "a List in a List") {
		t.Errorf("nested: code %d, %s", code, out)
	}
}

// An answer that a kind cannot be restarted is one about the workload, not about the Reload.
func TestCannotRestart(t *testing.T) {
	invalid := func(kind string) error {
		return apierrors.NewInvalid(schema.GroupKind{Group: v1alpha1.SchemeGroupVersion.Group, Kind: kind}, "x", nil)
	}
	if !cannotRestart(invalid("ConfigDependency")) || cannotRestart(invalid("Reload")) || cannotRestart(errors.New("else")) {
		t.Error("not told apart")
	}
}

// An error of the connection says what is not reached, and not which request met that.
func TestServerIsNotReached(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_ = l.Close()
	code, _, errOut := run(t, "", "stale", "--kubeconfig="+os.DevNull, "--server=https://"+at)
	if want := "error: the API server " + at + " cannot be reached: "; code != exitError || !strings.HasPrefix(errOut, want) || !strings.Contains(errOut, "refused") {
		t.Errorf("code %d, %s", code, errOut)
	}
}
