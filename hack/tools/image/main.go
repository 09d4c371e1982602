// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Command image makes the archive of a container image, without an engine and without a registry:
//
//	image -output FILE.tar -name REPOSITORY:TAG [-base ARCHIVE|LAYOUT] [FLAG...] FILE=/path DIRECTORY/=/path...
//
// The archive is an OCI layout that has the index of "docker save" as well, so that ctr image import, docker load, podman
// load and skopeo take it. The same arguments and files give the same bytes: names are sorted, the owner is root, the time
// is that of -created, and modes are 0755 for folders and programs, 0644 for other files, and 1777 for a folder with the
// sticky bit.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

type options struct {
	output, name, base   string
	platform, user       string
	created              string
	entrypoint, command  list
	env, labels, sources list // sources: what the image gets, as FILE=/path or DIRECTORY/=/path
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string { return strings.Join(*l, " ") }

func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	o := options{}
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&o.output, "output", "", "the archive, which is replaced")
	flags.StringVar(&o.name, "name", "", "REPOSITORY:TAG of the image")
	flags.StringVar(&o.base, "base", "", "the archive (of docker save, or of this program) or the folder (an OCI layout) of the base image; by default none")
	flags.StringVar(&o.platform, "platform", "linux/amd64", "OS/ARCHITECTURE of the image")
	flags.StringVar(&o.user, "user", "", "the user as UID:GID; by default that of the base image")
	flags.StringVar(&o.created, "created", "", "the time in RFC 3339; by default that of SOURCE_DATE_EPOCH, or 1970")
	flags.Var(&o.entrypoint, "entrypoint", "a word of the entrypoint, may be repeated; by default that of the base image")
	flags.Var(&o.command, "cmd", "a word of the default arguments, may be repeated")
	flags.Var(&o.env, "env", "NAME=VALUE of an environment variable, may be repeated")
	flags.Var(&o.labels, "label", "NAME=VALUE of a label, may be repeated")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.sources = flags.Args()
	if o.output == "" || o.name == "" {
		return errors.New("-output and -name are required")
	}
	for _, pair := range slices.Concat(o.env, o.labels) {
		if before, _, found := strings.Cut(pair, "="); !found || before == "" {
			return fmt.Errorf("%q is not NAME=VALUE", pair)
		}
	}
	tag, err := name.NewTag(o.name)
	if err != nil {
		return err
	}
	platform, err := v1.ParsePlatform(o.platform)
	if err != nil {
		return err
	}
	created, err := creation(o.created, os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return err
	}
	image, err := build(&o, *platform, created)
	if err != nil {
		return err
	}
	return write(o.output, tag, image, *platform)
}

// creation returns the time of the image.
func creation(given, epoch string) (time.Time, error) {
	switch {
	case given != "":
		return time.Parse(time.RFC3339, given)
	case epoch != "":
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		return time.Unix(seconds, 0).UTC(), nil
	default:
		return time.Unix(0, 0).UTC(), nil
	}
}
