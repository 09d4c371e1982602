// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// acceptedList is what accepted.txt holds: a change in each line, as it is printed but
// without file and line, then " # " and the reason.
type acceptedList struct {
	entries []string
	used    map[string]bool
}

func readAccepted(path string) (*acceptedList, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l := &acceptedList{used: map[string]bool{}}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndex(line, " # ")
		if at < 0 || strings.TrimSpace(line[at+3:]) == "" {
			return nil, fmt.Errorf("%s:%d: there is no reason after \" # \"", path, n)
		}
		l.entries = append(l.entries, strings.TrimSpace(line[:at]))
	}
	return l, lines.Err()
}

func (l *acceptedList) has(m *mutant) bool {
	key := m.key()
	for _, e := range l.entries {
		if e == key {
			l.used[e] = true
			return true
		}
	}
	return false
}

// unused returns the entries of packages that no change has fitted.
func (l *acceptedList) unused(packages []string) (out []string) {
	for _, e := range l.entries {
		for _, p := range packages {
			if strings.HasPrefix(e, filepath.ToSlash(filepath.Clean(p))+" ") && !l.used[e] {
				out = append(out, e)
			}
		}
	}
	return out
}
