// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"slices"
	"testing"
)

func TestFit(t *testing.T) {
	length := func(s *string) int { return len(*s) }
	b := Budget(5)
	for i, tt := range []struct {
		all, some []string
		more      int64
		left      Budget
	}{
		{[]string{"aa", "b"}, []string{"aa", "b"}, 0, 2},
		{nil, nil, 0, 2},
		{[]string{"c", "ddd", "e"}, []string{"c"}, 2, 0},
		{[]string{"f"}, nil, 1, 0},
	} {
		some, more := Fit(&b, tt.all, length)
		if !slices.Equal(some, tt.some) || more != tt.more || b != tt.left {
			t.Errorf("list %d: got %v and %d more, %d bytes left; want %v and %d more, %d bytes left", i, some, more, b, tt.some, tt.more, tt.left)
		}
		if cap(some) > len(some) && len(some) < len(tt.all) {
			t.Errorf("list %d: appending to the result would overwrite the list", i)
		}
	}
}
