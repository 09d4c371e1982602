// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/configdep/configdep/test/controlplane"
)

// The processes, ports and goroutines of an installation end with it, so that a test that installs the server does
// not affect the next.
func TestStopLeavesNothing(t *testing.T) {
	cluster, err := controlplane.Start(t.Context(), controlplane.Options{APIServerOnly: true, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	}()
	installed, err := Install(t.Context(), cluster, Options{Replicas: 2, Args: []string{"--shutdown-delay-duration=1s"}})
	if err != nil {
		t.Fatal(err)
	}
	extra, err := installed.StartExtra("extra", ReplicaOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := extra.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := installed.Replicas[1]
	if err := ended.Terminate(); err != nil {
		t.Errorf("the replica did not stop in order: %v", err)
	}
	addresses := []string{fmt.Sprintf("127.0.0.1:%d", installed.balancer.port())}
	var pids []int
	for _, r := range append(installed.Replicas, extra) {
		addresses = append(addresses, r.Address())
		pids = append(pids, r.PID())
	}
	if len(goroutines()) == 0 {
		t.Error("no goroutine was found, not even that of the balancer")
	}

	installed.Stop()
	for _, pid := range pids {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); !os.IsNotExist(err) { // Linux only
			t.Errorf("process %d still exists (%v)", pid, err)
		}
	}
	for _, address := range addresses {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Errorf("the address is still in use: %v", err)
			continue
		}
		_ = listener.Close()
	}
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return len(goroutines()) == 0, nil
	})
	if err != nil {
		t.Errorf("goroutines still run:\n%s", strings.Join(goroutines(), "\n\n"))
	}
	installed.Stop() // does nothing
}

// goroutines returns the stacks of goroutines that run code of this package, except its own.
func goroutines() (found []string) {
	all := make([]byte, 4<<20)
	all = all[:runtime.Stack(all, true)]
	for stack := range strings.SplitSeq(string(all), "\n\n") {
		if strings.Contains(stack, "test/install.") && !strings.Contains(stack, "test/install.goroutines(") {
			found = append(found, stack)
		}
	}
	return found
}

// If a replica cannot start, Install returns the reason, and cleans up.
func TestInstallFails(t *testing.T) {
	cluster, err := controlplane.Start(t.Context(), controlplane.Options{APIServerOnly: true, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	}()
	installed, err := Install(t.Context(), cluster, Options{Args: []string{"--no-such-flag"}})
	if err == nil {
		installed.Stop()
		t.Fatal("Install succeeded")
	}
	if !strings.Contains(err.Error(), "replica-0 ended: exit status 1") {
		t.Errorf("error = %v", err)
	}
	// A goroutine that has done its work may still be about to end.
	err = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return len(goroutines()) == 0, nil
	})
	if err != nil {
		t.Errorf("goroutines still run:\n%s", strings.Join(goroutines(), "\n\n"))
	}
}
