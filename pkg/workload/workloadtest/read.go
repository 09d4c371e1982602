// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package workloadtest

import (
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// Preset returns the kind that a preset describes, as a table has it.
func Preset(name string) *kind.Kind {
	table, err := kind.NewTable([]string{name}, nil)
	if err != nil {
		panic(err)
	}
	return table[len(table)-1]
}

// Read reads a workload as the index does; nil: it is hidden.
func Read(o kind.Object) *dependency.Workload {
	read, err := kind.Table(nil).OfObject(o).Read(o)
	if err != nil {
		panic(err) // impossible: the kind matches the object
	}
	if read == nil {
		return nil
	}
	return policy.Dialects(nil).ReadWorkload(read)
}
