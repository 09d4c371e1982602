// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// AppImage is the image of the application of tests, whose command is "/app serve".
const AppImage = "localhost/configdep-test/app:1"

// Image describes the image of programs.
type Image struct {
	Name string   // with the tag
	Args []string // of hack/tools/image: -entrypoint, FILE=/PATH and so on
}

// Images makes archives of images, and of the images of this package, and returns the paths of all. The first call takes minutes
// because it builds hack/tools/image; progress goes to log.
func Images(ctx context.Context, dir string, log io.Writer, images ...Image) ([]string, error) {
	root, err := repositoryRoot()
	if err != nil {
		return nil, err
	}
	app := filepath.Join(dir, "app")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", app, "./test/node/app")
	build.Dir = root
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the application of tests: %w: %s", err, out)
	}
	var tool bytes.Buffer
	buildTool := exec.CommandContext(ctx, filepath.Join(root, "hack", "tools", "build.sh"), "image")
	buildTool.Stdout, buildTool.Stderr = &tool, log
	if err := buildTool.Run(); err != nil {
		return nil, fmt.Errorf("build the tool that makes images: %w", err)
	}
	images = append([]Image{
		{PauseImage, []string{"-user=65535:65535", "-entrypoint=/app", "-entrypoint=pause", app + "=/app"}},
		{AppImage, []string{"-user=65532:65532", "-entrypoint=/app", "-entrypoint=serve", app + "=/app"}},
	}, images...)
	var archives []string
	for i, image := range images {
		archive := filepath.Join(dir, fmt.Sprintf("%d.tar", i))
		args := append([]string{"-output=" + archive, "-name=" + image.Name}, image.Args...)
		if out, err := exec.CommandContext(ctx, strings.TrimSpace(tool.String()), args...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("make the image %s: %w: %s", image.Name, err, out)
		}
		archives = append(archives, archive)
	}
	return archives, os.Remove(app)
}
