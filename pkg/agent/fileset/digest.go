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
	"sync"
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

// hasher makes digests of sets. It is safe for concurrent use.
type hasher struct {
	key [sha256.Size]byte

	mu sync.Mutex
	// sums are those of the content of the set that was digested last, by the first byte of each: of a set in which one file has changed,
	// only that one is read.
	sums map[*byte]sum
}

// sum is the digest of a content.
type sum struct {
	size  int
	bytes [sha256.Size]byte
}

// begin begins a set. Its files follow in the order of fs.WalkDir.
func (h *hasher) begin() setHash { return setHash{hmac.New(sha256.New, h.key[:])} }

// digest returns the digest of files in the order of fs.WalkDir.
func (h *hasher) digest(files []File) Digest {
	h.mu.Lock()
	defer h.mu.Unlock()
	set, sums := h.begin(), make(map[*byte]sum, len(files))
	for _, f := range files {
		if len(f.Data) == 0 {
			set.add(f.Path, f.Mode, sha256.Sum256(nil))
			continue
		}
		first := &f.Data[0]
		s := h.sums[first]
		if s.size != len(f.Data) {
			s = sum{len(f.Data), sha256.Sum256(f.Data)}
		}
		sums[first] = s
		set.add(f.Path, f.Mode, s.bytes)
	}
	h.sums = sums
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
