// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/configdep/configdep/test/debian"
)

// buildScript builds the programs if they do not exist yet, and prints their folder.
const buildScript = "hack/node/build.sh"

// programs returns the folder with the programs of a node. The first call takes minutes; progress is written to log.
func programs(ctx context.Context, root string, log io.Writer) (string, error) {
	var stdout bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(root, buildScript))
	cmd.Stdout, cmd.Stderr = &stdout, log
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build the programs of a node: %w", err)
	}
	return strings.TrimSpace(stdout.String()), nil
}

// environment returns the environment of all components. kube-proxy finds nft in it: that of this machine, or an unpacked one.
func environment(ctx context.Context, bin string) ([]string, error) {
	path := bin + ":" + os.Getenv("PATH")
	if _, err := exec.LookPath("nft"); err == nil {
		return []string{"PATH=" + path}, nil
	}
	unpacked, err := debian.Unpack(ctx, "nftables", "libnftables1", "libnftnl11", "libmnl0", "libjansson4", "libxtables12",
		"libedit2", "libbsd0", "libmd0", "libgmp10", "libtinfo6")
	if err != nil {
		return nil, fmt.Errorf("kube-proxy needs the program nft, from the package nftables: %w", err)
	}
	for _, variable := range debian.Environment(unpacked) {
		if strings.HasPrefix(variable, "LD_LIBRARY_PATH=") {
			return []string{"PATH=" + path + ":" + filepath.Join(unpacked, "usr", "sbin"), variable}, nil
		}
	}
	return nil, errors.New("the unpacked packages of nft have no libraries")
}
