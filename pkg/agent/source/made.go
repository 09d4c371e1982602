// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
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
func (s *Spec) makes() bool { return s.Gunzip || len(s.Substitute) != 0 }

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
	return substitute(data, s.Substitute, c.lookup, room)
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

// substitute puts the values of the named variables in the place of $(NAME), in at most so many bytes. Those who write the text choose
// what it refers to: anything else stays as it is.
func substitute(text []byte, names []string, lookup func(name string) (string, bool), room int64) ([]byte, error) {
	valueOf := func(r reference) (value string, found bool) {
		if slices.Contains(names, r.name) {
			value, found = lookup(r.name)
		}
		return value, found
	}
	size, known := int64(len(text)), false
	for r := range references(text) {
		if value, found := valueOf(r); found {
			size += int64(len(value)) - int64(r.end-r.start)
			known = true
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
		if value, found := valueOf(r); found {
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
