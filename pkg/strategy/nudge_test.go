// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// paged is a cluster with a StatefulSet web, whose pods are listed in pages.
type paged struct {
	workload.Client

	pods    []corev1.Pod
	page    int
	listed  int
	nudged  []string
	fail    func(after string) error // of a list
	refused string                   // the name of a pod
}

func newPaged(pods, page int) *paged {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web"}, Spec: appsv1.StatefulSetSpec{Selector: selector}}
	c := &paged{page: page, fail: func(string) error { return nil }}
	client := fake.NewClientset(set)
	for i := range pods {
		name := fmt.Sprintf("web-%04d", i)
		c.pods = append(c.pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: set.Namespace, UID: types.UID(name), Labels: selector.MatchLabels, OwnerReferences: []metav1.OwnerReference{{Controller: new(true), UID: set.UID}},
		}})
	}
	client.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		options := a.(clienttesting.ListActionImpl).ListOptions
		if err := c.fail(options.Continue); err != nil {
			return true, nil, err
		}
		c.listed++
		from, _ := strconv.Atoi(options.Continue)
		to := min(from+c.page, len(c.pods))
		list := &corev1.PodList{Items: slices.Clone(c.pods[from:to])}
		if to < len(c.pods) {
			list.Continue = strconv.Itoa(to)
		}
		return true, list, nil
	})
	client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		name := a.(clienttesting.PatchAction).GetName()
		if name == c.refused {
			return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), name, nil)
		}
		c.nudged = append(c.nudged, name)
		i := slices.IndexFunc(c.pods, func(p corev1.Pod) bool { return p.Name == name })
		c.pods[i].Annotations = map[string]string{policy.NudgedAnnotation: "value"}
		return true, &c.pods[i], nil
	})
	c.Client = workloadtest.Client(client)
	return c
}

var web = &dependency.Workload{WorkloadKey: dependency.WorkloadKey{Kind: kind.StatefulSet, Namespace: "shop", Name: "web"}, UID: "uid-web"}

// run takes steps, each of which may nudge n pods, until none is left.
func (c *paged) run(t *testing.T, nudge *Nudge, n int) (steps int, err error) {
	t.Helper()
	for more := true; more; steps++ {
		left := n
		more, err = nudge.Step(t.Context(), c.Client, web, "value", func() bool { left--; return left >= 0 })
		if len(nudge.behind) > c.page {
			t.Errorf("%d pods are remembered, want at most those of a page", len(nudge.behind))
		}
	}
	return steps, err
}

// However many steps a nudge takes, each page is read once.
func TestNudge_ReadsEachPageOnce(t *testing.T) {
	c, nudge := newPaged(5000, 500), &Nudge{}
	steps, err := c.run(t, nudge, 20)
	if err != nil || steps < 5000/20 || c.listed != 10 || len(c.nudged) != 5000 {
		t.Errorf("%d steps with %d pages, and %d pods (%v)", steps, c.listed, len(c.nudged), err)
	}
	if nudge.value != "" || nudge.pods != nil {
		t.Errorf("%+v is remembered at the end", nudge)
	}
	if steps, err = c.run(t, nudge, 20); err != nil || steps != 1 || len(c.nudged) != 5000 {
		t.Errorf("again: %d steps (%v), %d pods", steps, err, len(c.nudged))
	}
	c, nudge = newPaged(120, 500), &Nudge{}
	if steps, err := c.run(t, nudge, 1000); err != nil || steps != 3 || len(c.nudged) != 120 {
		t.Errorf("if much is allowed: %d steps (%v), %d pods", steps, err, len(c.nudged))
	}
}

// Where a list cannot be continued, it begins again, and no pod is nudged twice.
func TestNudge_BeginsAgainIfThePlaceHasExpired(t *testing.T) {
	c, nudge := newPaged(100, 10), &Nudge{}
	expired := false
	c.fail = func(after string) error {
		if after == "50" && !expired {
			expired = true
			return apierrors.NewResourceExpired("too old")
		}
		return nil
	}
	if _, err := c.run(t, nudge, 7); err != nil || !expired || c.listed != 15 || len(c.nudged) != 100 {
		t.Errorf("%d pages, and %d pods (%v)", c.listed, len(c.nudged), err)
	}
	c.fail = func(string) error { return apierrors.NewResourceExpired("always") }
	if _, err := c.run(t, nudge, 7); !apierrors.IsResourceExpired(err) {
		t.Errorf("error = %v, want that of the first page", err)
	}
}

// After an error, the next step goes on. What is refused is told at the end, once.
func TestNudge_GoesOnAfterErrors(t *testing.T) {
	c, nudge := newPaged(100, 10), &Nudge{}
	broken := errors.New("no")
	c.fail = func(after string) error {
		if after == "50" {
			return broken
		}
		return nil
	}
	c.refused = "web-0003"
	if _, err := c.run(t, nudge, 1000); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "listing the pods of StatefulSet shop/web: ") {
		t.Errorf("error = %v", err)
	}
	c.fail = func(string) error { return nil }
	if _, err := c.run(t, nudge, 1000); !apierrors.IsForbidden(err) || c.listed != 10 || len(c.nudged) != 99 {
		t.Errorf("%d pages, and %d pods (%v)", c.listed, len(c.nudged), err)
	}
	c.refused = ""
	if _, err := c.run(t, nudge, 1000); err != nil || len(c.nudged) != 100 {
		t.Errorf("then %d pods (%v)", len(c.nudged), err)
	}
}

// Another content, or another workload of the name, begins another nudge.
func TestNudge_OfOtherContentBeginsAgain(t *testing.T) {
	for name, other := range map[string]Nudge{"content": {of: "uid-web", value: "old"}, "workload": {of: "uid-old", value: "value"}} {
		other.begun = true
		c := newPaged(3, 10)
		if _, err := c.run(t, &other, 1000); err != nil || len(c.nudged) != 3 {
			t.Errorf("another %s: %v (%v)", name, c.nudged, err)
		}
	}
}
