// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// What the API server keeps refusing is shown as Blocked, with what refuses it, until it is admitted. Views that look again in time see it.
func TestReconcile_RefusedPatchIsShown(t *testing.T) {
	inCluster(t, func(c *cluster) {
		stop := adopted(c)
		c.refusing(func(clienttesting.Action) error { return errRefused })
		c.set(secret("db", "2"))
		c.advance(2 * time.Second)
		c.expectState("it may only be a moment", decide.Pending, decide.ReasonSourceChanged)
		due := c.decision()
		if next := due.ShowAgain(c.clock.Now()).Sub(c.clock.Now()); next <= 0 || next > time.Minute {
			t.Errorf("views look again after %v", next)
		}
		c.advance(10 * time.Second)
		c.expectState("it is refused", decide.Blocked, decide.ReasonRefused)
		d := c.decision()
		if want := due.Message + ` The API server refuses it: deployments.apps "web" is forbidden: quota. Change what refuses it, ` +
			"so that it admits requests of configdep's service account, or change the Deployment so that it complies. It is tried again at least every 5 minutes."; d.Message != want {
			t.Errorf("message = %q, want %q", d.Message, want)
		}
		if d.Action != decide.RollOut || !d.Timed || d.ShowAgain(c.clock.Now()).IsZero() || !d.RecheckAt.IsZero() {
			t.Errorf("decision = %+v", d)
		}
		c.advance(time.Hour)
		c.expectState("an hour later", decide.Blocked, decide.ReasonRefused)

		c.refusing(nil)
		c.advance(5 * time.Minute)
		if d := c.decision(); d.State == decide.Blocked {
			t.Errorf("admitted, and %s: %s", d.State, d.Message)
		}
		c.refusing(func(clienttesting.Action) error { return errRefused })
		c.set(secret("db", "3"))
		c.advance(time.Minute)
		c.expectState("other content is refused", decide.Blocked, decide.ReasonRefused)
		c.set(secret("db", "4"))
		c.advance(time.Second)
		c.expectState("it has not been tried for the next content", decide.Pending, decide.ReasonSourceChanged)
		c.advance(time.Hour)
		c.expectState("it has", decide.Blocked, decide.ReasonRefused)
		stop()
		c.advance(6 * time.Minute)
		c.expectState("this replica no longer leads, and does not know", decide.Pending, decide.ReasonSourceChanged)
	})
}

// Without a record no change restarts a workload, so that a refusal of the first one is shown, too, whatever the pods run with. That of a later one is not:
// changes are compared with the one that is there.
func TestReconcile_RefusedRecordIsShown(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.synced()
		c.set(secret("db", "1"))
		c.set(deployment("web", "db"))
		c.refusing(func(clienttesting.Action) error { return errRefused })
		c.lead()
		c.advance(time.Second)
		c.expectState("it may only be a moment", decide.InSync, decide.ReasonContentApplied)
		if d := c.decision(); !d.Timed || d.ShowAgain(c.clock.Now()).IsZero() {
			t.Errorf("views do not look again: %+v", d)
		}
		c.advance(time.Minute)
		c.expectState("it is refused", decide.Blocked, decide.ReasonRefused)
		d := c.decision()
		if want := `No change restarts the workload until configdep has recorded what its pods run with. The API server refuses it: deployments.apps "web" is forbidden: quota. `; !strings.HasPrefix(d.Message, want) || !d.Timed {
			t.Errorf("message = %q, want %q", d.Message, want)
		}
		c.refusing(nil)
		c.advance(6 * time.Minute)
		c.expectState("admitted", decide.InSync, decide.ReasonContentApplied)

		c.refusing(func(clienttesting.Action) error { return errRefused })
		c.annotateDeployment(policy.SourcesAnnotation, "configmap/other")
		c.advance(time.Minute)
		c.expectState("another scope", decide.InSync, decide.ReasonContentApplied)
	})
}

// What is shown names what refuses, and says what to do. It is one line, however it comes.
func TestWhyRefused(t *testing.T) {
	w := &dependency.Workload{WorkloadKey: dependency.WorkloadKey{Kind: "StatefulSet", Namespace: "shop", Name: "web"}}
	const own = `statefulsets.apps "web" is forbidden: ValidatingAdmissionPolicy 'configdep-apiserver-workloads' with binding 'configdep-apiserver-workloads' denied request: configdep may change no annotation of a workload but its own`
	for name, tt := range map[string]struct{ answer, shown, do string }{
		"our own policy":        {own, own, "This is configdep's own policy."},
		"the policy of another": {strings.Replace(own, "configdep may", "No client may", 1), "No client may change", "Change what refuses it, so that it admits requests of configdep's service account, or change the StatefulSet"},
		"a missing right":       {`statefulsets.apps "web" is forbidden: User "x" cannot patch resource "statefulsets"`, `User "x" cannot patch`, "Give configdep's service account that right."},
		"several lines":         {"admission webhook \"x\" denied the request:\n\n\tpolicy\x1b[31m\u0085\u202ey\r\n", `admission webhook "x" denied the request: policy [31m y. Change`, ""},
		"a long one":            {strings.Repeat("ä", 4000), "ä…. Change", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := whyRefused(w, errors.New(tt.answer))
			if !strings.Contains(got, tt.shown) || !strings.Contains(got, tt.do) || strings.ContainsAny(got, "\n\r\t\x1b\u0085\u202e") || len(got) > 900 {
				t.Errorf("shown: %q", got)
			}
		})
	}
}

// The memory of refusals is bounded, and ends.
func TestGraph_Refusals(t *testing.T) {
	g, now := dependency.NewGraph(), time.Now()
	key := func(i int) dependency.WorkloadKey { return dependency.WorkloadKey{Name: fmt.Sprint(i)} }
	early := g.Snapshot()
	for i := range 5000 {
		g.Snapshot().SetRefusal(key(i), &dependency.Refusal{Hash: "h", Until: now})
	}
	before := now.Add(-1)
	if early.Refusal(key(4999), "h", before) == nil || early.Refusal(key(0), "h", before) != nil || early.Refusal(key(4999), "other", before) != nil || early.Refusal(key(4999), "h", now) != nil {
		t.Error("wrong refusals")
	}
}
