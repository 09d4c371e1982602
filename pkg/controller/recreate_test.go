// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
)

// aboutToRecreate sets up a Deployment with three ready pods, whose strategy is recreate and
// whose content has just changed. The content settles in a second.
func aboutToRecreate(c *cluster) {
	c.t.Helper()
	adopted(c)
	c.ownPods()
	for i := range 3 {
		c.set(pod(fmt.Sprint("web-", i), "uid-web-a"))
	}
	edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
		d.Annotations[policy.StrategyAnnotation] = "recreate"
		d.Spec.Replicas = ptr.To[int32](3)
		d.Status = appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3}
	})
	c.advance(500 * time.Millisecond)
	c.set(secret("db", "2"))
}

// recreating is aboutToRecreate, followed by the eviction of the first pod.
func recreating(c *cluster) {
	c.t.Helper()
	aboutToRecreate(c)
	c.advance(time.Second)
	c.expect("it begins", "1m1.5s recreate web", "1m1.5s evict web-0")
	c.expectEvents("it begins", "Normal ConfigReloaded Deployment/shop/web: Restarted because Secret/db has changed")
}

// replace does what the kubelets and the ReplicaSet do: it deletes terminating pods, and
// creates new ones.
func (c *cluster) replace(ready bool) {
	c.t.Helper()
	pods, err := c.client.CoreV1().Pods(namespace).List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			continue
		}
		c.remove(&p)
		heir := pod("new-"+p.Name, "")
		heir.OwnerReferences, heir.Labels = p.OwnerReferences, p.Labels
		if !ready {
			unready(heir)
		}
		c.set(heir)
	}
}

// refusingEvictions makes evictions fail with an error.
func (c *cluster) refusingEvictions(err error) {
	c.refusing(func(a clienttesting.Action) error {
		if a.GetSubresource() == "eviction" {
			return err
		}
		return nil
	})
}

