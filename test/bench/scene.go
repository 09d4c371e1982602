// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"
)

// scene is a namespace in which sources change and rollouts are counted.
type scene struct {
	*environment
	*templates
	controllers *controllers
	namespace   string
	nudges      int // changes of the canary's source
}

// canary is the name of a Deployment in each scene, whose restart shows that the server is working, and of its
// ConfigMap.
const canary = "canary"

const (
	// heardLimit is how long the server may take to restart the canary. After a kill, it may have to wait until
	// its lease has expired.
	heardLimit = 2 * time.Minute
	// nudgeEvery is the time after which the canary's source is changed again.
	nudgeEvery = 2 * time.Second
	// quiet is the time without changes after which a count is final: longer than the settle time of the scenes.
	quiet = 3 * time.Second
	// restartLimit is how long the restart of a workload may take.
	restartLimit = time.Minute
)

// newScene creates an empty namespace.
func (e *environment) newScene(ctx context.Context, name string) (*scene, error) {
	s := &scene{environment: e, namespace: "scene-" + name}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	_, err := e.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err == nil {
		s.controllers = startControllers(ctx, e.client)
		s.templates, err = watchTemplates(ctx, e.client, s.namespace, s.controllers.see)
	}
	if err != nil {
		return nil, fmt.Errorf("preparing %s: %w", s.namespace, err)
	}
	return s, nil
}

// play creates a scene in which the server is working, and deletes its objects afterwards.
func (e *environment) play(ctx context.Context, name string, act func(*scene) ([]row, error)) (rows []row, err error) {
	s, err := e.newScene(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.end(ctx)) }()
	if err := errors.Join(s.put(ctx, s.configMap(canary, "0"), s.deployment(canary, reads(canary, ""), true)), s.complete(ctx)); err != nil {
		return nil, err
	}
	if err := s.heard(ctx); err != nil {
		return nil, err
	}
	return act(s)
}

// end deletes all objects but not the namespace, because no controller would finish its deletion.
func (s *scene) end(ctx context.Context) error {
	s.stop()
	s.controllers.queue.ShutDown()
	var all metav1.ListOptions
	var background metav1.DeleteOptions
	return errors.Join(
		s.client.AppsV1().Deployments(s.namespace).DeleteCollection(ctx, background, all),
		s.client.CoreV1().Pods(s.namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, all),
		s.client.CoreV1().ConfigMaps(s.namespace).DeleteCollection(ctx, background, all),
		s.client.CoreV1().Secrets(s.namespace).DeleteCollection(ctx, background, all),
		s.client.CoreV1().Events(s.namespace).DeleteCollection(ctx, background, all),
	)
}

// heard waits until the server has restarted the canary because of a new change. It is then working and has
// received all earlier changes of ConfigMaps.
func (s *scene) heard(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, heardLimit, fmt.Errorf("the server did not restart a workload within %v", heardLimit))
	defer cancel()
	before, _, _, _ := s.of(canary)
	for {
		s.nudges++
		if err := s.put(ctx, s.configMap(canary, strconv.Itoa(s.nudges))); err != nil {
			return err
		}
		wait, stop := context.WithTimeoutCause(ctx, nudgeEvery, errNoRestart)
		_, err := s.await(wait, canary, before+1)
		stop()
		if !errors.Is(err, errNoRestart) {
			return err
		}
	}
}

var errNoRestart = errors.New("no workload was restarted in time")

// settled waits until the server has received all changes and no more rollouts happen.
func (s *scene) settled(ctx context.Context) error { return s.settledFor(ctx, quiet) }

// settledFor waits until no rollout has happened for a while.
func (s *scene) settledFor(ctx context.Context, quiet time.Duration) error {
	if err := errors.Join(s.complete(ctx), s.heard(ctx)); err != nil {
		return err
	}
	for {
		_, _, next, err := s.of(canary)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-next:
		case <-time.After(quiet):
			return nil
		}
	}
}

// put creates or replaces objects.
func (s *scene) put(ctx context.Context, objects ...runtime.Object) error {
	for _, o := range objects {
		if err := s.putAs(ctx, kubectl, o); err != nil {
			return err
		}
	}
	return nil
}

// putAs creates or replaces an object with a field manager.
func (s *scene) putAs(ctx context.Context, manager string, o runtime.Object) (err error) {
	create, update := metav1.CreateOptions{FieldManager: manager}, metav1.UpdateOptions{FieldManager: manager}
	maps, secrets, deployments := s.client.CoreV1().ConfigMaps(s.namespace), s.client.CoreV1().Secrets(s.namespace), s.client.AppsV1().Deployments(s.namespace)
	switch o := o.(type) {
	case *corev1.ConfigMap:
		if _, err = maps.Update(ctx, o, update); apierrors.IsNotFound(err) {
			_, err = maps.Create(ctx, o, create)
		}
	case *corev1.Secret:
		if _, err = secrets.Update(ctx, o, update); apierrors.IsNotFound(err) {
			_, err = secrets.Create(ctx, o, create)
		}
	case *appsv1.Deployment:
		if _, err = deployments.Update(ctx, o, update); apierrors.IsNotFound(err) {
			_, err = deployments.Create(ctx, o, create)
		}
	default:
		err = fmt.Errorf("unsupported type %T", o)
	}
	if err != nil {
		return fmt.Errorf("writing to %s: %w", s.namespace, err)
	}
	return nil
}

