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
	"k8s.io/apimachinery/pkg/selection"
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

// nameOf names an object of the source, as in "Secret shop/tls".
func (s *Spec) nameOf(o *Object) string {
	if s.Kind == Volume {
		return "Volume " + o.Name
	}
	return fmt.Sprintf("%s %s/%s", s.Kind, o.Namespace, o.Name)
}

// Object is what has been read of an object.
type Object struct {
	Namespace, Name      string
	UID, ResourceVersion string
	Created              string // as in RFC 3339
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

// Rejected is an object of a selector that is not in the set, because nothing can be made of it, and why. One without a name is a selector
// that can match nothing.
type Rejected struct {
	Kind            Kind
	Namespace, Name string
	Why             string
}

// maxRejected is how many objects Rejections names.
const maxRejected = 10

// Rejections names rejected objects, and why they are.
func Rejections(rejected []Rejected) string {
	var out []string
	for _, r := range rejected[:min(len(rejected), maxRejected)] {
		out = append(out, r.Why)
	}
	if more := len(rejected) - maxRejected; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, "; ")
}

// Set is the content of all sources.
type Set struct {
	Files []fileset.File
	Env   []string // NAME=value, in the order of the sources
	// Versions are those of the objects, in order. Volumes have none.
	Versions []Version
	// Ignored has what is no environment variable, for the log.
	Ignored []string
	// Rejected are objects of selectors that the set is without.
	Rejected []Rejected
}

// Composer composes sets, one after the other. It makes nothing twice from content that has not changed.
type Composer struct {
	specs    []Spec
	dir      string
	maxBytes int64
	lookup   func(name string) (string, bool)
	before   map[origin]made // of the set before
	made     map[origin]made // of this set

	// Foreign reports whether others have a file with a name in the directory. nil: they have none.
	Foreign func(name string) bool
}

// NewComposer returns a composer of sets from sources, for a directory, whose path is absolute. What it makes of their content has room in
// sets of so many bytes. It looks up environment variables, which must not change.
func NewComposer(specs []Spec, dir string, maxBytes int64, lookup func(name string) (string, bool)) *Composer {
	return &Composer{specs: specs, dir: dir, maxBytes: maxBytes, lookup: lookup}
}

