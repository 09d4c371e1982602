// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package fileset

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"
	"io/fs"
)

// Digest tells whether two sets are the same: in paths, permissions and content. Its key is made by the process, so that it tells nothing
// about the content to others. The zero value is the digest of no set.
type Digest [sha256.Size]byte

// String returns the first bytes of the digest, in hexadecimal digits, or "none".
func (d Digest) String() string {
	if d == (Digest{}) {
		return "none"
	}
	return hex.EncodeToString(d[:8])
}

// hasher makes digests of sets.
type hasher struct{ key [sha256.Size]byte }

// begin begins a set. Its files follow in the order of fs.WalkDir.
func (h *hasher) begin() setHash { return setHash{hmac.New(sha256.New, h.key[:])} }

// digest returns the digest of files in the order of fs.WalkDir.
func (h *hasher) digest(files []File) Digest {
	set := h.begin()
	for _, f := range files {
		set.add(f.Path, f.Mode, sha256.Sum256(f.Data))
	}
	return set.sum()
}

// setHash makes the digest of a set.
type setHash struct{ hash.Hash }

func (h setHash) add(path string, mode fs.FileMode, content [sha256.Size]byte) {
	var head [12]byte
	binary.BigEndian.PutUint64(head[:], uint64(len(path)))
	binary.BigEndian.PutUint32(head[8:], uint32(mode))
	_, _ = h.Write(head[:])
	_, _ = io.WriteString(h, path)
	_, _ = h.Write(content[:])
}

func (h setHash) sum() (out Digest) {
	h.Sum(out[:0])
	return out
}
