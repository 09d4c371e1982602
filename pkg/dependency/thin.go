// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"cmp"
	"slices"
)

// thin bounds periods, to which more have just been added; it may change them. It makes one of two that follow each other, with keys of which it is not known
// any longer which content they had when. Keys that change often lose their past first, as those that read others would otherwise know less because of them.
// That is done no more often than periods are added, because the index cannot be changed meanwhile; what is still too much is forgotten, from the first.
func thin(periods []Period, more int) []Period {
	for i, p := range slices.Backward(periods) {
		if p.Source != nil && len(p.Keys) > maxPeriodKeys {
			periods = periods[i+1:]
			break
		}
	}
	tooMany := func() bool { return len(periods) > MaxPeriods || keysIn(periods) > maxPeriodKeys }
	for ; more > 0 && tooMany(); more-- {
		i := leastLoss(periods)
		if i < 0 {
			break
		}
		periods[i].Source = &Source{SourceKey: periods[i].SourceKey, Keys: union(periods[i].Keys, periods[i+1].Keys)}
		periods = slices.Delete(periods, i+1, i+2)
	}
	for tooMany() {
		periods = periods[1:]
	}
	return periods
}

// leastLoss returns the first of the two periods that differ only in keys which change most often; -1: there are no two with content.
func leastLoss(periods []Period) (least int) {
	changes := map[string]int{}
	differing := make([][]string, len(periods))
	for i := range len(periods) - 1 {
		if periods[i].Source == nil || periods[i+1].Source == nil {
			continue
		}
		eachKey(periods[i].Keys, periods[i+1].Keys, func(a, b *KeyDigest) {
			if k := cmp.Or(a, b); a == nil || b == nil || !a.same(*b) {
				changes[k.Key]++
				differing[i] = append(differing[i], k.Key)
			}
		})
	}
	least, most := -1, 0
	for i, keys := range differing {
		rarest := len(periods)
		for _, key := range keys {
			rarest = min(rarest, changes[key])
		}
		if len(keys) > 0 && rarest > most {
			least, most = i, rarest
		}
	}
	return least
}

// union returns the keys of two periods as those of one.
func union(a, b []KeyDigest) (out []KeyDigest) {
	eachKey(a, b, func(a, b *KeyDigest) {
		k := *cmp.Or(a, b)
		if a == nil || b == nil || !a.same(*b) {
			k.Varied, k.Digest = true, Digest{}
		}
		out = append(out, k)
	})
	return out
}

// eachKey calls f for each key of two sorted lists, with nil if one lacks it.
func eachKey(a, b []KeyDigest, f func(a, b *KeyDigest)) {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Key < b[0].Key:
			f(&a[0], nil)
			a = a[1:]
		case len(a) == 0 || b[0].Key < a[0].Key:
			f(nil, &b[0])
			b = b[1:]
		default:
			f(&a[0], &b[0])
			a, b = a[1:], b[1:]
		}
	}
}

// Varies reports whether it is not known which content a reference read in an earlier period of its source.
func (r *Reference) Varies(s *Source) bool {
	if s == nil {
		return false
	}
	keys, all := r.Keys()
	return slices.ContainsFunc(s.Keys, func(k KeyDigest) bool {
		_, read := slices.BinarySearch(keys, k.Key)
		return k.Varied && (all || read)
	})
}
