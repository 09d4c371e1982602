package simulation

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// length is how many operations follow the first ones.
const length = 40

// generate makes the history of a seed.
func generate(seedNumber uint64) *history {
	h := &history{seed: seedNumber}
	m := maker{rand.New(rand.NewPCG(seedNumber, 0)), h}
	h.servers = 1 + m.IntN(2)
	h.defaultMode = pick(m, "off", "auto")
	h.batches = m.IntN(2) == 0
	for range 1 + m.IntN(2) {
		s := seed{kind: pick(m, "Deployment", "Deployment", "Deployment", "StatefulSet", "DaemonSet"),
			variants: [2]int{m.IntN(len(variants)), m.IntN(len(variants))}, annotations: map[string]string{}}
		if m.IntN(4) > 0 {
			s.annotations[reloadAnnotation] = "auto"
		}
		if m.IntN(4) == 0 {
			annotation := pick(m, toggled...)
			s.annotations[annotation] = pick(m, slices.Sorted(maps.Keys(vocabulary[annotation]))...)
		}
		h.seeds = append(h.seeds, s)
	}
	var first []operation
	for slot := range sourceCount {
		if m.IntN(6) > 0 {
			first = append(first, operation{do: "create source", a: slot, content: m.content()})
		}
	}
	for slot := range h.seeds {
		first = append(first, operation{do: "create workload", a: slot})
	}
	first = append(first, operation{do: "birth"})
	for id := 1; id < h.servers; id++ {
		first = append(first, operation{do: "birth", a: id})
	}
	m.Shuffle(len(first), func(i, j int) { first[i], first[j] = first[j], first[i] })
	first = append(first, operation{do: "lead"})
	h.operations = first
	if m.IntN(2) == 0 {
		h.operations = append(h.operations, operation{do: "calm"})
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
				o.do = name
				h.operations = append(h.operations, o)
				break
			}
		}
	}
	return h
}
