// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/agent/notify"
)

// maxMountFiles is how many files of a directory are read.
const maxMountFiles = 10_000

// Mount reads the files of a directory: a volume in which the kubelet switches from one set to the next, or a directory in which anyone
// writes, also on a file system without notifications.
type Mount struct {
	spec    *Spec
	poll    time.Duration
	changed func()
	// maxBytes is how much the files may have together.
	maxBytes int64

	mu     sync.Mutex
	object *Object // nil: the directory does not exist
	read   bool
	health Health
}

// NewMount returns a reader of a Volume, whose files may have so many bytes together. It looks for changes when it is notified, and each
// time poll has passed.
func NewMount(s *Spec, poll time.Duration, maxBytes int64, changed func()) *Mount {
	return &Mount{spec: s, poll: poll, maxBytes: maxBytes, changed: changed}
}

// Objects returns the directory as one object, whose keys are the paths of its files, and whether it has been read.
func (m *Mount) Objects() (out []*Object, synced bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.object != nil {
		out = append(out, m.object)
	}
	return out, m.read
}

// Health returns how the reader gets on.
func (m *Mount) Health() Health {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.health
}

// rest is how long a reader does nothing after a look, at least.
const rest = 100 * time.Millisecond

// Run reads until the context ends.
func (m *Mount) Run(ctx context.Context) {
	// A directory that does not exist yet is found by polling, and then polled.
	notified, stop := notify.Directory(m.spec.Name)
	defer stop()
	poll := time.NewTicker(m.poll)
	defer poll.Stop()
	m.mu.Lock()
	m.health.Progress = time.Now() // a look that does not end is no progress
	m.mu.Unlock()
	for {
		began := time.Now()
		if err := m.look(); err != nil {
			klog.FromContext(ctx).Error(err, "A source cannot be read, will retry", "source", m.spec.String())
		}
		// Files may be written all the time, and reading them must not take all of a processor.
		rest := time.After(max(min(rest, m.poll), time.Since(began)))
		select {
		case <-rest:
		case <-ctx.Done():
			return
		}
		select {
		case <-notified:
		case <-poll.C:
		case <-ctx.Done():
			return
		}
	}
}

// look reads the directory, and tells if it has changed. It returns an error only if that is of another kind than the last one.
func (m *Mount) look() error {
	now := time.Now()
	o, err := m.load()
	same := m.read && equal(m.object, o) // only this goroutine writes them; comparing may take long
	before := m.health.Err
	other := err != nil && kindOf(err) != kindOf(before)
	changed := other || refused(err) != refused(before)
	m.mu.Lock()
	m.health.Progress, m.health.Err = now, err
	if err == nil {
		m.health.Heard = now
		changed = changed || !same
		if m.read = true; !same { // otherwise what was made from it stays too
			m.object = o
		}
	} // otherwise what was read last stays
	m.mu.Unlock()
	if changed {
		m.changed()
	}
	if !other {
		return nil
	}
	return err
}

func equal(a, b *Object) bool {
	if a == nil || b == nil {
		return a == b
	}
	return maps.EqualFunc(a.Data, b.Data, bytes.Equal)
}

// dataLink is the link that the kubelet, and this agent, switch to a new set.
const dataLink = "..data"

// load reads all files of the directory from one set.
func (m *Mount) load() (*Object, error) {
	volume, err := os.OpenRoot(m.spec.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, err
	}
	defer volume.Close()
	for range 5 {
		set, err := volume.Readlink(dataLink)
		if err != nil {
			set = "."
		}
		o, err := m.loadFrom(volume, set)
		if after, afterErr := volume.Readlink(dataLink); set == "." && afterErr != nil || set == after {
			return o, err
		}
	}
	return nil, errors.New("it changed again and again while it was read")
}

// loadFrom reads a set, which cannot be outside of the volume.
func (m *Mount) loadFrom(volume *os.Root, set string) (*Object, error) {
	root, err := volume.OpenRoot(set)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	o, size, count := &Object{Name: m.spec.Name, Data: map[string][]byte{}}, int64(0), 0
	err = fs.WalkDir(root.FS(), ".", func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p == ".":
			return nil
		case strings.HasPrefix(e.Name(), ".."):
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case e.IsDir() || !m.spec.reads(p):
			return nil
		}
		info, err := root.Stat(p) // of what a link leads to
		if err != nil || !info.Mode().IsRegular() {
			return nil //nolint:nilerr // a link that leads nowhere or outside, a pipe, a directory
		}
		if count++; count > maxMountFiles {
			return &LimitError{fmt.Sprintf("more than %d files", maxMountFiles)}
		}
		data, err := readUpTo(root, p, m.maxBytes-size)
		if errors.Is(err, errTooLarge) {
			return &LimitError{fmt.Sprintf("the files have more than %d bytes", m.maxBytes)}
		}
		if err != nil {
			return err
		}
		size += int64(len(data))
		o.Data[p] = data
		return nil
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

func readUpTo(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() { // a pipe may have taken its place meanwhile
		return nil, errors.Join(err, fmt.Errorf("%s is not a regular file anymore", name))
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = errTooLarge
	}
	return data, err
}
