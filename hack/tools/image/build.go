// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// build returns the base image with a layer of the sources, and with the settings of the options. It is an image of OCI
// whatever the base is, as a manifest of docker may not have layers of the other kind.
func build(o *options, platform v1.Platform, created time.Time) (v1.Image, error) {
	base, err := baseImage(o.base, platform)
	if err != nil {
		return nil, fmt.Errorf("base image %s: %w", o.base, err)
	}
	old, err := base.ConfigFile()
	if err != nil {
		return nil, err
	}
	config := old.DeepCopy()
	config.OS, config.Architecture, config.Variant = platform.OS, platform.Architecture, platform.Variant
	config.Created = v1.Time{Time: created}
	set(&config.Config, o)

	layers, err := base.Layers()
	if err != nil {
		return nil, err
	}
	files, err := collect(o.sources)
	if err != nil {
		return nil, err
	}
	if len(files) > 0 {
		if o.base == "" {
			addParents(files)
		}
		layer, err := newLayer(files, created)
		if err != nil {
			return nil, err
		}
		id, err := layer.DiffID()
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, id)
		config.History = append(config.History, v1.History{Created: config.Created, CreatedBy: "image " + strings.Join(targets(o.sources), " ")})
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, layer := range layers {
		kind, err := layer.MediaType()
		if err != nil {
			return nil, err
		}
		if kind == types.DockerLayer {
			kind = types.OCILayer // the same by another name
		}
		if image, err = mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: kind}); err != nil {
			return nil, err
		}
	}
	return mutate.ConfigFile(image, config)
}

// targets returns the paths in the image, for its history.
func targets(sources []string) (paths []string) {
	for _, source := range sources {
		_, target, _ := strings.Cut(source, "=")
		paths = append(paths, target)
	}
	return paths
}

func newLayer(files map[string]file, created time.Time) (v1.Layer, error) {
	content, err := layerContent(files, created)
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer))
}

// set changes the settings that the options have.
func set(config *v1.Config, o *options) {
	if o.user != "" {
		config.User = o.user
	}
	if o.entrypoint != nil {
		// The default arguments of the base image are those of another program.
		config.Entrypoint, config.Cmd = o.entrypoint, nil
	}
	if o.command != nil {
		config.Cmd = o.command
	}
	for _, pair := range o.env {
		variable, _, _ := strings.Cut(pair, "=")
		config.Env = slices.DeleteFunc(config.Env, func(old string) bool { return strings.HasPrefix(old, variable+"=") })
		config.Env = append(config.Env, pair)
	}
	for _, pair := range o.labels {
		if config.Labels == nil {
			config.Labels = map[string]string{}
		}
		label, value, _ := strings.Cut(pair, "=")
		config.Labels[label] = value
	}
}

// baseImage returns the image of an archive or of an OCI layout for the platform, or an empty one.
func baseImage(base string, platform v1.Platform) (v1.Image, error) {
	if base == "" {
		return empty.Image, nil
	}
	images, err := imagesOf(base)
	if err != nil {
		return nil, err
	}
	// By what the images say themselves: an index need not name platforms.
	var found v1.Image
	for _, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		if config.OS != platform.OS || config.Architecture != platform.Architecture {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("it has several images for %s", platform)
		}
		found = image
	}
	if found == nil {
		return nil, fmt.Errorf("it has no image for %s", platform)
	}
	return found, nil
}

func imagesOf(base string) ([]v1.Image, error) {
	info, err := os.Stat(base)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		image, err := tarball.ImageFromPath(base, nil)
		return []v1.Image{image}, err
	}
	index, err := layout.ImageIndexFromPath(base)
	if err != nil {
		return nil, err
	}
	return partial.FindImages(index, func(found v1.Descriptor) bool { return found.MediaType.IsImage() })
}
