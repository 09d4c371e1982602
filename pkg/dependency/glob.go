package dependency

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A glob may name all sources of a namespace, and be that of all its workloads. So what it names is
// kept as one: an aggregate for each namespace and glob, which all workloads with that glob share. A
// change of a source costs the same for any number of sources and workloads, and what a workload
// adds or leaves out is taken from that when it is asked for.

// Patterns are what annotations say of the sources of a workload, besides its template.
type Patterns struct {
	Sources, Exclude []Pattern
}

func (p *Patterns) equal(other Patterns) bool {
	return slices.Equal(p.Sources, other.Sources) && slices.Equal(p.Exclude, other.Exclude)
}

// extra is what a workload uses besides what its template names.
type extra struct {
	patterns   Patterns
	references []Reference // by their names
	globs      []globID
}

// globID names an aggregate.
type globID struct {
	namespace string
	Pattern
	// except are the patterns of the same kind that exclude sources, in order, each with a comma.
	except string
}

func compareGlobs(a, b *globID) int {
	return cmp.Or(compare3(a.namespace, b.namespace, string(a.Kind), string(b.Kind), a.Name, b.Name), strings.Compare(a.except, b.except))
}

func newGlobID(namespace string, glob Pattern, exclude []Pattern) globID {
	var except []string
	for _, p := range exclude {
		if p.Kind == glob.Kind {
			except = append(except, p.Name+",")
		}
	}
	return globID{namespace, glob, strings.Join(sortedSet(except), "")}
}

// globUse is the use of a glob by a workload; no workload is before all.
type globUse struct {
	glob     globID
	workload WorkloadKey
}

func compareGlobUses(a, b *globUse) int {
	return cmp.Or(compareGlobs(&a.glob, &b.glob), compareWorkloads(&a.workload, &b.workload))
}

func newExtra(namespace string, patterns Patterns) *extra {
	n := &extra{patterns: patterns}
	for _, p := range patterns.Sources {
		if !p.Glob() {
			n.references = append(n.references, Reference{Kind: p.Kind, Name: p.Name, Uses: annotated})
		} else if id := newGlobID(namespace, p, patterns.Exclude); !slices.Contains(n.globs, id) {
			n.globs = append(n.globs, id)
		}
	}
	return n
}

// aggregate is what a glob names. It is immutable, but for members, which is completed by the first
// who asks.
type aggregate struct {
	id      globID
	matcher globMatcher
	except  Matcher
	members atomic.Pointer[members] // nil: they have not been looked up
	// gone are the last members that were deleted, the latest first, and goneBefore is the last
	// deletion before them.
	gone       []goneMember
	goneBefore Change
}

// goneMember is a member that was deleted.
type goneMember struct {
	name   string
	change Change
}

func newAggregate(id globID) *aggregate {
	a := &aggregate{id: id, matcher: newGlobMatcher(id.Pattern)}
	var except []Pattern
	for name := range strings.SplitSeq(id.except, ",") {
		if name != "" {
			except = append(except, Pattern{id.Kind, name})
		}
	}
	a.except = NewMatcher(except)
	return a
}

func (a *aggregate) names(name string) bool {
	return a.matcher.matches(a.id.Kind, name) && !a.except.Matches(a.id.Kind, name)
}

// after returns the aggregate when a source that it names has changed. Either may be nil; change is of a
// deletion.
func (a *aggregate) after(before, now *Source, change Change) *aggregate {
	next := &aggregate{id: a.id, matcher: a.matcher, except: a.except, gone: a.gone, goneBefore: a.goneBefore}
	if m := a.members.Load(); m != nil {
		next.members.Store(m.after(before, now))
	}
	if now == nil && !before.Ignored {
		next.gone = append([]goneMember{{before.Name, change}}, a.gone...)
		if len(next.gone) > maxGoneMembers {
			next.goneBefore, next.gone = next.gone[maxGoneMembers].change, next.gone[:maxGoneMembers]
		}
	}
	return next
}

const (
	// maxGoneMembers bounds the deletions that are remembered of a glob.
	maxGoneMembers = 32
	// maxNames is how many names of what a glob matches are told.
	maxNames = 100
)

// members are the sources that a glob names. Those that are ignored are counted apart.
type members struct {
	count, keys int
	sum         sum // of what stands for their content
	ignored     int
	ignoredSum  sum // of what stands for their names
	// byName, byOrder and byTime are the first of them by name, and those that changed last: by the
	// order of reading, and by the clock of the API server.
	byName, byOrder, byTime []*Source
}

