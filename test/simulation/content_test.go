// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"strings"
)

// There are few sources with simple contents, so that equal content recurs and workloads share sources. Of the first
// ones, which most workloads read, two are ConfigMaps and two Secrets; one of each kind follows, and the SecretProviderClass.
const (
	firstSources = 4
	sourceCount  = 6
	class        = sourceCount
	keyCount     = 3
	valueCount   = 6 // besides absent
)

var (
	sourceNames = [sourceCount + 1]string{"c0", "c1", "s0", "s1", "c2", "s2", "k0"}
	keyNames    = [keyCount]string{"a", "b", "c"}
)

func isSecret(source int) bool { return source == 2 || source == 3 || source == 5 }

// value is the value of one key; 0: the key is absent.
type value uint8

// content is the content of one source. An absent source has no keys, and a present one has some.
type content [keyCount]value

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
