// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package seeds

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func environment(variables map[string]string) func(string) string {
	return func(name string) string { return variables[name] }
}

func TestRead(t *testing.T) {
	for name, tt := range map[string]struct {
		environment map[string]string
		want        Settings
		wantError   string
	}{
		"the default":           {nil, Settings{First: 1, Factor: 1}, ""},
		"a seed":                {map[string]string{Variable: "7"}, Settings{First: 7, Given: true, Factor: 1}, ""},
		"a seed and a duration": {map[string]string{Variable: "7", durationVariable: "30m"}, Settings{First: 7, Duration: 30 * time.Minute, Given: true, Factor: 1}, ""},
		"a factor":              {map[string]string{factorVariable: "10"}, Settings{First: 1, Factor: 10}, ""},
		"not a factor":          {map[string]string{factorVariable: "0"}, Settings{}, `SEEDS_FACTOR="0" is not a positive number`},
		"not a seed":            {map[string]string{Variable: "x"}, Settings{}, `SOAK_SEED="x" is not a seed`},
		"not a duration":        {map[string]string{durationVariable: "30"}, Settings{}, `SOAK_DURATION="30" is not a positive duration`},
		"a duration of zero":    {map[string]string{durationVariable: "0s"}, Settings{}, `SOAK_DURATION="0s" is not a positive duration`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := read(environment(tt.environment))
			if tt.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantError) {
					t.Errorf("error = %v, want %q", err, tt.wantError)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("(-want +got):\n%s\n%v", diff, err)
			}
		})
	}
}

// Two runs of "make soak" use different seeds, and two runs of "make test" the same.
func TestRead_DrawsForADurationOnly(t *testing.T) {
	drawn := map[uint64]bool{}
	for range 10 {
		s, err := read(environment(map[string]string{durationVariable: "1s"}))
		if err != nil || s.First == 0 {
			t.Fatal(s, err)
		}
		drawn[s.First] = true
	}
	if len(drawn) < 9 {
		t.Errorf("ten draws returned %d different seeds, want at least 9", len(drawn))
	}
}

func TestSettings_All(t *testing.T) {
	for name, tt := range map[string]struct {
		settings Settings
		rounds   int // how often there is time left
		want     []uint64
	}{
		"the default: failed seeds, and then the first ones": {Settings{First: 1, Factor: 1}, 0, []uint64{99, 5, 1, 2, 3}},
		"twice as many": {Settings{First: 1, Factor: 2}, 0, []uint64{99, 5, 1, 2, 3, 4, 5, 6}},
		"only a seed":   {Settings{First: 7, Given: true}, 0, []uint64{7}},
		"a duration":    {Settings{First: 7, Duration: time.Hour}, 3, []uint64{7, 8, 9, 10}},
		"a duration that is too short for one seed": {Settings{First: 7, Duration: 1}, 0, []uint64{7}},
	} {
		t.Run(name, func(t *testing.T) {
			rounds := tt.rounds
			timeLeft := func() bool { rounds--; return rounds >= 0 }
			got := slices.Collect(tt.settings.all(3, []uint64{99, 5}, timeLeft))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The command that a failed test prints works in the root of the repository.
func TestRepeat(t *testing.T) {
	if got, want := repeat(t, 7), "SOAK_SEED=7 go test ./test/seeds -run '^TestRepeat$'"; got != want {
		t.Errorf("command = %s, want %s", got, want)
	}
}
