// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
)

func TestVerdict(t *testing.T) {
	measured := func(value, floor float64, l limit) row {
		return row{name: "x", got: exactly(value), floor: exactly(floor), floorName: "floor", limit: l}
	}
	for name, c := range map[string]struct {
		row     row
		verdict string
		fails   bool
	}{
		"no limit":          {measured(9, 1, limit{}), "-", false},
		"kept":              {measured(1.4, 1, limit{ratio: 1.5}), "ok", false},
		"just missed":       {measured(1.5, 1, limit{ratio: 1.5}), "MISSED", false},
		"missed by far":     {measured(3, 1, limit{ratio: 1.5}), "MISSED", true},
		"value kept":        {measured(79, 1, limit{value: 80}), "ok", false},
		"value missed":      {measured(200, 1, limit{value: 80}), "MISSED", true},
		"count met":         {measured(0, 1, limit{exact: true}), "ok", false},
		"count exceeded":    {measured(1, 1, limit{exact: true}), "MISSED", true},
		"count not reached": {measured(19, 1, limit{exact: true, value: 20}), "MISSED", true},
	} {
		t.Run(name, func(t *testing.T) {
			full := settings{scale: 1}
			if got := c.row.verdict(full); got != c.verdict {
				t.Errorf("verdict %q, want %q", got, c.verdict)
			}
			if err := judge([]row{c.row}, full); (err != nil) != c.fails {
				t.Errorf("judge: error = %v, want an error: %v", err, c.fails)
			}
			if err := judge([]row{c.row}, settings{scale: 0.1}); err != nil {
				t.Errorf("with few objects, the limits are judged: %v", err)
			}
		})
	}
}
