// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// length is the number of operations after the first ones.
const length = 40

// generate returns the history of a seed.
func generate(seedNumber uint64) *history {
	h := &history{Seed: seedNumber}
	m := maker{rand.New(rand.NewPCG(seedNumber, 0)), h}
	h.Servers = 1 + m.IntN(2)
	h.Mode = pick(m, "off", "auto")
	h.Batches = m.IntN(2) == 0
	h.Pace = pick(m, 0, 0, 100*time.Millisecond)
	if m.IntN(3) == 0 {
		skew := func() time.Duration { return time.Duration(m.IntN(2001)-1000) * time.Millisecond }
		h.Skews = skews{API: skew(), Servers: [2]time.Duration{skew(), skew()},
			Nodes: [3]time.Duration{skew(), skew(), skew()}}
	}
	for range 1 + m.IntN(2) {
		s := seed{Kind: pick(m, "Deployment", "Deployment", "Deployment", "Deployment", "Deployment", "Deployment", "StatefulSet", "StatefulSet", "DaemonSet", "DaemonSet", "Job", "CronJob"), Replicas: 2,
			Variants: [2]int{m.IntN(ordinaryVariants), m.IntN(ordinaryVariants)}, Annotations: map[string]string{}}
		if m.IntN(4) > 0 {
			s.Annotations[reloadAnnotation] = "auto"
		}
		if m.IntN(4) == 0 {
			annotation := pick(m, toggled...)
			s.Annotations[annotation] = pick(m, slices.DeleteFunc(slices.Sorted(maps.Keys(vocabulary[annotation])), func(text string) bool {
				return text == "in-place" || text == "agent" || text == "env-var" || strings.HasPrefix(text, "secretproviderclass") // see addInPlace, addAgents, addVariables and addClass
			})...)
		}
		if m.IntN(10) == 0 {
			s.Reaction = pick(m, stripsMetadata, stripsTemplate, stripsBoth, heals, heals)
			s.Delay = pick(m, 10*time.Millisecond, 500*time.Millisecond, 3*time.Second)
		}
		h.Workloads = append(h.Workloads, s)
	}
	var first []operation
	for slot := range firstSources {
		if m.IntN(6) > 0 {
			first = append(first, operation{Do: "create source", A: slot, Content: m.content()})
		}
	}
	for slot := range h.Workloads {
		first = append(first, operation{Do: "create workload", A: slot})
	}
	first = append(first, operation{Do: "birth"})
	for id := 1; id < h.Servers; id++ {
		first = append(first, operation{Do: "birth", A: id})
	}
	m.Shuffle(len(first), func(i, j int) { first[i], first[j] = first[j], first[i] })
	if m.IntN(2) == 0 { // what happens in the same second is mostly not known for sure
		for i := len(first); i > 0; i-- {
			first = slices.Insert(first, i, operation{Do: "wait", Wait: 3 * time.Second})
		}
	}
	first = append(first, operation{Do: "lead"})
	begin := len(first)
	h.Operations = first
	if m.IntN(2) == 0 {
		h.Operations = append(h.Operations, operation{Do: "calm"})
	}
	names := slices.Sorted(maps.Keys(actions))
	total := 0
	for _, name := range names {
		total += actions[name].weight
	}
	for range length/2 + m.IntN(length) {
		n := m.IntN(total)
		for _, name := range names {
			if n -= actions[name].weight; n < 0 {
				o := actions[name].make(m)
				o.Do = name
				h.Operations = append(h.Operations, o)
				break
			}
		}
	}
	h.addKubelets(begin)
	h.addInPlace(begin)
	h.addAgents(begin)
	h.addWide(begin)
	h.addClass(begin)
	h.addCustom(begin)
	h.addRare(begin)
	h.addStuck(begin)
	h.addLists(begin)
	h.addVariables(begin)
	h.addSynced(begin)
	h.addPauses(begin)
	h.addWindows(begin)
	h.addWaves()
	return h
}

// addRare lets pods fail and stay in an eighth of the histories, makes sources immutable, and lets another client set and remove keys.
func (h *history) addRare(begin int) {
	m := maker{rand.New(rand.NewPCG(h.Seed, 9)), h}
	if m.IntN(8) > 0 {
		return
	}
	begin = min(begin, len(h.Operations))
	for range 3 + m.IntN(4) {
		at, source := begin+m.IntN(len(h.Operations)-begin+1), m.source()
		wait := operation{Do: "wait", Wait: pick(m, 0, time.Second, 3*time.Second, time.Minute)}
		if m.IntN(2) == 0 {
			h.Operations = slices.Insert(h.Operations, at, operation{Do: "fail pod", A: m.workload(), C: m.IntN(6)}, wait, operation{Do: "set content", A: source, Content: m.content()})
			continue
		}
		if m.IntN(2) == 0 {
			patch := operation{Do: "patch key", A: source, B: m.IntN(keyCount), C: 1 + m.IntN(4)}
			h.Operations = slices.Insert(h.Operations, at, operation{Do: "remove key", A: source, B: patch.B}, wait, patch, wait, patch, wait)
			continue
		}
		h.Operations = slices.Insert(h.Operations, at, operation{Do: "make immutable", A: source}, wait, operation{Do: "recreate source", A: source, B: 1, Content: m.content()}, wait)
	}
}

// addWide gives workloads of an eighth of the histories templates that read all sources, and autoscalers to those of an eighth, which scale them while pods are
// being replaced.
func (h *history) addWide(begin int) {
	m := maker{rand.New(rand.NewPCG(h.Seed, 6)), h}
	insert := func(at int, operations ...operation) { h.Operations = slices.Insert(h.Operations, at, operations...) }
	anywhere := func() int { return begin + m.IntN(len(h.Operations)-begin+1) }
	last := func() int { return firstSources + m.IntN(sourceCount-firstSources) }
	if slot := m.workload(); m.IntN(8) == 0 && h.Workloads[slot].Agents == 0 && !hasRestarter(h.Workloads[slot].Variants[0]) {
		h.Workloads[slot].Variants[m.IntN(2)] = widest
		h.Workloads[slot].Variants[m.IntN(2)] = widest + m.IntN(len(wide))
		for range 6 + m.IntN(6) {
			insert(anywhere(), pick(m, operation{Do: "set content", A: last(), Content: m.content()}, operation{Do: "set content", A: m.source(), Content: m.content()},
				operation{Do: "recreate source", A: last(), B: 1, Content: m.content()}, operation{Do: "mark source", A: last(), B: m.IntN(2)}))
		}
		for source := range sourceCount {
			insert(m.IntN(begin+1), operation{Do: "create source", A: source, Content: m.content()})
		}
	}
	if m.IntN(8) > 0 {
		return
	}
	for range 3 + m.IntN(4) {
		insert(anywhere(), operation{Do: "set content", A: m.source(), Content: m.content()}, operation{Do: "wait", Wait: pick(m, 0, time.Second, 1500*time.Millisecond)},
			operation{Do: "autoscale", A: m.workload(), B: 1 + m.IntN(6), C: m.IntN(1000), Wait: pick(m, 50*time.Millisecond, 300*time.Millisecond, 2*time.Second, 15*time.Second)})
	}
}
