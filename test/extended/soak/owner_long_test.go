// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Operations in several steps.

// changeRead changes a source that a workload reads, and returns a function that reverts the change. An absent
// source stays absent.
func (o *owner) changeRead(ctx context.Context, m *manifest, value string) (back func() error, err error) {
	u := variants[m.variant][0]
	before := o.sources[u.source]
	if before == nil {
		return func() error { return nil }, nil
	}
	changed := maps.Clone(before)
	changed["a"] = value
	return func() error { return o.write(ctx, http.MethodPut, u.source, before) }, o.write(ctx, http.MethodPut, u.source, changed)
}

// scaleThereAndBack changes content while there are no pods.
func (o *owner) scaleThereAndBack(ctx context.Context, m *manifest, op operation) error {
	m.replicas = 0
	if err := o.apply(ctx, m); err != nil {
		return err
	}
	if _, err := o.changeRead(ctx, m, strconv.Itoa(op.number)); err != nil {
		return err
	}
	pause(ctx, op.lasts)
	m.replicas = replicas
	return o.apply(ctx, m)
}

// pauseAndResume changes content while a Deployment is paused, and its template before or after that; or it
// changes the template and reverts that.
func (o *owner) pauseAndResume(ctx context.Context, m *manifest, op operation) error {
	m.paused = m.kind == "Deployment"
	if err := o.apply(ctx, m); err != nil {
		return err
	}
	variant, image := m.variant, m.image
	edit := func() error {
		m.variant, m.image = (variant+1)%len(variants), op.number
		return o.apply(ctx, m)
	}
	if op.number%3 == 0 {
		if err := edit(); err != nil {
			return err
		}
	}
	if _, err := o.changeRead(ctx, m, strconv.Itoa(op.number)); err != nil {
		return err
	}
	pause(ctx, op.lasts)
	if op.number%3 == 1 {
		if err := edit(); err != nil {
			return err
		}
		m.variant, m.image = variant, image
		if err := o.apply(ctx, m); err != nil {
			return err
		}
	}
	m.paused = false
	return o.apply(ctx, m)
}

// stalledRelease changes content while a rollout does not progress, until another image ends it.
func (o *owner) stalledRelease(ctx context.Context, m *manifest, op operation) error {
	m.image = op.number
	if m.stuck = m.kind == "Deployment"; m.stuck {
		if err := o.apply(ctx, m); err != nil {
			return err
		}
	}
	if _, err := o.changeRead(ctx, m, strconv.Itoa(op.number)); err != nil {
		return err
	}
	pause(ctx, op.lasts)
	m.stuck, m.image = false, op.number+1_000_000
	return o.apply(ctx, m)
}

// changeThereAndBack changes content and reverts that, and starts a pod in between.
func (o *owner) changeThereAndBack(ctx context.Context, m *manifest, op operation) error {
	m.settle = longSettle.String()
	if err := o.apply(ctx, m); err != nil {
		return err
	}
	back, err := o.changeRead(ctx, m, strconv.Itoa(op.number))
	if err != nil {
		return err
	}
	if err := o.deletePod(ctx, m); err != nil {
		return err
	}
	pause(ctx, op.lasts)
	return back()
}

// deleteInTheForeground changes content and deletes the workload, which exists until its pods have ended. Then the
// workload is created again.
func (o *owner) deleteInTheForeground(ctx context.Context, m *manifest, op operation) error {
	if m.kind == "DaemonSet" { // its controller, which tracks expected pods by name, may wait five minutes for pods of the old one
		m.image = op.number
		return o.replace(ctx, m)
	}
	if _, err := o.changeRead(ctx, m, strconv.Itoa(op.number)); err != nil {
		return err
	}
	pause(ctx, op.lasts)
	err := try(ctx, "deleting "+m.name, func(ctx context.Context) error {
		err := o.request(http.MethodDelete, m.kind, m.name).Body(&metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}).Do(ctx).Error()
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return errors.New("it is still there")
		}
		return err
	})
	if err != nil {
		return err
	}
	m.renameReplicaSet(op.number)
	return o.createWorkload(ctx, m)
}

// reactions is how often an operator removes unknown annotations before it gives up.
const reactions = 60

// operate makes an operator remove unknown annotations when it sees them: from the workload, from the template, or
// from both. In the meantime, content changes twice.
func (o *owner) operate(ctx context.Context, m *manifest, op operation) error {
	metadata, template := op.number%3 != 0, op.number%3 != 1
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer cancel()
		var err error
		for i := 0; i < 2 && err == nil; i++ {
			_, err = o.changeRead(ctx, m, fmt.Sprintf("%d.%d", op.number, i))
			pause(ctx, op.lasts)
		}
		done <- err
	}()
	for n := 0; n < reactions && ctx.Err() == nil; {
		if reacted, err := o.takeAway(ctx, m, metadata, template); err == nil && reacted {
			n++
		}
		pause(ctx, 10*time.Millisecond)
	}
	return <-done
}

// takeAway removes the annotations of the server, if there are any.
func (o *owner) takeAway(ctx context.Context, m *manifest, metadata, template bool) (reacted bool, err error) {
	raw, err := o.request(http.MethodGet, m.kind, m.name).Do(ctx).Raw()
	if err != nil {
		return false, err
	}
	var now struct {
		Metadata metav1.ObjectMeta
		Spec     struct {
			Template struct{ Metadata metav1.ObjectMeta }
		}
	}
	if err := json.Unmarshal(raw, &now); err != nil {
		return false, err
	}
	remove := func(from map[string]string, wanted bool) map[string]any {
		gone := map[string]any{}
		for _, key := range writtenAnnotations {
			if _, found := from[key]; found && wanted {
				gone[key] = nil
			}
		}
		return gone
	}
	annotations, below := remove(now.Metadata.Annotations, metadata), remove(now.Spec.Template.Metadata.Annotations, template)
	if len(annotations)+len(below) == 0 {
		return false, nil
	}
	o.writes++
	m.write = o.writes
	annotations[writeAnnotation] = strconv.Itoa(m.write)
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": annotations},
		"spec":     map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": below}}},
	})
	if err != nil {
		return false, err
	}
	return true, o.request(http.MethodPatch, m.kind, m.name).Body(data).Do(ctx).Error()
}
