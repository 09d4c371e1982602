// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"slices"
)

const (
	crowd    = 6 // a source with more users has a lane, in which their edges meet
	maxLanes = 24
	rounds   = 100 // of sorting; more make little better
)

// layOut returns the nodes from top to bottom, workloads first, the top of each, and the height of all. Parts that are not connected
// are apart.
func layOut(of *picture) (order, ys []int, height int) {
	near := make([][]int, len(of.nodes))
	for _, e := range of.edges {
		near[e.from], near[e.to] = append(near[e.from], e.to), append(near[e.to], e.from)
	}
	ys = make([]int, len(of.nodes))
	seen := make([]bool, len(of.nodes))
	var sources []int
	for i := range of.nodes {
		if seen[i] {
			continue
		}
		// A part, from its first node.
		part := []int{i}
		seen[i] = true
		for at := 0; at < len(part); at++ {
			for _, n := range near[part[at]] {
				if !seen[n] {
					seen[n] = true
					part = append(part, n)
				}
			}
		}
		left, right := inColumns(of, part)
		rows := max(len(left), len(right))
		top, bottom := height, height+rows*rowHeight
		for round := range rounds {
			if round > 0 {
				left = nearSources(near, left, ys)
			}
			for j, n := range left {
				ys[n] = top + (rows-len(left))*rowHeight/2 + j*rowHeight
			}
			beside(near, right, ys, top, bottom)
		}
		order, sources = append(order, left...), append(sources, right...)
		height += rows * rowHeight
		if len(part) > 1 {
			height += boxHeight
		}
	}
	return append(order, sources...), ys, height
}

// inColumns returns the workloads and the sources of a part.
func inColumns(of *picture, part []int) (workloads, sources []int) {
	for _, n := range part {
		if of.nodes[n].source {
			sources = append(sources, n)
		} else {
			workloads = append(workloads, n)
		}
	}
	return workloads, sources
}

// nearSources returns workloads, sorted by where the middle of their sources is, of which those with few users count more.
func nearSources(near [][]int, workloads, ys []int) []int {
	middle := make(map[int]float64, len(workloads))
	for _, w := range workloads {
		sum, weights := 0.0, 0.0
		for _, s := range near[w] {
			weight := 1 / float64(len(near[s]))
			sum += float64(weight * float64(ys[s])) // rounded, so that it is the same on each machine
			weights += weight
		}
		middle[w] = sum / weights
	}
	return slices.SortedStableFunc(slices.Values(workloads), func(a, b int) int { return cmp.Compare(middle[a], middle[b]) })
}

// beside sorts sources by where the middle of their users is, and places them as near to it as others let them.
func beside(near [][]int, sources, ys []int, top, bottom int) {
	for _, s := range sources {
		sum := 0
		for _, n := range near[s] {
			sum += ys[n]
		}
		ys[s] = sum / len(near[s])
	}
	slices.SortStableFunc(sources, func(a, b int) int { return cmp.Compare(ys[a], ys[b]) })
	// Sources that want the same place are a block, around the middle of what they want.
	type block struct{ first, size, sum int } // sum of where its first would have to be
	var blocks []block
	start := func(b block) int { return max(top, min(b.sum/b.size, bottom-b.size*rowHeight)) }
	for i, s := range sources {
		b := block{i, 1, ys[s]}
		for len(blocks) > 0 {
			last := blocks[len(blocks)-1]
			if start(last)+last.size*rowHeight <= start(b) {
				break
			}
			b = block{last.first, last.size + b.size, last.sum + b.sum - b.size*last.size*rowHeight}
			blocks = blocks[:len(blocks)-1]
		}
		blocks = append(blocks, b)
	}
	for _, b := range blocks {
		for i := range b.size {
			ys[sources[b.first+i]] = start(b) + i*rowHeight
		}
	}
}

// lanes gives each source with many users a lane, so that no two overlap, and returns how many there are.
func (d *drawing) lanes(of *picture, at, users []int) int {
	top, bottom := make([]int, len(d.Nodes)), make([]int, len(d.Nodes))
	for i := range d.Nodes {
		top[i], bottom[i] = d.Nodes[i].Y, d.Nodes[i].Y
	}
	for _, e := range of.edges {
		from, to := at[e.from], at[e.to]
		top[to], bottom[to] = min(top[to], d.Nodes[from].Y), max(bottom[to], d.Nodes[from].Y)
	}
	var wide []int
	for i := range d.Nodes {
		if users[d.Nodes[i].node] > crowd {
			wide = append(wide, i)
		}
	}
	slices.SortStableFunc(wide, func(a, b int) int { return cmp.Compare(top[a], top[b]) })
	var ends []int // of the lanes
	for _, i := range wide {
		lane := slices.IndexFunc(ends, func(end int) bool { return end < top[i] })
		if lane < 0 && len(ends) < maxLanes {
			lane, ends = len(ends), append(ends, 0)
		}
		if lane < 0 { // more than there is room for: where the fewest overlap
			lane = slices.Index(ends, slices.Min(ends))
		}
		ends[lane] = bottom[i]
		d.Nodes[i].Lane = lane + 1
	}
	return len(ends)
}
