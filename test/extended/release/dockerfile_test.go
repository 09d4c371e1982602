// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// instruction is an instruction of a Dockerfile, such as COPY with "go.mod go.sum ./".
type instruction struct{ name, args string }

// stage is a stage of a Dockerfile, which begins with FROM.
type stage struct {
	name, from   string // from: another stage, or an image
	instructions []instruction
}

// dockerfile parses the subset of the language that our Dockerfile uses: no heredocs, no other escape character, no
// ONBUILD. Code that uses the instructions must refuse unknown ones.
func dockerfile(t *testing.T, root string) (global []instruction, stages []stage) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	line := ""
	for part := range strings.SplitSeq(string(content), "\n") {
		if trimmed := strings.TrimSpace(part); trimmed == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		if before, more := strings.CutSuffix(part, `\`); more {
			line += before
			continue
		}
		name, args, _ := strings.Cut(line+part, " ")
		line = ""
		one := instruction{name, strings.TrimSpace(args)}
		switch {
		case name == "FROM":
			from, as, _ := strings.Cut(args, " AS ")
			stages = append(stages, stage{name: as, from: from})
		case len(stages) == 0:
			global = append(global, one)
		default:
			last := &stages[len(stages)-1]
			last.instructions = append(last.instructions, one)
		}
	}
	return global, stages
}

// image is what a stage adds to the base image.
type image struct {
	user, entrypoint string
	labels           map[string]string
	files            map[string]string // paths in the stage "build", by those in the image
}

// imageOf returns the image of a stage, with the stages from which it comes. The map builder has the values of build arguments.
func imageOf(t *testing.T, stages []stage, name string, builder map[string]string) image {
	t.Helper()
	at := slices.IndexFunc(stages, func(s stage) bool { return s.name == name })
	if at < 0 {
		t.Fatalf("the Dockerfile has no stage %q", name)
	}
	made := image{labels: map[string]string{}, files: map[string]string{}}
	if from := stages[at].from; from != "${BASE_IMAGE}" {
		made = imageOf(t, stages, from, builder)
	}
	variables := map[string]string{}
	for _, i := range stages[at].instructions {
		switch i.name {
		case "ARG":
			name, value := assignment(i.args)
			if set, is := builder[name]; is {
				value = set
			}
			variables[name] = value
		case "LABEL":
			found := label.FindAllStringSubmatch(i.args, -1)
			if strings.TrimSpace(label.ReplaceAllString(i.args, "")) != "" || len(found) == 0 {
				t.Fatalf("this test does not support LABEL %s", i.args)
			}
			for _, pair := range found {
				made.labels[pair[1]] = expand(t, pair[2], variables)
			}
		case "USER":
			made.user = i.args
		case "ENTRYPOINT":
			made.entrypoint = i.args
		case "COPY":
			words := strings.Fields(i.args)
			if len(words) < 3 || words[0] != "--from=build" || words[len(words)-1] != "/" {
				t.Fatalf("this test does not support COPY %s", i.args)
			}
			for _, file := range words[1 : len(words)-1] {
				made.files["/"+path.Base(file)] = file
			}
		default:
			t.Fatalf("this test does not support %s", fmt.Sprint(i))
		}
	}
	return made
}

var label = regexp.MustCompile(`([a-z.]+)="([^"]*)"`)

// buildContext is the part of the tree that .dockerignore includes. The file must have "*" first, then the included
// paths, then patterns that exclude some of them.
type buildContext struct {
	root     string
	take     []string
	patterns []string // excluded names, in any folder
}

func readContext(t *testing.T, root string) buildContext {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	c, all := buildContext{root: root}, false
	for line := range strings.SplitSeq(strings.TrimSpace(string(content)), "\n") {
		taken, take := strings.CutPrefix(line, "!")
		anywhere, pattern := strings.CutPrefix(line, "**/")
		switch {
		case strings.HasPrefix(line, "#"):
		case line == "*":
			all = true
		case take && all:
			c.take = append(c.take, taken)
		case pattern && !strings.Contains(anywhere, "/"):
			c.patterns = append(c.patterns, anywhere)
		default:
			t.Fatalf("this test does not support the line of .dockerignore: %s", line)
		}
	}
	return c
}

func (c *buildContext) has(file string) bool {
	if !slices.ContainsFunc(c.take, func(taken string) bool { return file == taken || strings.HasPrefix(file, taken+"/") }) {
		return false
	}
	for part := range strings.SplitSeq(file, "/") {
		if slices.ContainsFunc(c.patterns, func(pattern string) bool { matched, _ := path.Match(pattern, part); return matched }) {
			return false
		}
	}
	return true
}

// copy copies files, or the content of a folder, into a folder, as COPY does.
func (c *buildContext) copy(t *testing.T, from []string, to string) {
	t.Helper()
	for _, source := range from {
		source, copied := path.Clean(source), 0
		for _, file := range tracked(t, c.root) {
			inside, in := strings.CutPrefix(file, source+"/")
			if file == source {
				inside, in = path.Base(file), true
			}
			if in && c.has(file) {
				copyFile(t, filepath.Join(c.root, file), filepath.Join(to, inside))
				copied++
			}
		}
		if copied == 0 {
			t.Fatalf("COPY %s: no such file in the build context; see .dockerignore", source)
		}
	}
}

// expand replaces variables.
func expand(t *testing.T, text string, variables map[string]string) string {
	t.Helper()
	return os.Expand(text, func(name string) string {
		value, known := variables[name]
		if !known {
			t.Fatalf("%s: %s is not declared", text, name)
		}
		return value
	})
}

// assignment parses NAME=value or NAME.
func assignment(args string) (name, value string) {
	name, value, _ = strings.Cut(args, "=")
	return name, strings.Trim(value, `"`)
}

// run executes a build stage: its root is a temporary folder, and its commands run on this machine. It returns the
// root. The map builder has the variables that the builder sets.
func (s *stage) run(t *testing.T, c buildContext, builder map[string]string) string {
	t.Helper()
	root, dir := t.TempDir(), "/"
	variables := map[string]string{}
	for _, i := range s.instructions {
		switch i.name {
		case "WORKDIR":
			dir = i.args
		case "ARG":
			name, value := assignment(i.args)
			if set, is := builder[name]; is {
				value = set
			}
			variables[name] = value
		case "ENV":
			name, value := assignment(i.args)
			variables[name] = value
		case "COPY":
			words := strings.Fields(i.args)
			to := words[len(words)-1]
			if strings.HasPrefix(words[0], "--") || path.IsAbs(to) {
				t.Fatalf("this test does not support COPY %s", i.args)
			}
			c.copy(t, words[:len(words)-1], filepath.Join(root, dir, to))
		case "RUN":
			env := os.Environ()
			for name, value := range variables {
				env = append(env, name+"="+value)
			}
			// The stage writes to no other absolute path.
			command := strings.ReplaceAll(expand(t, i.args, variables), " /out", " "+filepath.Join(root, "out"))
			execute(t, filepath.Join(root, dir), env, "bash", "-euc", command)
		default:
			t.Fatalf("this test does not support %s", fmt.Sprint(i))
		}
	}
	return root
}
