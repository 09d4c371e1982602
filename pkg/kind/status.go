// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"cmp"
	"fmt"
	"math"
	"strconv"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/configdep/configdep/pkg/dependency"
)

// status is where objects report on their rollouts.
type status struct {
	observed, replicas, total, updated, ready, paused, partition Path
	complete, failed, held                                       tests
}

// test is a StatusTest, with its path.
type test struct {
	StatusTest
	path Path
}

func statusPath(names ...string) Path {
	p := Path{[]segment{{name: "status"}, {name: "conditions"}, {all: true}}}
	for _, name := range names {
		p.segments = append(p.segments, segment{name: name})
	}
	return p
}

var (
	conditions      = statusPath()
	conditionType   = statusPath("type")
	conditionStatus = statusPath("status")
	conditionReason = statusPath("reason")

	conditionMessage = statusPath("message")
)

// isObserved reports whether the controller of an object has seen its latest change, as far as that is known.
func (l *layout) isObserved(c *custom) bool {
	if l.status == nil || l.status.observed.IsZero() {
		return true
	}
	switch v := l.status.observed.get(c.values).(type) {
	case int64:
		return v >= c.Generation
	case string:
		observed, err := strconv.ParseInt(v, 10, 64)
		return err == nil && observed >= c.Generation
	default: // an old version of the controller may report no generation, but then it counts pods
		_, counted := c.countAt(l.status.total)
		return counted || c.Generation == 0
	}
}

// countAt returns a number of pods, and whether it is there.
func (c *custom) countAt(p Path) (count int32, found bool) {
	if p.IsZero() {
		return 0, false
	}
	n, found := p.get(c.values).(int64)
	return int32(min(max(n, 0), math.MaxInt32)), found
}

// counts are what an object reports on its pods.
type counts struct {
	replicas, total, updated, ready int32
	partition                       int32
	paused                          bool
}

func (s *status) counts(c *custom) counts {
	out := counts{replicas: 1}
	if replicas, found := c.countAt(s.replicas); found {
		out.replicas = replicas
	}
	out.total, _ = c.countAt(s.total)
	out.updated, _ = c.countAt(s.updated)
	out.ready, _ = c.countAt(s.ready)
	if !s.paused.IsZero() {
		out.paused, _ = s.paused.get(c.values).(bool)
	}
	if !s.partition.IsZero() {
		out.partition = partitionFrom(s.partition.get(c.values), out.replicas)
	}
	return out
}

// partitionFrom returns how many of the replicas keep an older template. Percentages are rounded up.
func partitionFrom(value any, replicas int32) int32 {
	var partition intstr.IntOrString
	switch v := value.(type) {
	case int64:
		partition = intstr.FromInt32(int32(min(max(v, 0), math.MaxInt32)))
	case string:
		partition = intstr.FromString(v)
	default:
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&partition, int(replicas), true)
	if err != nil {
		return 0
	}
	return int32(min(max(n, 0), int(replicas)))
}

// statusOf returns what an object reports about its pods.
func (l *layout) statusOf(c *custom) dependency.Status {
	s := l.status
	if s == nil {
		return dependency.Status{Rollout: complete, Replicas: 1}
	}
	n := s.counts(c)
	return dependency.Status{Rollout: l.rollout(c, n), Replicas: n.replicas, Paused: n.paused}
}

