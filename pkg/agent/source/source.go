// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package source reads ConfigMaps, Secrets and mounted volumes, and composes a set of files, and of environment variables, from them.
package source

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/configdep/configdep/pkg/agent/fileset"
)

// Kind is what is read.
type Kind string

// The kinds of sources.
const (
	ConfigMap Kind = "ConfigMap"
	Secret    Kind = "Secret"
	Volume    Kind = "Volume" // a directory, in which the kubelet or others write
)

// Spec is a source as an operator asks for it: one object by its name, the objects that a selector matches, or a directory.
type Spec struct {
	Kind      Kind
	Namespace string          // of the object or the objects
	Name      string          // of the object; of a Volume its path
	Selector  labels.Selector // instead of a name
	// Optional: the object may be missing, and so may its keys.
	Optional bool
	// Dir is the directory of its files, below the directory of all. {namespace} and {name} stand for those of the object.
	Dir string
	// DirAnnotation is the annotation in which an object may have its own Dir.
	DirAnnotation string
	// Keys are the keys to read. None: all.
	Keys []Key
	// Mode has the permissions of the files. 0: the same as of others.
	Mode fs.FileMode
	// Env: the keys become environment variables with the prefix EnvPrefix, and not files.
	Env       bool
	EnvPrefix string
	// Gunzip: content that is gzip is unpacked, and the file loses the suffix ".gz", unless Keys give it another name. Keys with that
	// suffix must be gzip.
	Gunzip bool
	// Substitute names environment variables. In content, once it is unpacked, $(NAME) stands for the value of one of them.
	Substitute []string
}

// Key is a key of an object, and the path of its file below the directory of the source.
type Key struct{ Key, Path string }

// String names the source, as in "Secret shop/tls".
func (s *Spec) String() string {
	switch {
	case s.Kind == Volume:
		return "Volume " + s.Name
	case s.Selector != nil:
		return fmt.Sprintf("%ss in %s with %s", s.Kind, s.Namespace, s.Selector)
	}
	return fmt.Sprintf("%s %s/%s", s.Kind, s.Namespace, s.Name)
}

// Object is what has been read of an object.
type Object struct {
	Namespace, Name      string
	UID, ResourceVersion string
	Dir                  string // of its annotation
	Data                 map[string][]byte

	size int // of the keys and values, in bytes
}

// Version is the version of an object of which a set has the content. Those that are absent have no UID and ResourceVersion.
type Version struct {
	Kind                 Kind
	Namespace, Name      string
	UID, ResourceVersion string
}

// Set is the content of all sources.
type Set struct {
	Files []fileset.File
	Env   []string // NAME=value, in the order of the sources
	// Versions are those of the objects, in order. Volumes have none.
	Versions []Version
	// Ignored has what is no environment variable, for the log.
	Ignored []string
}

// Composer composes sets, one after the other. It makes nothing twice from content that has not changed.
type Composer struct {
	specs    []Spec
	maxBytes int64
	lookup   func(name string) (string, bool)
	before   map[origin]made // of the set before
	made     map[origin]made // of this set
}

// NewComposer returns a composer of sets from sources. What it makes of their content has room in sets of so many bytes. It looks up
// environment variables, which must not change.
func NewComposer(specs []Spec, maxBytes int64, lookup func(name string) (string, bool)) *Composer {
	return &Composer{specs: specs, maxBytes: maxBytes, lookup: lookup}
}

