// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/big"
)

// An independent computation of hashes, from the format that pkg/dependency documents, with the standard library
// alone.

func mac(key int, data []byte) []byte {
	h := hmac.New(sha256.New, keyOf(key))
	h.Write(data)
	return h.Sum(nil)[:16]
}

// keyIDs are the ids of the keys in hashes.
var keyIDs = func() (ids [100]string) {
	for key := range ids {
		ids[key] = hex.EncodeToString(mac(key, []byte("configdep key id"))[:4])
	}
	return ids
}()

func keyID(key int) string { return keyIDs[key] }

// expectedHash returns the hash of the parts of contents that count, and whether the rules are simple enough for
// this function.
func expectedHash(key int, r rules, variant int, marks *[sourceCount]mark, present contents) (hash string, can bool) {
	if r.invalid || r.other || r.matches() || r.pattern || r.glob && r.whole != 0 {
		return "", false
	}
	text := func(b []byte, s string) []byte { return append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	b := text([]byte("configdep config v1\x00"), namespace)
	scopes := r.scopes(variant, marks)
	for s := range scopes { // sorted by kind and name
		sc := &scopes[s]
		if !sc.counts() {
			continue
		}
		if read := scopeOf(variant, s, false).keys != 0; !read && r.glob && r.extra.has(s) {
			continue // only the glob names it
		}
		b = text(text(b, kindOf(s)), sourceNames[s])
		n := 0
		for k := range keyCount {
			if sc.keys.has(k) {
				n++
			}
		}
		if !sc.all {
			b = binary.AppendUvarint(b, uint64(n))
		}
		for k := range keyCount {
			how := sc.how(s, k, present[s][k])
			if !sc.keys.has(k) || sc.all && how == 0 {
				continue
			}
			if sc.all {
				b = append(b, how)
				b = text(b, keyNames[k])
			} else {
				b = text(b, keyNames[k])
				b = append(b, how)
			}
			if how != 0 {
				b = append(b, mac(key, []byte{'0' + byte(present[s][k])})...)
			}
		}
		if sc.all {
			b = append(b, 0)
		}
	}
	if r.glob {
		count, sum := int64(0), new(big.Int)
		for s := range scopes {
			if !r.extra.has(s) || !scopes[s].annotted || !marks[s].present {
				continue
			}
			content := text(text(nil, kindOf(s)), sourceNames[s])
			for k := range keyCount {
				if present[s][k] != 0 {
					content = append(text(append(content, 1), keyNames[k]), mac(key, []byte{'0' + byte(present[s][k])})...)
				}
			}
			count++
			sum.Add(sum, new(big.Int).SetBytes(mac(key, append(content, 0))))
		}
		pattern := map[sourceSet][2]string{0b0011: {"ConfigMap", "c*"}, 0b1100: {"Secret", "s?"}}[r.extra]
		b = binary.AppendUvarint(text(text(b, pattern[0]), pattern[1]), uint64(count))
		b = append(b, sum.Mod(sum, new(big.Int).Lsh(big.NewInt(1), 128)).FillBytes(make([]byte, 16))...)
	}
	return "v1." + keyID(key) + "." + hex.EncodeToString(mac(key, b)), true
}

func kindOf(source int) string {
	if isSecret(source) {
		return "Secret"
	}
	return "ConfigMap"
}

// how returns how a value reaches containers: 0, not at all; 1, wherever it is named; 2, only as a file, not in
// variables.
func (s *scope) how(source, key int, v value) byte {
	switch {
	case v == 0:
		return 0
	case !isBinary(source, v):
		return 1
	case !s.files.has(key):
		return 0
	case s.variables.has(key):
		return 2
	default:
		return 1
	}
}
