// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is a file, a folder or a symbolic link of the image.
type file struct {
	mode   fs.FileMode // of the file that source names
	source string      // empty for a parent folder that no argument names
}

// collect returns what the arguments name, by path in the image without the leading slash.
func collect(sources []string) (map[string]file, error) {
	files := map[string]file{}
	for _, argument := range sources {
		source, target, found := strings.Cut(argument, "=")
		if !found || source == "" || !path.IsAbs(target) {
			return nil, fmt.Errorf("%q is not FILE=/path or DIRECTORY/=/path", argument)
		}
		// A link that an argument names stands for what it points to; those inside of folders stay links.
		root, err := filepath.EvalSymlinks(source)
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(root)
		if err != nil {
			return nil, err
		}
		if info.IsDir() != strings.HasSuffix(source, "/") {
			return nil, fmt.Errorf("%q: folders, and nothing else, end in a slash", argument)
		}
		err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			if kind := info.Mode().Type(); kind != 0 && kind != fs.ModeDir && kind != fs.ModeSymlink {
				return fmt.Errorf("%s is neither a file, a folder nor a symbolic link", name)
			}
			relative, err := filepath.Rel(root, name)
			if err != nil {
				return err
			}
			to := strings.TrimPrefix(path.Join(target, filepath.ToSlash(relative)), "/")
			if to == "" {
				return nil // the root of the image
			}
			if old, twice := files[to]; twice && (!old.mode.IsDir() || !info.IsDir()) {
				return fmt.Errorf("both %s and %s are to be /%s", old.source, name, to)
			}
			files[to] = file{mode: info.Mode(), source: name}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// addParents adds the folders in which files are. On a base image they are left out, as they would change the modes of
// folders that it has.
func addParents(files map[string]file) {
	for name := range maps.Clone(files) {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, is := files[dir]; !is {
				files[dir] = file{mode: fs.ModeDir}
			}
		}
	}
}

// layerContent returns the layer, not compressed.
func layerContent(files map[string]file, created time.Time) ([]byte, error) {
	buffer := &bytes.Buffer{}
	archive := tar.NewWriter(buffer)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		// Without fractions of seconds, for which a header would need an extension.
		header := &tar.Header{Name: name, ModTime: created.Truncate(time.Second), Mode: 0o644}
		var content []byte
		var err error
		switch {
		case f.mode.IsDir():
			header.Typeflag, header.Name, header.Mode = tar.TypeDir, name+"/", 0o755
			if f.mode&fs.ModeSticky != 0 {
				header.Mode = 0o1777
			}
		case f.mode.Type() == fs.ModeSymlink:
			header.Typeflag, header.Mode = tar.TypeSymlink, 0o777
			header.Linkname, err = os.Readlink(f.source)
		default:
			header.Typeflag = tar.TypeReg
			if f.mode&0o111 != 0 {
				header.Mode = 0o755
			}
			content, err = os.ReadFile(f.source)
			header.Size = int64(len(content))
		}
		if err != nil {
			return nil, err
		}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(content); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}
