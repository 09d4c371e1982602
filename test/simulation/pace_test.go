// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"slices"
	"time"
)

// judgePace judges when a restart is made: after changes have settled, and not too soon after the last restart.
func (o *oracle) judgePace(r *request, d *workload, rules rules, marks [sourceCount]mark, reasons reasons) {
	name := workloadName(d.slot)
	scopes := rules.scopes(d.template.variant, &marks)
	rec, bare := o.remembered(&r.seen, &d.manifest)
	var arrived time.Time
	for _, s := range reasons.sources {
		if rec != nil && !bare && (!rec.scopes[s].same(scopes[s]) || rules.glob && rec.scopes != scopes || !o.recordDiffers(rec, &scopes, s, &r.seen)) {
			continue
		}
		if seen := &r.seen.sources[s]; rules.glob && scopes[s].annotted && !seen.present && seen.goneIgnored {
			continue // the glob had lost the source before, when it was ignored
		}
		if seen := &r.seen.sources[s]; scopes[s].ignores && seen.goneAt > 0 && seen.content == seen.gone {
			continue // that it came back is no change, and it changed before it went
		}
		if t := r.seen.templates[d.slot]; scopes[s].annotted && t.uid == d.uid && t.ruled > slices.Max(r.seen.sources[s].arrivals[:]) {
			continue // the source counts only since then
		}
		if at := r.seen.sources[s].arrived; at.After(arrived) {
			arrived = at
		}
	}
	settled := arrived.Add(rules.settle)
	if since, found := r.server.staleSince[d.slot]; found && since.Add(10*rules.settle).Before(settled) {
		settled = since.Add(10 * rules.settle)
	}
	// If revisions cannot be compared, and the owner reverts each restart, the workload seems to be stale all the
	// time, so that the limit has passed.
	fights, evicting := d.holder.fights() && o.world.severalCounters(), d.annotations[recreatingAnnotation] != "" || r.seen.evicting(&d.manifest) && d.superseded(rules)
	if !fights && !arrived.IsZero() && r.sent.Before(settled) && !r.seen.unseen(d.truth.rolled) && !evicting {
		o.fail("%s is restarted %v after a change, before the settle time (%v)", name, r.sent.Sub(arrived), rules.settle)
	}
	if evicting && d.superseded(rules) {
		return // the request completes a restart that has begun
	}
	last := r.server.restarted[d.slot]
	if d.annotations[lastReloadAnnotation] == last.text && last.uid == d.uid && r.sent.Before(last.at.Add(rules.minInterval)) {
		o.fail("%s is restarted %v after the last restart, min-interval is %v", name, r.sent.Sub(last.at), rules.minInterval)
	}
}

// restarted is a restart of a workload by a server.
type restarted struct {
	uid  int
	at   time.Time
	text string // the annotation of the restart
}
