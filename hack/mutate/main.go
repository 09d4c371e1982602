// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Mutate changes the code that decides, one small thing at a time, and reports the changes
// that no test notices (make mutate):
//
//	make mutate                                           # everything; hours
//	make mutate MUTATE_ARGS=-named                        # the changes of named.go alone
//	make mutate MUTATE_ARGS="-run Decide ./pkg/policy"    # functions that match, of one package
//	make mutate MUTATE_ARGS="-list ./pkg/policy"          # the changes, without running them
//	make mutate MUTATE_ARGS="-tests ^pkg/" | tee out      # by unit tests alone
//	make mutate MUTATE_ARGS="-again out"                  # what survived that, by all tests
//
// The tree is never touched: go compiles changed files by an overlay. All changes are compiled at
// once, each beside the code as it is, and a variable of the environment selects one, so that
// running the tests is all that a change costs. Tests that do not come by a change are not run for
// it. The unit tests of its package come first, then those of the others, and the default histories
// of test/simulation at last. The few changes that have to be compiled by themselves are. A change
// that does not compile does not count; one that makes tests run much longer is noticed.
//
// What survives is a gap in the tests, or changes nothing that matters; accepted.txt lists the
// latter with a reason each.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

var (
	defaultPackages   = []string{"./pkg/policy", "./pkg/dependency", "./pkg/strategy", "./pkg/controller"}
	simulationPackage = "./test/simulation"
	acceptedFile      = "hack/mutate/accepted.txt"
)

type options struct {
	root      string
	packages  []string
	functions *regexp.Regexp
	named     bool
	list      bool
	tests     *regexp.Regexp
	again     map[string]bool // keys of changes; nil: all
	every     int
	parallel  int
	limit     time.Duration

	changed []*goPackage // that is changed
	suites  []*suite
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o := options{functions: regexp.MustCompile(""), tests: regexp.MustCompile("")}
	flag.BoolVar(&o.named, "named", false, "only the changes of named.go")
	flag.BoolVar(&o.list, "list", false, "list the changes and run nothing")
	flag.Func("tests", "only tests of packages that match this regular expression, such as ^pkg/", func(s string) (err error) {
		o.tests, err = regexp.Compile(s)
		return err
	})
	flag.Func("again", "only changes that survived in an earlier run, whose output is in this file", func(s string) (err error) {
		o.again, err = survivors(s)
		return err
	})
	flag.IntVar(&o.every, "every", 1, "only one of as many changes")
	flag.IntVar(&o.parallel, "parallel", 1, "how many changes are tried at once; go test itself uses all cores")
	flag.DurationVar(&o.limit, "limit", 10*time.Minute, "how long the tests of a package may take")
	flag.Func("run", "only functions that match this regular expression, such as Evaluation.stale", func(s string) (err error) {
		o.functions, err = regexp.Compile(s)
		return err
	})
	flag.Parse()
	o.packages = flag.Args()
	if len(o.packages) == 0 {
		o.packages = defaultPackages
	}
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

func run(ctx context.Context, o *options) error {
	root, err := output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return err
	}
	o.root = strings.TrimSpace(root)
	accepted, err := readAccepted(filepath.Join(o.root, acceptedFile))
	if err != nil {
		return err
	}
	mutants, err := o.mutants(ctx)
	if err != nil {
		return err
	}
	if o.list {
		for i := range mutants {
			fmt.Println(&mutants[i])
		}
		fmt.Printf("%d changes\n", len(mutants))
		return nil
	}
	work, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := o.prepare(ctx, work, mutants); err != nil {
		return err
	}
	counts := o.tryAll(ctx, work, mutants, accepted)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	fmt.Printf("mutate: %d changes: %d noticed, %d do not compile, %d accepted, %d survived\n",
		len(mutants), counts[noticed], counts[broken], counts[acceptable], counts[survived])
	complete := !o.named && o.every == 1 && o.functions.String() == "" && o.tests.String() == "" && o.again == nil
	unused := accepted.unused(o.packages)
	switch {
	case counts[survived] > 0:
		return errors.New("some changes survived: add a test for each, or an entry with a reason to " + acceptedFile)
	case complete && len(unused) > 0:
		return fmt.Errorf("no change that survives fits these entries of %s, so remove them:\n%s", acceptedFile, strings.Join(unused, "\n"))
	}
	return nil
}

