// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// spectacle has the objects of a list, which spectators watch, by number.
type spectacle struct {
	version string
	numbers map[string]int // by namespace/name
	names   []string
	states  []held

	events, repeated, relists, retries atomic.Int64
	open                               atomic.Int64 // open watches
}

// held is the state that a client has of an object: digests of its version and of the rest.
type held struct{ version, content uint64 }

var digests = maphash.MakeSeed()

// newSpectacle parses a list in JSON.
func newSpectacle(content []byte) (*spectacle, error) {
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(content, &list); err != nil {
		return nil, err
	}
	s := &spectacle{version: list.Metadata.ResourceVersion, numbers: make(map[string]int, len(list.Items))}
	for _, item := range list.Items {
		o, err := seenIn(item)
		if err != nil {
			return nil, err
		}
		name := string(o.namespace) + "/" + string(o.name)
		s.numbers[name] = len(s.names)
		s.names, s.states = append(s.names, name), append(s.states, o.held())
	}
	return s, nil
}

// differing counts the objects that differ in another list.
func (s *spectacle) differing(other *spectacle) int {
	n := max(0, len(other.names)-len(s.names))
	for i, name := range s.names {
		if at, found := other.numbers[name]; !found || other.states[at].content != s.states[i].content {
			n++
		}
	}
	return n
}

// seen has the parsed parts of an object in JSON.
type seen struct {
	namespace, name, version []byte
	before, after            []byte // the text around the version
}

func (o *seen) held() held {
	var h maphash.Hash
	h.SetSeed(digests)
	_, _ = h.Write(o.before)
	_, _ = h.Write(o.after)
	return held{maphash.Bytes(digests, o.version), h.Sum64()}
}

// seenIn parses an object as the server encodes it: metadata comes before all other fields that differ, and in it the
// name, the namespace and the version before any text that a user can write.
func seenIn(object []byte) (o seen, err error) {
	at := bytes.Index(object, []byte(`"metadata":{`))
	if at < 0 {
		return o, fmt.Errorf("%.200q has no metadata", object)
	}
	object = object[at:]
	value := func(field string) []byte {
		_, rest, _ := bytes.Cut(object, []byte(`"`+field+`":"`))
		text, _, _ := bytes.Cut(rest, []byte(`"`))
		return text
	}
	o.name, o.namespace, o.version = value("name"), value("namespace"), value("resourceVersion")
	if len(o.version) == 0 {
		return o, fmt.Errorf("%.200q has no version", object)
	}
	o.before, o.after, _ = bytes.Cut(object, []byte(`"resourceVersion":"`+string(o.version)+`"`))
	return o, nil
}

// lines reads lines of any length. A line is valid until the next one is read.
type lines struct {
	reader *bufio.Reader
	buffer []byte
}

func newLines(r io.Reader) *lines { return &lines{reader: bufio.NewReaderSize(r, 16<<10)} }

func (l *lines) next() ([]byte, error) {
	line, err := l.reader.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	l.buffer = append(l.buffer[:0], line...)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = l.reader.ReadSlice('\n')
		l.buffer = append(l.buffer, line...)
	}
	return l.buffer, err
}

// spectator watches as an informer that has listed before. To list again, it starts a watch that begins with all
// objects, as client-go does.
type spectator struct {
	of     *spectacle
	client *requester
	path   string

	mu      sync.Mutex
	version string       // empty: the next watch starts with all objects
	came    map[int]bool // objects of a watch that starts with all of them; nil otherwise
	holds   map[int]held // by number
	scope   string       // prefix of the names of its objects
}

// spectator returns a spectator that has the objects of the spectacle.
func (s *spectacle) spectator(client *requester, path string) *spectator {
	one := &spectator{of: s, client: client, path: path, version: s.version, holds: map[int]held{}}
	if _, rest, found := strings.Cut(path, "/namespaces/"); found {
		namespace, _, _ := strings.Cut(rest, "/")
		one.scope = namespace + "/"
	}
	for i, name := range s.names {
		if strings.HasPrefix(name, one.scope) {
			one.holds[i] = s.states[i]
		}
	}
	return one
}

