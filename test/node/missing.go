// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/configdep/configdep/test/controlplane"
)

// Missing returns why this machine cannot build and run a node, and nil if it can.
func Missing() error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("nodes run on Linux only, and this is %s", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return errors.New("a node needs root, for namespaces, mounts and cgroups")
	}
	for _, program := range []string{"apt-get", "awk", "bash", "dpkg-deb", "find", "gcc", "ip", "mount", "nsenter", "unshare"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("a node needs the program %s", program)
		}
	}
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		return err
	}
	for _, hidden := range []string{"/run/", "/var/lib/", "/var/log/"} {
		if strings.HasPrefix(root, hidden) {
			return fmt.Errorf("the repository is below %s, which a node replaces by a folder of its own", hidden)
		}
	}
	// In this machine's own network, which not every root may change. No other process uses this name.
	link := fmt.Sprintf("cdprobe%d", os.Getpid())
	for what, command := range map[string][]string{
		"unshare namespaces": {
			"unshare", "--mount", "--propagation", "private", "--uts", "--ipc", "--net", "--pid", "--fork",
			"mount", "-t", "tmpfs", "tmpfs", "/run",
		},
		"add veth links": {"bash", "-c", "ip link add " + link + " type veth && ip link del " + link},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("root may not %s here: %w: %s", what, err, strings.TrimSpace(string(out)))
		}
	}
	return cgroupsMissing()
}

// cgroupsMissing returns why no cgroups can be made.
func cgroupsMissing() error {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return err
	}
	controllers := 0
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[2] != "cgroup" && fields[2] != "cgroup2" {
			continue
		}
		dir, err := os.MkdirTemp(fields[1], "configdep-probe-")
		if err != nil {
			return fmt.Errorf("no cgroup can be made: %w", err)
		}
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
			controllers++
		}
		if err := os.Remove(dir); err != nil {
			return err
		}
	}
	if controllers == 0 {
		return errors.New("no hierarchy of cgroups is mounted")
	}
	return nil
}
