// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math"
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
