// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"slices"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
)

// reading is what a container reads of a source, in one way.
type reading struct {
	source    int // its index in Facts
	reference dependency.Reference
	file      bool
	whole     bool // it reads all that the record of the source is about
	periods   []content
	current   int // the index of the last period with which the container can have started; -1: none
}

// content is a period, and whether the container reads the same content in it as in the current one.
type content struct {
	dependency.Period

	same, startable bool
	// gap: what the pod itself brings was absent, and then there again with the same content.
	gap   bool
	class int // the first period in which the container reads the same; -1: it is not known
}

// add adds what the containers read of a source.
func (j *Judge) add(source int) {
	s := &j.Sources[source]
	byContainer := map[string][2][]dependency.Use{} // by whether they are files that are updated
	var order []string
	unused := unusedKeys(&s.Reference)
	var whole [2][]int
	for _, u := range s.Uses {
		file := isFile(&u) && !u.SubPath
		if !u.Reads() || file && j.LiveFiles {
			continue
		}
		uses, known := byContainer[u.Container]
		if !known {
			order = append(order, u.Container)
		}
		if isFile(&u) {
			uses[1] = append(uses[1], u)
		} else {
			uses[0] = append(uses[0], u)
		}
		byContainer[u.Container] = uses
	}
	for _, name := range order {
		for file, uses := range byContainer[name] {
			if len(uses) == 0 {
				continue
			}
			r := reading{source: source, reference: s.Reference, file: file == 1}
			r.reference.Uses, r.reference.RequiredKeys = uses, required(&s.Reference, uses, unused)
			r.whole = sameKeys(&s.Reference, &r.reference) && (r.file || !s.Mountable())
			if _, all := r.reference.Keys(); !all {
				r.compare(s.Periods, classesOf(&r.reference, s.Periods), s.Brought)
			} else { // the same for all containers that read all, of which there may be many
				if whole[file] == nil {
					whole[file] = classesOf(&r.reference, s.Periods)
				}
				r.compare(s.Periods, whole[file], s.Brought)
			}
			if name == "" {
				j.any = append(j.any, r)
			} else {
				j.reads[name] = append(j.reads[name], r)
			}
		}
	}
}

// required returns the keys without which a container cannot be started with these uses of a source, or its volumes cannot be refreshed. It leaves out
// keys that only other containers require, and for files it includes keys that no container uses, such as the items of a volume.
func required(r *dependency.Reference, uses []dependency.Use, unused []string) []string {
	keys := requiredBy(uses)
	keys = slices.DeleteFunc(keys, func(key string) bool {
		_, is := slices.BinarySearch(r.RequiredKeys, key)
		return !is
	})
	if isFile(&uses[0]) {
		keys = append(keys, unused...)
		slices.Sort(keys)
	}
	return keys
}

// requiredBy returns the keys that uses require, in order.
func requiredBy(uses []dependency.Use) (keys []string) {
	for i := range uses {
		if !uses[i].Optional {
			keys = append(keys, uses[i].Keys...)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// unusedKeys returns the keys that a source must have although no use requires them.
func unusedKeys(r *dependency.Reference) []string {
	used := requiredBy(r.Uses)
	return slices.DeleteFunc(slices.Clone(r.RequiredKeys), func(key string) bool {
		_, is := slices.BinarySearch(used, key)
		return is
	})
}

func sameKeys(a, b *dependency.Reference) bool {
	keys, all := a.Keys()
	others, allOthers := b.Keys()
	return all == allOthers && slices.Equal(keys, others)
}

// isFile reports whether a use shows content as files.
func isFile(u *dependency.Use) bool {
	return u.Type == dependency.Volume || u.Type == dependency.Projected || u.Type == dependency.CSI
}

// classesOf returns, for each period, the first period in which the reference reads the same content; -1: unknown. It does not keep the contents, because
// they may be large.
func classesOf(r *dependency.Reference, periods []dependency.Period) []int {
	if len(periods) == 1 {
		return []int{0}
	}
	classes, texts := make([]int, len(periods)), make([][]byte, len(periods))
	for i := range periods {
		if classes[i] = -1; periods[i].Unknown || r.Varies(periods[i].Source) {
			continue
		}
		texts[i] = dependency.AppendContent(nil, r, periods[i].Source)
		classes[i] = slices.IndexFunc(texts, func(text []byte) bool { return bytes.Equal(text, texts[i]) })
	}
	return classes
}

// compare compares each period, by its class, with the current one: the last period in which the container can have been started. A period that lacks
// what the container requires does not count as content, because no container can have read it.
func (r *reading) compare(periods []dependency.Period, classes []int, brought bool) {
	r.periods, r.current = make([]content, len(periods)), -1
	for i := range periods {
		p := &periods[i]
		unknown := p.Unknown || classes[i] < 0
		r.periods[i] = content{Period: *p, startable: unknown || !dependency.Resolve(&r.reference, p.Source).Missing, gap: brought && isGap(periods, classes, i)}
		r.periods[i].Unknown = unknown
		switch {
		case unknown: // it may have ended with other content than before
			r.current = -1
		case r.periods[i].startable:
			r.current = i
		}
	}
	if r.current < 0 {
		return
	}
	for i := range r.periods {
		p := &r.periods[i]
		p.class = classes[i]
		p.same = p.startable && !p.Unknown && p.class == classes[r.current]
	}
}

// isGap reports whether a source was absent in a period, and had the same content before and after.
func isGap(periods []dependency.Period, classes []int, i int) bool {
	return 0 < i && i < len(periods)-1 && periods[i].Source == nil && !periods[i].Unknown && classes[i-1] >= 0 && classes[i-1] == classes[i+1]
}

// next returns the period that ends period i, or nil. Mounted volumes keep their files until a period in which the container can be started.
func (r *reading) next(i int) *content {
	for k := i + 1; k < len(r.periods); k++ {
		if r.periods[k].startable || !r.file {
			return &r.periods[k]
		}
	}
	return nil
}

// changed returns the first of the latest periods in which the container reads other content than in period i; nil: in the latest, it reads the same.
func (r *reading) changed(i int) (first *content) {
	for k := len(r.periods) - 1; k > i; k-- {
		switch p := &r.periods[k]; {
		case !p.startable:
		case p.Unknown || p.class != r.periods[i].class:
			first = p
		default:
			return first
		}
	}
	return first
}

// began returns when a period began, as it is shown; zero: that is not known.
func began(p *content) time.Time {
	if !p.Written.IsZero() {
		return p.Written
	}
	return p.Before.Truncate(second)
}
