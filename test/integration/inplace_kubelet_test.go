// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// replicas is how many pods the Deployment of a shop has.
const replicas = 3

// inPlaceShop has a ConfigMap, and a Deployment web that reads it and is restarted in place.
type inPlaceShop struct {
	*shop

	kubelet *kubelet
}

// newInPlaceShop returns a shop whose Deployment is shown as in sync.
func newInPlaceShop(s *shop, change func(*appsv1.Deployment)) *inPlaceShop {
	s.Helper()
	cluster.Needs(s.T, "1.36", "rules that restart all containers")
	s.write(config, "key", "1")
	d := inPlace("web", replicas)
	if change != nil {
		change(d)
	}
	s.create(d)
	s.view("deployment.web", is(v1alpha1.StateInSync, ""))
	return &inPlaceShop{s, startKubelet(s.T, s.namespace)}
}

// inPlace returns a Deployment whose pods have a restarter, as docs/agent.md describes it.
func inPlace(name string, pods int32) *appsv1.Deployment {
	o := single(name, envFromConfigMap("app-config"), func(p *corev1.PodSpec) {
		p.InitContainers = []corev1.Container{{
			Name: "restarter", Image: "agent", Args: []string{"restarter"}, RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
			RestartPolicyRules: []corev1.ContainerRestartRule{{
				Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{88}},
			}},
			VolumeMounts: []corev1.VolumeMount{{Name: "restart", MountPath: "/etc/configdep"}},
		}}
		p.Volumes = []corev1.Volume{{Name: "restart", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{Path: "restart", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['configdep.io/restart']"}}},
		}}}}
	})
	o.Annotations = pairs(policy.ReloadAnnotation, "auto", policy.StrategyAnnotation, "in-place")
	o.Spec.Replicas = &pods
	return o
}

// restartedInPlace checks that the pods are known to run with the current content.
func restartedInPlace(o *v1alpha1.ConfigDependency) error {
	return errors.Join(applied(o), is(v1alpha1.StateInSync, decide.ReasonContentApplied)(o))
}

// uids returns the UIDs of all pods.
func (s *shop) uids() map[types.UID]bool {
	s.Helper()
	pods, err := kube.CoreV1().Pods(s.namespace).List(s.Context(), metav1.ListOptions{})
	s.must(err)
	out := map[types.UID]bool{}
	for i := range pods.Items {
		out[pods.Items[i].UID] = true
	}
	return out
}

// kubelet does what the kubelet and the restarter do in a namespace: it restarts all containers of a pod whenever the annotation has
// another value. The pod is then not ready until its Deployment shows that: the server looks at pods when the Deployment changes, and
// otherwise only every 5 seconds.
type kubelet struct {
	namespace string

	mu       sync.Mutex
	halted   bool
	done     map[types.UID]string // what the restarter has done
	restarts map[types.UID]int
	unready  int // the most pods at a time
	err      error
}

func startKubelet(t *testing.T, namespace string) *kubelet {
	t.Helper()
	k := &kubelet{namespace: namespace, done: map[types.UID]string{}, restarts: map[types.UID]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if err := k.step(ctx); err != nil && ctx.Err() == nil {
				k.mu.Lock()
				k.err = err
				k.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if k.err != nil {
			t.Error(k.err)
		}
	})
	return k
}

func (k *kubelet) step(ctx context.Context) error {
	pods, err := kube.CoreV1().Pods(k.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	deployments, err := kube.AppsV1().Deployments(k.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	shown := map[string]bool{} // that a pod is not ready, by the label of the pod
	for i := range deployments.Items {
		d := &deployments.Items[i]
		shown[d.Spec.Selector.MatchLabels["app"]] = d.Status.ReadyReplicas < d.Status.Replicas
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	unready := 0
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning {
			continue
		}
		value := p.Annotations[record.RestartAnnotation]
		switch ready := isReady(p); {
		case value != k.done[p.UID] && value != "" && !k.halted:
			if err := k.status(ctx, p, true); err != nil {
				return err
			}
			k.done[p.UID] = value
			k.restarts[p.UID]++
			unready++
		case !ready:
			unready++
			if !shown[p.Labels["app"]] {
				continue
			}
			if err := k.status(ctx, p, false); err != nil {
				return err
			}
		}
	}
	k.unready = max(k.unready, unready)
	return nil
}

// status restarts all containers of a pod, after which it is not ready, or makes it ready again.
func (k *kubelet) status(ctx context.Context, p *corev1.Pod, restart bool) error {
	p = p.DeepCopy()
	at := func(old []corev1.ContainerStatus, name string) []corev1.ContainerStatus {
		s := corev1.ContainerStatus{Name: name, Image: name, Started: new(true), Ready: true, State: corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()},
		}}
		for _, o := range old {
			if o.Name == name {
				s.RestartCount = o.RestartCount + 1
			}
		}
		return []corev1.ContainerStatus{s}
	}
	ready := corev1.ConditionTrue
	if restart {
		p.Status.InitContainerStatuses = at(p.Status.InitContainerStatuses, "restarter")
		p.Status.ContainerStatuses = at(p.Status.ContainerStatuses, "app")
		ready = corev1.ConditionFalse
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady || c.Type == corev1.ContainersReady {
			c.Status, c.LastTransitionTime = ready, metav1.Now()
		}
	}
	_, err := kube.CoreV1().Pods(k.namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
	return err
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// halt makes the restarters do nothing, or go on.
func (k *kubelet) halt(halted bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.halted = halted
}

// check checks how often each pod was restarted, and that not more than one was at a time.
func (s *inPlaceShop) check(pods map[types.UID]bool, restarts int) {
	s.Helper()
	s.kubelet.mu.Lock()
	defer s.kubelet.mu.Unlock()
	for uid := range pods {
		if got := s.kubelet.restarts[uid]; got != restarts {
			s.Errorf("pod %s was restarted %d times, want %d", uid, got, restarts)
		}
	}
	if s.kubelet.unready > 1 {
		s.Errorf("%d pods were not ready at the same time, want 1", s.kubelet.unready)
	}
}

// noneUnavailable lets no pod be unavailable during a rollout.
func noneUnavailable(d *appsv1.Deployment) {
	d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: new(intstr.FromInt32(0)), MaxSurge: new(intstr.FromInt32(1))}
}
