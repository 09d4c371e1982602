// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
)

// refusedAfter is how many failures in a row, which take about 5 s, cause a refusal to be shown: an authorizer or a webhook may only be starting.
const refusedAfter = 10

// noteRefusal lets the views of this replica show that what is due is refused, until it has been tried again, after some time.
func (c *Controller) noteRefusal(index decide.Index, s *step, after time.Duration, err error) {
	w := s.workload
	refusal := &dependency.Refusal{Hash: s.present.Hash, Why: whyRefused(w, err), Until: c.Clock.Now().Add(after + time.Minute)}
	index.Read(func(known decide.Evaluator) { known.Graph.SetRefusal(w.WorkloadKey, refusal) })
}

// whyRefused says what refuses a request, in the words of the API server, and what users can do.
func whyRefused(w *dependency.Workload, err error) string {
	answer := strings.TrimSuffix(dependency.Line(err.Error()), ".")
	var do string
	switch {
	case strings.Contains(answer, "denied request: configdep may"):
		do = fmt.Sprintf("This is configdep's own policy. If it is not for the number of annotations, another webhook or policy changes more of the %s in the same request: "+
			"exempt the requests of configdep's service account from that one.", w.Kind)
	case strings.Contains(answer, " cannot patch resource "):
		do = "Give configdep's service account that right."
	default:
		do = fmt.Sprintf("Change what refuses it, so that it admits requests of configdep's service account, or change the %s so that it complies.", w.Kind)
	}
	return answer + ". " + do + " It is tried again at least every 5 minutes."
}
