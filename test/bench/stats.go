// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
	"time"
)

// samples are measurements in the same unit.
type samples []float64

func (s *samples) addTime(d time.Duration, unit time.Duration) {
	*s = append(*s, float64(d)/float64(unit))
}

// summary is what the table shows of samples: the value that is judged, and their spread.
type summary struct {
	median    float64 // or the quantile of the row
	low, high float64 // the quartiles, or the minimum and maximum of few samples
}

func exactly(value float64) summary { return summary{value, value, value} }

func (s samples) summary() summary {
	if len(s) < 8 {
		return summary{s.quantile(0.5), slices.Min(s), slices.Max(s)}
	}
	return summary{s.quantile(0.5), s.quantile(0.25), s.quantile(0.75)}
}

// quantile returns the value that the share q of the samples does not exceed, interpolated between samples. Without
// samples, it returns NaN.
func (s samples) quantile(q float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	at := q * float64(len(sorted)-1)
	below := int(at)
	if below+1 == len(sorted) {
		return sorted[below]
	}
	return sorted[below] + (at-float64(below))*(sorted[below+1]-sorted[below])
}
