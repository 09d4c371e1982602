// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The manifests are files with the rendered chart.
var (
	withPresets string // with all rights that have a policy
	withKinds   string // with kinds that the values describe
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "policies")
	if err == nil {
		defer os.RemoveAll(dir)
		withPresets, withKinds = filepath.Join(dir, "presets"), filepath.Join(dir, "kinds")
		err = render()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func render() error {
	chart, err := filepath.Abs("../../artifacts/charts/configdep")
	if err != nil {
		return err
	}
	// go test knows which files a test opens, not which helm does.
	if err := filepath.WalkDir(chart, func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
		return err
	}
	for file, values := range map[string][]string{
		withPresets: {"--set", "reload.jobs=true,reload.strategies={annotation,recreate,in-place},mutatingAdmissionPolicies.enabled=true"},
		withKinds:   {"--set", "mutatingAdmissionPolicies.enabled=true", "--values", filepath.Join(chart, "ci", "kinds.yaml")},
	} {
		cmd := exec.Command("../../hack/helm.sh", append([]string{"template", "configdep", chart, "--namespace", "configdep-system"}, values...)...)
		cmd.Stderr = os.Stderr // helm is built the first time
		content, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("rendering the chart: %w", err)
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}
