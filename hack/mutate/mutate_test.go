// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/importer"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sample = `package p

const most = 3; const size = 2; var sized [size]int

type T[K any] struct{ err error }

func zero() (T[int], []int) { return T[int]{}, []int{} }

func (t *T[K]) less(a, b int) (bool, error) {
	if a < b && b != 0 {
		t.note("a" + "b")
		a = b
		return true, nil
	}
	switch {
	case a > 0:
		a--
	}
	for i := 0; i < a; i++ {
		_ = make([]int, 0, 5)
	}
	select {
	case a = <-make(chan int):
	default:
	}
	return false, t.err
}

func (*T[K]) note(string) {}
`

func samplePackage(t *testing.T, source string) *goPackage {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "pkg", "p"), 0o755); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join("pkg", "p", "p.go")
	if err := os.WriteFile(filepath.Join(root, name), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &goPackage{path: "example.com/pkg/p", folder: "pkg/p", files: token.NewFileSet(), imports: importer.Default()}
	if err := p.read(root, name); err != nil {
		t.Fatal(err)
	}
	if errs := p.check(nil); len(errs) > 0 {
		t.Fatal(errs)
	}
	return p
}

// All kinds of changes are found, with their identifiers, and each changes the code.
func TestMutantsOf(t *testing.T) {
	p := samplePackage(t, sample)
	mutants := mutantsOf(p, &p.sources[0])
	var got []string
	for i := range mutants {
		m := &mutants[i]
		got = append(got, m.String())
		if string(m.content()) == sample {
			t.Errorf("%s changes nothing", m)
		}
	}
	want := []string{
		"3: pkg/p const: const most = 3; const size = 2; var sized [size]int => const most = 4; const size = 2; var sized [size]int",
		"3: pkg/p const: const most = 3; const size = 2; var sized [size]int => const most = 2; const size = 2; var sized [size]int",
		"3: pkg/p const: const most = 3; const size = 2; var sized [size]int => const most = 3; const size = 3; var sized [size]int",
		"3: pkg/p const: const most = 3; const size = 2; var sized [size]int => const most = 3; const size = 1; var sized [size]int",
		"7: pkg/p zero: func zero() (T[int], []int) { return T[int]{}, []int{} } => func zero() (T[int], []int) { return T[int]{}, *new([]int) }",
		"10: pkg/p T.less: if a < b && b != 0 { => if !(a < b && b != 0) {",
		"10: pkg/p T.less: if a < b && b != 0 { => if a < b || b != 0 {",
		"10: pkg/p T.less: if a < b && b != 0 { => if a <= b && b != 0 {",
		"10: pkg/p T.less: if a < b && b != 0 { => if a < b && b == 0 {",
		"10: pkg/p T.less: if a < b && b != 0 { => if a < b && b != 1 {",
		"10: pkg/p T.less: if a < b && b != 0 { => if a < b && b != -1 {",
		`11: pkg/p T.less: t.note("a" + "b") => (nothing)`,
		"12: pkg/p T.less: a = b => (nothing)",
		"13: pkg/p T.less: return true, nil => return !(true), nil",
		"16: pkg/p T.less: case a > 0: => case !(a > 0):",
		"16: pkg/p T.less: case a > 0: => case a >= 0:",
		"16: pkg/p T.less: case a > 0: => case a > 1:",
		"17: pkg/p T.less: a-- => (nothing)",
		"19: pkg/p T.less: for i := 0; i < a; i++ { => for i := 0; !(i < a); i++ {",
		"19: pkg/p T.less: for i := 0; i < a; i++ { => for i := 1; i < a; i++ {",
		"19: pkg/p T.less: for i := 0; i < a; i++ { => for i := -1; i < a; i++ {",
		"19: pkg/p T.less: for i := 0; i < a; i++ { => for i := 0; i <= a; i++ {",
		"20: pkg/p T.less: _ = make([]int, 0, 5) => (nothing)",
		"20: pkg/p T.less: _ = make([]int, 0, 5) => _ = make([]int, 1, 5)",
		"20: pkg/p T.less: _ = make([]int, 0, 5) => _ = make([]int, -1, 5)",
		"26: pkg/p T.less: return false, t.err => return !(false), t.err",
		"26: pkg/p T.less: return false, t.err => return false, *new(error)",
	}
	for i := range want {
		want[i] = filepath.Join("pkg", "p", "p.go") + ":" + want[i]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A schema contains all changes that compile together with others, each selected by its number.
func TestSchema(t *testing.T) {
	p := samplePackage(t, sample)
	mutants := mutantsOf(p, &p.sources[0])
	files, err := p.schema(mutants)
	if err != nil {
		t.Fatal(err)
	}
	content := string(files[filepath.Join("pkg", "p", "p.go")])
	for i := range mutants {
		m := &mutants[i]
		constant := strings.Contains(m.key(), "const size = 3") || strings.Contains(m.key(), "const size = 1") // the length of an array
		if m.form == alone != constant {
			t.Errorf("%s must be compiled alone = %v", m, m.form == alone)
		}
		if !constant && !strings.Contains(content, fmt.Sprintf("mutateIs(%d)", i)) && !strings.Contains(content, fmt.Sprintf("](%d,", i)) {
			t.Errorf("%s cannot be selected in\n%s", m, content)
		}
	}
	for _, want := range []string{
		"var   most = mutatePick[int](0, mutatePick[int](1, 3, 2), 4); const size = 2;",
		"(mutateIs(6) && (a < b || b != 0) || !mutateIs(6) && (",
		"if !mutateIs(12) { a = b }",
		"return (mutateIs(13) != (true)), nil",
		"return false, mutatePick[error](",
	} {
		if !strings.Contains(strings.Replace(content, "(mutateIs(25) != (false))", "false", 1), want) {
			t.Errorf("%q is missing in\n%s", want, content)
		}
	}
}

// This test fails if the code of a named change has moved, which otherwise only an hour of tests would show.
func TestNamedChangesFitTheCode(t *testing.T) {
	for i := range named {
		if _, err := named[i].mutant(filepath.Join("..", "..")); err != nil {
			t.Error(err)
		}
	}
}

func TestAccepted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "accepted.txt")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# about\n\npkg/p f: a < b => a <= b # they are never equal\npkg/q g: x => (nothing) # logs\n")
	l, err := readAccepted(path)
	if err != nil {
		t.Fatal(err)
	}
	m := mutant{file: "pkg/p/p.go", function: "f", source: []byte("x\n\ta < b\ny"), from: 5, to: 6, text: "<="}
	if !l.has(&m) {
		t.Errorf("%s is not accepted", m.key())
	}
	if diff := cmp.Diff([]string{"pkg/q g: x => (nothing)"}, l.unused([]string{"./pkg/p", "./pkg/q"})); diff != "" {
		t.Errorf("unused (-want +got):\n%s", diff)
	}
	write("pkg/p f: a => b\n")
	if _, err := readAccepted(path); err == nil || !strings.Contains(err.Error(), "no reason") {
		t.Errorf("an entry without a reason: error = %v", err)
	}
	if _, err := readAccepted(filepath.Join("..", "..", acceptedFile)); err != nil {
		t.Error(err)
	}
}
