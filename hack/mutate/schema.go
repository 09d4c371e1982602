// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/scanner"
	"go/types"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A schema is a package with all of its changes, of which a variable of the environment
// selects one. So tests are compiled once, and not for each change.

const (
	activeVariable  = "MUTATE_ACTIVE"  // the number of the change that is made
	reachedVariable = "MUTATE_REACHED" // the file that is told which changes tests come by
	supportFile     = "zz_mutate.go"
)

// support is what the changed code calls. Each package has it.
const support = `package %s

import (
	"os"
	"strconv"
	"sync"
)

var mutateActive = func() int {
	if n, err := strconv.Atoi(os.Getenv(%q)); err == nil {
		return n
	}
	return -1
}()

var mutateReached = func() *os.File {
	if name := os.Getenv(%q); name != "" {
		if f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			return f
		}
	}
	return nil
}()

var mutateTold sync.Map

func mutateIs(n int) bool {
	if mutateReached != nil {
		if _, told := mutateTold.LoadOrStore(n, true); !told {
			_, _ = mutateReached.WriteString(strconv.Itoa(n) + "\n")
		}
	}
	return n == mutateActive
}

func mutatePick[T any](n int, value, other T) T {
	if mutateIs(n) {
		return other
	}
	return value
}
`

// schema returns the files of a package with all its changes, which mutants[i] has under the
// number i. Changes that it cannot have become alone.
func (p *goPackage) schema(mutants []mutant) (map[string][]byte, error) {
	own := map[string][]int{} // of each file
	for i := range mutants {
		if m := &mutants[i]; m.folder() == p.folder && m.form != alone {
			own[m.file] = append(own[m.file], i)
		}
	}
	content := func() map[string][]byte {
		out := map[string][]byte{}
		out[path.Join(p.folder, supportFile)] = fmt.Appendf(nil, support, p.checked.Name(), activeVariable, reachedVariable)
		for file, numbers := range own {
			if len(numbers) > 0 {
				out[file] = schemaOf(mutants, numbers)
			}
		}
		return out
	}
	var excluded []int
	for {
		errs := p.check(content())
		if len(errs) == 0 {
			break
		}
		before := len(excluded)
		for _, err := range errs {
			file, line := where(p, err)
			own[file] = slices.DeleteFunc(own[file], func(i int) bool {
				if first, last := mutants[i].extent(); line < first || line > last {
					return false
				}
				excluded = append(excluded, i)
				return true
			})
		}
		if len(excluded) == before { // constants that have to be known when it is compiled
			for file, numbers := range own {
				own[file] = slices.DeleteFunc(numbers, func(i int) bool {
					if mutants[i].constant > 0 {
						excluded = append(excluded, i)
					}
					return mutants[i].constant > 0
				})
			}
		}
		if len(excluded) == before {
			return nil, fmt.Errorf("%s with all changes: %w", p.path, errs[0])
		}
	}
	// Most of those were only on the line of another that does not fit.
	for _, i := range excluded {
		file := mutants[i].file
		was := own[file]
		own[file] = append(slices.Clone(was), i)
		if len(p.check(content())) > 0 {
			own[file] = was
			mutants[i].form = alone
		}
	}
	return content(), nil
}

// where returns the file and line of an error. Those of a schema are where they were.
func where(p *goPackage, err error) (string, int) {
	if typed, is := errors.AsType[types.Error](err); is {
		at := p.files.Position(typed.Pos)
		return at.Filename, at.Line
	}
	var list scanner.ErrorList
	if errors.As(err, &list) && len(list) > 0 {
		return list[0].Pos.Filename, list[0].Pos.Line
	}
	return "", 0
}

// schemaOf returns a file with changes that do not stand alone.
func schemaOf(mutants []mutant, numbers []int) []byte {
	numbers = slices.Clone(numbers)
	slices.SortFunc(numbers, func(i, j int) int {
		a, b := &mutants[i], &mutants[j]
		if a.start != b.start {
			return a.start - b.start
		}
		if a.end != b.end {
			return b.end - a.end // the outer one first
		}
		return i - j
	})
	source := slices.Clone(mutants[numbers[0]].source)
	for _, n := range numbers {
		if at := mutants[n].constant; at > 0 {
			copy(source[at:], "var  ") // as long as const
		}
	}
	return []byte(nested(mutants, numbers, source, 0, len(source)))
}

// nested returns a part of the source with changes that are all in there, in order.
func nested(mutants []mutant, numbers []int, source []byte, from, to int) string {
	var out strings.Builder
	for len(numbers) > 0 {
		n := numbers[0]
		m := &mutants[n]
		inner := 1
		for inner < len(numbers) && mutants[numbers[inner]].end <= m.end {
			inner++
		}
		out.Write(source[from:m.start])
		out.WriteString(m.beside(n, nested(mutants, numbers[1:inner], source, m.start, m.end)))
		from, numbers = m.end, numbers[inner:]
	}
	out.Write(source[from:to])
	return out.String()
}

// beside returns what is in start to end with the change of number n beside it.
func (m *mutant) beside(n int, text string) string {
	changed := string(m.source[m.start:m.from]) + m.text + string(m.source[m.to:m.end])
	first, last := m.extent()
	switch m.form {
	case opposite:
		return fmt.Sprintf("(mutateIs(%d) != (%s))", n, text)
	case operator:
		return fmt.Sprintf("(mutateIs(%d) && (%s)%s || !mutateIs(%d) && (%s))", n, changed, m.goOn(changed, first), n, text)
	case value:
		return fmt.Sprintf("mutatePick[%s](%d, %s, %s)%s", m.typed, n, text, changed, m.goOn(changed, last))
	default:
		return fmt.Sprintf("if !mutateIs(%d) { %s }", n, text)
	}
}

// goOn says which line of the file comes next where a change has added some.
func (m *mutant) goOn(added string, line int) string {
	if !strings.Contains(added, "\n") {
		return ""
	}
	return fmt.Sprintf("/*line %s:%d:1*/", filepath.Base(m.file), line)
}

// extent returns the first and the last line of what is in start to end.
func (m *mutant) extent() (first, last int) {
	first = 1 + bytes.Count(m.source[:m.start], []byte("\n"))
	return first, first + bytes.Count(m.source[m.start:m.end], []byte("\n"))
}