// mutants returns the changes that are asked for, the named ones first.
func (o *options) mutants(ctx context.Context) (mutants []mutant, err error) {
	for i := range named {
		m, err := named[i].mutant(o.root)
		if err != nil {
			return nil, err
		}
		if o.named || o.selects(&m) {
			mutants = append(mutants, m)
		}
	}
	if o.named {
		return mutants, nil
	}
	if o.changed, err = readPackages(ctx, o.root, o.packages); err != nil {
		return nil, err
	}
	count := 0
	for _, p := range o.changed {
		for i := range p.sources {
			for _, m := range mutantsOf(p, &p.sources[i]) {
				if !o.functions.MatchString(m.function) || o.again != nil && !o.again[m.key()] {
					continue
				}
				if count++; count%o.every == 0 {
					mutants = append(mutants, m)
				}
			}
		}
	}
	if len(mutants) == 0 {
		return nil, errors.New("nothing is selected")
	}
	return mutants, nil
}

// selects reports whether a named change is in one of the packages. It names no function.
func (o *options) selects(m *mutant) bool {
	if o.functions.String() != "" || o.again != nil && !o.again[m.key()] {
		return false
	}
	for _, p := range o.packages {
		if filepath.Dir(m.file) == filepath.Clean(p) {
			return true
		}
	}
	return false
}

// survivors returns the keys of changes that survived according to what a run has printed.
func survivors(file string) (map[string]bool, error) {
	printed, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for line := range strings.Lines(string(printed)) {
		if found := survivor.FindStringSubmatch(line); found != nil {
			out[found[1]] = true
		}
	}
	return out, nil
}

// survivor matches the line of a change that survived.
var survivor = regexp.MustCompile(`^\d+/\d+ survived \([^)]*\): [^ ]+:\d+: (.*)\n`)

type result string

const (
	noticed    result = "noticed"
	broken     result = "does not compile"
	survived   result = "survived"
	acceptable result = "accepted"
)