// rollout follows the rules of kubectl rollout status for a Deployment, as far as the status is known.
func (l *layout) rollout(c *custom, n counts) dependency.Rollout {
	s := l.status
	if !l.isObserved(c) {
		return unobserved
	}
	if failed := s.failed.first(c); failed != nil {
		return dependency.Rollout{Phase: dependency.RolloutFailed, Reason: failed.word(), Message: failed.String(), Words: failed.words(c)}
	}
	upToDate := dependency.SomePods(n.updated, n.replicas, "up to date")
	switch updating := !s.updated.IsZero(); {
	case updating && n.updated < n.replicas-n.partition:
		r := running(n.updated, n.replicas-n.partition, "up to date")
		if n.partition > 0 {
			r.Message += belowPartition(n.partition)
		}
		return s.orHeld(c, n, upToDate, r)
	case updating && n.updated < n.replicas:
		r := dependency.Rollout{Phase: dependency.RolloutHeld, Reason: reasonPartition, Message: upToDate + belowPartition(n.partition)}
		return s.orHeld(c, n, upToDate, r)
	case updating && !s.total.IsZero() && n.total > n.updated:
		r := dependency.Rollout{Phase: dependency.RolloutRunning, Reason: reasonUpdating, Message: oldPods(n.total - n.updated)}
		return s.orHeld(c, n, r.Message, r)
	case !s.ready.IsZero() && n.ready < max(n.replicas, n.updated):
		return running(n.ready, max(n.replicas, n.updated), "available")
	}
	if t := s.complete.firstNot(c); t != nil {
		message := "it does not report that " + t.String()
		return s.orHeld(c, n, message, dependency.Rollout{Phase: dependency.RolloutRunning, Reason: reasonUpdating, Message: message})
	}
	return complete
}

// orHeld returns what the rollout of an object waits for, or another state of it. Message says how far it is.
func (s *status) orHeld(c *custom, n counts, message string, otherwise dependency.Rollout) dependency.Rollout {
	if n.paused {
		return dependency.Rollout{Phase: dependency.RolloutHeld, Reason: reasonPaused, Message: message + ", and the workload is paused"}
	}
	if t := s.held.first(c); t != nil {
		return dependency.Rollout{Phase: dependency.RolloutHeld, Reason: t.word(), Message: message + ", and " + t.String()}
	}
	return otherwise
}

// tests are several of them.
type tests []test

// first returns the first test that is true of an object, or nil.
func (all tests) first(c *custom) *test {
	for i := range all {
		if all[i].of(c) {
			return &all[i]
		}
	}
	return nil
}

// firstNot returns the first test that is not true of an object, or nil.
func (all tests) firstNot(c *custom) *test {
	for i := range all {
		if !all[i].of(c) {
			return &all[i]
		}
	}
	return nil
}

// of reports whether a test is true of an object.
func (t *test) of(c *custom) (is bool) {
	if t.Path != "" {
		return textFrom(t.path.get(c.values)) == t.Value
	}
	condition := t.condition(c)
	return condition["type"] == t.Condition && condition["status"] == string(t.Status) && (t.Reason == "" || condition["reason"] == t.Reason)
}

// condition returns the condition of an object that a test is about; nil: it has none.
func (t *test) condition(c *custom) (found map[string]any) {
	conditions.Each(c.values, func(value any) bool {
		condition, _ := value.(map[string]any)
		if condition["type"] == t.Condition {
			found = condition
		}
		return found == nil
	})
	return found
}

// words returns Rollout.Words for a test that is true of an object.
func (t *test) words(c *custom) string {
	message, _ := t.condition(c)["message"].(string)
	return dependency.Line(message)
}

// word returns what the test looks for in one word.
func (t *test) word() string { return cmp.Or(t.Reason, t.Value, t.Condition) }

// String returns the test as a clause. It contains nothing of an object.
func (t *test) String() string {
	switch {
	case t.Path != "":
		return t.Path + " is " + t.Value
	case t.Reason != "":
		return fmt.Sprintf("its condition %s is %s (%s)", t.Condition, t.Status, t.Reason)
	default:
		return fmt.Sprintf("its condition %s is %s", t.Condition, t.Status)
	}
}

// progress implements Kind.Progress.
func (l *layout) progress(o Object) Progress {
	c := o.(*custom)
	out := Progress{Observed: l.isObserved(c)}
	if l.status == nil {
		return out
	}
	n := l.status.counts(c)
	if !l.status.updated.IsZero() {
		out.Pods = n.replicas
		if !l.status.total.IsZero() {
			out.Pods = n.total
		}
		out.Outdated = max(0, out.Pods-n.updated)
	}
	held := l.status.held.first(c)
	switch {
	case held != nil:
		out.Caveat = held.String()
	case n.partition > 0:
		out.Caveat = fmt.Sprintf("its partition is %d: as many pods are not replaced", n.partition)
	case n.replicas == 0:
		out.Caveat = noReplicas(&n.replicas)
	}
	return out
}
