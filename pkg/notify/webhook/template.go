// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"text/template/parse"
	"time"
)

// Templates are those of package text/template, without what messages do not need: loops, named templates, and methods. That
// package finds methods by their names at run time. So a program that imports it contains all exported methods of its dependencies,
// which made this one a third larger, and its memory 8 MB. The parser does not do that.

// messageTemplate is a template of a message.
type messageTemplate struct{ root *parse.ListNode }

// newTemplate parses a template.
func newTemplate(text string) (*messageTemplate, error) {
	known := map[string]any{"and": true, "or": true}
	for name := range functions {
		known[name] = true
	}
	trees, err := parse.Parse("message", text, "", "", known)
	if err != nil {
		return nil, err
	}
	for name := range trees {
		if name != "message" {
			return nil, errors.New("define " + errUnused)
		}
	}
	root := &parse.ListNode{}
	if tree := trees["message"]; tree != nil && tree.Root != nil {
		root = tree.Root
	}
	return &messageTemplate{root}, check(root)
}

const errUnused = "cannot be used: only if, with, else, variables and functions can"

// check refuses what messages do not need.
func check(nodes *parse.ListNode) error {
	if nodes == nil {
		return nil
	}
	for _, node := range nodes.Nodes {
		var err error
		switch n := node.(type) {
		case *parse.IfNode:
			err = cmp.Or(check(n.List), check(n.ElseList))
		case *parse.WithNode:
			err = cmp.Or(check(n.List), check(n.ElseList))
		case *parse.TemplateNode:
			err = errors.New("template " + errUnused)
		case *parse.RangeNode:
			err = errors.New("range " + errUnused)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// execute writes the text for some data.
func (t *messageTemplate) execute(out *limited, data *Text) error {
	x := &execution{out: out, variables: []variable{{"$", *data}}}
	return x.list(t.root, *data)
}

// execution is that of a template. Values are a Text, or a string, int, float64, bool or time.Time.
type execution struct {
	out       *limited
	variables []variable
}

type variable struct {
	name  string
	value any
}

// list executes nodes, with what the dot stands for.
func (x *execution) list(nodes *parse.ListNode, dot any) error {
	if nodes == nil {
		return nil
	}
	for _, node := range nodes.Nodes {
		if err := x.node(node, dot); err != nil {
			return err
		}
	}
	return nil
}

func (x *execution) node(node parse.Node, dot any) error {
	switch n := node.(type) {
	case *parse.TextNode:
		_, err := x.out.Write(n.Text)
		return err
	case *parse.CommentNode:
		return nil
	case *parse.ActionNode:
		value, err := x.pipe(n.Pipe, dot)
		if err != nil || len(n.Pipe.Decl) > 0 {
			return err
		}
		_, err = fmt.Fprint(x.out, value)
		return err
	case *parse.IfNode:
		return x.branch(&n.BranchNode, dot, false)
	case *parse.WithNode:
		return x.branch(&n.BranchNode, dot, true)
	default: // see check
		return fmt.Errorf("%s %s", node, errUnused)
	}
}

// branch executes an if, or a with, in which the dot stands for the condition.
func (x *execution) branch(n *parse.BranchNode, dot any, with bool) error {
	defer func(known int) { x.variables = x.variables[:known] }(len(x.variables))
	value, err := x.pipe(n.Pipe, dot)
	switch {
	case err != nil:
		return err
	case !truth(value):
		return x.list(n.ElseList, dot)
	case with:
		dot = value
	}
	return x.list(n.List, dot)
}

// pipe returns the value of a pipeline, and sets its variables to it.
func (x *execution) pipe(p *parse.PipeNode, dot any) (value any, err error) {
	for i, command := range p.Cmds {
		var last []any
		if i > 0 {
			last = []any{value}
		}
		if value, err = x.command(command, dot, last); err != nil {
			return nil, err
		}
	}
	for _, v := range p.Decl {
		if !p.IsAssign {
			x.variables = append(x.variables, variable{v.Ident[0], value})
			continue
		}
		known := x.variable(v.Ident[0])
		if known == nil {
			return nil, fmt.Errorf("the variable %s is not defined", v.Ident[0])
		}
		known.value = value
	}
	return value, nil
}

// variable returns the variable with a name that was defined last; nil: there is none.
func (x *execution) variable(name string) *variable {
	for i := range slices.Backward(x.variables) {
		if x.variables[i].name == name {
			return &x.variables[i]
		}
	}
	return nil
}

// command returns the value of a command. Last is the value of the command before it in a pipeline, which is its last argument.
func (x *execution) command(c *parse.CommandNode, dot any, last []any) (any, error) {
	first, rest := c.Args[0], c.Args[1:]
	if id, ok := first.(*parse.IdentifierNode); ok {
		return x.call(id.Ident, rest, dot, last)
	}
	args, err := x.arguments(rest, dot, last)
	if err != nil {
		return nil, err
	}
	if of, method := methodOf(first); method != "" {
		t, err := x.argument(of, dot)
		if err != nil {
			return nil, err
		}
		if at, ok := t.(time.Time); ok {
			return call(method, methodsOfTime[method], slices.Insert(args, 0, any(at)))
		}
	}
	if len(args) > 0 {
		return nil, fmt.Errorf("%s takes no arguments", first)
	}
	return x.argument(first, dot)
}

func (x *execution) arguments(nodes []parse.Node, dot any, last []any) ([]any, error) {
	args := make([]any, 0, len(nodes)+2)
	for _, node := range nodes {
		value, err := x.argument(node, dot)
		if err != nil {
			return nil, err
		}
		args = append(args, value)
	}
	return append(args, last...), nil
}

// methodOf returns a node without a method of times at its end, and that method.
func methodOf(node parse.Node) (of parse.Node, method string) {
	last := func(names []string) string {
		if name := names[len(names)-1]; methodsOfTime[name] != nil {
			return name
		}
		return ""
	}
	switch n := node.(type) {
	case *parse.FieldNode:
		if method = last(n.Ident); method != "" && len(n.Ident) > 1 {
			return &parse.FieldNode{NodeType: n.NodeType, Ident: n.Ident[:len(n.Ident)-1]}, method
		} else if method != "" {
			return &parse.DotNode{NodeType: parse.NodeDot}, method
		}
	case *parse.ChainNode:
		if method = last(n.Field); method != "" {
			return &parse.ChainNode{NodeType: n.NodeType, Node: n.Node, Field: n.Field[:len(n.Field)-1]}, method
		}
	case *parse.VariableNode:
		if method = last(n.Ident); method != "" {
			return &parse.VariableNode{NodeType: n.NodeType, Ident: n.Ident[:len(n.Ident)-1]}, method
		}
	}
	return nil, ""
}

// argument returns the value of a node that is not a function.
func (x *execution) argument(node parse.Node, dot any) (any, error) {
	switch n := node.(type) {
	case *parse.DotNode:
		return dot, nil
	case *parse.FieldNode:
		return fields(dot, n.Ident)
	case *parse.VariableNode:
		if known := x.variable(n.Ident[0]); known != nil {
			return fields(known.value, n.Ident[1:])
		}
	case *parse.ChainNode:
		value, err := x.argument(n.Node, dot)
		if err != nil {
			return nil, err
		}
		return fields(value, n.Field)
	case *parse.PipeNode:
		return x.pipe(n, dot)
	case *parse.IdentifierNode:
		return x.call(n.Ident, nil, dot, nil)
	case *parse.StringNode:
		return n.Text, nil
	case *parse.BoolNode:
		return n.True, nil
	case *parse.NumberNode:
		if n.IsComplex {
			break
		}
		switch float := strings.ContainsAny(n.Text, ".eEpP") && !strings.ContainsAny(n.Text, "xX'"); {
		case n.IsFloat && (float || !n.IsInt):
			return n.Float64, nil
		case n.IsInt:
			return int(n.Int64), nil
		}
	}
	return nil, fmt.Errorf("%s is no value that can be used here", node)
}

// fields returns a field of a value, by its path.
func fields(value any, path []string) (any, error) {
	for _, name := range path {
		data, ok := value.(Text)
		if !ok {
			return nil, fmt.Errorf("a %T has no field %s", value, name)
		}
		if value = data.field(name); value == nil {
			return nil, fmt.Errorf(".%s is no field: must be one of .%s", name, strings.Join(fieldNames, ", ."))
		}
	}
	return value, nil
}

// truth reports whether a value is one that counts as true: not false, zero or empty.
func truth(value any) bool {
	switch value {
	case "", 0, 0.0, false:
		return false
	default:
		return true
	}
}

// call calls a function. The functions "and" and "or" get only the arguments that they need.
func (x *execution) call(name string, nodes []parse.Node, dot any, last []any) (value any, err error) {
	if name != "and" && name != "or" {
		args, err := x.arguments(nodes, dot, last)
		if err != nil {
			return nil, err
		}
		return call(name, functions[name], args)
	}
	if len(nodes)+len(last) == 0 {
		return nil, fmt.Errorf("%s takes at least one argument", name)
	}
	for _, node := range nodes {
		if value, err = x.argument(node, dot); err != nil || truth(value) == (name == "or") {
			return value, err
		}
	}
	if len(last) > 0 {
		value = last[0]
	}
	return value, nil
}

func call(name string, f func([]any) (any, error), args []any) (any, error) {
	value, err := f(args)
	if err != nil {
		return nil, fmt.Errorf("%s %w", name, err)
	}
	return value, nil
}

// methodsOfTime are called with a time as the first argument.
var methodsOfTime = map[string]func([]any) (any, error){
	"Format": func(args []any) (any, error) {
		if len(args) == 2 {
			if layout, ok := args[1].(string); ok {
				return args[0].(time.Time).Format(layout), nil
			}
		}
		return nil, errors.New(`takes a layout, such as "15:04"`)
	},
	"Unix": func(args []any) (any, error) {
		if len(args) != 1 {
			return nil, errors.New("takes no arguments")
		}
		return int(args[0].(time.Time).Unix()), nil
	},
}

// functions are those that templates can call, besides "and" and "or".
var functions = map[string]func([]any) (any, error){
	"not": func(args []any) (any, error) {
		if len(args) != 1 {
			return nil, errors.New("takes one argument")
		}
		return !truth(args[0]), nil
	},
	"eq": func(args []any) (any, error) {
		if len(args) < 2 {
			return nil, errors.New("takes at least two arguments")
		}
		for _, other := range args[1:] {
			if order, err := compare(args[0], other); err != nil || order == 0 {
				return err == nil, err
			}
		}
		return false, nil
	},
	"ne": comparison(func(order int) bool { return order != 0 }),
	"lt": comparison(func(order int) bool { return order < 0 }),
	"le": comparison(func(order int) bool { return order <= 0 }),
	"gt": comparison(func(order int) bool { return order > 0 }),
	"ge": comparison(func(order int) bool { return order >= 0 }),
	"len": func(args []any) (any, error) {
		if len(args) == 1 {
			if text, ok := args[0].(string); ok {
				return len(text), nil
			}
		}
		return nil, errors.New("takes one string")
	},
	"slice": func(args []any) (any, error) {
		wrong := errors.New("takes a string and up to two indexes, where the part begins and ends")
		if len(args) == 0 || len(args) > 3 {
			return nil, wrong
		}
		text, ok := args[0].(string)
		if !ok {
			return nil, wrong
		}
		ends := [2]int{0, len(text)}
		for i, arg := range args[1:] {
			if ends[i], ok = arg.(int); !ok {
				return nil, wrong
			}
		}
		if ends[0] < 0 || ends[0] > ends[1] || ends[1] > len(text) {
			return nil, fmt.Errorf("from %d to %d of a string of %d bytes", ends[0], ends[1], len(text))
		}
		return text[ends[0]:ends[1]], nil
	},
	"print":    func(args []any) (any, error) { return fmt.Sprint(args...), nil },
	"println":  func(args []any) (any, error) { return fmt.Sprintln(args...), nil },
	"urlquery": func(args []any) (any, error) { return url.QueryEscape(fmt.Sprint(args...)), nil },
	"printf": func(args []any) (any, error) {
		if len(args) > 0 {
			if format, ok := args[0].(string); ok {
				return fmt.Sprintf(format, args[1:]...), nil
			}
		}
		return nil, errors.New("takes a format and the values for it")
	},
}

func comparison(f func(order int) bool) func([]any) (any, error) {
	return func(args []any) (any, error) {
		if len(args) != 2 {
			return nil, errors.New("takes two arguments")
		}
		order, err := compare(args[0], args[1])
		return f(order), err
	}
}

// compare returns the order of two values of the same type.
func compare(a, b any) (int, error) {
	switch a := a.(type) {
	case string:
		if b, ok := b.(string); ok {
			return cmp.Compare(a, b), nil
		}
	case int:
		if b, ok := b.(int); ok {
			return cmp.Compare(a, b), nil
		}
	case float64:
		if b, ok := b.(float64); ok {
			return cmp.Compare(a, b), nil
		}
	}
	return 0, fmt.Errorf("compares two strings or two numbers of a type, not a %T with a %T", a, b)
}
