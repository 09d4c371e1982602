// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// write writes the archive beside its place and then moves it there.
func write(output string, tag name.Tag, image v1.Image, platform v1.Platform) error {
	out, err := os.CreateTemp(filepath.Dir(output), "."+filepath.Base(output)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name()) // it fails once the file has been moved
	defer out.Close()
	if err := writeArchive(out, tag, image, platform); err != nil {
		return err
	}
	if err := out.Chmod(0o644); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.Rename(out.Name(), output)
}

type archiveWriter struct {
	*tar.Writer
	written map[string]bool
}

// add adds a file, unless there is one of this name, as images may have the same layer twice.
func (w *archiveWriter) add(file string, size int64, content io.Reader) error {
	if w.written[file] {
		return nil
	}
	w.written[file] = true
	// The time is that of no file, so that an archive differs only where its image does.
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: file, Size: size, Mode: 0o644, ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	_, err := io.Copy(w, content)
	return err
}

func (w *archiveWriter) addJSON(file string, value any) error {
	content, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return w.add(file, int64(len(content)), bytes.NewReader(content))
}

func blob(digest v1.Hash) string { return path.Join("blobs", digest.Algorithm, digest.Hex) }

func writeArchive(to io.Writer, tag name.Tag, image v1.Image, platform v1.Platform) error {
	w := &archiveWriter{tar.NewWriter(to), map[string]bool{}}
	config, err := image.RawConfigFile()
	if err != nil {
		return err
	}
	configName, err := image.ConfigName()
	if err != nil {
		return err
	}
	if err := w.add(blob(configName), int64(len(config)), bytes.NewReader(config)); err != nil {
		return err
	}
	// What docker and older versions of others read.
	saved := tarball.Descriptor{Config: blob(configName), RepoTags: []string{tag.String()}}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		file, err := addLayer(w, layer)
		if err != nil {
			return err
		}
		saved.Layers = append(saved.Layers, file)
	}
	manifest, err := image.RawManifest()
	if err != nil {
		return err
	}
	descriptor, err := partial.Descriptor(image)
	if err != nil {
		return err
	}
	if err := w.add(blob(descriptor.Digest), int64(len(manifest)), bytes.NewReader(manifest)); err != nil {
		return err
	}
	descriptor.Platform = &platform
	descriptor.ArtifactType = "" // it repeats the type of the configuration, and older programs do not know it
	// containerd takes a name with its registry, and has another name for the default one.
	full := strings.Replace(tag.Name(), name.DefaultRegistry+"/", "docker.io/", 1)
	descriptor.Annotations = map[string]string{"io.containerd.image.name": full, "org.opencontainers.image.ref.name": tag.TagStr()}
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{*descriptor}}
	if err := w.addJSON("oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"}); err != nil {
		return err
	}
	if err := w.addJSON("index.json", index); err != nil {
		return err
	}
	if err := w.addJSON("manifest.json", tarball.Manifest{saved}); err != nil {
		return err
	}
	return w.Close()
}

func addLayer(w *archiveWriter, layer v1.Layer) (string, error) {
	digest, err := layer.Digest()
	if err != nil {
		return "", err
	}
	size, err := layer.Size()
	if err != nil {
		return "", err
	}
	content, err := layer.Compressed()
	if err != nil {
		return "", err
	}
	defer content.Close()
	return blob(digest), w.add(blob(digest), size, content)
}
