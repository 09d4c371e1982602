// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"strconv"
	"text/tabwriter"
)

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
