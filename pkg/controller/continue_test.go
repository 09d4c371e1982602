// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// Restarts that are under way, by evictions or in place.

// annotateDeployment sets an annotation of the Deployment web.
func (c *cluster) annotateDeployment(key, value string) {
	c.t.Helper()
	edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[key] = value })
}

// TestContinue_BeginsAgain: another client has changed the annotation, so the remaining pods are not known.
func TestContinue_BeginsAgain(t *testing.T) {
	for value, tc := range map[string]struct {
		begin func(*cluster)
		want  []string
	}{
		"now": {recreating, []string{"recreate web", "evict web-1"}},
		"{}":  {restartingInPlace, []string{"in place web", "tell web-0"}},
	} {
		t.Run(value, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				tc.begin(c)
				c.annotateDeployment(record.RecreatingAnnotation, value)
				c.advance(time.Millisecond)
				c.replace(true)
				c.advance(time.Second)
				c.expectDone("it begins again", tc.want...)
				if got := c.told()[0]; got != "Normal ConfigRestarted Deployment/shop/web: Restarted because another client changed the annotation configdep.io/recreating" {
					t.Errorf("event = %s", got)
				}
			})
		})
	}
}

// TestContinue_ThatIsNoLongerWanted: the remaining pods run with old content. With another strategy they are still replaced. If the workload opts
// out, they stay.
func TestContinue_ThatIsNoLongerWanted(t *testing.T) {
	oneIsBack := func(c *cluster) {
		restartingInPlace(c)
		c.restart("web-0", true)
		c.advance(5 * time.Second)
		c.took()
	}
	drained := func(c *cluster) { // by another client
		aboutToRecreate(c)
		c.refusingEvictions(apierrors.NewTooManyRequests("the budget", 1))
		c.advance(time.Second)
		for i := range 3 {
			c.remove(pod(fmt.Sprint("web-", i), ""))
			c.set(pod(fmt.Sprint("new-", i), "uid-web-a"))
		}
		c.took()
	}
	for name, tc := range map[string]struct {
		begin             func(*cluster)
		annotation, value string
		want              []string
	}{
		"evictions: another strategy":           {recreating, policy.StrategyAnnotation, "annotation", []string{"rollout web"}},
		"evictions: another strategy, too late": {drained, policy.StrategyAnnotation, "annotation", []string{"recreated web", "baseline web"}},
		"evictions: opted out":                  {recreating, policy.ReloadAnnotation, "off", []string{"forget web"}},
		"in place: another strategy":            {oneIsBack, policy.StrategyAnnotation, "annotation", []string{"rollout web"}},
		"in place: evictions":                   {oneIsBack, policy.StrategyAnnotation, "recreate", []string{"recreate web", "evict web-0"}},
		"in place: opted out":                   {oneIsBack, policy.ReloadAnnotation, "off", []string{"forget web"}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				tc.begin(c)
				c.annotateDeployment(tc.annotation, tc.value)
				c.advance(time.Second)
				c.expectDone("then", tc.want...)
			})
		})
	}
}

// TestContinue_RefusedStepIsTold, and is tried again.
func TestContinue_RefusedStepIsTold(t *testing.T) {
	for name, tc := range map[string]struct {
		begin func(*cluster)
		then  string // the value of the annotation that another client sets
		want  string
	}{
		"an eviction": {aboutToRecreate, "", "Evicting the pods failed and will be retried: evicting pod shop/web-0: no"},
		"in place":    {aboutToRestartInPlace, "", "Restarting the pods in place failed and will be retried: annotating pod shop/web-0: no"},
		"the end":     {recreating, "none", "Evicting the pods failed and will be retried: recording that the restart is complete: no"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				tc.begin(c)
				c.refusing(func(a clienttesting.Action) error {
					if tc.then != "" || a.GetResource().Resource == "pods" {
						return errors.New("no")
					}
					return nil
				})
				if tc.then != "" {
					c.annotateDeployment(record.RecreatingAnnotation, tc.then)
				}
				c.advance(time.Second)
				events := c.told()
				if got := events[len(events)-1]; got != "Warning ConfigRestartFailed Deployment/shop/web: "+tc.want {
					t.Errorf("event = %s", got)
				}
				c.took()
				c.refusing(nil)
				c.advance(time.Minute)
				if got := c.took(); len(got) == 0 || strings.Contains(got[0], ": ") {
					t.Errorf("when it is no longer refused: %v", got)
				}
			})
		})
	}
}

