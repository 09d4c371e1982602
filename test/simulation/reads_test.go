// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/judge"
)

// reads is what a container has read of a source, as far as it counts for its workload.
type reads struct {
	*server
	m         *manifest
	rules     *rules
	pod       *pod
	container int
	source    int
	files     bool
	scope     scope
	keys      keySet
	judged    keySet // of the current template, by which servers judge pods of an older one
	read      reading
}

func (r *reads) String() string {
	what := "variables"
	if r.files {
		what = "files"
	}
	return fmt.Sprintf("server %d: container %d of pod %d of %s read %s as %s %v of revision %d, which is %v now", r.id, r.container, r.pod.uid, workloadName(r.m.slot),
		sourceNames[r.source], what, r.read.content, r.read.since, r.now().content)
}

// rules returns the rules of a workload as a server has read it.
func (s *server) rules(m *manifest) rules {
	return rulesOf(m.annotations, s.view.annotations, s.world.defaults)
}

// eachReads calls f for what running containers of a workload read, as far as a server knows of it. What pods of an older template read counts if the current
// template has the same.
func (s *server) eachReads(m *manifest, f func(*reads)) {
	rules := s.rules(m)
	for _, p := range s.podsOf(m.slot) {
		if p.terminating || m.bare {
			continue
		}
		for i := range p.containers {
			role := variants[p.template.variant][i].role
			if p.containers[i].started == 0 || p.crashes() && role != initContainer {
				continue
			}
			for source := range sourceNames {
				if source == class && (p.mount == nil || !m.mounts) {
					continue
				}
				scope := rules.scope(m.template.variant, source, s.now(source, p).mark)
				for _, files := range []bool{false, true} {
					keys := scope.keys(m.template.variant, i, source, files)
					r := reads{s, m, &rules, p, i, source, files, scope, keys, keys, p.containers[i].read[asFiles(files)][source]}
					if scope.whole && (files || p.template.variant != m.template.variant) {
						continue
					}
					if p.template.variant != m.template.variant && !scope.whole {
						own := scope.keys(p.template.variant, i, source, files)
						if r.keys &= own; own|scope.keys(p.template.variant, i, source, !files) == 0 {
							continue
						}
					}
					if keys != 0 {
						f(&r)
					}
				}
			}
		}
	}
}

// asFiles is an index of container.read.
func asFiles(files bool) int {
	if files {
		return 1
	}
	return 0
}

// missing reports whether a container of the current template, or of that of its pod, could not be started with what the server, or the container, has read of the source, so that this
// is no content for it.
func (r *reads) missing() bool {
	now := r.now()
	uses := slices.Concat(usesOf(r.m.template.variant), usesOf(r.pod.template.variant))
	return !r.scope.whole && slices.ContainsFunc(uses, func(u use) bool {
		return u.source == r.source && (!u.starts(now.present, now.content) || !u.starts(r.read.content != content{}, r.read.content))
	})
}

// stale reports whether the container has read other content than the server has read last.
func (r *reads) stale() bool {
	if r.source == class { // the server may have yet to read what the container has
		return r.now().content[0] > r.read.content[0]
	}
	return differ(r.keys, r.read.content, r.now().content)
}

// counts reports whether the container runs and is one of the workload, and the server has read content that it could be started with. What only a list names
// does not count once it is gone.
func (r *reads) counts() bool {
	d := r.world.workloads[r.m.slot]
	return r.keys != 0 && d != nil && d.uid == r.m.uid && !r.gone() && !r.missing() && !r.behind() && (r.now().present || !r.scope.whole)
}

// behind reports whether the server has yet to read what the container has read.
func (r *reads) behind() bool {
	st := &r.streams[sourceStream(r.source)]
	return st.relist || !st.listed || slices.ContainsFunc(st.queue, func(e event) bool { return e.slot == r.source && e.revision <= r.pod.containers[r.container].started })
}

