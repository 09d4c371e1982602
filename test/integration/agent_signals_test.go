// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/configdep/configdep/test/await"
)

// Images say by which signal their containers are stopped, and a sidecar may be in the image of the application.
func TestAgent_StopSignals(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1} {
		for name, c := range map[string]struct {
			args []string
			runs string // is in the log then
			code int
		}{
			"a sidecar":         {[]string{"--volume=" + t.TempDir(), "--listen="}, "Configuration is applied", 0},
			"an init container": {[]string{"--volume=/does-not-exist", "--once"}, "Volume /does-not-exist does not exist", 128 + int(syscall.SIGTERM)},
		} {
			t.Run(fmt.Sprintf("%s: %v", name, signal), func(t *testing.T) {
				log, err := os.Create(filepath.Join(t.TempDir(), "log"))
				if err != nil {
					t.Fatal(err)
				}
				defer log.Close()
				agent := cluster.Command(t.Context(), agent, append(c.args, "--dir="+t.TempDir())...)
				agent.Stderr = log
				if err := agent.Start(); err != nil {
					t.Fatal(err)
				}
				text := func() string {
					text, err := os.ReadFile(log.Name())
					if err != nil {
						t.Fatal(err)
					}
					return string(text)
				}
				await.Until(t, "it runs", func(context.Context) error {
					if !strings.Contains(text(), c.runs) {
						return fmt.Errorf("its log is %s", text())
					}
					return nil
				})
				if err := agent.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				_ = agent.Wait()
				if code := agent.ProcessState.ExitCode(); code != c.code {
					t.Errorf("it ends with %d, want %d: %s", code, c.code, text())
				}
			})
		}
	}
}