// TestContinue_ComesTooLate: a step is bound to the pod that was read, and is decided again if that has changed, which is no failure.
func TestContinue_ComesTooLate(t *testing.T) {
	for begin, tc := range map[string]struct {
		before func(*cluster)
		want   string
	}{
		"evictions": {aboutToRecreate, "evict web-0"}, "in place": {aboutToRestartInPlace, "tell web-0"},
	} {
		for name, refusal := range map[string]error{
			"it is gone":    apierrors.NewNotFound(corev1.Resource("pods"), "web-0"),
			"it is another": apierrors.NewConflict(corev1.Resource("pods"), "web-0", errors.New("uid")),
		} {
			t.Run(begin+": "+name, func(t *testing.T) {
				inCluster(t, func(c *cluster) {
					tc.before(c)
					c.refusing(func(a clienttesting.Action) error {
						if a.GetResource().Resource == "pods" {
							return refusal
						}
						return nil
					})
					c.advance(time.Second)
					if got := c.took(); len(got) != 2 || !strings.HasPrefix(got[1], "1m1.5s "+tc.want+": ") {
						t.Fatalf("requests = %v", got)
					}
					c.refusing(nil)
					c.advance(5 * time.Second)
					c.expectDone("again", tc.want)
					if log := c.log.String(); strings.Contains(log, "will retry") {
						t.Errorf("log = %s, want no error", log)
					}
				})
			})
		}
	}
}

// TestContinue_GetsPastADeadNode: the pod of a StatefulSet is not replaced. The others stay until it is certainly dead.
func TestContinue_GetsPastADeadNode(t *testing.T) {
	for strategy, want := range map[string][2]string{"recreate": {"recreate web", "evict web-0"}, "in-place": {"in place web", "tell web-0"}} {
		t.Run(strategy, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.ownPods()
				c.synced()
				c.set(secret("db", "1"))
				s := statefulSet("web", "db")
				s.Annotations[policy.StrategyAnnotation] = strategy
				withRestarter(&s.Spec.Template.Spec)
				s.Spec.Replicas, s.Status = ptr.To[int32](3), appsv1.StatefulSetStatus{Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 2}
				c.set(s)
				for i := range 3 {
					p := inPlace(pod(fmt.Sprint("web-", i), "uid-web"))
					if i == 2 {
						p.DeletionTimestamp, p.Finalizers = new(metav1.Now()), []string{"test"}
						unready(p)
					}
					c.set(p)
				}
				c.lead()
				c.advance(time.Minute)
				c.took()
				c.set(secret("db", "2"))
				c.advance(115 * time.Second)
				c.expect("it may be ending yet", "1m1s "+want[0])
				c.advance(10 * time.Second)
				c.expect("it is dead", "3m1.000000001s "+want[1])
			})
		})
	}
}

// setBudget creates or replaces a PodDisruptionBudget of the pods with the label app=web, of which some are needed and all are healthy.
func (c *cluster) setBudget(name string, allowed, all int32, changes ...func(*policyv1.PodDisruptionBudget)) {
	c.t.Helper()
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid-budget", Generation: 1},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: allowed, DesiredHealthy: all - allowed, CurrentHealthy: all},
	}
	for _, change := range changes {
		change(b)
	}
	resource := policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
	err := c.client.Tracker().Create(resource, b, namespace)
	if apierrors.IsAlreadyExists(err) {
		err = c.client.Tracker().Update(resource, b, namespace)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// asked returns how often the API server has been asked about budgets, since the last call.
func (c *cluster) asked() (n int) {
	for _, a := range c.client.Actions() {
		if a.Matches("list", "poddisruptionbudgets") {
			n++
		}
	}
	c.client.ClearActions()
	return n + len(c.took())
}

// While a restart waits for a budget, changes of the workload do not let all of its pods be listed each time, and time alone lets that be done
// ever less often. When the budget allows it, the next change of the workload lets it go on within a second, and time alone within a minute.
func TestContinue_WaitsForABudget(t *testing.T) {
	for name, tc := range map[string]struct {
		begin, allow func(*cluster)
		next         string
	}{
		"in place": {
			func(c *cluster) { aboutToRestartInPlace(c); c.setBudget("web", 0, 3) }, func(c *cluster) { c.setBudget("web", 1, 3) }, "tell web-0",
		},
		"evictions": {
			func(c *cluster) {
				aboutToRecreate(c)
				c.refusingEvictions(apierrors.NewTooManyRequests("the budget", 0))
			}, func(c *cluster) { c.refusing(nil) }, "evict web-0",
		},
	} {
		for _, changes := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", the workload changes: ", changes), func(t *testing.T) {
				inCluster(t, func(c *cluster) {
					tc.begin(c)
					c.advance(10 * time.Second)
					c.asked()
					for i := range 100 {
						c.annotateDeployment("note", fmt.Sprint(i))
						c.advance(10 * time.Millisecond)
					}
					if n := c.asked(); n < 1 || n > 3 {
						t.Errorf("within a second, the API server was asked %d times, want 1 to 3 times", n)
					}
					c.advance(24 * time.Hour)
					if n := c.asked(); n < 1440 || n > 1600 { // every 5 seconds at first, and at last every minute
						t.Errorf("within a day, the API server was asked %d times, want 1440 to 1600 times", n)
					}
					tc.allow(c)
					within := time.Minute
					if changes {
						c.annotateDeployment("note", "allowed")
						within = time.Second
					}
					c.advance(within)
					c.expectDone(fmt.Sprint("within ", within), tc.next)
				})
			})
		}
	}
}