// Compose composes the set of the sources from their objects, which come in the order of their names. The error names everything that is
// wrong, and there is no set then.
func (m *Composer) Compose(objects func(i int) []*Object) (*Set, error) {
	m.before, m.made = m.made, map[origin]made{}
	c := composition{Composer: m, set: &Set{}, from: map[string]string{}}
	for i := range m.specs {
		c.add(&m.specs[i], objects(i))
	}
	m.before = nil
	slices.SortFunc(c.set.Versions, func(a, b Version) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	c.set.Versions = slices.Compact(c.set.Versions)
	if err := errors.Join(c.errs...); err != nil {
		return nil, err
	}
	if err := fileset.Check(c.set.Files); err != nil {
		return nil, err
	}
	return c.set, nil
}

// composition is a set that is being composed.
type composition struct {
	*Composer
	set         *Set
	from        map[string]string // which source a file is from, by its path
	size        int64             // of the files
	environment int               // the size of the variables, as for execve
	full        bool              // there is no room for what would have to be made: no more is
	errs        []error
}

func (c *composition) fail(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

func (c *composition) add(s *Spec, objects []*Object) {
	if s.Selector == nil && len(objects) == 0 {
		if s.Kind != Volume {
			c.set.Versions = append(c.set.Versions, Version{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name})
		}
		if !s.Optional {
			c.fail("%s does not exist", s)
		}
		return
	}
	for _, o := range objects {
		if s.Kind != Volume {
			c.set.Versions = append(c.set.Versions, Version{s.Kind, o.Namespace, o.Name, o.UID, o.ResourceVersion})
		}
		c.object(s, o)
	}
}

func (c *composition) object(s *Spec, o *Object) {
	name := string(s.Kind) + " " + o.Name
	if s.Kind != Volume {
		name = fmt.Sprintf("%s %s/%s", s.Kind, o.Namespace, o.Name)
	}
	keys := s.Keys
	if len(keys) == 0 {
		for _, key := range slices.Sorted(maps.Keys(o.Data)) {
			keys = append(keys, Key{key, key})
		}
	}
	dir, err := s.dir(o)
	if err != nil {
		c.fail("%s: %w", name, err)
		return
	}
	for _, k := range keys {
		data, has := o.Data[k.Key]
		switch {
		case has && s.Env:
			c.variable(s.EnvPrefix+k.Path, data, name)
		case has:
			if data, made := c.make(s, k.Key, data, name); made {
				c.file(fileset.File{Path: path.Join(dir, s.path(k)), Data: data, Mode: s.Mode}, name)
			}
		case !s.Optional:
			c.fail("%s has no key %q", name, k.Key)
		}
	}
}

// make returns the content of the file of a key, if there is one.
func (c *composition) make(s *Spec, key string, data []byte, from string) (out []byte, ok bool) {
	if c.full && s.makes() {
		return nil, false // which has been told
	}
	out, err := c.content(s, key, data, c.maxBytes-c.size)
	switch {
	case errors.Is(err, errTooLarge):
		c.full = true
		c.fail("%s: with key %q, the files have more than %d bytes", from, key, c.maxBytes)
	case err != nil:
		c.fail("%s: key %q %w", from, key, err)
	}
	return out, err == nil
}

// dir returns the directory of the files of an object, "" if it is that of all.
func (s *Spec) dir(o *Object) (string, error) {
	dir := strings.NewReplacer("{namespace}", o.Namespace, "{name}", o.Name).Replace(s.Dir)
	if s.DirAnnotation != "" && o.Dir != "" {
		if err := fileset.CheckPath(o.Dir); err != nil {
			return "", fmt.Errorf("annotation %s: %w", s.DirAnnotation, err)
		}
		dir = path.Join(dir, o.Dir)
	}
	return dir, nil
}

func (c *composition) file(f fileset.File, from string) {
	if other, twice := c.from[f.Path]; twice {
		if other == from { // of two keys, or by two flags
			c.fail("file %q comes twice from %s", f.Path, from)
		} else {
			c.fail("file %q is in both %s and %s", f.Path, other, from)
		}
		return
	}
	c.from[f.Path] = from
	c.size += int64(len(f.Data))
	c.set.Files = append(c.set.Files, f)
}

// variable adds an environment variable. As with the kubelet, the last one of a name counts, and keys that cannot be names are
// ignored.
func (c *composition) variable(name string, value []byte, from string) {
	if len(validation.IsEnvVarName(name)) != 0 || slices.Contains(value, 0) {
		c.set.Ignored = append(c.set.Ignored, fmt.Sprintf("%s in %s", name, from))
		return
	}
	size := len(name) + len("=") + len(value) + 1 // and NUL
	if size > maxVariable {
		c.fail("%s: environment variable %s has %d bytes, and %d are allowed", from, name, size, maxVariable)
		return
	}
	const pointer = 8
	if c.environment += size + pointer; c.environment-size-pointer <= maxEnvironment && c.environment > maxEnvironment {
		c.fail("%s: with environment variable %s, these have more than %d bytes", from, name, maxEnvironment)
		return
	}
	c.set.Env = append(c.set.Env, name+"="+string(value))
}

// Linux starts no program with a longer variable (MAX_ARG_STRLEN, with pages of 4 KiB), or with arguments and environment of more than a
// quarter of the limit of the stack, which is 8 MiB by default (execve(2)). Half of that is for the variables of sources, so that the
// application is not stopped for a restart that cannot succeed.
const (
	maxVariable    = 128 << 10
	maxEnvironment = 1 << 20
)
