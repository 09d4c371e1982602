// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/node"
)

// kind stands for the program of that name, which needs docker: the cluster is there, and what is to be loaded is imported by the test.
const kind = `#!/bin/sh
case "$1 $2" in
  "create cluster") ;;
  "load image-archive") shift 2; printf '%s\n' "$@" >>"$LOADED" ;;
  *) echo "kind $*: unknown" >&2; exit 1 ;;
esac
`

// The commands for kind in docs/getting-started.md, as far as they can run without docker.
func testQuickStart(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "getting-started.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```console\n(kind create.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/getting-started.md has no commands for kind")
	}
	dir := t.TempDir()
	loaded := filepath.Join(dir, "loaded")
	if err := os.WriteFile(filepath.Join(dir, "kind"), []byte(kind), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(ctx context.Context, line string) string {
		t.Helper()
		cmd := cluster.Command(ctx, "bash", "-euo", "pipefail", "-c", line)
		cmd.Dir = root
		path := strings.Join([]string{dir, filepath.Dir(cluster.KubectlPath()), os.Getenv("PATH")}, string(os.PathListSeparator))
		cmd.Env = append(cmd.Env, "LOADED="+loaded, "PATH="+path, "MAKEFLAGS=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s\n%s", line, err, out, podsOf(t, namespace))
		}
		return string(out)
	}
	// The image of the shop, which the node could not pull.
	if err := machine.Tag(t.Context(), node.PauseImage, "registry.k8s.io/pause:3.10"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		run(ctx, "kubectl delete -k artifacts/examples --ignore-not-found --timeout=3m && make undeploy")
	})
	last := ""
	for line := range strings.Lines(string(block[1])) {
		last = strings.ReplaceAll(strings.TrimSpace(line), ".cache/kind", dir)
		run(t.Context(), last)
		archives, err := os.ReadFile(loaded)
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		for archive := range strings.FieldsSeq(string(archives)) {
			if err := machine.Import(t.Context(), archive); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Remove(loaded); err != nil {
			t.Fatal(err)
		}
	}
	await.Until(t, "the last command shows the server and the shop", func(ctx context.Context) error {
		out := run(ctx, last)
		for _, want := range []string{"deployment.configdep-apiserver   InSync", "shop               deployment.web", "shop-payments      cronjob.settlement"} {
			if !strings.Contains(out, want) {
				return fmt.Errorf("it printed\n%s\nwithout %q", out, want)
			}
		}
		return nil
	})
}
