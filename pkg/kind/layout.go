// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/configdep/configdep/pkg/dependency"
)

// layout is where things are in the objects of a kind that a Descriptor describes.
type layout struct {
	tree           *node
	templates      []Path
	restarted      int      // the number of the pod template whose annotations restart an object, from 1; 0: those of none do
	templateFields []string // see dependency.Object
	sources        []source
	status         *status // nil: it is not known
	unless         Path
	from           *templateFrom // nil: pods have the object's own template
	looksUp        bool          // its pods can be looked up
	selector       Path
	labels         map[string]string
	revisionLabel  string
	revision       Path
}

// source is where objects name sources.
type source struct {
	kind                 dependency.SourceKind
	name, namespace, key Path
	text                 string // the path of the name
	keyName              string
	optional             bool
}

// templateFrom is where objects name the object whose pod template their pods have.
type templateFrom struct{ apiVersion, kind, name Path }

func (f *templateFrom) of(values any) *dependency.TemplateReference {
	if f == nil {
		return nil
	}
	text := func(p Path) string { s, _ := p.get(values).(string); return s }
	if text(f.name) == "" {
		return nil
	}
	return &dependency.TemplateReference{APIVersion: text(f.apiVersion), Kind: text(f.kind), Name: text(f.name)}
}

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
)

// read implements Kind.From.
func (l *layout) read(o Object) (*dependency.Object, error) {
	c, ok := o.(*custom)
	if !ok || c.layout != l {
		return nil, fmt.Errorf("a %T came instead of an object of the kind", o)
	}
	out := &dependency.Object{
		Meta: &c.ObjectMeta, Template: &corev1.PodTemplateSpec{}, TemplateFields: l.templateFields,
		Truncated: c.truncated, Status: l.statusOf(c), TemplateFrom: l.from.of(c.values),
	}
	own := l.ownTemplate(c)
	for _, t := range slices.Concat(c.templates...) {
		if t == own {
			out.Template = t
		} else {
			out.Others = append(out.Others, t)
		}
	}
	for i := range l.sources {
		if !l.sources[i].each(c, func(n dependency.Named) bool {
			if len(out.Named) == dependency.MaxUses {
				out.Truncated = true
				return false
			}
			out.Named = append(out.Named, n)
			return true
		}) {
			break
		}
	}
	return out, nil
}

// ownTemplate returns the pod template of an object that has the marks of restarts: the one whose annotations restart it, or the
// first one if those of none do; nil: it lacks that one.
func (l *layout) ownTemplate(c *custom) *corev1.PodTemplateSpec {
	templates := slices.Concat(c.templates...)
	if l.restarted > 0 {
		templates = c.templates[l.restarted-1]
	}
	if len(templates) == 0 {
		return nil
	}
	return templates[0]
}

// lacksTemplate reports whether an object has no pod template whose annotations restart it. A patch of them would add one.
func (l *layout) lacksTemplate(o Object) bool {
	c, ok := o.(*custom)
	return ok && l.restarted > 0 && l.ownTemplate(c) == nil
}

// each calls f for each source that an object names, until f returns false.
func (s *source) each(c *custom, f func(dependency.Named) bool) bool {
	return s.name.eachWithin([]any{c.values}, func(within []any, value any) bool {
		name, _ := value.(string)
		if name == "" || s.isElsewhere(c, within) {
			return true
		}
		n := dependency.Named{Kind: s.kind, Name: name, Key: s.keyName, Optional: s.optional, Path: s.text}
		if !s.key.IsZero() {
			key, _ := s.key.getWithin(within).(string)
			n.Key = cmp.Or(key, s.keyName)
		}
		return f(n)
	})
}

// isElsewhere reports whether a source is in another namespace.
func (s *source) isElsewhere(c *custom, within []any) bool {
	if s.namespace.IsZero() {
		return false
	}
	namespace, _ := s.namespace.getWithin(within).(string)
	return namespace != "" && namespace != c.Namespace
}

// isFixed reports whether an object cannot be reloaded.
func (l *layout) isFixed(o Object) bool {
	c, ok := o.(*custom)
	if !ok || l.unless.IsZero() {
		return false
	}
	switch value := l.unless.get(c.values).(type) {
	case nil:
		return false
	case string:
		return value != ""
	case bool:
		return value
	default:
		return true
	}
}

