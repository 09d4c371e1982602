// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"slices"
	"strings"

	"github.com/configdep/configdep/pkg/dependency"
)

// EnvVar is a rollout like Annotate, and also sets an environment variable for each source that has changed, with the name
// that Reloader gives it, for those who read these variables.
var EnvVar Strategy = envVar{}

type envVar struct{ annotate }

// Name implements Strategy.
func (envVar) Name() string { return "env-var" }

func (s envVar) begin(w *dependency.Workload, r *Restart, out *restartPatch) {
	s.annotate.begin(w, r, out)
	set := map[string]bool{}
	for i := range r.Changed {
		c := &r.Changed[i]
		name := c.variableName()
		if set[name] || c.Digest == "" || c.container(w) == "" { // sources whose names differ only in special characters share a variable
			continue
		}
		set[name] = true
		out.variables = append(out.variables, variable{c.container(w), name, c.Digest})
	}
}

// variableName returns the name of the variable for a source: upper case, with one _ for each sequence of characters that
// variables cannot have.
func (c *Changed) variableName() string {
	var name strings.Builder
	last := byte('_') // the name begins with a letter or a digit
	for _, b := range []byte(strings.ToUpper(c.Name)) {
		if 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' {
			name.WriteByte(b)
			last = b
		} else if last != '_' {
			name.WriteByte('_')
			last = '_'
		}
	}
	return variablePrefix + name.String() + "_" + strings.ToUpper(string(c.Kind))
}

// The names of variables are STAKATER_NAME_KIND, as those of Reloader are.
const variablePrefix = "STAKATER_"

var variableKinds = []dependency.SourceKind{dependency.ConfigMap, dependency.Secret, dependency.SecretProviderClass}

// MarksVariable reports whether an environment variable can be one that a restart sets, by its name. Other names that begin
// in the same way belong to users. So do variables whose value comes from elsewhere, whatever their names.
func MarksVariable(name string) bool {
	rest, found := strings.CutPrefix(name, variablePrefix)
	return found && slices.ContainsFunc(variableKinds, func(kind dependency.SourceKind) bool {
		of, found := strings.CutSuffix(rest, "_"+strings.ToUpper(string(kind)))
		return found && of != ""
	})
}
