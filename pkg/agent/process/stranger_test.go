// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// beStranger starts an application, and cannot send it signals. It tells the error of each try, and how the application ends by itself.
func beStranger() {
	stdout := os.Stdout
	in, out, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	os.Stdout = out
	a := NewApplication([]string{"setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", "echo ready; read x; exit 3"}, nil, limit)
	if err := a.Start(); err != nil {
		panic(err)
	}
	if !bufio.NewScanner(in).Scan() { // from now on it belongs to another user
		panic("the application has ended")
	}
	ctx := context.Background()
	for what, err := range map[string]error{"restart": a.Restart(ctx, 0), "signal": a.forward(unix.SIGUSR1), "stop": a.Stop(), "kill": a.killGroup()} {
		if !errors.Is(err, unix.EPERM) {
			panic(fmt.Sprintf("%s: %v", what, err))
		}
	}
	_, _ = fmt.Fprintln(stdout, "ready") // none of them has reached it
	_, _ = fmt.Fprintln(stdout, <-a.Ended())
}

// An application of another user cannot be stopped without CAP_KILL: that is an error, nothing waits for it, and its end is told.
func TestApplicationOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root may become another user") //nolint:forbidigo // the kernel refuses it to others; CI in a container, or any run as root, tests it
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c := exec.CommandContext(ctx, "setpriv", "--bounding-set=-kill", self)
	c.Env = append(os.Environ(), roleVariable+"=stranger")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	lines := start(t, c)
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	awaitLine(t, lines, "exit code 3")
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, &stderr)
	}
}
