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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/policy"
)

func TestInPlace_RefusedPatchIsTold(t *testing.T) {
	inCluster(t, func(c *cluster) {
		aboutToRestartInPlace(c)
		c.refusing(func(a clienttesting.Action) error {
			if a.GetResource().Resource == "pods" {
				return errors.New("no")
			}
			return nil
		})
		c.advance(time.Second)
		c.expectEvents("it is refused",
			"Normal ConfigReloaded Deployment/shop/web: Restarted because Secret/db has changed",
			"Warning ConfigReloadFailed Deployment/shop/web: Restarting the pods in place failed and will be retried: annotating pod shop/web-0: no")
	})
}

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
		c.expectState("a webhook may just be restarting", policy.RollingOut, policy.ReasonRestartingInPlace)
		c.told()
		c.advance(time.Minute)
		failed := func(what string) {
			t.Helper()
			c.expectState(what, policy.Failed, policy.ReasonRestartFailed)
			d := c.decision()
			if !regexp.MustCompile(`^Pod web-\d cannot be told to restart: pods "web-\d" is forbidden: denied by policy x+\.\.\. 0 of 3 pods have been restarted in place\. Telling the remaining pods is retried, with increasing delays\.$`).MatchString(d.Message) || len(d.Message) > 800 {
				t.Errorf("%s: message = %q", what, d.Message)
			}
		}
		failed("later")
		if events := c.told(); !slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, "cannot be told to restart: ") }) {
			t.Errorf("events = %q", events)
		}
		c.resign()
		newLeader(c) // knows nothing of that
		failed("after a change of leaders")
		c.advance(time.Hour)
		failed("for long")
		n := 0
		for _, r := range c.took() {
			if strings.Contains(r, "progress") {
				n++
			}
		}
		if n > 0 {
			t.Errorf("it was recorded again %d times", n)
		}
		c.refusing(nil)
		c.advance(5 * time.Minute)
		c.expectState("allowed again", policy.RollingOut, policy.ReasonRestartingInPlace)
		var got []string
		for _, r := range c.took() {
			got = append(got, strings.SplitN(r, " ", 2)[1])
		}
		if len(got) != 2 || !strings.HasPrefix(got[0], "tell web-") || got[1] != "progress web" {
			t.Errorf("requests = %v, want that a pod is told, and that this is recorded", got)
		}
		c.expectState("allowed again", policy.RollingOut, policy.ReasonRestartingInPlace)
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
		c.expect("the third", "1m2.5s progress web", "1m2.5s tell web-2")
		c.restart("web-2", true)
		c.advance(5 * time.Minute)
		c.expectState("the one that is refused is left", policy.Failed, policy.ReasonRestartFailed)
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
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 2 })
		c.refusingPods("no", "web-1")
		c.advance(time.Hour)
		tries := 0
		for _, r := range c.took() {
			if strings.Contains(r, "tell ") && !strings.Contains(r, "tell web-1: Forbidden") {
				t.Errorf("request %s", r)
			}
			if strings.Contains(r, "tell web-1") {
				tries++
			}
		}
		if tries < 20 || tries > 60 {
			t.Errorf("%d tries within an hour", tries)
		}
		c.expectState("refused", policy.Failed, policy.ReasonRestartFailed)
		c.refusing(nil)
		c.advance(10 * time.Minute)
		if got := c.took(); len(got) == 0 || !strings.HasSuffix(got[0], "tell web-1") {
			t.Errorf("requests = %v", got)
		}
	})
}

// A time in the future, of another client or another clock, does not put the deadline off.
func TestInPlace_BelievesNoTimeInTheFuture(t *testing.T) {
	for name, times := range map[string]string{
		"since": `{"since":"2999-01-01T00:00:00Z","again":"2000-01-01T00:00:00Z","restarts":{"restarter":0,"app":0}}`,
		"again": `{"since":"2000-01-01T00:00:00Z","again":"2999-01-01T00:00:00Z","restarts":{"restarter":0,"app":0}}`,
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				restartingInPlace(c)
				if name == "again" { // and not in the distant past, which would fail at once
					times = strings.Replace(times, "2000-01-01T00:00:00Z", time.Now().UTC().Format(time.RFC3339), 1)
				}
				edit(c, pod("web-0", ""), func(p *corev1.Pod) { p.Annotations[policy.RestartingAnnotation] = times })
				c.advance(5 * time.Second)
				c.expect("it is corrected", "1m1.5s tell web-0")
				p := live(c, pod("web-0", ""))
				if got, n := policy.ToldOf(p.Annotations, p.Annotations[policy.RestartAnnotation]); n != 1 || got.Since.After(time.Now()) || got.Again.After(time.Now()) || len(got.Restarts) != 2 {
					t.Errorf("annotations = %v, want the same value, as the restarter would act on another one", p.Annotations)
				}
				c.advance(3*time.Minute + 5*time.Second)
				if got := c.took(); len(got) != 1 || !strings.HasSuffix(got[0], " tell web-0") {
					t.Errorf("requests = %v, want that it is told again", got)
				}
				c.advance(7 * time.Minute)
				c.expectState("at the deadline", policy.Failed, policy.ReasonRestartFailed)
			})
		})
	}
}

// If the time cannot be corrected, that is shown.
func TestInPlace_ShowsThatACorrectionIsRefused(t *testing.T) {
	inCluster(t, func(c *cluster) {
		restartingInPlace(c)
		edit(c, pod("web-0", ""), func(p *corev1.Pod) { p.Annotations[policy.RestartingAnnotation] = `{"since":"2999-01-01T00:00:00Z"}` })
		c.refusingPods("no")
		c.advance(5 * time.Minute)
		c.expectState("refused", policy.Failed, policy.ReasonRestartFailed)
		c.refusing(nil)
		c.advance(10 * time.Minute)
		c.restart("web-0", true)
		c.advance(5 * time.Second)
		c.expectState("corrected", policy.RollingOut, policy.ReasonRestartingInPlace)
	})
}
