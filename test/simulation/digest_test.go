package simulation

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// An independent reading of content: what the hash of a workload is, from the format that
// pkg/dependency documents, with the libraries of Go alone.

func mac(key int, data []byte) []byte {
	h := hmac.New(sha256.New, keyOf(key))
	h.Write(data)
	return h.Sum(nil)[:16]
}

// keyIDs are the names of the keys, as hashes have them.
var keyIDs = func() (ids [100]string) {
	for key := range ids {
		ids[key] = hex.EncodeToString(mac(key, []byte("configdep key id"))[:4])
	}
	return ids
}()

func keyID(key int) string { return keyIDs[key] }

// expectedHash returns the hash of what counts of some contents, and whether these rules are
// simple enough to say.
func expectedHash(key int, r rules, variant int, marks *[sourceCount]mark, present contents) (hash string, can bool) {
	if r.invalid || r.other || r.mode == "matched" {
		return "", false
	}
	text := func(b []byte, s string) []byte { return append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	b := text([]byte("configdep config v1\x00"), namespace)
	scopes := r.scopes(variant, marks)
	for s := range scopes { // in the order of kinds and names
		sc := &scopes[s]
		if !sc.counts() {
			continue
		}
		read := scopeOf(variant, s, false).keys != 0
		if !read && !marks[s].present {
			if r.glob {
				continue // a glob names what is there
			}
		}
		if isSecret(s) {
			b = text(b, "Secret")
		} else {
			b = text(b, "ConfigMap")
		}
		b = text(b, sourceNames[s])
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
	return "v1." + keyID(key) + "." + hex.EncodeToString(mac(key, b)), true
}

// how tells how a value reaches containers: 0, not at all; 1, wherever it is named; 2, as a
// file, while the variables that name it go without.
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