// ordering is an order of sources, of which so many of the first are kept.
type ordering struct {
	compare func(a, b *Source) int
	kept    int
}

var (
	// More than maxNames are kept, so that not each deletion makes that all have to be looked up.
	orderedByName  = ordering{func(a, b *Source) int { return strings.Compare(a.Name, b.Name) }, maxNames + 28}
	orderedByOrder = ordering{func(a, b *Source) int {
		return cmp.Or(cmp.Compare(b.Change.Order, a.Change.Order), strings.Compare(a.Name, b.Name))
	}, 32}
	orderedByTime = ordering{func(a, b *Source) int {
		return cmp.Or(b.LastChanged.Compare(a.LastChanged.Time), strings.Compare(a.Name, b.Name))
	}, 16}
)

// insert adds a source to the first of so many. The result shares nothing with them.
func (o *ordering) insert(first []*Source, of int, s *Source) []*Source {
	i, _ := slices.BinarySearchFunc(first, s, o.compare)
	if i == len(first) && len(first) < of {
		return first // it comes after some that are not kept
	}
	out := slices.Insert(slices.Clip(first), i, s)
	return out[:min(len(out), o.kept)]
}

// remove is the reverse of insert.
func (o *ordering) remove(first []*Source, s *Source) []*Source {
	i, found := slices.BinarySearchFunc(first, s, o.compare)
	if !found {
		return first
	}
	return slices.Delete(slices.Clone(first), i, i+1)
}

// after returns the members when a source has changed, or nil: too few of the first of them are left.
func (m *members) after(before, now *Source) *members {
	next := *m
	if before != nil {
		next.remove(before)
	}
	if now != nil {
		next.add(now)
	}
	if len(next.byName) < min(next.count, maxNames) || next.count > 0 && (len(next.byOrder) == 0 || len(next.byTime) == 0) {
		return nil
	}
	return &next
}

func (m *members) add(s *Source) {
	if s.Ignored {
		m.ignored++
		m.ignoredSum.add(sumOfName(s.Name))
		return
	}
	m.byName = orderedByName.insert(m.byName, m.count, s)
	m.byOrder = orderedByOrder.insert(m.byOrder, m.count, s)
	m.byTime = orderedByTime.insert(m.byTime, m.count, s)
	m.count, m.keys = m.count+1, m.keys+len(s.Keys)
	m.sum.add(sumOf(s.content))
}

func (m *members) remove(s *Source) {
	if s.Ignored {
		m.ignored--
		m.ignoredSum.subtract(sumOfName(s.Name))
		return
	}
	m.byName = orderedByName.remove(m.byName, s)
	m.byOrder = orderedByOrder.remove(m.byOrder, s)
	m.byTime = orderedByTime.remove(m.byTime, s)
	m.count, m.keys = m.count-1, m.keys-len(s.Keys)
	m.sum.subtract(sumOf(s.content))
}

// sum is a number modulo 2^128. A sum of digests stands for a set, in any order: without the key of
// the digests, nothing is known of them that could be used to find two sets that look alike.
type sum struct{ high, low uint64 }

func (s *sum) add(other sum) {
	var carry uint64
	s.low, carry = bits.Add64(s.low, other.low, 0)
	s.high, _ = bits.Add64(s.high, other.high, carry)
}

func (s *sum) subtract(other sum) {
	var borrow uint64
	s.low, borrow = bits.Sub64(s.low, other.low, 0)
	s.high, _ = bits.Sub64(s.high, other.high, borrow)
}

func (s *sum) append(b []byte) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, s.high), s.low)
}

func sumOf(d Digest) sum { return sum{binary.BigEndian.Uint64(d[:8]), binary.BigEndian.Uint64(d[8:])} }

func sumOfName(name string) sum {
	h := fnv.New128a()
	h.Write([]byte(name))
	return sumOf(Digest(h.Sum(nil)))
}

// eachAggregate calls f for the aggregates that name a source.
func (g *Graph) eachAggregate(key SourceKey, f func(*aggregate)) {
	g.globs.from(globID{namespace: key.Namespace, Pattern: Pattern{Kind: key.Kind}}, func(id *globID, a *aggregate) bool {
		if id.namespace != key.Namespace || id.Kind != key.Kind {
			return false
		}
		if a.names(key.Name) {
			f(a)
		}
		return true
	})
}

