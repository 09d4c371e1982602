// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"path/filepath"
	"strconv"
	"strings"
)

// mutant is one change of one file.
type mutant struct {
	file     string // relative to the root
	function string // such as Evaluation.stale; of a named change, its name
	line     int
	source   []byte // of the file
	from, to int    // what is replaced
	text     string // by what

	// form is how the change can be compiled beside the code as it is, for the expression or
	// statement in start to end. An expression has the type typed.
	form       form
	start, end int
	typed      string
	// constant is where the word const is, of a change of a constant, which becomes a variable
	// then; else 0.
	constant int
}

// form is how a change is compiled beside the code as it is.
type form int

const (
	alone     form = iota // it has to be compiled by itself
	opposite              // of a condition
	operator              // of a condition, exchanged
	value                 // another value of the same type
	statement             // left out
)

func (m *mutant) String() string { return fmt.Sprintf("%s:%d: %s", m.file, m.line, m.key()) }

// key identifies a change as accepted.txt does: without a line number, so that it stays the
// same when other code changes.
func (m *mutant) key() string {
	before, after := m.lines()
	return fmt.Sprintf("%s %s: %s => %s", m.folder(), m.function, oneLine(before), oneLine(after))
}

// folder is where the package of the change is, relative to the root.
func (m *mutant) folder() string { return filepath.ToSlash(filepath.Dir(m.file)) }

// content returns the changed file.
func (m *mutant) content() []byte {
	return []byte(string(m.source[:m.from]) + m.text + string(m.source[m.to:]))
}

// lines returns the lines that the change concerns, before and after.
func (m *mutant) lines() (before, after string) {
	begin := bytes.LastIndexByte(m.source[:m.from], '\n') + 1
	end := len(m.source)
	if i := bytes.IndexByte(m.source[m.to:], '\n'); i >= 0 {
		end = m.to + i
	}
	return string(m.source[begin:end]), string(m.source[begin:m.from]) + m.text + string(m.source[m.to:end])
}

func (m *mutant) diff() string {
	before, after := m.lines()
	return "-" + strings.ReplaceAll(before, "\n", "\n-") + "\n+" + strings.ReplaceAll(after, "\n", "\n+")
}

// oneLine joins lines.
func oneLine(text string) string {
	if text = strings.Join(strings.Fields(text), " "); text != "" {
		return text
	}
	return "(nothing)"
}

// mutantsOf returns the changes of a file of a package: conditions are negated, comparisons
// shifted, && and || exchanged, numbers made one more and one less, statements removed, results
// made zero. Changes that no test could notice are left out: of what is logged, of the capacity
// of slices and maps, and of the step of a loop, which then never ends.
func mutantsOf(p *goPackage, file *goFile) []mutant {
	f := &finder{goPackage: p, file: file, skipped: map[ast.Node]bool{}, same: map[*ast.BasicLit]int64{}}
	for _, d := range file.parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Body != nil {
				f.function, f.results = functionName(d), d.Type.Results
				ast.Inspect(d.Body, f.visit)
			}
		case *ast.GenDecl:
			if d.Tok == token.CONST || d.Tok == token.VAR {
				f.function, f.results = d.Tok.String(), nil
				if f.constant = 0; d.Tok == token.CONST {
					f.constant = f.offset(d.Pos())
				}
				ast.Inspect(d, f.visit)
				f.constant = 0
			}
		}
	}
	return f.found
}

func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + d.Name.Name
		default:
			return d.Name.Name
		}
	}
}

type finder struct {
	*goPackage
	file     *goFile
	function string
	constant int
	results  *ast.FieldList
	found    []mutant
	skipped  map[ast.Node]bool       // statements that stay
	same     map[*ast.BasicLit]int64 // which other number is the same as another operator
}

// shifted are the operators that a comparison is replaced with.
var shifted = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LAND: token.LOR, token.LOR: token.LAND, token.ADD: token.SUB, token.SUB: token.ADD,
}

func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncLit:
		outer := f.results
		f.results = n.Type.Results
		ast.Inspect(n.Body, f.visit)
		f.results = outer
		return false
	case *ast.IfStmt:
		f.negate(n.Cond)
	case *ast.ForStmt:
		f.skipped[n.Post] = true
		if n.Cond != nil {
			f.negate(n.Cond)
		}
	case *ast.CommClause:
		f.skipped[n.Comm] = true
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, c := range n.Body.List {
				for _, condition := range c.(*ast.CaseClause).List {
					f.negate(condition)
				}
			}
		}
	case *ast.CallExpr:
		if name, is := n.Fun.(*ast.Ident); is && name.Name == "make" {
			if len(n.Args) == 3 {
				ast.Inspect(n.Args[1], f.visit)
				return false
			}
			_, isMap := n.Args[0].(*ast.MapType)
			return !isMap
		}
	case *ast.BinaryExpr:
		if other, is := shifted[n.Op]; is {
			f.exchange(n, other)
		}
	case *ast.BasicLit:
		if number, err := strconv.ParseInt(n.Value, 0, 64); n.Kind == token.INT && err == nil {
			for _, other := range []int64{number + 1, number - 1} {
				if same, is := f.same[n]; !is || same != other {
					f.replace(n, strconv.FormatInt(other, 10), value, f.typeOf(n))
				}
			}
		}
	case *ast.ExprStmt:
		if text := f.text(n); strings.HasPrefix(text, "klog.") || strings.HasPrefix(text, "logger.") {
			return false
		}
		f.remove(n)
	case *ast.IncDecStmt, *ast.DeferStmt, *ast.BranchStmt:
		f.remove(n)
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			f.remove(n)
		}
	case *ast.ReturnStmt:
		f.zero(n)
	case *ast.ImportSpec:
		return false
	}
	return true
}