func (o *options) tryAll(ctx context.Context, work string, mutants []mutant, accepted *acceptedList) map[result]int {
	counts := map[result]int{}
	var mu sync.Mutex
	var running sync.WaitGroup
	next := make(chan int)
	for worker := range max(o.parallel, 1) {
		dir := filepath.Join(work, fmt.Sprint(worker))
		running.Go(func() {
			for i := range next {
				m := &mutants[i]
				began := time.Now()
				r, by := o.try(ctx, dir, mutants, i)
				if ctx.Err() != nil {
					continue
				}
				mu.Lock()
				if r == survived && accepted.has(m) {
					r = acceptable
				}
				counts[r]++
				if by != "" {
					by = " by " + by
				}
				fmt.Printf("%d/%d %s%s (%v): %s\n", i+1, len(mutants), r, by, time.Since(began).Round(100*time.Millisecond), m)
				if r == survived {
					fmt.Println(m.diff())
				}
				mu.Unlock()
			}
		})
	}
	for i := range mutants {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	running.Wait()
	return counts
}

// testPackages returns the packages whose unit tests run code that is changed, and the simulation.
func (o *options) testPackages(ctx context.Context) ([]string, error) {
	listed, err := output(ctx, o.root, "go", append([]string{"list", "-f", "{{.ImportPath}}"}, o.packages...)...)
	if err != nil {
		return nil, err
	}
	changed := strings.Fields(listed)
	tests, err := output(ctx, o.root, "go", "list", "-test", "-f", `{{if eq .Name "main"}}{{.ImportPath}} {{join .Deps " "}}{{end}}`, "./pkg/...", simulationPackage)
	if err != nil {
		return nil, err
	}
	module, _, _ := strings.Cut(changed[0], "/pkg/")
	var packages []string
	for line := range strings.Lines(tests) {
		fields := strings.Fields(line)
		if len(fields) == 0 || !slices.ContainsFunc(fields[1:], func(d string) bool { return slices.Contains(changed, d) }) {
			continue
		}
		if p := strings.TrimSuffix(strings.TrimPrefix(fields[0], module+"/"), ".test"); o.tests.MatchString(p) {
			packages = append(packages, p)
		}
	}
	if len(packages) == 0 {
		return nil, errors.New("no tests are selected")
	}
	return packages, nil
}

// prepare compiles all changes that can be compiled at once, with the tests.
func (o *options) prepare(ctx context.Context, work string, mutants []mutant) error {
	replaced := map[string]string{}
	for _, p := range o.changed {
		files, err := p.schema(mutants)
		if err != nil {
			return err
		}
		for name, content := range files {
			path := filepath.Join(work, strings.ReplaceAll(name, "/", "_"))
			if err := os.WriteFile(path, content, 0o600); err != nil {
				return err
			}
			replaced[filepath.Join(o.root, name)] = path
		}
	}
	overlay, err := writeOverlay(work, replaced)
	if err != nil {
		return err
	}
	packages, err := o.testPackages(ctx)
	if err != nil {
		return err
	}
	for _, p := range packages {
		fmt.Printf("mutate: the tests of %s as the code is\n", p)
		s, err := o.newSuite(ctx, p, overlay, work)
		if err != nil {
			return err
		}
		o.suites = append(o.suites, s)
	}
	slices.SortStableFunc(o.suites, func(a, b *suite) int {
		if ofSimulation := "./"+a.name == simulationPackage; ofSimulation != ("./"+b.name == simulationPackage) {
			return map[bool]int{true: 1, false: -1}[ofSimulation]
		}
		return int(a.took() - b.took())
	})
	return nil
}

// suitesFor returns the tests that may notice a change: those of its own package first, then
// those that take the least.
func (o *options) suitesFor(m *mutant) (suites []*suite) {
	for _, s := range o.suites {
		if s.name == m.folder() {
			suites = append(suites, s)
		}
	}
	for _, s := range o.suites {
		if s.name != m.folder() {
			suites = append(suites, s)
		}
	}
	return suites
}

// try runs the tests with a change until one fails, and says whose that was.
func (o *options) try(ctx context.Context, dir string, mutants []mutant, n int) (result, string) {
	m := &mutants[n]
	if m.form == alone {
		return o.tryAlone(ctx, dir, m)
	}
	for _, s := range o.suitesFor(m) {
		if s.try(ctx, m, n) == noticed {
			return noticed, s.name
		}
	}
	return survived, ""
}

// tryAlone compiles a change by itself.
func (o *options) tryAlone(ctx context.Context, dir string, m *mutant) (result, string) {
	for _, p := range o.changed {
		if p.folder == m.folder() && len(p.check(map[string][]byte{m.file: m.content()})) > 0 {
			return broken, ""
		}
	}
	overlay, err := m.overlay(o.root, dir)
	if err != nil {
		return noticed, err.Error()
	}
	for _, s := range o.suitesFor(m) { // one by one, as most changes are noticed by the first
		out, err := output(ctx, o.root, "go", "test", "-vet=off", "-failfast", "-timeout", o.limit.String(), "-overlay", overlay, "./"+s.name)
		switch {
		case err == nil:
		case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
			return broken, ""
		default:
			return noticed, s.name
		}
	}
	return survived, ""
}

// overlay writes the changed file and an overlay of it, and returns the path of the latter.
func (m *mutant) overlay(root, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	changed := filepath.Join(dir, "changed.go")
	if err := os.WriteFile(changed, m.content(), 0o600); err != nil {
		return "", err
	}
	return writeOverlay(dir, map[string]string{filepath.Join(root, m.file): changed})
}

func writeOverlay(dir string, replaced map[string]string) (string, error) {
	path := filepath.Join(dir, "overlay.json")
	encoded, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		return "", err
	}
	return path, os.WriteFile(path, encoded, 0o600)
}

// output runs a command and returns what it prints.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := command(ctx, dir, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String() + stderr.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return stdout.String(), nil
}

func command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go ends its tests then
	cmd.WaitDelay = time.Minute
	return cmd
}
