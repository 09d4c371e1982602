// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package tour runs the commands of documents on a cluster, and compares what they print with the documents.
package tour

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/configdep/configdep/test/controlplane"
)

// step is a command of the tour with its expected output, as in the document:
//
//	```console
//	$ kubectl get configdependencies
//	NAME  …
//	```
type step struct {
	command string
	output  []string
	at, end int // the lines of the output in the document
}

// steps finds the steps between the lines "<!-- tour -->" and "<!-- end of tour -->".
func steps(lines []string) []step {
	var found []step
	inTour, inBlock := false, false
	for i, line := range lines {
		switch {
		case line == "<!-- tour -->":
			inTour = true
		case line == "<!-- end of tour -->":
			inTour = false
		case inTour && line == "```console":
			inBlock = true
		case inBlock && line == "```":
			inBlock = false
		case inBlock && strings.HasPrefix(line, "$ "):
			found = append(found, step{command: line[2:], at: i + 1, end: i + 1})
		case inBlock && len(found) > 0:
			last := &found[len(found)-1]
			last.output = append(last.output, line)
			last.end = i + 1
		}
	}
	return found
}

// Options are the options of Run.
type Options struct {
	// Root is the folder of the repository, in which the commands run.
	Root string
	// Plugin is the folder of kubectl-configdep.
	Plugin string
	// Update writes what the commands print into the document.
	Update bool
	// Except are commands whose output is not compared.
	Except []string
}

// Run runs the steps of a document and returns, as differs, the differences from the document.
func Run(ctx context.Context, cluster *controlplane.ControlPlane, document string, o Options) (differs, err error) {
	file := filepath.Join(o.Root, document)
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(content), "\n")
	all := steps(lines)
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no tour", document)
	}
	var updated []string
	from := 0
	for _, s := range all {
		fmt.Printf("\n$ %s\n", s.command)
		out, err := shell(ctx, cluster, o, s.command)
		if err != nil {
			return nil, fmt.Errorf("running %q: %w", s.command, err)
		}
		fmt.Print(out)
		printed := strings.Split(strings.TrimRight(out, "\n"), "\n")
		if out == "" {
			printed = nil
		}
		if want, got := normalize(s.output), normalize(printed); want != got && !slices.Contains(o.Except, s.command) {
			differs = errors.Join(differs, fmt.Errorf("%s: want the output of %q to be\n%s\ngot\n%s", document, s.command, want, got))
		}
		updated = append(append(updated, lines[from:s.at]...), printed...)
		from = s.end
	}
	if o.Update {
		updated = append(updated, lines[from:]...)
		return nil, os.WriteFile(file, []byte(strings.Join(updated, "\n")), 0o644)
	}
	return differs, nil
}

// Values that differ between runs.
var volatile = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`v1\.[0-9a-f]{8}\.[0-9a-f]{32}`), "HASH"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`(?i)(resourceVersion"?: *)"?\d+"?`), "${1}VERSION"},
	{regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+s\b|\b\d+m\b`), "AGE"},
	{regexp.MustCompile(`-[0-9a-f]{6,10}(-[0-9a-z]{5})?\b`), "-SUFFIX"}, // of a ReplicaSet or Pod
	{regexp.MustCompile(`[ \t]+`), " "},                                 // the width of columns
}

func normalize(lines []string) string {
	out := make([]string, len(lines))
	for i, line := range lines {
		for _, v := range volatile {
			line = v.pattern.ReplaceAllString(line, v.name)
		}
		out[i] = strings.TrimSpace(line)
	}
	return strings.Join(out, "\n")
}

// shell runs a command of the tour.
func shell(ctx context.Context, cluster *controlplane.ControlPlane, o Options, line string) (string, error) {
	cmd := cluster.Command(ctx, "bash", "-c", line)
	cmd.Dir = o.Root
	path := []string{filepath.Dir(cluster.KubectlPath()), o.Plugin, os.Getenv("PATH")}
	cmd.Env = append(cmd.Env, "PATH="+strings.Join(path, string(os.PathListSeparator)))
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return string(out), nil // the tour shows errors too; its output is compared
	}
	return string(out), err
}