// isAdopted reports whether the current content was adopted by the container.
func (r *reads) isAdopted() bool {
	return slices.ContainsFunc(r.world.oracle.adopted[r.by()], func(c content) bool {
		return !differ(r.keys, c, r.now().content)
	})
}

func (r *reads) by() adoptedBy {
	return adoptedBy{r.pod.uid, r.container, r.source, r.pod.containers[r.container].started}
}

// doubtful reports whether the source changed at about the time when the container started or it was adopted, or unseen, or nothing tells the time of the start.
func (r *reads) doubtful() bool {
	return r.world.skews.wrong(r.pod.node()) || r.isNear() || r.isUnseen() || r.updatedAround(r.world.oracle.adoptedAt[adoptedIn{r.m.uid, r.source}]) || r.pod.containers[r.container].at.IsZero()
}

// slack is what two clocks that differ by a second each, in whole seconds, add to the margins of the judge.
const slack = 4 * time.Second

// margin is by how much the times of a change and a start may differ, with clocks and delays of streams.
func (r *reads) margin() time.Duration {
	if r.files || r.scope.whole || r.source == class {
		return judge.VolumeMargin + slack
	}
	return judge.ClockMargin + slack
}

// margins returns when the container may have read the source at the earliest, and when it certainly had.
func (r *reads) margins() (from, to time.Time) {
	c := &r.pod.containers[r.container]
	last := c.real
	if c.at.IsZero() { // it started at any time before the others did
		last = r.pod.firstStart()
	}
	return c.real.Add(-r.margin()), last.Add(judge.ClockMargin + slack)
}

// isNear reports whether the source changed at about the time when the container started.
func (r *reads) isNear() bool {
	from, to := r.margins()
	return slices.ContainsFunc(r.changes(), func(ch rewriting) bool {
		near := ch.at.After(from) && ch.at.Before(to)
		if at, read := r.view.readAt[r.source][ch.to]; read && !ch.dated { // nothing else tells when it was made
			if r.pod.created.After(from) {
				from = r.pod.created.Add(-judge.ClockMargin - slack)
			}
			near = near || at.After(from) && r.view.heard[r.source][ch.to].Before(to.Add(judge.ClockMargin+time.Second))
		}
		return near
	})
}

// isUnseen reports whether no event told a change that the container may not have read.
func (r *reads) isUnseen() bool {
	from, _ := r.margins()
	return slices.ContainsFunc(r.changes(), func(ch rewriting) bool {
		return !r.view.read[r.source][ch.to] && (!ch.dated || ch.at.After(from))
	})
}

// isListed reports whether a list showed the source at about the time when the container started: it may have been written before.
func (r *reads) isListed() bool {
	from, _ := r.margins()
	return r.source != class && r.streams[sourceStream(r.source)].again.After(from)
}

// unseen reports whether the server has not read the state of the source that the container has read: it did not run, or read it in a list later.
func (r *reads) unseen() bool {
	_, seen := r.view.read[r.source][r.read.since]
	return !seen && r.source != class // the last state tells of those before
}

// wasBefore reports whether the source had the current content before the container read other content.
func (r *reads) wasBefore() bool {
	return slices.ContainsFunc(r.changes(), func(ch rewriting) bool {
		return ch.from < r.read.since && !differ(r.keys, ch.was, r.now().content)
	})
}

// undated reports whether a change since then left no time.
func (r *reads) undated() bool {
	return slices.ContainsFunc(r.changes(), func(ch rewriting) bool { return ch.from >= r.read.since && !ch.dated })
}

// unsure reports whether only the clock of the server tells when the last change was made, and it differs from that of the API server, by which pods are created.
func (r *reads) unsure() bool {
	changes, skews := r.changes(), &r.world.skews
	return len(changes) > 0 && !changes[len(changes)-1].dated && skews.Servers[r.id] != skews.API
}

