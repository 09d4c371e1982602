// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
)

// replicas is how many pods the Deployment of a shop has.
const replicas = 3

// shop is a namespace with a ConfigMap config, and a Deployment web that reads it and is restarted in place.
type shop struct {
	*testing.T

	namespace string
	kubelet   *kubelet
}

// newShop returns a shop whose Deployment is shown as in sync.
func newShop(t *testing.T, change func(*appsv1.Deployment)) *shop {
	t.Helper()
	made, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{T: t, namespace: made.Name}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config"}, Data: map[string]string{"key": "1"}}
	if _, err := client.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{policy.ReloadAnnotation: "auto", policy.StrategyAnnotation: "in-place"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(replicas)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: template(),
		},
	}
	if change != nil {
		change(d)
	}
	if _, err := client.AppsV1().Deployments(s.namespace).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.view(func(o *v1alpha1.ConfigDependency) error { return is(v1alpha1.StateInSync, o.Status.Reason)(o) })
	s.kubelet = startKubelet(t, s.namespace)
	return s
}

// template returns that of a pod with a restarter, as docs/agent.md describes it.
func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(1)), AutomountServiceAccountToken: new(false),
			InitContainers: []corev1.Container{{
				Name: "restarter", Image: "agent", Args: []string{"restarter"}, RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
				RestartPolicyRules: []corev1.ContainerRestartRule{{
					Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
					ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{88}},
				}},
				VolumeMounts: []corev1.VolumeMount{{Name: "restart", MountPath: "/etc/configdep"}},
			}},
			Containers: []corev1.Container{{Name: "app", Image: "app", EnvFrom: []corev1.EnvFromSource{{
				ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}},
			}}}},
			Volumes: []corev1.Volume{{Name: "restart", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
				Items: []corev1.DownwardAPIVolumeFile{{Path: "restart", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['configdep.io/restart']"}}},
			}}}},
		},
	}
}

// write gives the ConfigMap another content, and returns its version.
func (s *shop) write(value string) (version string) {
	s.Helper()
	data, err := json.Marshal(map[string]any{"data": map[string]string{"key": value}})
	if err != nil {
		s.Fatal(err)
	}
	made, err := client.CoreV1().ConfigMaps(s.namespace).Patch(s.Context(), "config", types.MergePatchType, data, metav1.PatchOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return made.ResourceVersion
}

// view waits until the API shows the Deployment in a way that passes all checks.
func (s *shop) view(checks ...func(*v1alpha1.ConfigDependency) error) *v1alpha1.ConfigDependency {
	s.Helper()
	return s.viewOf("deployment.web", checks...)
}

func (s *shop) viewOf(name string, checks ...func(*v1alpha1.ConfigDependency) error) *v1alpha1.ConfigDependency {
	s.Helper()
	return await.Passes(s.T, name+" is shown as expected", func(ctx context.Context) (*v1alpha1.ConfigDependency, error) {
		return api.ConfigdepV1alpha1().ConfigDependencies(s.namespace).Get(ctx, name, metav1.GetOptions{})
	}, checks...)
}

func is(state v1alpha1.State, reason string) func(*v1alpha1.ConfigDependency) error {
	return func(o *v1alpha1.ConfigDependency) error {
		if o.Status.State != state || o.Status.Reason != reason {
			return fmt.Errorf("state = %s, %s: %s", o.Status.State, o.Status.Reason, o.Status.Message)
		}
		return nil
	}
}

var inSync = is(v1alpha1.StateInSync, policy.ReasonContentApplied)

// reads returns a check that a version of the ConfigMap is what the Deployment was restarted for.
func reads(version string) func(*v1alpha1.ConfigDependency) error {
	return func(o *v1alpha1.ConfigDependency) error {
		if got := o.Status.Sources[0].ResourceVersion; got != version || o.Status.AppliedHash != o.Status.ConfigHash {
			return fmt.Errorf("the ConfigMap has version %s, want %s; hashes %s, %s", got, version, o.Status.AppliedHash, o.Status.ConfigHash)
		}
		return nil
	}
}

// uids returns the UIDs of all pods.
func (s *shop) uids() map[types.UID]bool {
	s.Helper()
	pods, err := client.CoreV1().Pods(s.namespace).List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	out := map[types.UID]bool{}
	for i := range pods.Items {
		out[pods.Items[i].UID] = true
	}
	return out
}

// sets returns how many ReplicaSets there are: one more for each rollout.
func (s *shop) sets() int {
	s.Helper()
	list, err := client.AppsV1().ReplicaSets(s.namespace).List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return len(list.Items)
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
	pods, err := client.CoreV1().Pods(k.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	deployments, err := client.AppsV1().Deployments(k.namespace).List(ctx, metav1.ListOptions{})
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
		value := p.Annotations[policy.RestartAnnotation]
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
	_, err := client.CoreV1().Pods(k.namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
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
func (s *shop) check(pods map[types.UID]bool, restarts int) {
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
