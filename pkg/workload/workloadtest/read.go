// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package workloadtest

import (
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// Read returns what is kept of a workload; nil: it is not shown.
func Read(o kind.Object) *dependency.Workload {
	read, err := kind.OfObject(o).Read(o)
	if err != nil {
		panic(err) // the kind is that of the object
	}
	if read == nil {
		return nil
	}
	return policy.ReadWorkload(read)
}
