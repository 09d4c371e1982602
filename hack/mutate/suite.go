// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// suite is the tests of a package, compiled with all changes.
type suite struct {
	name   string // as it is printed
	folder string
	binary string
	tests  []test

	mu sync.Mutex
	// noticed are the tests that noticed other changes of a function, the last one first.
	noticed map[string][]string
}

// test is a test of a suite.
type test struct {
	name    string
	took    time.Duration
	reached map[int]bool // the changes that it comes by
}

// quick is how long a test takes that is run before the others.
const quick = 300 * time.Millisecond

// newSuite compiles the tests of a package, and runs each as the code is.
func (o *options) newSuite(ctx context.Context, folder, overlay, work string) (*suite, error) {
	s := &suite{name: folder, folder: filepath.Join(o.root, folder), noticed: map[string][]string{}}
	s.binary = filepath.Join(work, strings.ReplaceAll(s.name, "/", "_")+".test")
	if out, err := output(ctx, o.root, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", s.binary, "./"+folder); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	list, err := output(ctx, s.folder, s.binary, "-test.list", "^Test")
	if err != nil {
		return nil, err
	}
	for name := range strings.FieldsSeq(list) {
		t := test{name: name}
		reached := filepath.Join(work, "reached")
		began := time.Now()
		cmd := command(ctx, s.folder, s.binary, "-test.run", "^"+name+"$", "-test.timeout", o.limit.String())
		cmd.Env = append(os.Environ(), reachedVariable+"="+reached)
		// Where tests fail by themselves, every change would seem to be noticed.
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s of %s does not pass as the code is: %w\n%s", name, s.name, err, out)
		}
		t.took = time.Since(began)
		if t.reached, err = numbers(reached); err != nil {
			return nil, err
		}
		s.tests = append(s.tests, t)
	}
	return s, nil
}

// took returns how long all its tests take.
func (s *suite) took() (sum time.Duration) {
	for i := range s.tests {
		sum += s.tests[i].took
	}
	return sum
}

// numbers reads the numbers of a file, and removes it.
func numbers(file string) (map[int]bool, error) {
	out := map[int]bool{}
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			return nil, err
		}
		out[n] = true
	}
	return out, os.Remove(file)
}

// try runs the tests that come by a change until one fails: those first that noticed other
// changes of the function, then the quick ones.
func (s *suite) try(ctx context.Context, m *mutant, n int) result {
	s.mu.Lock()
	likely := slices.Clone(s.noticed[m.function])
	s.mu.Unlock()
	var first, then, last []*test
	for i := range s.tests {
		switch t := &s.tests[i]; {
		case !t.reached[n]:
		case slices.Contains(likely, t.name):
			first = append(first, t)
		case t.took < quick:
			then = append(then, t)
		default:
			last = append(last, t)
		}
	}
	slices.SortFunc(last, func(a, b *test) int { return int(a.took - b.took) })
	groups := [][]*test{first, then}
	for _, t := range last {
		groups = append(groups, []*test{t})
	}
	for _, g := range groups {
		if len(g) > 0 && s.fails(ctx, g, m, n) {
			return noticed
		}
	}
	return survived
}

// fails runs some tests with a change until one fails.
func (s *suite) fails(ctx context.Context, tests []*test, m *mutant, n int) bool {
	limit := 20 * time.Second
	var names []string
	for _, t := range tests {
		limit += 10 * t.took // one that never ends is noticed too
		names = append(names, t.name)
	}
	cmd := command(ctx, s.folder, s.binary, "-test.failfast", "-test.timeout", limit.String(), "-test.run", "^("+strings.Join(names, "|")+")$")
	cmd.Env = append(os.Environ(), activeVariable+"="+strconv.Itoa(n))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	if found := failed.FindSubmatch(out); found != nil {
		name := string(found[1])
		s.mu.Lock()
		others := slices.DeleteFunc(slices.Clone(s.noticed[m.function]), func(other string) bool { return other == name })
		s.noticed[m.function] = append([]string{name}, others[:min(len(others), 2)]...)
		s.mu.Unlock()
	}
	return true
}

// failed matches a test that fails, or one that runs when the time is up.
var failed = regexp.MustCompile(`(?m)^(?:--- FAIL: |\t)(Test\w+) \(`)
