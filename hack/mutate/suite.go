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
	"time"
)

// suite is the tests of a package, compiled with all changes.
type suite struct {
	name   string // as it is printed
	folder string
	binary string
	tests  []test
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
	s := &suite{name: folder, folder: filepath.Join(o.root, folder)}
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

// try runs the tests that come by a change until one fails, the quick ones first.
func (s *suite) try(ctx context.Context, n int) result {
	var first, then []*test
	for i := range s.tests {
		switch t := &s.tests[i]; {
		case !t.reached[n]:
		case t.took < quick:
			first = append(first, t)
		default:
			then = append(then, t)
		}
	}
	slices.SortFunc(then, func(a, b *test) int { return int(a.took - b.took) })
	groups := [][]*test{first}
	for _, t := range then {
		groups = append(groups, []*test{t})
	}
	for _, g := range groups {
		if len(g) == 0 {
			continue
		}
		limit := 20 * time.Second
		var names []string
		for _, t := range g {
			limit += 10 * t.took // one that never ends is noticed too
			names = append(names, regexp.QuoteMeta(t.name))
		}
		cmd := command(ctx, s.folder, s.binary, "-test.failfast", "-test.timeout", limit.String(), "-test.run", "^("+strings.Join(names, "|")+")$")
		cmd.Env = append(os.Environ(), activeVariable+"="+strconv.Itoa(n))
		if err := cmd.Run(); err != nil {
			return noticed
		}
	}
	return survived
}
