// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package values

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// conversion is one run. Each value of the input is consumed by a rule, which converts it or says why not.
type conversion struct {
	Options
	in, out map[string]any
	args    map[string][]string // flags of the server, with the values that are joined by commas
	env     map[string]any      // variables of the environment, by their names
	notes   [sections][]note
	unset   []string // values that say nothing
	errs    []error
}

// section is a part of the comment before the values.
type section int

const (
	byHand   section = iota // what the user has to do
	look                    // what was converted, and may not suit
	without                 // what needs no conversion
	strange                 // what Reloader's chart does not have
	sections                // how many there are
)

var headings = [sections]string{
	byHand:  "Not converted; set these yourself:",
	look:    "Converted; look at these:",
	without: "Not converted, because it is not needed or has no effect:",
	strange: "Not converted, because Reloader's chart has no such values:",
}

// note says something about values of the input.
type note struct {
	paths []string
	text  string
}

// convert returns the values of configdep's chart, with a comment.
func convert(in map[string]any, o Options) (string, error) {
	c := conversion{Options: o, in: in, out: map[string]any{}, args: map[string][]string{}, env: map[string]any{}}
	if o.Observe {
		c.set("reload.observe", true)
	}
	c.walk("", in)
	if c.Jobs && (!c.is("reloader.ignoreJobs", true) || !c.is("reloader.ignoreCronJobs", true)) {
		c.set("reload.jobs", true)
		c.note(look, "reload.jobs", "grants the rights to create and delete Jobs, which CronJobs and Jobs with annotations of their own need to be run again; unlike by Reloader, none is by a default for all")
	}
	if len(c.errs) > 0 {
		return "", errors.Join(c.errs...)
	}
	return c.String()
}

// walk applies the rules to the values below a path.
func (c *conversion) walk(path string, in map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(in)) {
		path, value := strings.TrimPrefix(path+"."+key, "."), in[key]
		below, isMap := value.(map[string]any)
		convert, found := rules[path]
		nested := !strings.Contains(key, ".") // a key with a dot is not the path that it looks like
		switch {
		case found && nested && empty(value):
			c.unset = append(c.unset, path)
		case found && nested:
			convert(c, path, value)
		case isParent(path) && nested && isMap && len(below) > 0:
			c.walk(path, below)
		case isParent(path) && nested && empty(value):
			c.unset = append(c.unset, path)
		case isParent(path) && nested:
			c.fail(path, "must be a map")
		default:
			c.note(strange, path, "")
		}
	}
}

// isParent reports whether there are rules below a path.
func isParent(path string) bool {
	for rule := range rules {
		if strings.HasPrefix(rule, path+".") {
			return true
		}
	}
	return false
}

// get returns a value of the input; nil: it is not set.
func (c *conversion) get(path string) any { return at(c.in, path) }

// at returns what is in maps at a path; nil: nothing.
func at(in map[string]any, path string) any {
	var value any = in
	for key := range strings.SplitSeq(path, ".") {
		m, _ := value.(map[string]any)
		value = m[key]
	}
	return value
}

// is reports whether a value of the input is on or off, as it is given.
func (c *conversion) is(path string, on bool) bool { return c.get(path) == any(on) }

// set sets a value of the output.
func (c *conversion) set(path string, value any) {
	m := c.out
	keys := strings.Split(path, ".")
	for _, key := range keys[:len(keys)-1] {
		if m[key] == nil {
			m[key] = map[string]any{}
		}
		m = m[key].(map[string]any)
	}
	m[keys[len(keys)-1]] = value
}

// arg adds a flag of the server, or a value to one.
func (c *conversion) arg(flag, value string) { c.args[flag] = append(c.args[flag], value) }

// note adds a path to the note with a text.
func (c *conversion) note(s section, path, text string) {
	for i := range c.notes[s] {
		if n := &c.notes[s][i]; n.text == text {
			n.paths = append(n.paths, path)
			return
		}
	}
	c.notes[s] = append(c.notes[s], note{[]string{path}, text})
}

func (c *conversion) fail(path, why string) {
	c.errs = append(c.errs, fmt.Errorf("%s: %s", path, why))
}

// empty reports whether a value says nothing, as in charts.
func empty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == ""
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return false
}

// String returns the output.
func (c *conversion) String() (string, error) {
	for _, flag := range slices.Sorted(maps.Keys(c.args)) {
		list, _ := c.out["extraArgs"].([]any)
		c.out["extraArgs"] = append(list, flag+"="+strings.Join(c.args[flag], ","))
	}
	for _, name := range slices.Sorted(maps.Keys(c.env)) {
		list, _ := c.out["extraEnv"].([]any)
		c.out["extraEnv"] = append(list, c.env[name])
	}
	var out strings.Builder
	comment(&out, "", "Values of the chart configdep, converted from values of the chart of Stakater Reloader.")
	for s, heading := range headings {
		if len(c.notes[s]) == 0 {
			continue
		}
		comment(&out, "", "")
		comment(&out, "", heading)
		for _, n := range c.notes[s] {
			text := strings.Join(n.paths, ", ")
			if n.text != "" {
				text += ": " + n.text
			}
			comment(&out, "- ", text)
		}
	}
	if len(c.unset) > 0 {
		comment(&out, "", "")
		comment(&out, "", "Not set, or set to what makes no difference:")
		comment(&out, "- ", strings.Join(c.unset, ", "))
	}
	if len(c.out) == 0 {
		return out.String() + "{}\n", nil
	}
	values, err := yaml.Marshal(c.out)
	return out.String() + string(values), err
}

// comment writes lines of a comment. The first begins with a mark, the others are indented.
func comment(out *strings.Builder, mark, text string) {
	const most = 100
	line := "# " + mark
	begin := len(line)
	for word := range strings.FieldsSeq(text) {
		if len(line) > begin && len(line)+1+len(word) > most {
			out.WriteString(line + "\n")
			line = "# " + strings.Repeat(" ", len(mark))
		} else if len(line) > begin {
			line += " "
		}
		line += word
	}
	out.WriteString(strings.TrimRight(line, " ") + "\n")
}
