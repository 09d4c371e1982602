// Mutate changes the code that decides, one small thing at a time, and reports the changes
// that no test notices (make mutate):
//
//	make mutate                                           # everything; hours
//	make mutate MUTATE_ARGS=-named                        # the changes of named.go alone
//	make mutate MUTATE_ARGS="-run Decide ./pkg/policy"    # functions that match, of one package
//	make mutate MUTATE_ARGS="-list ./pkg/policy"          # the changes, without running them
//
// The tree is never touched: go test compiles each change by an overlay. The unit tests of
// all the packages are run first, and the default histories of test/simulation for what they do
// not notice. A change that does not compile does not count; one that makes tests run longer
// than the limit is noticed. go test caches what passes, so that a second run is faster.
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
	defaultPackages   = []string{"./pkg/policy", "./pkg/dependency", "./pkg/controller"}
	simulationPackage = "./test/simulation"
	acceptedFile      = "hack/mutate/accepted.txt"
)

type options struct {
	root       string
	packages   []string
	functions  *regexp.Regexp
	named      bool
	list       bool
	simulation bool
	every      int
	parallel   int
	limit      time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o := options{functions: regexp.MustCompile("")}
	flag.BoolVar(&o.named, "named", false, "only the changes of named.go")
	flag.BoolVar(&o.list, "list", false, "list the changes and run nothing")
	flag.BoolVar(&o.simulation, "simulation", true, "run the simulation for what unit tests do not notice")
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
	// Where tests fail by themselves, every change would seem to be noticed.
	fmt.Println("mutate: the tests of the code as it is")
	if result, out := o.try(ctx, work, nil); result != survived {
		return fmt.Errorf("they do not pass (%s):\n%s", result, out)
	}
	counts := o.tryAll(ctx, work, mutants, accepted)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	fmt.Printf("mutate: %d changes: %d noticed, %d do not compile, %d accepted, %d survived\n",
		len(mutants), counts[noticed], counts[broken], counts[acceptable], counts[survived])
	complete := !o.named && o.every == 1 && o.functions.String() == ""
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
	count := 0
	for _, p := range o.packages {
		out, err := output(ctx, o.root, "go", "list", "-f", `{{range .GoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}`, p)
		if err != nil {
			return nil, err
		}
		for file := range strings.FieldsSeq(out) {
			found, err := mutantsOf(o.root, file)
			if err != nil {
				return nil, err
			}
			for i := range found {
				if !o.functions.MatchString(found[i].function) {
					continue
				}
				if count++; count%o.every == 0 {
					mutants = append(mutants, found[i])
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
	if o.functions.String() != "" {
		return false
	}
	for _, p := range o.packages {
		if filepath.Dir(m.file) == filepath.Clean(p) {
			return true
		}
	}
	return false
}

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
				r, _ := o.try(ctx, dir, m)
				if ctx.Err() != nil {
					continue
				}
				mu.Lock()
				if r == survived && accepted.has(m) {
					r = acceptable
				}
				counts[r]++
				fmt.Printf("%d/%d %s (%v): %s\n", i+1, len(mutants), r, time.Since(began).Round(time.Second), m)
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

// try runs the tests with a change, or without one, until one fails.
func (o *options) try(ctx context.Context, dir string, m *mutant) (result, string) {
	flags := []string{}
	packages := defaultPackages
	if m != nil {
		overlay, err := m.overlay(o.root, dir)
		if err != nil {
			return noticed, err.Error()
		}
		flags = []string{"-overlay", overlay}
		packages = m.packages()
	}
	if o.simulation {
		packages = append(slices.Clip(packages), simulationPackage)
	}
	for _, p := range packages { // one by one, as most changes are noticed by the first
		args := append([]string{"test", "-vet=off", "-failfast", "-timeout", o.limit.String()}, flags...)
		out, err := output(ctx, o.root, "go", append(args, p)...)
		switch {
		case err == nil:
		case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
			return broken, out
		default:
			return noticed, out
		}
	}
	return survived, ""
}

// overlay writes the changed file and an overlay of it, and returns the path of the latter.
func (m *mutant) overlay(root, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	changed, path := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, m.content(), 0o600); err != nil {
		return "", err
	}
	encoded, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, m.file): changed}})
	if err != nil {
		return "", err
	}
	return path, os.WriteFile(path, encoded, 0o600)
}

// packages returns what has unit tests that may notice a change: its own package first.
func (m *mutant) packages() []string {
	own := "./" + filepath.ToSlash(filepath.Dir(m.file))
	packages := []string{own}
	for _, p := range defaultPackages {
		if p != own {
			packages = append(packages, p)
		}
	}
	return packages
}

// output runs a command and returns what it prints.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go ends its tests then
	cmd.WaitDelay = time.Minute
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String() + stderr.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return stdout.String(), nil
}
