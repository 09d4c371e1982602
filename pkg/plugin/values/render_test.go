// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package values

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	"sigs.k8s.io/yaml"
)

const root = "../../.."

func TestMain(m *testing.M) {
	utilruntime.Must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate)) // as the server does
	os.Exit(m.Run())
}

// render renders the chart of configdep with values.
func render(t *testing.T, values string) (string, error) {
	t.Helper()
	chart, err := filepath.Abs(filepath.Join(root, "artifacts", "charts", "configdep"))
	if err != nil {
		t.Fatal(err)
	}
	// The test opens what helm reads, so that go test does not use results of another chart.
	if err := filepath.WalkDir(chart, func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "hack", "helm.sh"), "template", "configdep", chart, "--namespace", "tools", "--values", "-")
	cmd.Stdin = strings.NewReader(values)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// arguments returns those of the server in a rendered chart.
func arguments(t *testing.T, rendered string) []string {
	t.Helper()
	for document := range strings.SplitSeq(rendered, "\n---\n") {
		var d appsv1.Deployment
		if err := yaml.Unmarshal([]byte(document), &d); err == nil && d.Kind == "Deployment" {
			return d.Spec.Template.Spec.Containers[0].Args
		}
	}
	t.Fatal("found no Deployment")
	return nil
}

// The values are valid for the chart, which renders with them, and the server accepts the arguments that it gets.
func TestConvert_Renders(t *testing.T) {
	cases := map[string]string{"defaults": defaults(t)}
	for name, c := range conversions {
		if c.out != "{}" {
			cases[name] = c.in
		}
	}
	for name, in := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output, err := convert(parsedValues(t, in), Options{Namespace: "tools", Observe: true})
			if err != nil {
				t.Fatal(err)
			}
			rendered, err := render(t, output)
			if err != nil {
				t.Fatalf("%v: %s\nfor the values\n%s", err, rendered, output)
			}
			if args := arguments(t, rendered); startWith(args) != nil {
				t.Errorf("the arguments %q: %v", args, startWith(args))
			}
		})
	}
}