// Compose composes the set of the sources from their objects, which come in the order of their names. The error names everything that is
// wrong with sources by name and volumes, and there is no set then. An object of a selector is rejected alone: anyone who may label an
// object could stop the application otherwise. So sources by name come first, and of two objects of selectors the older one.
func (m *Composer) Compose(objects func(i int) []*Object) (*Set, error) {
	m.before, m.made = m.made, map[origin]made{}
	c := composition{Composer: m, set: &Set{}, paths: map[string]place{}}
	for _, selectors := range []bool{false, true} {
		for i := range m.specs {
			if (m.specs[i].Selector != nil) == selectors {
				c.add(i, objects(i))
			}
		}
	}
	m.before = nil
	slices.SortFunc(c.set.Versions, func(a, b Version) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	c.set.Versions = slices.Compact(c.set.Versions)
	if err := errors.Join(c.errs...); err != nil {
		return nil, err
	}
	slices.SortStableFunc(c.variables, func(a, b variable) int { return cmp.Compare(a.spec, b.spec) })
	for _, v := range c.variables {
		c.set.Env = append(c.set.Env, v.text)
	}
	c.set.Files, c.set.Ignored = c.files, c.ignored
	return c.set, nil
}

// composition is a set that is being composed.
type composition struct {
	*Composer
	set   *Set
	paths map[string]place
	overs int // how often there was no room for what would have to be made
	parts
}

// maxOvers is how often content is unpacked for which there is no room: each time takes as long as for all that there is room for.
const maxOvers = 10

// maxQuoted is how many characters of an annotation an error quotes.
const maxQuoted = 100

// parts are what a composition has so far. An object that is rejected leaves them as they were.
type parts struct {
	files       []fileset.File
	variables   []variable
	ignored     []string
	size        int64    // of the files
	environment int      // the size of the variables, as for execve
	taken       []string // the keys of paths
	errs        []error
}

// place is what a path is in a set: a file, or a directory.
type place struct {
	from string
	dir  bool
}

// variable is an environment variable, as NAME=value, of a source.
type variable struct {
	spec int
	text string
}

func (c *composition) fail(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

func (c *composition) add(i int, objects []*Object) {
	s := &c.specs[i]
	switch {
	case s.Selector != nil:
		if len(objects) == 0 && asksForEmpty(s.Selector) {
			c.set.Rejected = append(c.set.Rejected, Rejected{s.Kind, s.Namespace, "", fmt.Sprintf(
				"there are no %s: an empty value matches only labels without a value; the name of a label alone matches every value", s)})
		}
		objects = slices.SortedStableFunc(slices.Values(objects), func(a, b *Object) int { return cmp.Compare(a.Created, b.Created) })
	case len(objects) == 0:
		if s.Kind != Volume {
			c.set.Versions = append(c.set.Versions, Version{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name})
		}
		if !s.Optional {
			c.fail("%s does not exist", s)
		}
	}
	for _, o := range objects {
		before := c.parts
		c.object(i, o)
		if s.Selector != nil && len(c.errs) > len(before.errs) {
			name := s.nameOf(o)
			why := strings.TrimPrefix(c.errs[len(before.errs)].Error(), name+": ")
			c.set.Rejected = append(c.set.Rejected, Rejected{s.Kind, o.Namespace, o.Name, name + " is left out: " + why})
			for _, p := range c.taken[len(before.taken):] {
				delete(c.paths, p)
			}
			c.parts = before
			continue
		}
		if s.Kind != Volume {
			c.set.Versions = append(c.set.Versions, Version{s.Kind, o.Namespace, o.Name, o.UID, o.ResourceVersion})
		}
	}
}

// asksForEmpty reports whether a selector asks for a label whose value is empty.
func asksForEmpty(s labels.Selector) bool {
	requirements, _ := s.Requirements()
	return slices.ContainsFunc(requirements, func(r labels.Requirement) bool {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			return r.Values().Has("")
		}
		return false
	})
}

func (c *composition) object(i int, o *Object) {
	s := &c.specs[i]
	name := s.nameOf(o)
	keys := s.Keys
	if len(keys) == 0 {
		for _, key := range slices.Sorted(maps.Keys(o.Data)) {
			keys = append(keys, Key{key, key})
		}
	}
	dir, err := c.dirOf(s, o)
	if err != nil {
		c.fail("%s: %w", name, err)
		return
	}
	for _, k := range keys {
		data, has := o.Data[k.Key]
		switch {
		case has && s.Env:
			c.variable(i, s.EnvPrefix+k.Path, data, name)
		case has:
			if data, made := c.make(s, k.Key, data, name); made {
				c.file(s, fileset.File{Path: path.Join(dir, s.path(k)), Data: data, Mode: s.Mode}, name)
			}
		case !s.Optional:
			c.fail("%s: there is no key %q", name, k.Key)
		}
	}
}

// make returns the content of the file of a key, if there is one.
func (c *composition) make(s *Spec, key string, data []byte, from string) (out []byte, ok bool) {
	err := errTooLarge
	if c.overs < maxOvers || !s.makes() {
		out, err = c.content(s, key, data, c.maxBytes-c.size)
	}
	switch {
	case errors.Is(err, errTooLarge):
		if c.overs++; s.Selector == nil && c.overs > 1 {
			break // which has been told
		}
		c.fail("%s: with key %q, the files have more than %d bytes", from, key, c.maxBytes)
	case err != nil:
		c.fail("%s: key %q %w", from, key, err)
	}
	return out, err == nil
}

// dirOf returns the directory of the files of an object, "" if it is that of all.
func (c *composition) dirOf(s *Spec, o *Object) (string, error) {
	dir := strings.NewReplacer("{namespace}", o.Namespace, "{name}", o.Name).Replace(s.Dir)
	if s.DirAnnotation == "" || o.Dir == "" {
		return dir, nil
	}
	below, err := Below(path.Join(c.dir, dir), o.Dir)
	if err != nil {
		return "", fmt.Errorf("annotation %s: %w", s.DirAnnotation, err)
	}
	return path.Join(dir, below), nil
}

// Below returns the path of a directory relative to one that it is in, or "" if both are the same. It may be absolute, and may end in a
// slash.
func Below(parent, dir string) (string, error) {
	clean := path.Clean(dir)
	if path.IsAbs(clean) {
		below, is := strings.CutPrefix(clean+"/", strings.TrimSuffix(parent, "/")+"/")
		if !is {
			return "", fmt.Errorf("directory %.*q is not below %s", maxQuoted, dir, parent)
		}
		clean = path.Clean(below)
	}
	if clean == "." {
		return "", nil
	}
	return clean, fileset.CheckPath(clean)
}

func (c *composition) file(s *Spec, f fileset.File, from string) {
	if err := c.take(s, f.Path, from); err != nil {
		c.errs = append(c.errs, err)
		return
	}
	if c.size += int64(len(f.Data)); s.Selector != nil && c.size > c.maxBytes {
		c.fail("%s: with file %q, the files have more than %d bytes", from, f.Path, c.maxBytes)
	}
	c.files = append(c.files, f)
}

// take takes the path of a file for a source, unless it cannot be in the set.
func (c *composition) take(s *Spec, file, from string) error {
	if err := fileset.CheckPath(file); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	first, _, _ := strings.Cut(file, "/")
	other, taken := c.paths[file]
	switch {
	case taken && other.dir:
		return fmt.Errorf("%q is a file of %s and a directory of %s", file, from, other.from)
	case taken && other.from == from: // of two keys, or by two flags
		return fmt.Errorf("file %q comes twice from %s", file, from)
	case taken:
		return fmt.Errorf("file %q is in both %s and %s", file, other.from, from)
	case s.Selector != nil && c.Foreign != nil && c.Foreign(first): // of other sources the write fails, and is tried again
		return fmt.Errorf("%s: %q %w", from, first, fileset.ErrForeign)
	}
	c.put(file, place{from: from})
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		switch other, taken := c.paths[dir]; {
		case taken && other.dir:
			return nil // and so are those above it
		case taken:
			return fmt.Errorf("%q is a file of %s and a directory of %s", dir, other.from, from)
		}
		c.put(dir, place{from, true})
	}
	return nil
}

func (c *composition) put(p string, as place) {
	c.paths[p] = as
	c.taken = append(c.taken, p)
}

// variable adds an environment variable. As with the kubelet, the last one of a name counts, and keys that cannot be names are
// ignored.
func (c *composition) variable(spec int, name string, value []byte, from string) {
	if len(validation.IsEnvVarName(name)) != 0 || slices.Contains(value, 0) {
		c.ignored = append(c.ignored, fmt.Sprintf("%s in %s", name, from))
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
	c.variables = append(c.variables, variable{spec, name + "=" + string(value)})
}

// Linux starts no program with a longer variable (MAX_ARG_STRLEN, with pages of 4 KiB), or with arguments and environment of more than a
// quarter of the limit of the stack, which is 8 MiB by default (execve(2)). Half of that is for the variables of sources, so that the
// application is not stopped for a restart that cannot succeed.
const (
	maxVariable    = 128 << 10
	maxEnvironment = 1 << 20
)
