// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/record"
)

// refusingPods refuses patches of pods with these names; none: of all.
func (c *cluster) refusingPods(message string, names ...string) {
	c.refusing(func(a clienttesting.Action) error {
		p, is := a.(clienttesting.PatchAction)
		if is && a.GetResource().Resource == "pods" && (len(names) == 0 || slices.Contains(names, p.GetName())) {
			return apierrors.NewForbidden(corev1.Resource("pods"), p.GetName(), errors.New(message))
		}
		return nil
	})
}

// A restart that gets nowhere, because no pod can be told, is not shown as being on its way, by no replica.
func TestInPlace_ShowsThatPodsAreRefused(t *testing.T) {
	inCluster(t, func(c *cluster) {
		aboutToRestartInPlace(c)
		c.refusingPods("denied by\npolicy " + strings.Repeat("x", 9999) + ".")
		c.advance(time.Minute)
		c.expectState("a webhook may just be restarting", decide.RollingOut, record.ReasonRestartingInPlace)
		c.told()
		c.advance(time.Minute)
		failed := func(what string) {
			t.Helper()
			c.expectState(what, decide.Failed, decide.ReasonRestartFailed)
			d := c.decision()
			if !regexp.MustCompile(`^Pod web-\d cannot be told to restart: pods "web-\d" is forbidden: denied by policy x+\.\.\. 0 of 3 pods have been restarted in place\. Telling the remaining pods is retried, with increasing delays\.$`).MatchString(d.Message) || len(d.Message) > 800 {
				t.Errorf("%s: message = %q", what, d.Message)
			}
		}
		failed("later")
		if events := c.told(); !slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, "cannot be told to restart: ") }) {
			t.Errorf("events = %q", events)
		}
		c.nextLeader() // knows nothing of that
		c.took()
		failed("after a change of leaders")
		c.advance(time.Hour)
		failed("for long")
		if n := len(c.pods("progress")); n > 0 {
			t.Errorf("it was recorded again %d times", n)
		}
		c.refusing(nil)
		c.advance(5 * time.Minute)
		c.expectState("allowed again", decide.RollingOut, record.ReasonRestartingInPlace)
		if got := slices.Compact(c.tells()); len(got) != 1 {
			t.Errorf("told %v, want one pod", got)
		}
	})
}

// A pod that is refused does not keep the others from being restarted. It is the last that is left.
func TestInPlace_GoesPastAPodThatIsRefused(t *testing.T) {
	inCluster(t, func(c *cluster) {
		aboutToRestartInPlace(c)
		c.refusingPods("no", "web-0")
		c.advance(2 * time.Second)
		c.expect("it begins", "1m1.5s in place web", "1m1.5s tell web-0: Forbidden", "1m1.505s tell web-1")
		c.restart("web-1", true)
		c.advance(5 * time.Second)
		c.expectDone("the third", "progress web", "tell web-2")
		c.restart("web-2", true)
		c.advance(5 * time.Minute)
		c.expectState("the one that is refused is left", decide.Failed, decide.ReasonRestartFailed)
		if got := c.decision().Message; !strings.Contains(got, "Pod web-0 cannot be told to restart: ") || !strings.Contains(got, " 2 of 3 pods have been restarted in place. ") {
			t.Errorf("message = %q", got)
		}
		c.refusing(nil)
		c.advance(5 * time.Minute)
		c.restart("web-0", true)
		c.advance(5 * time.Second)
		c.expectEnd("it is allowed")
	})
}

// A pod that is not ready, and refused, holds up the ready ones as it would anyway. It is tried again and again.
func TestInPlace_TriesARefusedPodAgainForWhichOthersWait(t *testing.T) {
	inCluster(t, func(c *cluster) {
		aboutToRestartInPlace(c)
		edit(c, pod("web-1", ""), func(p *corev1.Pod) { unready(p) })
		c.unavailable(1)
		c.refusingPods("no", "web-1")
		c.advance(time.Hour)
		tries := c.tells()
		if n := len(tries); n < 20 || n > 60 || slices.ContainsFunc(tries, func(s string) bool { return s != "web-1: Forbidden" }) {
			t.Errorf("tries within an hour: %v", tries)
		}
		c.expectState("refused", decide.Failed, decide.ReasonRestartFailed)
		c.refusing(nil)
		c.advance(10 * time.Minute)
		if got := c.tells(); len(got) == 0 || got[0] != "web-1" {
			t.Errorf("told %v", got)
		}
	})
}

// A time in the future, of another client or another clock, does not put the deadline off.
func TestInPlace_BelievesNoTimeInTheFuture(t *testing.T) {
	inCluster(t, func(c *cluster) {
		restartingInPlace(c)
		edit(c, pod("web-0", ""), func(p *corev1.Pod) {
			p.Annotations[record.RestartingAnnotation] = `{"since":"2999-01-01T00:00:00Z","again":"2000-01-01T00:00:00Z","restarts":{"restarter":0,"app":0}}`
		})
		c.advance(5 * time.Second)
		c.expect("it is corrected", "1m1.5s tell web-0")
		a := live(c, pod("web-0", "")).Annotations
		if got, n := record.ToldOf(a, a[record.RestartAnnotation]); n != 1 || got.Ahead(time.Now()) || len(got.Restarts) != 2 {
			t.Errorf("annotations = %v, want the same value, as the restarter would act on another one", a)
		}
		c.advance(185 * time.Second)
		c.expectTells("it is told again", "web-0")
		c.advance(7 * time.Minute)
		c.expectState("at the deadline", decide.Failed, decide.ReasonRestartFailed)
	})
}
