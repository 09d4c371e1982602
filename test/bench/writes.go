// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// writes records when the objects of a release were written.
type writes struct {
	watches []watch.Interface

	mu  sync.Mutex
	all []write
	err error
}

// write is a write that a watch has shown.
type write struct {
	at    time.Time
	name  string // "config-01", or the name of a Deployment
	image string // of a Deployment
}

// followWrites starts to record writes in a scene.
func (s *scene) followWrites(ctx context.Context) (_ *writes, err error) {
	j := &writes{}
	defer func() {
		if err != nil {
			j.stop()
		}
	}()
	maps, err := s.client.CoreV1().ConfigMaps(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	version := maps.ResourceVersion // all resources are in one etcd
	for _, begin := range []func(context.Context, metav1.ListOptions) (watch.Interface, error){
		s.client.CoreV1().ConfigMaps(s.namespace).Watch,
		s.client.CoreV1().Secrets(s.namespace).Watch,
		s.client.AppsV1().Deployments(s.namespace).Watch,
	} {
		w, err := watchFrom(ctx, version, begin)
		if err != nil {
			return nil, err
		}
		j.watches = append(j.watches, w)
		go j.run(w)
	}
	return j, nil
}

func (j *writes) stop() {
	for _, w := range j.watches {
		w.Stop()
	}
}

func (j *writes) run(w watch.Interface) {
	for event := range w.ResultChan() {
		now := write{at: time.Now()}
		switch o := event.Object.(type) {
		case *corev1.ConfigMap:
			now.name = o.Name
		case *corev1.Secret:
			now.name = o.Name
		case *appsv1.Deployment:
			now.name, now.image = o.Name, o.Spec.Template.Spec.Containers[0].Image
		default:
			j.note(now, fmt.Errorf("watching a release: %v", event.Object))
			return
		}
		j.note(now, nil)
	}
}

func (j *writes) note(w write, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all, j.err = append(j.all, w), errors.Join(j.err, err)
}

// between returns the time from the first write of a source of the i-th Deployment until the write of its image, and
// the longest time in between without a write of any source or Deployment of the release.
func (j *writes) between(r *release, i int) (gap, silence time.Duration, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return 0, 0, j.err
	}
	images := map[string]string{} // written by the release so far
	want := map[string]string{}
	for i, name := range r.changing() {
		want[name] = r.image(i)
	}
	var first, last time.Time
	for _, w := range j.all {
		if w.image != "" {
			if w.image != want[w.name] || images[w.name] == w.image {
				continue // a restart
			}
			images[w.name] = w.image
		}
		if first.IsZero() && w.name != r.configOf(i) && w.name != r.secretOf(i) {
			continue
		}
		if first.IsZero() {
			first, last = w.at, w.at
		}
		// The order between watches is not defined.
		silence, last = max(silence, w.at.Sub(last)), later(last, w.at)
		if w.name == appName(i) {
			return w.at.Sub(first), silence, nil
		}
	}
	return 0, 0, fmt.Errorf("the release did not write %s after its sources", appName(i))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// setImage creates a Deployment, or changes only its image and keeps fields that other clients have added.
func (s *scene) setImage(ctx context.Context, d *appsv1.Deployment) error {
	container := d.Spec.Template.Spec.Containers[0]
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []map[string]string{{"name": container.Name, "image": container.Image}},
	}}}})
	if err != nil {
		return err
	}
	deployments := s.client.AppsV1().Deployments(s.namespace)
	_, err = deployments.Patch(ctx, d.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{FieldManager: argoCDManager})
	if apierrors.IsNotFound(err) {
		_, err = deployments.Create(ctx, d, metav1.CreateOptions{FieldManager: argoCDManager})
	}
	return err
}
