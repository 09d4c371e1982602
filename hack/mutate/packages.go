// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// goPackage is a package that is changed.
type goPackage struct {
	path    string // how it is imported
	folder  string // relative to the root
	files   *token.FileSet
	sources []goFile
	info    *types.Info
	checked *types.Package
	imports types.Importer
}

// goFile is a file of it.
type goFile struct {
	name   string // relative to the root
	source []byte
	parsed *ast.File
}

// readPackages reads the packages that are changed, with the types of their expressions.
func readPackages(ctx context.Context, root string, patterns []string) (packages []*goPackage, err error) {
	exports, err := output(ctx, root, "go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}", "os", "strconv", "sync"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	compiled := map[string]string{}
	for line := range strings.Lines(exports) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		compiled[path] = file
	}
	files := token.NewFileSet()
	imports := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(compiled[path]) })
	listed, err := output(ctx, root, "go", append([]string{"list", "-f", "{{.ImportPath}}\t{{.Dir}}\t{{range .GoFiles}}{{.}} {{end}}"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(listed) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		folder, err := filepath.Rel(root, fields[1])
		if err != nil {
			return nil, err
		}
		p := &goPackage{path: fields[0], folder: filepath.ToSlash(folder), files: files, imports: imports}
		for name := range strings.FieldsSeq(fields[2]) {
			if err := p.read(root, filepath.Join(folder, name)); err != nil {
				return nil, err
			}
		}
		if errs := p.check(nil); len(errs) > 0 {
			return nil, fmt.Errorf("%s: %w", p.path, errs[0])
		}
		packages = append(packages, p)
	}
	return packages, nil
}

func (p *goPackage) read(root, name string) error {
	source, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return err
	}
	parsed, err := parser.ParseFile(p.files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	p.sources = append(p.sources, goFile{name, source, parsed})
	return nil
}

// check returns what would keep the package from being compiled with other content of files.
// Without any, it notes the types of expressions.
func (p *goPackage) check(changed map[string][]byte) (errs []error) {
	var parsed []*ast.File
	for i := range p.sources {
		f := &p.sources[i]
		if content, is := changed[f.name]; is {
			other, err := parser.ParseFile(p.files, f.name, content, parser.SkipObjectResolution)
			if err != nil {
				return []error{err}
			}
			parsed = append(parsed, other)
			continue
		}
		parsed = append(parsed, f.parsed)
	}
	for name, content := range changed {
		if !slices.ContainsFunc(p.sources, func(f goFile) bool { return f.name == name }) {
			other, err := parser.ParseFile(p.files, name, content, parser.SkipObjectResolution)
			if err != nil {
				return []error{err}
			}
			parsed = append(parsed, other)
		}
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	config := types.Config{Importer: p.imports, Error: func(err error) { errs = append(errs, err) }}
	checked, _ := config.Check(p.path, p.files, parsed, info) // errors were noted
	if changed == nil {
		p.info, p.checked = info, checked
	}
	return errs
}
