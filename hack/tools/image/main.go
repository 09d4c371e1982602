// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Command image makes the archive of a container image, without an engine and without a registry:
//
//	image -output FILE.tar -name REPOSITORY:TAG [FLAG...] FILE=/path DIRECTORY/=/path...
//
// The archive is like that of "docker save", so that docker load, ctr image import, podman load and skopeo take it. The same
// arguments and files give the same bytes: names are sorted, the owner is root, the time is SOURCE_DATE_EPOCH or 1970, and
// modes are 0755 for folders and programs, 0644 for other files, and 1777 for a folder with the sticky bit.
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	config := v1.Config{Labels: map[string]string{}}
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	output := flags.String("output", "", "the archive, which is replaced")
	reference := flags.String("name", "", "REPOSITORY:TAG of the image")
	architecture := flags.String("arch", runtime.GOARCH, "the architecture of the image")
	flags.StringVar(&config.User, "user", "", "the user as UID:GID")
	for flag, words := range map[string]*[]string{"entrypoint": &config.Entrypoint, "cmd": &config.Cmd, "env": &config.Env} {
		flags.Func(flag, "a word of this field of the image, may be repeated", func(word string) error { *words = append(*words, word); return nil })
	}
	flags.Func("label", "NAME=VALUE, may be repeated", func(label string) error {
		key, value, _ := strings.Cut(label, "=")
		config.Labels[key] = value
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	tag, err := name.NewTag(*reference)
	if err != nil {
		return err
	}
	epoch, err := strconv.ParseInt(cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), "0"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	created := time.Unix(epoch, 0).UTC()
	content, err := layerOf(flags.Args(), created)
	if err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
	if err != nil {
		return err
	}
	image, err := mutate.Append(empty.Image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: created}}})
	if err != nil {
		return err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created, file.Config = "linux", *architecture, v1.Time{Time: created}, config
	if image, err = mutate.ConfigFile(image, file); err != nil {
		return err
	}
	return tarball.WriteToFile(*output, tag, image)
}

// layerOf returns a tar archive of what the arguments name.
func layerOf(sources []string, created time.Time) ([]byte, error) {
	files := map[string]string{} // what is copied, by its path in the image
	for _, argument := range sources {
		source, target, found := strings.Cut(argument, "=")
		if !found || !path.IsAbs(target) {
			return nil, fmt.Errorf("%q is not FILE=/path or DIRECTORY/=/path", argument)
		}
		// A link that an argument names stands for what it points to; those inside of folders stay links.
		root, err := filepath.EvalSymlinks(source)
		if err != nil {
			return nil, err
		}
		err = filepath.WalkDir(root, func(file string, _ fs.DirEntry, err error) error {
			if to := path.Join(target, strings.TrimPrefix(file, root)); to != "/" {
				files[to] = file
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	buffer := &bytes.Buffer{}
	archive := tar.NewWriter(buffer)
	for _, to := range slices.Sorted(maps.Keys(files)) {
		if err := add(archive, files[to], strings.TrimPrefix(to, "/"), created); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return buffer.Bytes(), err
}

func add(archive *tar.Writer, file, to string, created time.Time) error {
	info, err := os.Lstat(file)
	if err != nil {
		return err
	}
	header := &tar.Header{Name: to, ModTime: created, Mode: 0o644}
	var content []byte
	switch {
	case info.IsDir():
		header.Typeflag, header.Name, header.Mode = tar.TypeDir, to+"/", 0o755
		if info.Mode()&fs.ModeSticky != 0 {
			header.Mode = 0o1777
		}
	case info.Mode()&fs.ModeSymlink != 0:
		header.Typeflag, header.Mode = tar.TypeSymlink, 0o777
		header.Linkname, err = os.Readlink(file)
	default:
		if info.Mode()&0o111 != 0 {
			header.Mode = 0o755
		}
		content, err = os.ReadFile(file)
		header.Typeflag, header.Size = tar.TypeReg, int64(len(content))
	}
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = archive.Write(content)
	return err
}
