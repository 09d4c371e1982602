// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/policy"
)

// crowd is the number of other pods that the selector of a workload selects before its own: more
// than the number of pods that can be evicted one by one.
var crowd = policy.MaxPods + 1_000

// crowded makes the API server list the pods of a crowd before all others, in pages.
func (c *cluster) crowded() {
	c.t.Helper()
	pods := c.client.Tracker()
	c.intercept("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		options := a.(clienttesting.ListActionImpl).ListOptions
		selector, err := labels.Parse(options.LabelSelector)
		if err != nil {
			return true, nil, err
		}
		found, err := pods.List(a.GetResource(), corev1.SchemeGroupVersion.WithKind("Pod"), namespace)
		if err != nil {
			return true, nil, err
		}
		var own []corev1.Pod
		for _, p := range found.(*corev1.PodList).Items {
			if selector.Matches(labels.Set(p.Labels)) {
				own = append(own, p)
			}
		}
		if options.Limit == 0 {
			options.Limit = int64(crowd + len(own))
		}
		from, err := strconv.Atoi("0" + options.Continue)
		if err != nil {
			return true, nil, err
		}
		page := &corev1.PodList{}
		for i := from; i < crowd+len(own) && len(page.Items) < int(options.Limit); i++ {
			if i < crowd {
				page.Items = append(page.Items, *pod(fmt.Sprintf("a-%05d", i), "uid-other"))
			} else {
				page.Items = append(page.Items, own[i-crowd])
			}
		}
		if next := from + len(page.Items); next < crowd+len(own) {
			page.Continue = strconv.Itoa(next)
		}
		return true, page, nil
	})
}

// TestReconcile_PodsBehindManyOthersAreLookedAt: the pods may run with earlier content.
func TestReconcile_PodsBehindManyOthersAreLookedAt(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPod(c)
		c.crowded()
		release := excursions["by a missing source"](c, func() { c.started("web-1", "app") })
		release()
		c.advance(time.Minute)
		c.expectNotInSync()
		c.advance(3 * time.Hour)
		if kinds := c.kinds(); kinds != "mixed rollout" {
			t.Errorf("requests = %s", kinds)
		}
	})
}

// TestRecreate_PodsBehindManyOthersAreEvicted, every one of them.
func TestRecreate_PodsBehindManyOthersAreEvicted(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.crowded()
		aboutToRecreate(c)
		for range 10 {
			c.advance(5 * time.Second)
			pods, err := c.client.Tracker().List(corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithKind("Pod"), namespace)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range pods.(*corev1.PodList).Items {
				if p.DeletionTimestamp != nil {
					c.remove(&p)
					c.set(pod("new-"+p.Name, metav1.GetControllerOf(&p).UID))
				}
			}
		}
		if kinds, want := c.kinds(), "recreate"+strings.Repeat(" evict", 3)+" recreated"; kinds != want {
			t.Errorf("requests = %s, want %s", kinds, want)
		}
	})
}