func (f *finder) remove(n ast.Node) {
	if !f.skipped[n] {
		f.replace(n, "", statement, "")
	}
}

// negate replaces a condition with its opposite. A comparison for equality has that already.
func (f *finder) negate(condition ast.Expr) {
	if b, is := condition.(*ast.BinaryExpr); is && (b.Op == token.EQL || b.Op == token.NEQ) {
		return
	}
	f.replace(condition, "!("+f.text(condition)+")", opposite, "")
}

// zero replaces each result with the zero value of its type, and a bool with its opposite.
func (f *finder) zero(r *ast.ReturnStmt) {
	if f.results == nil {
		return
	}
	var types []ast.Expr
	for _, field := range f.results.List {
		for range max(len(field.Names), 1) {
			types = append(types, field.Type)
		}
	}
	if len(types) != len(r.Results) {
		return // one call that returns them all, or none
	}
	for i, result := range r.Results {
		switch t, text := f.text(types[i]), f.text(result); {
		case f.isZero(result), text == "nil" || text == t+"{}" && t[0] != '[' && !strings.HasPrefix(t, "map["):
			// It is zero.
		case t == "bool":
			f.replace(result, "!("+text+")", opposite, "")
		default:
			f.replace(result, "*new("+t+")", value, t)
		}
	}
}

// exchange replaces an operator.
func (f *finder) exchange(b *ast.BinaryExpr, other token.Token) {
	m := f.mutant(b, alone, "")
	m.from = f.offset(b.OpPos)
	m.to, m.text = m.from+len(b.Op.String()), other.String()
	m.line = f.files.Position(b.OpPos).Line
	switch b.Op {
	case token.ADD, token.SUB:
		if m.typed = f.typeOf(b); m.typed != "" {
			m.form = value
		}
	default:
		m.form = operator
		f.noteSame(b)
	}
	if f.isString(b.X) && b.Op == token.ADD {
		return // strings cannot be subtracted
	}
	f.found = append(f.found, m)
}

// noteSame notes that x > 0 and x > -1 differ as much from each other as x >= 0 does, where
// these are integers.
func (f *finder) noteSame(b *ast.BinaryExpr) {
	step := map[token.Token]int64{token.LSS: 1, token.LEQ: -1, token.GTR: -1, token.GEQ: 1}[b.Op]
	literal, is := b.Y.(*ast.BasicLit)
	if !is {
		literal, is = b.X.(*ast.BasicLit)
		step = -step
	}
	if !is || step == 0 || !f.isInteger(literal) {
		return
	}
	if number, err := strconv.ParseInt(literal.Value, 0, 64); err == nil {
		f.same[literal] = number + step
	}
}

// isZero reports whether an expression is a constant that is zero.
func (f *finder) isZero(e ast.Expr) bool {
	switch v := f.info.Types[e].Value; {
	case v == nil:
		return false
	case v.Kind() == constant.String:
		return constant.StringVal(v) == ""
	case v.Kind() == constant.Int, v.Kind() == constant.Float:
		return constant.Sign(v) == 0
	default:
		return false
	}
}

func (f *finder) isInteger(e ast.Expr) bool { return f.basic(e)&types.IsInteger != 0 }

func (f *finder) isString(e ast.Expr) bool { return f.basic(e)&types.IsString != 0 }

func (f *finder) basic(e ast.Expr) types.BasicInfo {
	if t := f.info.TypeOf(e); t != nil {
		if b, is := t.Underlying().(*types.Basic); is {
			return b.Info()
		}
	}
	return 0
}

// typeOf returns the type of an expression as this file writes it, or "".
func (f *finder) typeOf(e ast.Expr) string {
	t := f.info.TypeOf(e)
	if t == nil || t == types.Typ[types.Invalid] {
		return ""
	}
	return types.TypeString(types.Default(t), func(p *types.Package) string {
		if p == f.checked {
			return ""
		}
		for _, i := range f.file.parsed.Imports {
			if path, err := strconv.Unquote(i.Path.Value); err == nil && path == p.Path() && i.Name != nil {
				return i.Name.Name
			}
		}
		return p.Name()
	})
}

func (f *finder) text(n ast.Node) string {
	return string(f.file.source[f.offset(n.Pos()):f.offset(n.End())])
}

func (f *finder) offset(p token.Pos) int { return f.files.Position(p).Offset }

func (f *finder) mutant(n ast.Node, as form, typed string) mutant {
	if as == value && typed == "" {
		as = alone
	}
	start, end := f.offset(n.Pos()), f.offset(n.End())
	return mutant{
		file: f.file.name, function: f.function, line: f.files.Position(n.Pos()).Line, source: f.file.source,
		from: start, to: end, start: start, end: end, form: as, typed: typed, constant: f.constant,
	}
}

func (f *finder) replace(n ast.Node, text string, as form, typed string) {
	m := f.mutant(n, as, typed)
	m.text = text
	f.found = append(f.found, m)
}
