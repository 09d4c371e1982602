// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// AppImage is the image of the application of tests, test/node/app. It serves unless its argument says otherwise.
const AppImage = "localhost/configdep-test/app:1"

// AddImage makes an image by hack/tools/image, with these arguments (-entrypoint=..., FILE=/PATH and so on), and loads it. The name
// has a tag. Pods use it without a registry unless they always pull.
func (n *Node) AddImage(ctx context.Context, name string, args ...string) error {
	var tool bytes.Buffer
	build := exec.CommandContext(ctx, filepath.Join(n.root, "hack", "tools", "build.sh"), "image")
	build.Stdout, build.Stderr = &tool, n.options.Log
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the tool that makes images: %w", err)
	}
	dir, err := os.MkdirTemp(n.dir, "image-") // tests add images at the same time
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	archive := filepath.Join(dir, "image.tar")
	if err := run(ctx, strings.TrimSpace(tool.String()), append([]string{"-output=" + archive, "-name=" + name}, args...)...); err != nil {
		return fmt.Errorf("make the image %s: %w", name, err)
	}
	return n.Import(ctx, archive)
}

// Import loads the archive of an image.
func (n *Node) Import(ctx context.Context, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := n.ctr(ctx, f, "--namespace=k8s.io", "images", "import", "--local", "-"); err != nil {
		return fmt.Errorf("import %s: %w", filepath.Base(archive), err)
	}
	return nil
}

// Tag gives an image that is on the node another name, too.
func (n *Node) Tag(ctx context.Context, image, name string) error {
	return n.ctr(ctx, nil, "--namespace=k8s.io", "images", "tag", image, name)
}

// addOwnImages loads the images of this package.
func (n *Node) addOwnImages(ctx context.Context) error {
	app := n.file("app")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", app, "./test/node/app")
	build.Dir = n.root
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the application of tests: %w: %s", err, out)
	}
	// By another name, so that nothing that looks for the application by its name in a pod with shared processes finds this.
	if err := n.AddImage(ctx, PauseImage, "-user=65535:65535", "-entrypoint=/pause", "-cmd=pause", app+"=/pause"); err != nil {
		return err
	}
	return n.AddImage(ctx, AppImage, "-user=65532:65532", "-entrypoint=/app", "-cmd=serve", app+"=/app")
}