func (s *scene) configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"VALUE": value, "OTHER": "1"}}
}

func (s *scene) secret(name, value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"VALUE": []byte(value), "OTHER": []byte("1")}}
}

// reads returns a container that reads all keys of a ConfigMap, a Secret, or both into its environment.
func reads(configMap, secret string) corev1.Container {
	c := corev1.Container{Name: "main", Image: "registry.example.com/app:1"}
	if configMap != "" {
		ref := &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}}
		c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{ConfigMapRef: ref})
	}
	if secret != "" {
		ref := &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}
		c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{SecretRef: ref})
	}
	return c
}

// deployment returns a Deployment that has opted in.
func (s *scene) deployment(name string, main corev1.Container, eager bool) *appsv1.Deployment {
	d := bystander(name, main)
	d.Annotations = optInBy(eager)
	return d
}

// bystander returns a Deployment that has not opted in.
func bystander(name string, main corev1.Container) *appsv1.Deployment {
	labels := map[string]string{"app.kubernetes.io/name": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{main}}},
		},
	}
}

// templates counts changes of the pod templates of the Deployments in a namespace: each change is a rollout. It uses
// one watch, which does not miss changes.
type templates struct {
	stop func()                   // ends the watch
	each func(*appsv1.Deployment) // is called with each state

	mu      sync.Mutex
	seen    map[string]*template
	changed chan struct{} // closed and replaced on every change of a template
	err     error         // why the watch has ended
}

// template is the pod template of one Deployment.
type template struct {
	now     corev1.PodTemplateSpec
	changes int
	last    time.Time // when the last change was observed
}

// watchTemplates starts to count in a namespace, which must not contain Deployments yet.
func watchTemplates(ctx context.Context, client kubernetes.Interface, namespace string, each func(*appsv1.Deployment)) (*templates, error) {
	list, err := client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	if len(list.Items) > 0 {
		return nil, fmt.Errorf("namespace %s is not empty", namespace)
	}
	w, err := watchFrom(ctx, list.ResourceVersion, client.AppsV1().Deployments(namespace).Watch)
	if err != nil {
		return nil, err
	}
	t := &templates{stop: w.Stop, each: each, seen: map[string]*template{}, changed: make(chan struct{})}
	go t.run(w)
	return t, nil
}

// watchFrom watches from a version on. When the API server ends the watch, for example because it is too slow, a new
// one resumes where it ended.
func watchFrom(ctx context.Context, version string, begin func(context.Context, metav1.ListOptions) (watch.Interface, error)) (watch.Interface, error) {
	return watchtools.NewRetryWatcherWithContext(ctx, version, &cache.ListWatch{WatchFuncWithContext: begin})
}

func (t *templates) run(w watch.Interface) {
	for event := range w.ResultChan() {
		d, ok := event.Object.(*appsv1.Deployment)
		if !ok {
			t.fail(fmt.Errorf("watching Deployments: %v", event.Object))
			return
		}
		if event.Type != watch.Deleted {
			t.see(d, time.Now())
			t.each(d)
		}
	}
	t.fail(errors.New("the watch of Deployments has ended"))
}

func (t *templates) see(d *appsv1.Deployment, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.seen[d.Name]
	switch {
	case one == nil:
		t.seen[d.Name] = &template{now: d.Spec.Template}
	case !equality.Semantic.DeepEqual(one.now, d.Spec.Template):
		one.now, one.last = d.Spec.Template, at
		one.changes++
	default:
		return
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *templates) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
	close(t.changed)
	t.changed = make(chan struct{})
}

// of returns how often the template of a Deployment has changed and when it last changed. The channel is closed on the
// next change of any template.
func (t *templates) of(name string) (changes int, last time.Time, next <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.seen[name]; one != nil {
		changes, last = one.changes, one.last
	}
	return changes, last, t.changed, t.err
}

// await waits until the template of a Deployment has changed a number of times, and returns the time of the last
// change.
func (t *templates) await(ctx context.Context, name string, changes int) (time.Time, error) {
	for {
		n, last, next, err := t.of(name)
		switch {
		case n >= changes:
			return last, nil
		case err != nil:
			return last, err
		}
		select {
		case <-ctx.Done():
			return last, context.Cause(ctx)
		case <-next:
		}
	}
}

// rollouts returns the number of changes of all Deployments but the canary.
func (t *templates) rollouts() (all int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, one := range t.seen {
		if name != canary {
			all += one.changes
		}
	}
	return all, t.err
}