// lateUndated reports whether the server has read a change late that left no time, since the container started.
func (r *reads) lateUndated() bool {
	return slices.ContainsFunc(r.changes(), func(ch rewriting) bool {
		at, read := r.view.readAt[r.source][ch.to]
		return read && !ch.dated && at.Sub(ch.at) > judge.ClockMargin/2
	})
}

// isTold reports whether the clocks of the API server and the servers are right, and that of the node is so, too, or so wrong that servers must see it.
func (r *reads) isTold() bool {
	skews := r.world.skews
	c, node := &r.pod.containers[r.container], r.pod.node()
	wrong := skews.wrong(node)
	skews.Nodes = [3]time.Duration{}
	started := seconds(c.at)
	return skews.small() && (!wrong || !c.at.IsZero() && (started.Add(judge.ClockMargin).Before(seconds(r.pod.created)) ||
		started.After(time.Now().Add(skews.Servers[r.id]+judge.ClockMargin))))
}

// cause returns why it is not known what the container has read; empty: there is no reason.
func (r *reads) cause(v *judge.SourceVerdict) string {
	c := &r.pod.containers[r.container]
	from, _ := r.margins()
	switch {
	case v.Reason == judge.ReasonNodeClock && !r.world.skews.small():
		return "the clock is wrong"
	case c.at.IsZero():
		return "its kubelet has forgotten the start"
	case v.Reason == judge.ReasonNodeClock:
		return ""
	case !r.isTold():
		return "the clock is wrong"
	case v.Reason == judge.ReasonSourceMissing:
		return "the source or a key is missing"
	case v.Reason == judge.ReasonFilesChanged && r.files && r.stale():
		return "files changed"
	case v.Reason == judge.ReasonFilesChanged && r.lateUndated():
		return "late watch"
	case r.isNear():
		return "a change at about the time of the start"
	case r.source == class && (r.lags(podStatuses) || !r.now().present):
		return "it is not known yet what the pod has mounted"
	case from.Before(r.view.complete):
		return "not all has been read"
	case r.isUnseen(), r.isListed():
		return "a change was not seen, or a list showed it"
	case r.view.first[r.source].written.After(from):
		return "written before the server began to read it"
	case v.Recorded != nil && !v.Recorded.Same && from.Before(r.view.began):
		return "the record is about other content, and a key may have been removed unseen"
	case r.stuck():
		return "a volume could not be refreshed"
	case r.pod.template.variant != r.m.template.variant, v.Reason == judge.ReasonOlderTemplate && (r.m.borrows || r.m.deleting || r.pod.identity != r.m.template.identity() || r.lags(workloadStreams[r.m.kind])):
		return "an older template"
	case len(v.Periods) >= dependency.MaxPeriods:
		return "too many changes"
	case r.view.unnamed[r.source]:
		return "deleted while no template named it"
	default:
		return ""
	}
}

// stuck reports whether a volume kept its files because it could not be refreshed.
func (r *reads) stuck() bool {
	return r.files && slices.ContainsFunc(r.changes(), func(ch rewriting) bool {
		return ch.to > r.pod.born && slices.ContainsFunc(usesOf(r.m.template.variant), func(u use) bool { return u.source == r.source && u.mounted() && !u.startsWith(reading{ch.is, ch.to}) })
	})
}

// flashed reports whether there was content that a volume had no time to show, because it could not be refreshed soon after.
func (r *reads) flashed() bool {
	changes := r.changes()
	for i := range changes[:max(0, len(changes)-1)] {
		ch, next := &changes[i], &changes[i+1]
		starts := func(c content, since uint64) bool {
			return !slices.ContainsFunc(usesOf(r.m.template.variant), func(u use) bool { return u.source == r.source && u.mounted() && !u.startsWith(reading{c, since}) })
		}
		if r.files && next.at.Sub(ch.at) < r.world.kubelets.Refresh && starts(ch.is, ch.to) && !starts(next.is, next.to) {
			return true
		}
	}
	return false
}

