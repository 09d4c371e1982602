// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// namedChange is a change that loses updates, or restarts pods for nothing, in a way that
// tests once did not notice. It says in words what is wrong, and where code moves it moves too.
type namedChange struct {
	name     string
	file     string
	old, new string // old occurs once in the file
}

var named = []namedChange{
	{
		"what a list showed is taken for seen in the moment it began", "pkg/dependency/workload.go",
		"if started || !at.Live && !w.TemplateWritten.Equal(previous.TemplateWritten) && !w.sameRevision(previous) {", "if started {",
	},
	{
		"a template whose revision was looked up is always newer than the content", "pkg/controller/revision.go",
		"return &policy.Verification{Newer: selected.RevisionCreated.After(s.WrittenAt),", "_ = selected; return &policy.Verification{Newer: true,",
	},
	{
		"a revision of the same second is newer than the content", "pkg/controller/revision.go",
		"Newer: selected.RevisionCreated.After(s.WrittenAt)", "Newer: !selected.RevisionCreated.Before(s.WrittenAt)",
	},
	{
		"an upper bound of the start of pods instead of a lower one", "pkg/dependency/workload.go",
		"w.StartVersion = max(ParseVersion(previous.ResourceVersion), at.After) + 1", "w.StartVersion = ParseVersion(w.ResourceVersion)",
	},
	{
		"a change whose version is only a bound ends waiting", "pkg/dependency/waiting.go",
		"case !a.change.Exact, a.listed, a.change.Version < now.lost, g.severalCounters, w.StartVersion <= g.since.Version:", "case a.listed, a.change.Version < now.lost, g.severalCounters, w.StartVersion <= g.since.Version:",
	},
	{
		"what was lost while pods waited is ignored", "pkg/dependency/waiting.go",
		"case !a.change.Exact, a.listed, a.change.Version < now.lost, g.severalCounters, w.StartVersion <= g.since.Version:", "case !a.change.Exact, a.listed, g.severalCounters, w.StartVersion <= g.since.Version:",
	},
	{
		"what a list hides while pods wait is ignored", "pkg/dependency/waiting.go",
		"case closed.has(i) && !a.listed:", "case closed.has(i):",
	},
	{
		"a deletion is dated three revisions early", "pkg/dependency/change.go",
		"		g.setGone(&was, change)\n", "		change.Version -= 3\n		g.setGone(&was, change)\n",
	},
	{
		"pods have read what changed up to two revisions after they started", "pkg/policy/stale.go",
		"return started > c.at.Version ||", "return started+2 > c.at.Version ||",
	},
	{
		"the removal of a key has a time", "pkg/policy/stale.go",
		"return u.counted.source.Undated(u.counted.written) || u.hadOtherKeys(entry)", "return u.counted.source.Undated(u.counted.written)",
	},
	{
		"a hash alone dates the removal of a key", "pkg/policy/stale.go",
		"case e.knows(u), e.Record.Sources == nil && e.Comparable() && !e.Record.abandoned(): ", "case e.knows(u): ",
	},
	{
		"changes of sources that the template reads only now are ignored", "pkg/policy/stale.go",
		"found = e.changedSinceCounted(u)", "found = false",
	},
	{
		"what a list shows is taken for an exact event", "pkg/dependency/source.go",
		"s.Change = Change{Version: version, Exact: at.Live, After: at.After, Seen: at.Seen, Order: at.Order}", "s.Change = Change{Version: version, Exact: true, Seen: at.Seen, Order: at.Order}",
	},
	{
		"the template of a paused Deployment is taken for that of its pods", "pkg/dependency/workload.go",
		"	if !w.Paused {\n", "	if true {\n",
	},
	{
		"pods that waited start a thousand revisions late", "pkg/dependency/waiting.go",
		"change.Version+1", "change.Version+1000",
	},
	{
		"a change after the start of pods is ignored where nothing is recorded", "pkg/policy/stale.go",
		"		changed = e.changedUnrecorded()\n", "		changed = nil\n",
	},
}

func (n *namedChange) mutant(root string) (mutant, error) {
	source, err := os.ReadFile(filepath.Join(root, n.file))
	if err != nil {
		return mutant{}, err
	}
	if c := bytes.Count(source, []byte(n.old)); c != 1 {
		return mutant{}, fmt.Errorf("named.go: %q is %d times in %s, and should be there once: say where %q is now", n.old, c, n.file, n.name)
	}
	from := bytes.Index(source, []byte(n.old))
	return mutant{
		file: n.file, function: "(" + n.name + ")", line: bytes.Count(source[:from], []byte("\n")) + 1, source: source,
		from: from, to: from + len(n.old), text: n.new,
	}, nil
}
