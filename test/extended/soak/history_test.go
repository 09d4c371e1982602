// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// history is a series of operations and disruptions, generated from a seed.
type history struct {
	seed   uint64
	cells  [][]*manifest // the workloads of each cell
	phases []*phase
}

// phase is the part of a history between two calms.
type phase struct {
	kind        phaseKind
	operations  [][]operation // by cell
	disruptions []disruption
}

// phaseKind is the kind of disturbance in a phase.
type phaseKind string

const (
	// quiet: none, so that the exact result is known.
	quiet phaseKind = "quiet"
	// rekeyed: only the key of the hash is replaced.
	rekeyed phaseKind = "rekeyed"
	// noisy: single requests fail.
	noisy phaseKind = "noisy"
	// down: no server runs, and the next one sees the result of all operations.
	down phaseKind = "down"
	// stormy: there are many operations, requests fail, replicas are killed and lose their lease.
	stormy phaseKind = "stormy"
)

// operation is one operation of an owner.
type operation struct {
	do       string
	source   string
	workload int
	key      string
	number   int           // unique
	pause    time.Duration // before it
	lasts    time.Duration // for operations with several steps
}

func (o operation) String() string {
	return fmt.Sprintf("%s %s.%s w%d #%d", o.do, o.source, o.key, o.workload, o.number)
}

// disruption is a disruption of a replica or the API server.
type disruption struct {
	what    string
	replica int
	pause   time.Duration // before it
	lasts   time.Duration
}

func (d disruption) String() string {
	return fmt.Sprintf("%s %d for %v", d.what, d.replica, d.lasts)
}

// maker generates random values.
type maker struct {
	*rand.Rand

	number int
}

func pick[T any](m *maker, from ...T) T { return from[m.IntN(len(from))] }

// Operations of owners. Content only recurs at times at which no pod starts: it is not known what a pod that
// starts in between reads.
var (
	contentOperations = []string{"change", "change", "change", "change", "add key", "remove key", "write again", "edit metadata",
		"delete", "recreate", "change", "change"}
	workloadOperations = []string{"set image", "set image", "switch template", "rewrite", "rewrite", "rewrite with image", "opt in", "opt in", "opt out",
		"leave it to the namespace", "opt in the namespace", "opt out the namespace",
		"write again", "delete a pod", "apply", "delete in the foreground", "release",
		"scale to zero", "scale up", "scale there and back", "pause and resume", "stalled release", "operator", "set the minimum interval"}
	// carefulOperations are those where an unnecessary restart is most likely.
	carefulOperations = []string{"change together", "change together", "edit metadata", "edit metadata", "recreate equal", "recreate equal",
		"release", "rewrite", "opt in", "operator", "pause and resume", "scale there and back"}
	// quietOperations are those after which only a server that has seen everything can be right.
	quietOperations = []string{"operator", "change there and back"}
)

const (
	cellCount        = 8
	workloadsPerCell = 2
)

// phaseKinds are the kinds of the phases of a history.
var phaseKinds = []phaseKind{quiet, noisy, quiet, stormy, down, noisy, quiet, stormy, rekeyed, noisy, down, quiet}

// generate returns the history of a seed.
func generate(seed uint64) *history {
	m := &maker{Rand: rand.New(rand.NewPCG(seed, 1))}
	h := &history{seed: seed}
	for range cellCount {
		var workloads []*manifest
		for i := range workloadsPerCell {
			workloads = append(workloads, &manifest{
				kind: pick(m, "Deployment", "Deployment", "StatefulSet", "DaemonSet"), name: "w" + strconv.Itoa(i),
				variant: m.IntN(len(variants)), replicas: replicas, mode: pick(m, "auto", "auto", "auto", "matched", "listed"),
				strategy: pick(m, "", "", "", "recreate"), exclude: pick(m, "", "", "", "secret/s1", "configmap/c*"),
			})
			last := workloads[i]
			last.reload = pick(m, last.mode, last.mode, last.mode, "")
			if last.listed = pick(m, "", "", "secret/s*"); last.mode == "listed" {
				last.listed = pick(m, "configmap/c0,secret/s0", "configmap/c*", "secret/*,configmap/c1")
			}
		}
		h.cells = append(h.cells, workloads)
	}
	for _, kind := range phaseKinds {
		p := &phase{kind: kind}
		for range cellCount {
			p.operations = append(p.operations, m.operations(p.kind))
		}
		switch {
		case p.kind == rekeyed:
			p.disruptions = append(p.disruptions, disruption{what: "replace the key"})
		case p.kind == stormy:
			for range 1 + m.IntN(3) {
				p.disruptions = append(p.disruptions, m.disruption("kill", "kill", "terminate", "stop", "sever", "break watches", "restart API server"))
			}
		case p.kind == noisy && m.IntN(3) == 0:
			p.disruptions = append(p.disruptions, m.disruption("kill", "stop", "sever", "break watches"))
		}
		p.spareControllers()
		h.phases = append(h.phases, p)
	}
	return h
}

// spareControllers removes the deletion of pods if the API server restarts: the controller of ReplicaSets, which lists everything again, never sees a
// pod that was created and deleted in between, and waits five minutes for it.
func (p *phase) spareControllers() {
	if !slices.ContainsFunc(p.disruptions, func(d disruption) bool { return d.what == "restart API server" }) {
		return
	}
	for _, all := range p.operations {
		for i := range all {
			if all[i].do == "delete a pod" {
				all[i].do = "set image"
			}
		}
	}
}

func (m *maker) disruption(what ...string) disruption {
	return disruption{pick(m, what...), m.IntN(replicaCount), m.upTo(time.Second), pick(m, 0, m.upTo(time.Second), m.upTo(7*time.Second))}
}

func (m *maker) upTo(d time.Duration) time.Duration { return time.Duration(m.Int64N(int64(d))) }

// operations generates the operations in a cell during a phase.
func (m *maker) operations(kind phaseKind) (all []operation) {
	switch kind {
	case rekeyed:
	case quiet:
		for i := range 1 + m.IntN(4) {
			o := m.operation(slices.Concat(pick(m, carefulOperations, contentOperations, workloadOperations), quietOperations))
			if i > 0 {
				o.pause = pick(m, 0, m.upTo(300*time.Millisecond), m.upTo(2*time.Second))
			}
			all = append(all, o)
		}
	case noisy:
		all = append(all, m.operation(pick(m, carefulOperations, contentOperations, workloadOperations)))
	case down:
		if m.IntN(2) == 0 {
			for range 1 + m.IntN(4) {
				all = append(all, m.operation(slices.Concat([]string{"recreate equal", "change and back"}, contentOperations)))
			}
			return all
		}
		fallthrough
	default:
		for range 2 + m.IntN(5) {
			o := m.operation(slices.Concat(contentOperations, workloadOperations))
			o.pause = pick(m, 0, 0, m.upTo(300*time.Millisecond), m.upTo(3*time.Second))
			all = append(all, o)
		}
	}
	return all
}

func (m *maker) operation(from []string) operation {
	m.number++
	return operation{do: pick(m, from...), source: pick(m, sourceNames...), workload: m.IntN(workloadsPerCell), key: pick(m, keyNames...), number: m.number,
		lasts: m.upTo(2 * time.Second)}
}