func (c *cluster) podNames() []string {
	c.t.Helper()
	pods, err := c.client.CoreV1().Pods(namespace).List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	var out []string
	for _, p := range pods.Items {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return out
}

// TestRecreate_EvictsOnePodAfterTheOther, each after the previous one has been replaced, and
// does not change the template.
func TestRecreate_EvictsOnePodAfterTheOther(t *testing.T) {
	inCluster(t, func(c *cluster) {
		recreating(c)
		before := live(c, deployment("web", "db")).Spec.Template
		c.advance(time.Minute)
		c.expect("it has not gone yet")
		c.replace(false)
		c.advance(time.Minute)
		c.expect("its heir is not ready")
		edit(c, pod("new-web-0", ""), func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue })
		c.advance(5 * time.Second)
		c.expect("the second", "3m1.5s evict web-1")
		c.replace(true)
		c.advance(5 * time.Second)
		c.expect("the third", "3m6.5s evict web-2", "3m6.5s recreated web")
		c.replace(true)
		c.advance(time.Hour)
		c.expect("after that")
		if diff := cmp.Diff([]string{"new-web-0", "new-web-1", "new-web-2"}, c.podNames()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(before, live(c, deployment("web", "db")).Spec.Template); diff != "" {
			t.Errorf("the template has changed (-before +after):\n%s", diff)
		}
		c.expectEvents("one restart is one event, besides what it waits for",
			"Normal ConfigReloadWaiting Deployment/shop/web: The next pod will be evicted later: 2 of 3 pods are ready.")
	})
}

func TestRecreate_GoesOnAfterTheProcessHasEnded(t *testing.T) {
	inCluster(t, func(c *cluster) {
		recreating(c)
		c.resign()
		c.replace(true)
		c.newProcess()
		c.synced()
		c.lead()
		c.expect("the second", "1m1.5s evict web-1")
	})
}

// TestRecreate_WaitsForDisruptionBudgets, for which the API server responds with 429, and reports
// long waits.
func TestRecreate_WaitsForDisruptionBudgets(t *testing.T) {
	inCluster(t, func(c *cluster) {
		aboutToRecreate(c)
		refused := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		healthy := func(n int) {
			refused.ErrStatus.Details.Causes = []metav1.StatusCause{{
				Type: policyv1.DisruptionBudgetCause, Message: fmt.Sprintf("The disruption budget web needs 3 healthy pods and has %d currently", n),
			}}
		}
		healthy(2)
		c.refusingEvictions(refused)
		c.advance(12 * time.Second)
		healthy(3) // does not begin another wait
		c.expect("it asks now and then", "1m1.5s recreate web",
			"1m1.5s evict web-0: TooManyRequests", "1m6.5s evict web-0: TooManyRequests", "1m11.5s evict web-0: TooManyRequests")
		c.expectEvents("which is no failure", "Normal ConfigReloaded Deployment/shop/web: Restarted because Secret/db has changed")
		c.advance(48 * time.Second)
		c.expectEvents("a moment before a minute has passed")
		c.advance(time.Second)
		c.expectEvents("a minute has passed",
			"Normal ConfigReloadWaiting Deployment/shop/web: The next pod will be evicted later: "+
				"the API server refuses to evict pod web-0 for now (The disruption budget web needs 3 healthy pods and has 3 currently).")
		c.advance(time.Hour)
		c.expectEvents("it is told once")
		c.refusing(nil)
		c.took()
		c.advance(time.Minute)
		if got := c.took(); len(got) != 1 || !strings.HasSuffix(got[0], " evict web-0") {
			t.Errorf("within a minute: %v", got)
		}
		if log := c.log.String(); strings.Contains(log, "will retry") {
			t.Errorf("log = %s, want no error", log)
		}
	})
}

// TestRecreate_EvictsReadyPodsOnlyWhileAllAre: whatever makes pods unavailable, and whether or
// not the status already shows it.
func TestRecreate_EvictsReadyPodsOnlyWhileAllAre(t *testing.T) {
	for name, change := range map[string]struct{ on, off func(*cluster) }{
		"a rollout of the owner": {
			func(c *cluster) {
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 1 })
			},
			func(c *cluster) {
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 3 })
			},
		},
		"a new pod that is not ready": {
			func(c *cluster) {
				c.remove(pod("web-2", ""))
				c.advance(time.Second)
				c.set(unready(pod("fresh", "uid-web-a")))
			},
			func(c *cluster) {
				edit(c, pod("fresh", ""), func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue })
			},
		},
		"a pod that has not been created yet": {
			func(c *cluster) { c.remove(pod("web-2", "")) },
			func(c *cluster) { c.set(pod("fresh", "uid-web-a")) },
		},
		"the rollout has failed": {
			func(c *cluster) {
				c.remove(pod("web-2", ""))
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
					d.Status.Conditions = []appsv1.DeploymentCondition{{
						Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded",
					}}
				})
			},
			func(c *cluster) { c.set(pod("fresh", "uid-web-a")) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				recreating(c)
				change.on(c)
				c.replace(true)
				c.advance(time.Minute)
				c.expect("it waits")
				change.off(c)
				c.advance(5 * time.Second)
				if got := c.took(); len(got) == 0 || !strings.HasSuffix(got[0], "evict web-1") {
					t.Errorf("then: %v", got)
				}
			})
		})
	}
}

// TestRecreate_RepairsPodsThatCannotBecomeReady: their content was wrong, and they would never
// become ready.
func TestRecreate_RepairsPodsThatCannotBecomeReady(t *testing.T) {
	inCluster(t, func(c *cluster) {
		aboutToRecreate(c)
		for _, name := range []string{"web-1", "web-2"} {
			edit(c, pod(name, ""), func(p *corev1.Pod) { unready(p) })
		}
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 1 })
		c.advance(time.Second)
		c.expect("the first of them", "1m1.5s recreate web", "1m1.5s evict web-1")
		c.replace(true)
		c.advance(5 * time.Second)
		c.expect("the other", "1m6.5s evict web-2")
		c.replace(true)
		c.advance(5 * time.Second)
		c.expect("the one that is ready waits for the status")
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 3 })
		c.advance(time.Second)
		c.expect("then", "1m11.5s evict web-0", "1m11.5s recreated web")
	})
}

