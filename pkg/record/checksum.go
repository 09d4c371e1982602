// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"hash/fnv"
)

// Checksum stands for names.
func Checksum(names []string) string {
	h := fnv.New32a()
	for _, name := range names {
		fmt.Fprintf(h, "%s\x00", name)
	}
	return fmt.Sprintf("%08x", h.Sum32())
}