// selectorOf implements Kind.Selector.
func (l *layout) selectorOf(o Object) *metav1.LabelSelector {
	c := o.(*custom)
	var selector *metav1.LabelSelector
	if l.selector.IsZero() {
		selector = &metav1.LabelSelector{MatchLabels: make(map[string]string, len(l.labels))}
		for key, value := range l.labels {
			selector.MatchLabels[key] = strings.ReplaceAll(value, nameVariable, c.Name)
		}
	} else {
		selector = selectorFrom(l.selector.get(c.values))
	}
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return nil // selects nothing; an empty one would select every pod
	}
	if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
		return nil // no pod has such labels: the name of the object may be too long for one
	}
	return selector
}

// selectorFrom reads a label selector, a map of labels or a text; nil: it is none of them.
func selectorFrom(value any) *metav1.LabelSelector {
	switch v := value.(type) {
	case string:
		selector, err := metav1.ParseToLabelSelector(v)
		if err != nil {
			return nil
		}
		return selector
	case map[string]any:
		_, labels := v["matchLabels"].(map[string]any)
		_, expressions := v["matchExpressions"].([]any)
		if !labels && !expressions {
			return &metav1.LabelSelector{MatchLabels: textsOf(v)}
		}
		out := &metav1.LabelSelector{}
		if m, ok := v["matchLabels"].(map[string]any); ok {
			out.MatchLabels = textsOf(m)
		}
		all, _ := v["matchExpressions"].([]any)
		for _, e := range all {
			expression, _ := e.(map[string]any)
			key, _ := expression["key"].(string)
			operator, _ := expression["operator"].(string)
			requirement := metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOperator(operator)}
			values, _ := expression["values"].([]any)
			for _, value := range values {
				text, _ := value.(string)
				requirement.Values = append(requirement.Values, text)
			}
			out.MatchExpressions = append(out.MatchExpressions, requirement)
		}
		return out
	default:
		return nil
	}
}

func textsOf(m map[string]any) map[string]string {
	out := make(map[string]string, len(m))
	for key, value := range m {
		out[key] = textFrom(value)
	}
	return out
}

// textFrom returns a value as a text: labels of custom resources without a schema may be numbers.
func textFrom(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case bool, int64, float64:
		return fmt.Sprint(v)
	default:
		return ""
	}
}

// revisionOf implements Kind.UpdateRevision.
func (l *layout) revisionOf(o Object) string {
	c := o.(*custom)
	if l.revision.IsZero() || !l.isObserved(c) {
		return ""
	}
	return textFrom(l.revision.get(c.values))
}

// current implements Kind.Current.
func (l *layout) current(o Object) IsCurrent {
	revision := l.revisionOf(o)
	if revision == "" {
		return nil
	}
	return func(set metav1.Object, _ []byte) bool { return set.GetLabels()[l.revisionLabel] == revision }
}

// countsAll reports whether a rollout is complete only when no pod of another template is left.
func (l *layout) countsAll() bool { return l.status != nil && !l.status.total.IsZero() }

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
		return dependency.Status{Rollout: complete, Replicas: 1, Surplus: l.looksUp}
	}
	n := s.counts(c)
	out := dependency.Status{Rollout: l.rollout(c, n), Replicas: n.replicas, Paused: n.paused, Surplus: s.total.IsZero() && l.looksUp}
	if s.total.IsZero() || !l.isObserved(c) {
		return out
	}
	out.Idle = n.replicas == 0 && n.total == 0 && !s.observed.IsZero()
	switch n.updated {
	case 0:
		out.Updated = dependency.UpdatedNone
	case n.total:
		out.Updated = dependency.UpdatedAll
	}
	return out
}

// rollout follows the rules of kubectl rollout status for a Deployment, as far as the status is known.
func (l *layout) rollout(c *custom, n counts) dependency.Rollout {
	s := l.status
	if !l.isObserved(c) {
		return unobserved
	}
	if failed := s.failed.first(c); failed != nil {
		return dependency.Rollout{Phase: dependency.RolloutFailed, Reason: failed.word(), Message: failed.String()}
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
		r := dependency.Rollout{Phase: dependency.RolloutHeld, Reason: "Partition", Message: upToDate + belowPartition(n.partition)}
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
		return dependency.Rollout{Phase: dependency.RolloutHeld, Reason: "Paused", Message: message + ", and the workload is paused"}
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
	conditions.Each(c.values, func(value any) bool {
		condition, _ := value.(map[string]any)
		if condition["type"] != t.Condition {
			return true
		}
		is = condition["status"] == string(t.Status) && (t.Reason == "" || condition["reason"] == t.Reason)
		return false
	})
	return is
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