// TestRecreate_TouchesNoPodsOfOthers that the selector also selects: of a Job with the same
// labels, of another Deployment, or without a controller.
func TestRecreate_TouchesNoPodsOfOthers(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.synced()
		c.set(pod("a-job", "uid-job"))
		c.set(pod("b-other", "uid-other-a"))
		c.set(pod("c-orphan", ""))
		recreating(c)
		for range 3 {
			c.replace(true)
			c.advance(5 * time.Second)
		}
		var evicted []string
		for _, r := range c.took() {
			evicted = append(evicted, strings.Join(strings.Fields(r)[1:], " "))
		}
		if diff := cmp.Diff([]string{"evict web-1", "evict web-2", "recreated web"}, evicted); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestRecreate_OfKindsThatOwnTheirPods(t *testing.T) {
	for _, workload := range []ingesttest.Object{statefulSet("web", "db"), daemonSet("web", "db")} {
		t.Run(fmt.Sprintf("%T", workload), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.ownPods()
				c.synced()
				c.set(secret("db", "1"))
				workload.GetAnnotations()[policy.StrategyAnnotation] = "recreate"
				c.set(workload)
				c.set(of(workload, pod("web-0", "uid-web")))
				c.set(pod("job", "uid-job"))
				c.lead()
				c.advance(time.Minute)
				c.set(secret("db", "2"))
				c.advance(5 * time.Second)
				c.replace(true)
				c.advance(5 * time.Second)
				c.expect("all", "0s baseline web", "1m1s recreate web", "1m1s evict web-0", "1m1s recreated web")
			})
		})
	}
}

func TestRecreate_EvictionThatComesTooLate(t *testing.T) {
	for name, refusal := range map[string]error{
		"the pod does not exist":  apierrors.NewNotFound(corev1.Resource("pods"), "web-0"),
		"the pod was replaced":    apierrors.NewConflict(corev1.Resource("pods"), "web-0", errors.New("uid")),
		"the result is not known": apierrors.NewInternalError(errors.New("etcd")),
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				aboutToRecreate(c)
				c.refusingEvictions(refusal)
				c.advance(time.Second)
				if got := c.took(); len(got) != 2 || !strings.HasPrefix(got[1], "1m1.5s evict web-0: ") {
					t.Fatalf("requests = %v", got)
				}
				c.refusing(nil)
				c.advance(5 * time.Second)
				if got := c.took(); len(got) != 1 || !strings.HasSuffix(got[0], "evict web-0") {
					t.Errorf("then: %v", got)
				}
				if logged := strings.Contains(c.log.String(), "evicting pod shop/web-0"); logged != apierrors.IsInternalError(refusal) {
					t.Errorf("log = %v", c.log.String())
				}
			})
		})
	}
}

// TestRecreate_BeginsAgain: another client has changed the list of pods, so the remaining pods are not
// known.
func TestRecreate_BeginsAgain(t *testing.T) {
	for name, value := range map[string]string{
		"a word": "now", "a time": "2099-01-01T00:00:00Z", "commas": ",,", "UIDs": "uid-web-1,uid-web-2", "space": " ",
		"too short": "0123456", "too long": "012345678", "one of two": "01234567,none",
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				recreating(c)
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[policy.RecreatingAnnotation] = value })
				c.advance(time.Millisecond)
				c.replace(true)
				c.advance(time.Second)
				c.expect("it begins again", "1m1.5s recreate web", "1m1.501s evict web-1")
				c.expectEvents("it begins again",
					"Normal ConfigReloaded Deployment/shop/web: Restarted because another client changed the annotation configdep.io/recreating")
				if got := live(c, deployment("web", "db")).Annotations[policy.RecreatingAnnotation]; strings.Count(got, ",") != 2 {
					t.Errorf("list of pods = %q, want the three pods", got)
				}
			})
		})
	}
}