// aggregates returns those that name a source.
func (g *Graph) aggregates(key SourceKey) (all []*aggregate) {
	g.eachAggregate(key, func(a *aggregate) { all = append(all, a) })
	return all
}

// aggregateChanged brings a change of a source to the aggregates. Either source may be nil.
func (g *Graph) aggregateChanged(before, now *Source, deletion Change) {
	key := cmp.Or(now, before).SourceKey
	for _, a := range g.aggregates(key) {
		next := a.after(before, now, deletion)
		g.globs.set(&next.id, next)
	}
}

// setExtra notes what a workload uses besides what its template names. Before is all that it used.
func (g *Graph) setExtra(w WorkloadKey, before use, now *extra) {
	if before.extra == now {
		return
	}
	if now == nil {
		g.extra.delete(w)
	} else {
		g.extra.set(&w, now)
		for _, id := range now.globs {
			if g.globs.get(id) == nil {
				a := newAggregate(id)
				a.gone = g.goneOfGlob(a, before)
				g.globs.set(&a.id, a)
			}
			g.globUsers.set(&globUse{id, w}, struct{}{})
		}
	}
	if before.extra == nil {
		return
	}
	for _, id := range before.extra.globs {
		if now == nil || !slices.Contains(now.globs, id) {
			g.globUsers.delete(globUse{id, w})
			g.dropUnused(id)
		}
	}
}

// goneOfGlob returns what is known to have gone of a glob that is new, by what a workload used before:
// otherwise an edit of its annotations would hide that.
func (g *Graph) goneOfGlob(a *aggregate, before use) (gone []goneMember) {
	add := func(name string, change Change) {
		if a.names(name) && !slices.ContainsFunc(gone, func(other goneMember) bool { return other.name == name }) {
			gone = append(gone, goneMember{name, change})
		}
	}
	before.eachReference(func(r *Reference) {
		if was := g.goneOf(SourceKey{r.Kind, a.id.namespace, r.Name}); r.Kind == a.id.Kind && was.Source != nil && !was.Ignored {
			add(r.Name, was.change)
		}
	})
	if before.extra != nil {
		for _, id := range before.extra.globs {
			if other := g.globs.get(id); id.Kind == a.id.Kind {
				for _, member := range other.gone {
					add(member.name, member.change)
				}
			}
		}
	}
	slices.SortFunc(gone, func(a, b goneMember) int { return cmp.Compare(b.change.Order, a.change.Order) })
	return gone[:min(len(gone), maxGoneMembers)]
}

// dropUnused drops an aggregate that no workload uses any more.
func (g *Graph) dropUnused(id globID) {
	used := false
	g.eachGlobUser(&id, func(*WorkloadKey) bool {
		used = true
		return false
	})
	if !used {
		g.globs.delete(id)
	}
}

// eachGlobUser calls f for the workloads that use a glob, until it returns false.
func (g *Graph) eachGlobUser(id *globID, f func(*WorkloadKey) bool) {
	g.globUsers.from(globUse{glob: *id}, func(use *globUse, _ struct{}) bool {
		return use.glob == *id && f(&use.workload)
	})
}

// Matched is what a glob names of the sources of a namespace: all that there are, but for those that
// a pattern excludes, those that carry IgnoreAnnotation, and those that are set apart.
type Matched struct {
	// Count is how many they are, and Keys how many keys they have.
	Count, Keys int

	graph     *Graph
	aggregate *aggregate
	members   *members
	apart     map[string]bool
	sum       sum // of what stands for their content
	ignored   int
	// ignoredSum stands for the names of those that are ignored.
	ignoredSum sum
}

// Matched returns what a glob names in a namespace. Apart are names of sources that do not belong to it.
func (g *Graph) Matched(namespace string, glob Pattern, exclude []Pattern, apart []string) *Matched {
	id := newGlobID(namespace, glob, exclude)
	a := g.globs.get(id)
	if a == nil { // no workload in the graph has it
		a = newAggregate(id)
	}
	m := g.membersOf(a)
	out := &Matched{Count: m.count, Keys: m.keys, graph: g, aggregate: a, members: m, sum: m.sum, ignored: m.ignored, ignoredSum: m.ignoredSum}
	if len(apart) == 0 {
		return out
	}
	out.apart = make(map[string]bool, len(apart))
	for _, name := range apart {
		if out.apart[name] || !a.names(name) {
			continue
		}
		out.apart[name] = true
		switch s := g.Source(SourceKey{glob.Kind, namespace, name}); {
		case s == nil:
		case s.Ignored:
			out.ignored--
			out.ignoredSum.subtract(sumOfName(name))
		default:
			out.Count, out.Keys = out.Count-1, out.Keys-len(s.Keys)
			out.sum.subtract(sumOf(s.content))
		}
	}
	return out
}

