// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"strings"

	"github.com/configdep/configdep/pkg/record"
)

// maxChanged limits the sources that a restart reports.
const maxChanged = 32

// Changed returns the sources for which a restart is due, the trigger first.
func (e *Evaluation) Changed(d *Decision) (out []record.Changed) {
	for _, t := range d.due[:min(len(d.due), maxChanged)] {
		of := record.Changed{Kind: t.counted.Kind, Name: t.counted.Name, Containers: t.containers()}
		if t.source != nil {
			_, of.Digest, _ = strings.Cut(t.Content(), ".")
		}
		out = append(out, of)
	}
	return out
}
