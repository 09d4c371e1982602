package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sample = `package p

const most = 3

func zero() (T, []T) { return T{}, []T{} }

func (t *T[K]) less(a, b int) (bool, error) {
	if a < b && b != 0 {
		t.note(a)
		a = b
		return true, nil
	}
	switch {
	case a > b:
		a--
	}
	return false, t.err
}
`

// Each kind of change is found, with what identifies it.
func TestMutantsOf(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pkg", "p", "p.go")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	mutants, err := mutantsOf(dir, path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range mutants {
		m := &mutants[i]
		got = append(got, m.String())
		if string(m.content()) == sample {
			t.Errorf("%s changes nothing", m)
		}
	}
	want := []string{
		"3: pkg/p const: const most = 3 => const most = 4",
		"3: pkg/p const: const most = 3 => const most = 2",
		"5: pkg/p zero: func zero() (T, []T) { return T{}, []T{} } => func zero() (T, []T) { return T{}, *new([]T) }",
		"8: pkg/p T.less: if a < b && b != 0 { => if !(a < b && b != 0) {",
		"8: pkg/p T.less: if a < b && b != 0 { => if a < b || b != 0 {",
		"8: pkg/p T.less: if a < b && b != 0 { => if a <= b && b != 0 {",
		"8: pkg/p T.less: if a < b && b != 0 { => if a < b && b == 0 {",
		"8: pkg/p T.less: if a < b && b != 0 { => if a < b && b != 1 {",
		"8: pkg/p T.less: if a < b && b != 0 { => if a < b && b != -1 {",
		"9: pkg/p T.less: t.note(a) => (nothing)",
		"10: pkg/p T.less: a = b => (nothing)",
		"11: pkg/p T.less: return true, nil => return !(true), nil",
		"14: pkg/p T.less: case a > b: => case !(a > b):",
		"14: pkg/p T.less: case a > b: => case a >= b:",
		"15: pkg/p T.less: a-- => (nothing)",
		"17: pkg/p T.less: return false, t.err => return !(false), t.err",
		"17: pkg/p T.less: return false, t.err => return false, *new(error)",
	}
	for i := range want {
		want[i] = filepath.Join("pkg", "p", "p.go") + ":" + want[i]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Where the code that a named change is about has moved, this says so before an hour of
// tests does.
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
		t.Errorf("an entry without a reason: %v", err)
	}
	if _, err := readAccepted(filepath.Join("..", "..", acceptedFile)); err != nil {
		t.Error(err)
	}
}
