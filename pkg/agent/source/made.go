// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"regexp"
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

// reference matches $(NAME), as the reloader of the operator of Prometheus does.
var reference = regexp.MustCompile(`\$\([A-Za-z0-9_]+\)`)

// substitute puts the values of the named variables in the place of $(NAME), in at most so many bytes. Those who write the text choose
// what it refers to: anything else stays as it is.
func substitute(text []byte, names []string, lookup func(name string) (string, bool), room int64) ([]byte, error) {
	if len(names) == 0 {
		if int64(len(text)) > room {
			return nil, errTooLarge
		}
		return text, nil
	}
	size, most, known := int64(len(text)), int64(len(text))+room, false
	out := reference.ReplaceAllFunc(text, func(r []byte) []byte {
		name := string(r[len("$(") : len(r)-1])
		value, set := lookup(name)
		if !set || !slices.Contains(names, name) {
			return r
		}
		known = true
		if size += int64(len(value) - len(r)); size > most {
			return nil // what follows cannot make it small enough, so no more memory is taken
		}
		return []byte(value)
	})
	switch {
	case size > room:
		return nil, errTooLarge
	case !known:
		return text, nil
	}
	return bytes.Clone(out), nil // without the capacity that is left, because a set has it for long
}
