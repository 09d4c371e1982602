// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
)

// row is one line of the table.
type row struct {
	name string
	unit string
	n    int     // number of measurements in got
	got  summary // of them
	// floor is similar work done by another program, in the same run. It has n measurements too, unless it is
	// computed.
	floor     summary
	floorName string
	limit     limit
	note      string // printed below the table
}

// limit is the limit that a row must stay below. The zero value means no limit: the row is only informative.
type limit struct {
	ratio float64 // of the value to the floor
	value float64 // of the value
	exact bool    // the row must have exactly this value; any other value is missed by far
}

// byFar is the factor by which a row may exceed its limit before the program fails. In between, the reader must judge,
// because the machine may have been busy.
const byFar = 1.5

func (r row) hasFloor() bool { return r.floorName != "" }

func (r row) ratio() float64 { return r.got.median / r.floor.median }

// excess is the measured value divided by the limit: below 1, the limit is met.
func (r row) excess() float64 {
	switch {
	case r.limit.exact && r.got.median == r.limit.value:
		return 0
	case r.limit.exact:
		return math.Inf(1)
	case r.limit.ratio > 0:
		return r.ratio() / r.limit.ratio
	case r.limit.value > 0:
		return r.got.median / r.limit.value
	default:
		return 0
	}
}

func (r row) verdict(s settings) string {
	switch {
	case r.limit == limit{}:
		return "-"
	case r.excess() < 1:
		return "ok" + notJudged(s)
	default:
		return "MISSED" + notJudged(s)
	}
}

func notJudged(s settings) string {
	if s.judged() {
		return ""
	}
	return " (not judged)"
}

// judge returns an error with the rows that miss their limits by far.
func judge(rows []row, s settings) error {
	if !s.judged() {
		return nil
	}
	var missed []error
	for _, r := range rows {
		switch {
		case r.excess() <= byFar:
		case r.limit.exact:
			missed = append(missed, fmt.Errorf("%s = %g, want %g", r.name, r.got.median, r.limit.value))
		default:
			missed = append(missed, fmt.Errorf("%s is %.2f times its limit", r.name, r.excess()))
		}
	}
	return errors.Join(missed...)
}

// printTable prints all rows, followed by their notes.
func printTable(out io.Writer, rows []row, s settings) {
	fmt.Fprintf(out, "\n%d processors; object counts scaled by %g; ratios of medians, measured in turns; in brackets quartiles (of fewer than 8: least and greatest)\n\n",
		runtime.NumCPU(), s.scale)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ROW\tUNIT\tN\tMEASURED\tFLOOR\tOF\tRATIO\tLIMIT\tVERDICT")
	for _, r := range rows {
		floor, of, ratio := "-", "-", "-"
		if r.hasFloor() {
			floor, of, ratio = r.floor.String(), r.floorName, fmt.Sprintf("%.2f", r.ratio())
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", r.name, r.unit, r.n, r.got, floor, of, ratio, r.limit, r.verdict(s))
	}
	_ = w.Flush()
	for _, r := range rows {
		if r.note != "" {
			fmt.Fprintf(out, "\n%s: %s", r.name, r.note)
		}
	}
	fmt.Fprintln(out)
}

// String renders "412 [398 440]".
func (s summary) String() string {
	if s.low == s.high {
		return digits(s.median)
	}
	return fmt.Sprintf("%s [%s %s]", digits(s.median), digits(s.low), digits(s.high))
}

// String renders "ratio < 1.5".
func (l limit) String() string {
	switch {
	case l.exact:
		return fmt.Sprintf("= %g", l.value)
	case l.ratio > 0:
		return fmt.Sprintf("ratio < %g", l.ratio)
	case l.value > 0:
		return fmt.Sprintf("< %g", l.value)
	default:
		return "-"
	}
}

// digits formats a number with about three significant digits, and a count with all of them.
func digits(v float64) string {
	switch {
	case v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}

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