// membersOf returns the members of an aggregate, which is that of the graph as it is, or of no workload.
func (g *Graph) membersOf(a *aggregate) *members {
	m := a.members.Load()
	if m == nil {
		with := *g
		with.besides = nil
		m = with.lookUpMembers(a)
		a.members.Store(m)
	}
	for key, s := range g.besides {
		if key.Namespace == a.id.namespace && key.Kind == a.id.Kind && a.names(key.Name) {
			if m = m.after(g.sources.get(key), s); m == nil {
				return g.lookUpMembers(a)
			}
		}
	}
	return m
}

func (g *Graph) lookUpMembers(a *aggregate) *members {
	m := &members{}
	g.eachNamed(a, m.add)
	return m
}

// eachNamed calls f for the sources that an aggregate names, ignored ones among them.
func (g *Graph) eachNamed(a *aggregate, f func(*Source)) {
	is := func(key *SourceKey) bool {
		return key.Namespace == a.id.namespace && key.Kind == a.id.Kind && strings.HasPrefix(key.Name, a.matcher.prefix)
	}
	g.sources.from(SourceKey{a.id.Kind, a.id.namespace, a.matcher.prefix}, func(key *SourceKey, s *Source) bool {
		if !is(key) {
			return false
		}
		if a.names(key.Name) && g.besides[*key] == nil {
			f(s)
		}
		return true
	})
	for key, s := range g.besides {
		if is(&key) && a.names(key.Name) {
			f(s)
		}
	}
}

// AppendContent appends what stands for the content of all.
func (m *Matched) AppendContent(b []byte) []byte {
	b = appendString(b, string(m.aggregate.id.Kind))
	b = appendString(b, m.aggregate.id.Name)
	b = binary.AppendUvarint(b, uint64(m.Count))
	return m.sum.append(b)
}

// Ignored stands for the names of those that carry IgnoreAnnotation; empty: there are none.
func (m *Matched) Ignored() string {
	if m.ignored == 0 {
		return ""
	}
	return hex.EncodeToString(m.ignoredSum.append(nil))
}

// Names returns the first of their names, at most 100.
func (m *Matched) Names() (names []string) {
	for _, s := range m.members.byName[:min(len(m.members.byName), maxNames)] {
		if !m.apart[s.Name] {
			names = append(names, s.Name)
		}
	}
	return names
}

// LastChanged returns the latest of when their content was last written, by the clock of the API server.
func (m *Matched) LastChanged() (at metav1.Time) {
	m.each(m.members.byTime, &orderedByTime, func(s *Source) bool {
		at = s.LastChanged
		return false
	})
	return at
}

// EachRecent calls f for all, those first whose content this process has read last, until f returns
// false.
func (m *Matched) EachRecent(f func(*Source) bool) { m.each(m.members.byOrder, &orderedByOrder, f) }

// each calls f for all in an order, of which the first are given, until f returns false.
func (m *Matched) each(first []*Source, order *ordering, f func(*Source) bool) {
	for _, s := range first {
		if !m.apart[s.Name] && !f(s) {
			return
		}
	}
	if len(first) == m.members.count {
		return
	}
	var rest []*Source
	m.graph.eachNamed(m.aggregate, func(s *Source) {
		if !s.Ignored && !m.apart[s.Name] && order.compare(first[len(first)-1], s) < 0 {
			rest = append(rest, s)
		}
	})
	slices.SortFunc(rest, order.compare)
	for _, s := range rest {
		if !f(s) {
			return
		}
	}
}

// EachGone calls f for those that have been deleted, with when they were, the latest first, until f
// returns false. The name is empty for all that are not remembered by their names.
func (m *Matched) EachGone(f func(name string, change Change) bool) {
	for _, gone := range m.aggregate.gone {
		if !m.apart[gone.name] && !f(gone.name, gone.change) {
			return
		}
	}
	if m.aggregate.goneBefore != (Change{}) {
		f("", m.aggregate.goneBefore)
	}
}
