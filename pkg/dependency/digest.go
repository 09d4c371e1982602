// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// KeySize is the size in bytes of the key of a Digester.
const KeySize = 32

// Digest is a keyed hash of the content of one key of a source. Without the key of the
// Digester, it cannot be checked against a guess, however short the content is.
type Digest [16]byte

// Digester computes digests: HMAC-SHA256, truncated to 16 bytes. It is safe for
// concurrent use.
type Digester struct {
	// keyID identifies the key without revealing anything about it.
	keyID string
	macs  sync.Pool // of *mac
}

// NewDigester returns a Digester with the given key, whose length the caller has checked
// to be KeySize.
func NewDigester(key []byte) *Digester {
	d := &Digester{}
	d.macs.New = func() any { return &mac{Hash: hmac.New(sha256.New, key)} }
	id := d.digest([]byte("configdep key id"))
	d.keyID = hex.EncodeToString(id[:4])
	return d
}

// Derive returns a secret for another purpose than digests. It reveals nothing about the key, and is the same on every
// replica with the same key. It is made with a derived key, which is longer than a digest, so that no digest is half
// of a secret, whatever content is digested.
func (d *Digester) Derive(purpose string) (secret [sha256.Size]byte) {
	m := d.macs.Get().(*mac)
	defer d.macs.Put(m)
	m.Reset()
	m.Write([]byte("configdep derived key"))
	derived := hmac.New(sha256.New, m.Sum(nil))
	m.Reset()
	derived.Write([]byte(purpose))
	derived.Sum(secret[:0])
	return secret
}

// mac is a hash with the buffers that it needs.
type mac struct {
	hash.Hash
	sum    [sha256.Size]byte
	prefix []byte
}

func (d *Digester) digest(content []byte) Digest {
	m := d.macs.Get().(*mac)
	defer d.macs.Put(m)
	return m.digest(content)
}

func (m *mac) digest(pieces ...[]byte) (out Digest) {
	m.Reset()
	for _, piece := range pieces {
		m.Write(piece)
	}
	copy(out[:], m.Sum(m.sum[:0]))
	// The hash keeps the last block of what it has read until it is overwritten.
	m.Reset()
	m.Write(zeros[:])
	return out
}

var zeros [sha256.BlockSize - 1]byte

// Content digests the value of one key and overwrites it, so that a secret is not left
// in memory that the garbage collector has yet to free.
func (d *Digester) Content(value []byte) Digest {
	out := d.digest(value)
	clear(value)
	return out
}

// KeyOf returns the prefix of a hash: v1.<key id>. with the dot. Hashes with different prefixes
// cannot be compared.
func KeyOf(hash string) string { return hash[:strings.LastIndexByte(hash, '.')+1] }

// AppendContent appends the digests of the content that a reference reads from a source, which
// may be nil, to those of other references.
func AppendContent(b []byte, r *Reference, source *Source) []byte {
	if !r.Reads() {
		return b
	}
	b = appendString(b, string(r.Kind))
	b = appendString(b, r.Name)
	keys, all := r.Keys()
	if all {
		return appendAll(b, source)
	}
	return appendKeys(b, keys, source)
}

// ContentHash is a hash of the content that a workload consumes, given the result of
// AppendContent for each of its references, in order: each key that its pods read, present or
// absent, with its digest. Names and keys are ordered and their lengths are part of the input,
// so that different contents have different inputs. Metadata is not part of the input, and an
// absent source is the same as one without the keys: the pods see no difference. The namespace
// is part of it, so that users cannot test the content of a Secret with one of the same name in
// another namespace. Its form is v1.<key id>.<digest>.
func (d *Digester) ContentHash(namespace string, content []byte) string {
	sum := d.ContentDigest(namespace, content)
	return "v1." + d.keyID + "." + hex.EncodeToString(sum[:])
}

// ContentDigest is the digest in ContentHash.
func (d *Digester) ContentDigest(namespace string, content []byte) Digest {
	return d.shown("configdep config v1", content, namespace)
}

// FieldDigest returns the digest of the value of a field of the object with a UID.
func (d *Digester) FieldDigest(uid types.UID, path string, value []byte) Digest {
	return d.shown("configdep field v1", value, string(uid), path)
}

// shown returns a digest that users see. Its input begins with its purpose, and no digest of Content is ever shown, so no digest that is
// shown can be made to equal one of another purpose.
func (d *Digester) shown(purpose string, content []byte, names ...string) Digest {
	m := d.macs.Get().(*mac)
	defer d.macs.Put(m)
	m.prefix = append(append(m.prefix[:0], purpose...), 0)
	for _, name := range names {
		m.prefix = appendString(m.prefix, name)
	}
	return m.digest(m.prefix, content)
}

// appendAll appends every key, and an end mark after the last.
func appendAll(b []byte, source *Source) []byte {
	if source != nil {
		b = slices.Grow(b, len(source.Keys)*(1+1+len("app.properties")+len(Digest{}))) // about
		for i := range source.Keys {
			k := &source.Keys[i]
			b = append(b, 1)
			b = appendString(b, k.Key)
			b = append(b, k.Digest[:]...)
		}
	}
	return append(b, 0)
}

func appendKeys(b []byte, keys []string, source *Source) []byte {
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for _, key := range keys {
		b = appendString(b, key)
		if k := source.key(key); k == nil {
			b = append(b, 0)
		} else {
			b = append(append(b, 1), k.Digest[:]...)
		}
	}
	return b
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}
