// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// terminal returns both ends of a pseudo-terminal.
func terminal(t *testing.T) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = user.Close() })
	if err := unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return user, program
}

// Before many workloads are restarted, a user is asked, and only yes is yes.
func TestReload_Asks(t *testing.T) {
	some := make([]*v1alpha1.ConfigDependency, many+1)
	for i := range some {
		some[i] = &v1alpha1.ConfigDependency{}
		some[i].Status.Pods.Total = 2
	}
	for answer, want := range map[string]bool{"y": true, "Yes": true, "": false, "n": false, "yo": false} {
		user, program := terminal(t)
		if _, err := user.WriteString(answer + "\n"); err != nil {
			t.Fatal(err)
		}
		var asked bytes.Buffer
		r := reloading{plugin: &plugin{IOStreams: genericiooptions.IOStreams{In: &interruptible{program, t.Context()}, ErrOut: &asked}}}
		if err := r.ask(some); (err == nil) != want || asked.String() != "Restart 6 workloads with 12 pods? [y/N] " {
			t.Errorf("%q: %v, %q", answer, err, asked.String())
		}
	}
	r := reloading{plugin: &plugin{IOStreams: genericiooptions.IOStreams{In: &interruptible{strings.NewReader("y\n"), t.Context()}}}}
	if err := r.ask(some); err == nil || !strings.Contains(err.Error(), "--yes") {
		t.Errorf("without a terminal: %v", err)
	}
	if err := r.ask(some[:many]); err != nil {
		t.Errorf("a few: %v", err)
	}
}
