// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package notify tells of changes in directories, as far as the kernel tells of them. Others have to look now and then as well.
package notify

import (
	"sync"

	"github.com/fsnotify/fsnotify"
)

// Directory returns a channel that tells when something has changed in a directory, once for many changes, and a function that ends that.
// Nothing is told of a directory that does not exist yet, of those below it, and on some network file systems.
func Directory(name string) (<-chan struct{}, func()) {
	out := make(chan struct{}, 1)
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return out, func() {}
	}
	_ = w.Add(name)
	tell := func() {
		select {
		case out <- struct{}{}:
		default:
		}
	}
	var done sync.WaitGroup
	done.Go(func() {
		for range w.Events {
			tell()
		}
	})
	done.Go(func() {
		for range w.Errors { // too many events, at most, of which some are lost
			tell()
		}
	})
	return out, func() {
		_ = w.Close()
		done.Wait()
	}
}
