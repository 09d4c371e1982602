// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
)

// heard is a sink that records the progress that it is told.
type heard struct{ at []dependency.Progress }

func (h *heard) Synced(_ decide.Evaluator, at dependency.Progress) { h.at = append(h.at, at) }

func (h *heard) Changed(_ decide.Evaluator, at dependency.Progress, _ dependency.Delta) {
	h.at = append(h.at, at)
}
func (h *heard) Progressed(at dependency.Progress) { h.at = append(h.at, at) }

// told returns what the sink was told since the last call.
func (h *heard) told() []dependency.Progress {
	out := h.at
	h.at = nil
	return out
}

// readUpTo returns an index that has read Deployments and Secrets up to some revisions.
func readUpTo(t *testing.T, deployed, secret string) (*Index, *heard) {
	t.Helper()
	h := &heard{}
	x, _ := newTestIndex(h, deployments.name, secrets.name)
	x.replace(deployments, nil, deployed)
	x.replace(secrets, nil, secret)
	return x, h
}

// Until every resource has shown that its counter is not behind, versions are not valid for other
// replicas. Once a counter was behind, they never are, whatever the later answers and however often
// everything is read again.
func TestOneCounter(t *testing.T) {
	type probe struct {
		stream      *stream
		now, before uint64
	}
	unknown := dependency.Progress{Watermark: 100, Latest: 105, Floor: 105}
	asked := time.Unix(1_000_000, 0)
	several := unknown
	several.SeveralCounters = true
	one := func(current uint64) dependency.Progress {
		p := unknown
		p.OneCounter, p.Current, p.Asked = true, current, asked
		return p
	}
	both := one(106)
	both.OneCounter, both.SeveralCounters = false, true
	for name, tt := range map[string]struct {
		probes []probe
		want   []dependency.Progress
	}{
		"no server was asked":                      {nil, nil},
		"one resource has yet to answer":           {[]probe{{deployments, 105, 105}, {deployments, 106, 105}}, nil},
		"none is behind":                           {[]probe{{deployments, 105, 105}, {secrets, 110, 105}}, []dependency.Progress{one(110)}},
		"nothing has changed since":                {[]probe{{deployments, 105, 105}, {secrets, 105, 105}, {deployments, 105, 105}}, []dependency.Progress{one(105)}},
		"the first is behind":                      {[]probe{{deployments, 101, 105}, {secrets, 110, 105}}, []dependency.Progress{several}},
		"the second is behind":                     {[]probe{{deployments, 105, 105}, {secrets, 104, 105}}, []dependency.Progress{several}},
		"one resource falls behind later":          {[]probe{{deployments, 105, 105}, {secrets, 106, 105}, {secrets, 107, 108}}, []dependency.Progress{one(106), both}},
		"one resource was behind and no longer is": {[]probe{{deployments, 101, 105}, {secrets, 110, 105}, {deployments, 200, 105}}, []dependency.Progress{several}},
	} {
		t.Run(name, func(t *testing.T) {
			x, h := readUpTo(t, "105", "100")
			if diff := cmp.Diff([]dependency.Progress{unknown}, h.told()); diff != "" {
				t.Errorf("progress at the sync (-want +got):\n%s", diff)
			}
			for _, p := range tt.probes {
				x.probed(quiet(t), p.stream, asked, p.now, p.before, 0)
			}
			told := h.told()
			if diff := cmp.Diff(tt.want, told); diff != "" {
				t.Errorf("progress after the sync (-want +got):\n%s", diff)
			}
			x.Reset()
			x.replace(deployments, nil, "105")
			x.replace(secrets, nil, "100")
			again := unknown
			if len(told) > 0 {
				last := told[len(told)-1]
				again.SeveralCounters, again.Current, again.Asked = last.SeveralCounters, last.Current, last.Asked
			}
			if diff := cmp.Diff([]dependency.Progress{again}, h.told()); diff != "" {
				t.Errorf("progress when everything is read again (-want +got):\n%s", diff)
			}
		})
	}
}
