// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A container is compared with the content at its start: the latest contents are remembered with when each came
// and went, even if the source was deleted in between.
func TestGraph_RemembersTheLastContents(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	g := NewGraph()
	key := SourceKey{ConfigMap, "shop", "settings"}
	g.SetWorkload(&Workload{
		WorkloadKey: WorkloadKey{Deployment, "shop", "web"},
		References:  []Reference{{Kind: ConfigMap, Name: key.Name, Uses: []Use{{Type: EnvFrom, Container: "app"}}}},
	}, Patterns{})
	read := func(version int, value string) *Source {
		return FromConfigMap(NewDigester(make([]byte, KeySize)), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, ResourceVersion: strconv.Itoa(version)}, Data: map[string]string{"a": value},
		}, SourceMarks{})
	}
	values := map[Digest]string{}
	for _, v := range []string{"0", "1", "2", "3", "4", "5"} {
		values[read(1, v).Keys[0].Digest] = v
	}
	past := func() (out []string) {
		for _, p := range g.Past(key) {
			out = append(out, fmt.Sprintf("%s from %d until %d", values[p.Keys[0].Digest], p.Change.Version, p.Until.Version))
		}
		return out
	}
	expect := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, past()); diff != "" {
			t.Errorf("past contents (-want +got):\n%s", diff)
		}
	}
	change := func(version int, value string) {
		s := read(version, value)
		s.After(g.Source(key), g.DeletedBefore(key), Arrival{Live: true, Seen: now})
		g.SetSource(s)
	}
	first := read(10, "0")
	first.After(nil, nil, Arrival{})
	g.SetSource(first)
	expect()
	change(20, "0") // metadata
	expect()
	change(30, "1")
	expect("0 from 10 until 30")
	g.DeleteSource(key, Change{Version: 40, Exact: true, Seen: now})
	expect("0 from 10 until 30", "1 from 30 until 40")
	change(50, "1")
	expect("0 from 10 until 30", "1 from 30 until 40")
	change(60, "2")
	change(70, "3")
	expect("0 from 10 until 30", "1 from 30 until 40", "1 from 50 until 60", "2 from 60 until 70")
	change(80, "4")
	expect("1 from 30 until 40", "1 from 50 until 60", "2 from 60 until 70", "3 from 70 until 80")
}

// Fewer former contents are kept of a source with many keys: the latest.
func TestGraph_RemembersFewContentsOfManyKeys(t *testing.T) {
	for keys, want := range map[int]int{maxPastKeys / maxPast: maxPast, maxPastKeys/maxPast + 1: maxPast - 1, maxPastKeys: 1, maxPastKeys + 1: 0} {
		var s *Source
		for version := range 10 {
			next := &Source{ResourceVersion: strconv.Itoa(version + 1)}
			for i := range keys {
				next.Keys = append(next.Keys, KeyDigest{Key: fmt.Sprintf("%06d", i), Digest: Digest{byte(version)}})
			}
			next.After(s, nil, Arrival{Live: s != nil, Order: uint64(version + 1)})
			s = next
		}
		if len(s.history().past) != want {
			t.Errorf("%d keys: %d contents are remembered, want %d", keys, len(s.history().past), want)
		}
		if n := len(s.history().past); n > 0 && s.history().past[n-1].Until.Version != 10 {
			t.Errorf("%d keys: the last content ended at %d, want 10", keys, s.history().past[n-1].Until.Version)
		}
	}
}
