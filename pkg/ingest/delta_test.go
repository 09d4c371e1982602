// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
)

// sourceSink is a sink that is told of all sources.
type sourceSink struct {
	recorder
	sources []string
}

func (*sourceSink) TellsOfSources() bool { return true }

func (s *sourceSink) Changed(known decide.Evaluator, at dependency.Progress, delta dependency.Delta) {
	for _, key := range delta.Sources {
		version := "gone"
		if source := known.Graph.Source(key); source != nil {
			version = source.ResourceVersion
		}
		s.sources = append(s.sources, fmt.Sprintf("%s/%s@%s %d", key.Kind, key.Name, version, len(delta.Workloads)))
	}
	if len(delta.Workloads) > 0 {
		s.recorder.Changed(known, at, delta)
	}
}

// A sink that asks for it is told of sources that no workload uses, each in its state at that time; other sinks are only told
// of progress.
func TestIndex_TellsOfSources(t *testing.T) {
	asks, others := &sourceSink{}, &recorder{}
	x := newIndex(testingclock.NewFakeClock(time.Unix(1_000_000, 0)), []string{"deployments", "secrets"}, asks, others)
	x.graph.SetDigester(testDigester())
	must(t,
		newStore(x, deployments).Replace([]any{deployment("web", 1, "used")}, "100"),
		newStore(x, secrets).Replace([]any{secret("used", 2), secret("unused", 3)}, "100"),
		newStore(x, secrets).Update(secret("unused", 101)),
		newStore(x, secrets).Update(secret("used", 102)),
		newStore(x, deployments).Update(deployment("web", 103, "used")),
		newStore(x, secrets).Delete(secret("unused", 104)),
		newStore(x, secrets).Bookmark("105"),
		newStore(x, secrets).Replace([]any{secret("used", 102), secret("more", 106)}, "110"),
	)
	want := []string{"Secret/unused@101 0", "Secret/used@102 1", "Secret/unused@gone 0", "Secret/more@106 0"}
	if diff := cmp.Diff(want, asks.sources); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"synced at 100 with 1 workloads and 2 sources", "progressed to 101", "changed at 102: deployment.web", "changed at 103: deployment.web",
		"progressed to 104", "progressed to 105", "progressed to 110",
	}, others.told()); diff != "" {
		t.Errorf("notifications of the other sink (-want +got):\n%s", diff)
	}
}