// TestRecreate_EndsWhereNoPodIsNamed, because there was none when it began.
func TestRecreate_EndsWhereNoPodIsNamed(t *testing.T) {
	inCluster(t, func(c *cluster) {
		recreating(c)
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[policy.RecreatingAnnotation] = "none" })
		c.advance(time.Hour)
		c.expect("it ends", "1m1.5s recreated web")
	})
}

// Refused inspections and evictions are reported.
func TestRecreate_RefusedEvictionIsTold(t *testing.T) {
	inCluster(t, func(c *cluster) {
		aboutToRecreate(c)
		c.refusingEvictions(errors.New("no"))
		c.advance(time.Second)
		c.expectEvents("it is refused",
			"Normal ConfigReloaded Deployment/shop/web: Restarted because Secret/db has changed",
			"Warning ConfigReloadFailed Deployment/shop/web: Evicting the pods failed and will be retried: evicting pod shop/web-0: no")
	})
}

// TestRecreate_ThatIsNoLongerWanted: the remaining pods run with old content. With another strategy
// they are still replaced. If the workload opts out, they stay.
func TestRecreate_ThatIsNoLongerWanted(t *testing.T) {
	midway := func(c *cluster, annotation, value string) {
		recreating(c)
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[annotation] = value })
		c.advance(time.Millisecond)
		c.replace(true)
		c.advance(time.Hour)
	}
	t.Run("another strategy", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			midway(c, policy.StrategyAnnotation, "annotation")
			c.expect("the rest are replaced", "1m1.5s rollout web")
			if d := live(c, deployment("web", "db")); d.Annotations[policy.RecreatingAnnotation] != "" {
				t.Errorf("annotations = %v", d.Annotations)
			}
		})
	})
	t.Run("another strategy, when all pods have been replaced", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			aboutToRecreate(c)
			c.refusingEvictions(apierrors.NewTooManyRequests("the budget", 1))
			c.advance(time.Second)
			for i := range 3 { // another client drains the nodes
				p := live(c, pod(fmt.Sprint("web-", i), ""))
				c.remove(p)
				c.set(pod("new-"+p.Name, "uid-web-a"))
			}
			c.took()
			edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[policy.StrategyAnnotation] = "annotation" })
			c.advance(time.Hour)
			c.expect("none is left", "1m2.5s recreated web")
		})
	})
	t.Run("opted out", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			midway(c, policy.ReloadAnnotation, "off")
			c.expect("the rest run with other content", "1m1.5s forget web")
			edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[policy.ReloadAnnotation] = "auto" })
			c.advance(time.Hour)
			c.expect("opted in again, which adopts", "1h1m1.501s baseline web")
		})
	})
}

// TestRecreate_StopsWhileASourceIsMissing: new pods could not start.
func TestRecreate_StopsWhileASourceIsMissing(t *testing.T) {
	inCluster(t, func(c *cluster) {
		recreating(c)
		c.remove(live(c, secret("db", "")))
		c.replace(true)
		c.advance(time.Hour)
		c.expect("the source is missing")
		c.set(secret("db", "2"))
		c.advance(time.Second)
		c.expect("it is there again, with the same content", "1h1m1.5s evict web-1")
	})
}

// TestRecreate_WithAnotherChangeOnTheWay: pods that were created in between have only the
// content of the first change.
func TestRecreate_WithAnotherChangeOnTheWay(t *testing.T) {
	inCluster(t, func(c *cluster) {
		recreating(c)
		c.set(secret("db", "3"))
		c.replace(true)
		c.advance(5 * time.Second)
		c.expect("it has to wait for the interval")
		c.advance(5 * time.Second)
		c.expect("it begins again", "1m11.5s recreate web", "1m11.5s evict new-web-0")
		for range 3 {
			c.replace(true)
			c.advance(5 * time.Second)
		}
		c.expect("all of them", "1m11.5s evict web-1", "1m16.5s evict web-2", "1m16.5s recreated web")
	})
}
