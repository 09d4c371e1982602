// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"strings"
)

// There are few sources with simple contents, so that equal content recurs and workloads share sources. The first
// two are ConfigMaps, the others Secrets.
const (
	sourceCount = 4
	keyCount    = 3
	valueCount  = 6 // besides absent
)

var (
	sourceNames = [sourceCount]string{"c0", "c1", "s0", "s1"}
	keyNames    = [keyCount]string{"a", "b", "c"}
)

func isSecret(source int) bool { return source >= 2 }

// value is the value of one key; 0: the key is absent.
type value uint8

// isBinary reports whether a source stores a value in binaryData.
func isBinary(source int, v value) bool { return !isSecret(source) && v > 4 }

// content is the content of one source. An absent source has no keys, and a present one has some.
type content [keyCount]value

// contents is the content of all sources.
type contents [sourceCount]content

func (c content) String() string {
	var parts []string
	for k, v := range c {
		if v != 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", keyNames[k], v))
		}
	}
	return "{" + strings.Join(parts, " ") + "}"
}

// keySet is a set of keys.
type keySet uint8

const allKeys keySet = 1<<keyCount - 1

func (s keySet) has(key int) bool { return s&(1<<key) != 0 }

// values is a set of values. If the value 0 is among them, bits above those of values say why.
type values uint16

const (
	ofAbsent  values = 1 << (valueCount + 1 + iota) // the source is absent
	ofLacking                                       // the source lacks the key
)

func only(v value) values { return 1 << v }

// at returns the value of a key, as a set.
func (c content) at(key int) values {
	switch {
	case c[key] != 0:
		return only(c[key])
	case c == content{}:
		return only(0) | ofAbsent
	default:
		return only(0) | ofLacking
	}
}

func (s values) has(v value) bool { return s&only(v) != 0 }

func (s values) String() string {
	var choice []string
	for v := range value(valueCount + 1) {
		if s.has(v) {
			choice = append(choice, fmt.Sprint(v))
		}
	}
	return strings.Join(choice, "|")
}

// knowledge contains, for each key, the values that a container may be assumed to run with: the value at its
// start, and the values that the documentation lets a server adopt.
type knowledge [sourceCount][keyCount]values

// startedWith returns the knowledge about a container that has just started.
func startedWith(c contents) (k knowledge) {
	for s := range c {
		k.set(s, c[s])
	}
	return k
}

func (k *knowledge) set(source int, c content) {
	for i := range c {
		k[source][i] = c.at(i)
	}
}

// allow adds the content of one source.
func (k *knowledge) allow(source int, c content) {
	for i := range c {
		k[source][i] |= c.at(i)
	}
}

// appear adopts the content of a source that has appeared, where that is no change, by containers that were started while
// it was absent.
func (k *knowledge) appear(source int, c content) {
	for i, set := range k[source] {
		switch {
		case set&ofAbsent == 0:
		case set&ofLacking == 0:
			k[source][i] = set&^(ofAbsent|only(0)) | c.at(i)
		default:
			k[source][i] = set&^ofAbsent | c.at(i)
		}
	}
}