var (
	errGone = errors.New("the version is too old")
	errBusy = errors.New("too many requests")
)

// run watches until the context is done.
func (o *spectator) run(ctx context.Context) {
	for wait := time.Duration(0); ctx.Err() == nil; {
		received, err := o.watch(ctx)
		if errors.Is(err, errGone) {
			o.of.relists.Add(1)
			o.version, err = "", nil
		}
		if received || err == nil {
			wait = 0
		}
		if err != nil && ctx.Err() == nil {
			o.of.retries.Add(1)
			wait = min(max(2*wait, 100*time.Millisecond), 5*time.Second)
			if errors.Is(err, errBusy) {
				wait = time.Second // as in the header Retry-After
			}
			_ = sleep(ctx, wait)
		}
	}
}

// watch watches from the last version until the watch ends.
func (o *spectator) watch(ctx context.Context) (received bool, err error) {
	path := o.path + "?watch=true&allowWatchBookmarks=true&resourceVersion=" + o.version
	o.came = nil
	if o.version == "" {
		path += "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
		o.came = map[int]bool{}
	}
	body, _, err := o.client.open(ctx, request{path: path})
	if err != nil {
		for code, known := range map[int]error{http.StatusGone: errGone, http.StatusTooManyRequests: errBusy} {
			if strings.Contains(err.Error(), fmt.Sprint(code, " ")) {
				return false, known
			}
		}
		return false, err
	}
	defer body.Close()
	o.of.open.Add(1)
	defer o.of.open.Add(-1)
	lines := newLines(body)
	for {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return received, nil // a regular end
		}
		if err == nil {
			err = o.take(line)
		}
		if err != nil {
			return received, err
		}
		received = true
	}
}

// take handles an event as a handler of an informer does: it ignores an object with an unchanged version.
func (o *spectator) take(line []byte) error {
	rest, isEvent := bytes.CutPrefix(line, eventPrefix)
	kind, object, _ := bytes.Cut(rest, []byte(`"`))
	switch {
	case !isEvent:
		return fmt.Errorf("%.200q is not an event", line)
	case string(kind) == "ERROR" && bytes.Contains(line, []byte(`"code":410`)):
		return errGone
	case string(kind) == "ERROR":
		return fmt.Errorf("the watch received an error: %s", line)
	}
	// An object in an event is followed by other text than in a list.
	object = bytes.TrimSuffix(bytes.TrimSpace(object), []byte("}"))
	read, err := seenIn(object)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if string(kind) == "BOOKMARK" {
		if o.came != nil && bytes.Contains(line, []byte(`"k8s.io/initial-events-end":"true"`)) {
			maps.DeleteFunc(o.holds, func(number int, _ held) bool { return !o.came[number] })
			o.came = nil
		}
		if o.came == nil {
			o.version = string(read.version)
		}
		return nil
	}
	o.of.events.Add(1)
	number, known := o.of.numbers[string(read.namespace)+"/"+string(read.name)]
	if o.came == nil {
		o.version = string(read.version)
	} else if known {
		o.came[number] = true
	}
	switch now := read.held(); {
	case !known: // created later, and not counted
	case string(kind) == "DELETED":
		delete(o.holds, number)
	case o.holds[number].version != now.version:
		o.holds[number] = now
	case o.holds[number].content != now.content:
		o.of.repeated.Add(1)
	}
	return nil
}

// missing counts the objects whose state differs from all of the lists.
func (o *spectator) missing(truths []*spectacle) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, name := range o.of.names {
		if strings.HasPrefix(name, o.scope) && !slices.ContainsFunc(truths, func(truth *spectacle) bool {
			want := held{}
			if at, found := truth.numbers[name]; found {
				want = truth.states[at]
			}
			return o.holds[i].content == want.content
		}) {
			n++
		}
	}
	return n
}
