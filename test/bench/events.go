// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
)

// An event is one line of a watch. Of the object nothing is decoded.
type event struct {
	kind string // such as ADDED
	head []byte // the beginning of the line, until the next is read; of a short line all
	size int64  // of the line
}

var eventPrefix = []byte(`{"type":"`)

// readEvent reads one event of a watch in JSON. The server writes each into a line of its
// own, with the type first.
func readEvent(r *bufio.Reader) (event, error) {
	line, err := r.ReadSlice('\n')
	e := event{head: line, size: int64(len(line))}
	rest, isEvent := bytes.CutPrefix(line, eventPrefix)
	kind, _, ended := bytes.Cut(rest, []byte(`"`))
	switch {
	case err != nil && !errors.Is(err, bufio.ErrBufferFull):
		return e, err
	case !isEvent || !ended:
		return e, fmt.Errorf("%q is not an event", line[:min(len(line), 200)])
	}
	e.kind = kindOf(kind)
	if e.kind == "ERROR" {
		return e, fmt.Errorf("the watch was told %s", line)
	}
	if err == nil {
		return e, nil
	}
	// What follows overwrites the head, which is read only of short lines.
	e.head = nil
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = r.ReadSlice('\n')
		e.size += int64(len(line))
	}
	return e, err
}

// kindOf returns one of the known types without a copy of it.
func kindOf(kind []byte) string {
	for _, known := range []string{"MODIFIED", "ADDED", "DELETED", "BOOKMARK", "ERROR"} {
		if string(kind) == known {
			return known
		}
	}
	return string(kind)
}

// endsInitial reports whether an event is the bookmark after the initial ones.
func (e event) endsInitial() bool {
	return e.kind == "BOOKMARK" && bytes.Contains(e.head, []byte(`"k8s.io/initial-events-end":"true"`))
}
