// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
)

// event is one line of a watch. Its object is not decoded.
type event struct {
	kind string // such as ADDED
	head []byte // the beginning of the line, or all of a short one; valid until the next event is read
	size int64  // of the line
}

var eventPrefix = []byte(`{"type":"`)

// readEvent reads one event of a watch in JSON. The server writes each event as one line that begins with the type.
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
		return e, fmt.Errorf("the watch received an error: %s", line)
	}
	if err == nil {
		return e, nil
	}
	// The next read overwrites the head, but only short lines are used by callers.
	e.head = nil
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = r.ReadSlice('\n')
		e.size += int64(len(line))
	}
	return e, err
}

// kindOf returns one of the known types without an allocation.
func kindOf(kind []byte) string {
	for _, known := range []string{"MODIFIED", "ADDED", "DELETED", "BOOKMARK", "ERROR"} {
		if string(kind) == known {
			return known
		}
	}
	return string(kind)
}

// endsInitial reports whether an event is the bookmark after the initial events.
func (e event) endsInitial() bool {
	return e.kind == "BOOKMARK" && bytes.Contains(e.head, []byte(`"k8s.io/initial-events-end":"true"`))
}