// isInit reports whether it is an init container.
func (r *reads) isInit() bool {
	return variants[r.pod.template.variant][r.container].role == initContainer
}

// recordedAfter reports whether the record has a time at which the last change had been made, although it was written before.
func (r *reads) recordedAfter() bool {
	var last record
	if json.Unmarshal([]byte(r.m.annotations[appliedAnnotation]), &last) != nil {
		return false
	}
	changes := r.changes()
	return len(changes) > 0 && !last.At.Before(changes[len(changes)-1].at) && last.At.Sub(changes[len(changes)-1].at) < 2*mostSkew
}

// sameSecond reports whether the source was written in the second in which the pod was created, and the clock of its node is another one, or the volumes of the
// pod had been set up.
func (r *reads) sameSecond() bool {
	skews := &r.world.skews
	return slices.ContainsFunc(r.changes(), func(ch rewriting) bool {
		return (skews.Nodes[r.pod.node()] != skews.API || r.files && !r.pod.setUp.After(ch.at)) && seconds(ch.at.Add(skews.API)).Equal(seconds(r.pod.created))
	})
}

// lagged reports whether the source was written so shortly before the container started that its kubelet may not have seen that.
func (r *reads) lagged() bool {
	started := r.pod.containers[r.container].real
	return !r.files && slices.ContainsFunc(r.changes(), func(ch rewriting) bool { return !ch.at.After(started) && started.Sub(ch.at) <= r.world.kubelets.Lag })
}

// gone reports whether the pod has been deleted, or the container restarted, which the server has yet to read.
func (r *reads) gone() bool {
	d := r.world.workloads[r.m.slot]
	return d == nil || !slices.ContainsFunc(d.pods, func(p *pod) bool {
		return p.uid == r.pod.uid && p.containers[r.container].started == r.pod.containers[r.container].started
	})
}

// excuse returns the documented limit because of which a verdict may be wrong; empty: there is none.
func (r *reads) excuse(v *judge.SourceVerdict) string {
	switch {
	case !r.world.skews.small() && !r.isTold():
		return "clocks"
	case r.unseen() && r.undated():
		return "deleted or removed unseen"
	case r.view.unnamed[r.source]:
		return "deleted while no template named it"
	case r.lateUndated(), v.Reason == judge.ReasonRecordDiffers && r.world.oracle.recorded[r.m.uid].behind:
		return "late watch"
	case r.unseen() && (v.State == judge.Stale || v.Reason != judge.ReasonStartedAfter && r.wasBefore()):
		return "there and back unseen"
	case r.sameSecond():
		return "same second"
	case r.gone():
		return "the pod is gone or restarted, and another server has recorded that"
	case v.State == judge.Current && r.m.mounts && isSecret(r.source) && r.read.content == (content{}) && r.isNear():
		return "absent until the pod itself brought it"
	case v.State == judge.Current && r.lagged():
		return "the kubelet lags"
	case v.Reason == judge.ReasonCreatedFor && (r.world.oracle.undone[r.m.uid] || r.m.syncs): // for this content, which was another meanwhile
		return "the template, or its content, came back in the second of the pod"
	case r.flashed():
		return "content that went before a volume was refreshed"
	default:
		return ""
	}
}

// hasTemplate reports whether the pod has the current template, as far as a server can know. Of a DaemonSet, only the hash on the template tells that.
func (r *reads) hasTemplate() bool {
	hash := r.m.template.annotations[hashAnnotation]
	return r.pod.identity == r.m.template.identity() || r.m.kind == "DaemonSet" && (hash == "" || hash == r.pod.template.annotations[hashAnnotation])
}

// isReplaced reports whether the pod has an older template, and a running rollout replaces it.
func (r *reads) isReplaced() bool {
	held := r.m.onDelete || r.m.partition > 0 || r.m.paused
	return !held && !r.hasTemplate() && r.m.unfinished() && !r.m.progress.failed && !r.lags(pods) && !r.lags(replicaSets)
}
