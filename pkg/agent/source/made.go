// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
)

// Substitution is whether $(NAME) in content stands for an environment variable of this process.
type Substitution int

// The kinds of substitution.
const (
	NoSubstitution  Substitution = iota
	SubstituteAll                // a variable that is not set is an error
	SubstituteKnown              // the text of a variable that is not set stays
)

// gzipSuffix is what a name ends with if its content must be gzip.
const gzipSuffix = ".gz"

// gzipMagic is how each gzip file begins: two bytes that tell what it is, and the only method of compression that there is.
var gzipMagic = []byte{0x1f, 0x8b, 8}

// origin is content as it was read, for a source that makes other content from it. It is known by its first byte: content does not
// change.
type origin struct {
	spec  *Spec
	first *byte
	size  int
}

// made is what has been made of content.
type made struct {
	data []byte
	err  error
	room int64 // if it was too large: how much room there was
}

// errTooLarge: content does not have enough room.
var errTooLarge = errors.New("too large")

// makes reports whether the source makes other content from what it reads.
func (s *Spec) makes() bool { return s.Gunzip || s.Substitute != NoSubstitution }

// path returns the path of the file of a key.
func (s *Spec) path(k Key) string {
	if s.Gunzip && k.Path == k.Key {
		return strings.TrimSuffix(k.Path, gzipSuffix)
	}
	return k.Path
}

// content returns what a source makes of the content of a key, in at most so many bytes. What it made before of the same content is made
// only once.
func (c *Composer) content(s *Spec, key string, data []byte, room int64) ([]byte, error) {
	if !s.makes() {
		return data, nil
	}
	if len(data) == 0 {
		return c.makeFrom(s, key, data, room)
	}
	o := origin{s, &data[0], len(data)}
	m, has := c.before[o]
	if !has || m.err != nil && m.room < room {
		m = made{room: room}
		m.data, m.err = c.makeFrom(s, key, data, room)
	}
	c.made[o] = m
	if m.err == nil && int64(len(m.data)) > room {
		return nil, errTooLarge
	}
	return m.data, m.err
}

// makeFrom makes content from what has been read. Errors have nothing of it.
func (c *Composer) makeFrom(s *Spec, key string, data []byte, room int64) (_ []byte, err error) {
	if s.Gunzip && (bytes.HasPrefix(data, gzipMagic) || strings.HasSuffix(key, gzipSuffix)) {
		if data, err = gunzip(data, room); err != nil {
			return nil, err
		}
	}
	if s.Substitute != NoSubstitution {
		return substitute(data, s, c.lookup, room)
	}
	return data, nil
}

// gunzip unpacks data into at most so many bytes. It reads data twice, so that the result has the memory that it needs, and data that
// unpacks to more has none.
func gunzip(data []byte, room int64) ([]byte, error) {
	from := bytes.NewReader(data)
	r, err := gzip.NewReader(from)
	if err != nil {
		return nil, gzipError{err}
	}
	size, err := io.Copy(io.Discard, io.LimitReader(r, room+1))
	switch {
	case size > room:
		return nil, errTooLarge
	case err != nil:
		return nil, gzipError{err}
	}
	from.Reset(data)
	if err := r.Reset(from); err != nil {
		return nil, err
	}
	out := make([]byte, size)
	_, err = io.ReadFull(r, out)
	return out, err
}

// gzipError is why content cannot be unpacked.
type gzipError struct{ err error }

func (e gzipError) Error() string {
	if errors.Is(e.err, io.EOF) || errors.Is(e.err, io.ErrUnexpectedEOF) {
		return "is not a complete gzip file"
	}
	return "is not a valid gzip file: " + strings.TrimPrefix(e.err.Error(), "gzip: ")
}

// substitute puts the values of variables in the place of $(NAME), in at most so many bytes.
func substitute(text []byte, s *Spec, lookup func(name string) (string, bool), room int64) ([]byte, error) {
	size, known := int64(len(text)), false
	for r := range references(text) {
		value, set := lookup(r.name)
		switch {
		case set:
			size += int64(len(value)) - int64(r.end-r.start)
			known = true
		case s.Substitute == SubstituteAll:
			return nil, unsetError{name: r.name, line: 1 + bytes.Count(text[:r.start], []byte{'\n'}), hidden: s.Kind != ConfigMap}
		}
	}
	switch {
	case size > room:
		return nil, errTooLarge
	case !known:
		return text, nil
	}
	out, rest := make([]byte, 0, size), 0
	for r := range references(text) {
		if value, set := lookup(r.name); set {
			out = append(append(out, text[rest:r.start]...), value...)
			rest = r.end
		}
	}
	return append(out, text[rest:]...), nil
}

// reference is $(NAME) in a text.
type reference struct {
	name       string
	start, end int
}

// references finds the references in a text. Names have letters, digits and underscores, as in the reloader of the operator of Prometheus.
func references(text []byte) iter.Seq[reference] {
	return func(yield func(reference) bool) {
		for at := 0; ; {
			i := bytes.Index(text[at:], []byte("$("))
			if i < 0 {
				return
			}
			start := at + i
			at = start + len("$(")
			end := at
			for end < len(text) && isName(text[end]) {
				end++
			}
			if end == at || end == len(text) || text[end] != ')' {
				continue
			}
			if !yield(reference{string(text[at:end]), start, end + 1}) {
				return
			}
		}
	}
}

func isName(b byte) bool {
	return b == '_' || b >= '0' && b <= '9' || b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z'
}

// maxName is how long a name may be that an error tells.
const maxName = 64

// unsetError: a variable is not set.
type unsetError struct {
	name   string
	line   int
	hidden bool // the name is content that must not be told
}

func (e unsetError) Error() string {
	name := ""
	if !e.hidden && len(e.name) <= maxName {
		name = " " + e.name
	}
	return fmt.Sprintf("refers to an environment variable%s that is not set, in line %d", name, e.line)
}
