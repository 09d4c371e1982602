// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
)

// waits makes the last pod wait.
func waits(reason string) func(*world) {
	return func(x *world) {
		p := x.pods[len(x.pods)-1].DeepCopy()
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "never shown"}}
		x.pods[len(x.pods)-1] = p
		x.Set(p)
	}
}

// unschedulable gives the last pod no node.
func unschedulable(x *world) {
	p := x.pods[len(x.pods)-1].DeepCopy()
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable"}}}
	x.pods[len(x.pods)-1] = p
	x.Set(p)
}

// overQuota makes the Deployment say why it has too few pods.
func overQuota(x *world) {
	x.edit(func(d *appsv1.Deployment) {
		d.Status.Conditions = []appsv1.DeploymentCondition{{
			Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: "pods \"web-1\" is forbidden:\nexceeded quota: pods",
		}}
	})
}

// The message says at once why pods do not come, whatever the state.
func TestDecide_SaysWhyPodsDoNotCome(t *testing.T) {
	const quota = ` The Deployment reports: pods "web-1" is forbidden: exceeded quota: pods`
	rollOutOne := func(x *world) { x.image("app:2"); x.start() }
	for name, tt := range map[string]struct {
		change func(*world)
		state  decide.State
		want   string // the end of the message, in which %s is the last pod
	}{
		"the image cannot be pulled": {both(rollOutOne, waits("ImagePullBackOff")), decide.RollingOut, ": 0 of 3 pods are up to date. 1 of 4 pods is not running: %s (ImagePullBackOff)."},
		"something is missing":       {both(rollOutOne, waits("CreateContainerConfigError")), decide.RollingOut, " 1 of 4 pods is not running: %s (CreateContainerConfigError)."},
		"no node is free":            {both(rollOutOne, unschedulable), decide.RollingOut, " 1 of 4 pods is not running: %s (Unschedulable)."},
		"it starts":                  {both(rollOutOne, waits("ContainerCreating")), decide.RollingOut, ": 0 of 3 pods are up to date."},
		"its init containers run":    {both(rollOutOne, waits("PodInitializing")), decide.RollingOut, ": 0 of 3 pods are up to date."},
		"a quota":                    {both(func(x *world) { x.image("app:2") }, overQuota), decide.RollingOut, ": 0 of 3 pods are up to date." + quota},
		"a quota, and a pod crashes": {both(rollOutOne, waits("CrashLoopBackOff"), overQuota), decide.RollingOut, " 1 of 4 pods is not running: %s (CrashLoopBackOff)." + quota},
		"a rollout that failed":      {both(rollOutOne, waits("CrashLoopBackOff"), failed), decide.Failed, " 1 of 4 pods is not running: %s (CrashLoopBackOff)."},
		"a restart is due":           {both(password("2"), waits("CrashLoopBackOff")), decide.Settling, " 1 of 3 pods is not running: %s (CrashLoopBackOff)."},
		"automatic restarts are off": {both(optOut, rollOutOne, waits("ErrImagePull")), decide.RollingOut, " 1 of 4 pods is not running: %s (ErrImagePull)."},
		"restarts are on hold": {both(func(x *world) { x.remove(dependency.Secret, "db") }, rollOutOne, waits("CreateContainerConfigError"), overQuota),
			decide.Blocked, "Automatic restarts are on hold until this is fixed."},
		"a pod that is going": {both(rollOutOne, waits("CrashLoopBackOff"), func(x *world) {
			p := x.pods[len(x.pods)-1].DeepCopy()
			p.DeletionTimestamp = &p.CreationTimestamp
			x.Set(p)
		}), decide.RollingOut, ": 0 of 3 pods are up to date."},
	} {
		x := oneSecret(t)
		x.scale(3)
		x.tick(time.Minute)
		x.adopt()
		tt.change(x)
		want := tt.want
		if strings.Contains(want, "%s") {
			want = fmt.Sprintf(want, x.pods[len(x.pods)-1].Name)
		}
		if d := x.decide(); d.State != tt.state || !strings.HasSuffix(d.Message, want) {
			t.Errorf("%s: %s: %q, want %s and %q", name, d.State, d.Message, tt.state, want)
		}
	}
}

// Of many pods that wait, the message names three.
func TestDecide_NamesFewOfThePodsThatWait(t *testing.T) {
	x := oneSecret(t)
	x.scale(20)
	for range 20 {
		waits("CrashLoopBackOff")(x)
		x.pods = append(x.pods[len(x.pods)-1:], x.pods[:len(x.pods)-1]...)
	}
	d := x.decide()
	if n := strings.Count(d.Message, "CrashLoopBackOff"); n != 3 || !strings.Contains(d.Message, "20 of 20 pods are not running") {
		t.Errorf("message = %q", d.Message)
	}
}
