package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
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
}

func (m *mutant) String() string { return fmt.Sprintf("%s:%d: %s", m.file, m.line, m.key()) }

// key identifies a change as accepted.txt does: without a line number, so that it stays the
// same when other code changes.
func (m *mutant) key() string {
	before, after := m.lines()
	return fmt.Sprintf("%s %s: %s => %s", filepath.ToSlash(filepath.Dir(m.file)), m.function, oneLine(before), oneLine(after))
}

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

// mutantsOf returns the changes of a file: conditions are negated, comparisons shifted, && and
// || exchanged, numbers made one more and one less, statements removed, results made zero.
func mutantsOf(root, path string) ([]mutant, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	relative, err := filepath.Rel(root, path)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &finder{files: files, file: relative, source: source}
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Body != nil {
				f.function, f.results = functionName(d), d.Type.Results
				ast.Inspect(d.Body, f.visit)
			}
		case *ast.GenDecl:
			if d.Tok == token.CONST || d.Tok == token.VAR {
				f.function, f.results = d.Tok.String(), nil
				ast.Inspect(d, f.visit)
			}
		}
	}
	return f.found, nil
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
	files    *token.FileSet
	file     string
	source   []byte
	function string
	results  *ast.FieldList
	found    []mutant
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
		if n.Cond != nil {
			f.negate(n.Cond)
		}
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, c := range n.Body.List {
				for _, condition := range c.(*ast.CaseClause).List {
					f.negate(condition)
				}
			}
		}
	case *ast.BinaryExpr:
		if other, is := shifted[n.Op]; is {
			f.replaceOperator(n, other)
		}
	case *ast.BasicLit:
		if value, err := strconv.ParseInt(n.Value, 0, 64); n.Kind == token.INT && err == nil {
			f.replace(n, strconv.FormatInt(value+1, 10))
			f.replace(n, strconv.FormatInt(value-1, 10))
		}
	case *ast.ExprStmt, *ast.IncDecStmt, *ast.DeferStmt, *ast.BranchStmt:
		f.replace(n, "")
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			f.replace(n, "")
		}
	case *ast.ReturnStmt:
		f.zero(n)
	case *ast.ImportSpec:
		return false
	}
	return true
}

// negate replaces a condition with its opposite. A comparison for equality has that already.
func (f *finder) negate(condition ast.Expr) {
	if b, is := condition.(*ast.BinaryExpr); is && (b.Op == token.EQL || b.Op == token.NEQ) {
		return
	}
	f.replace(condition, "!("+f.text(condition)+")")
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
		switch t, value := f.text(types[i]), f.text(result); {
		case value == "nil" || value == "0" || value == `""` || value == t+"{}" && t[0] != '[' && !strings.HasPrefix(t, "map["):
			// It is zero.
		case t == "bool":
			f.replace(result, "!("+value+")")
		default:
			f.replace(result, "*new("+t+")")
		}
	}
}

func (f *finder) text(n ast.Node) string {
	return string(f.source[f.offset(n.Pos()):f.offset(n.End())])
}

func (f *finder) offset(p token.Pos) int { return f.files.Position(p).Offset }

func (f *finder) replace(n ast.Node, text string) { f.add(n.Pos(), n.End(), text) }

func (f *finder) replaceOperator(b *ast.BinaryExpr, other token.Token) {
	f.add(b.OpPos, b.OpPos+token.Pos(len(b.Op.String())), other.String())
}

func (f *finder) add(from, to token.Pos, text string) {
	f.found = append(f.found, mutant{
		file: f.file, function: f.function, line: f.files.Position(from).Line, source: f.source,
		from: f.offset(from), to: f.offset(to), text: text,
	})
}
