// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/install"
)

const (
	admissionWarmUp = 100
	admissionRounds = 1500
	admissionAtOnce = 8
)

// benchmarkAdmission changes the image of a Deployment that has opted in, for which the webhook is called, and of one
// that has not.
func benchmarkAdmission(ctx context.Context, e *environment) ([]row, error) {
	return e.play(ctx, "admission", func(s *scene) ([]row, error) {
		name := func(in bool, i int) string { return fmt.Sprintf("app-%t-%d", in, i) }
		manifest := func(in bool, i int) *appsv1.Deployment {
			main := reads("app", "app")
			if in {
				return s.deployment(name(in, i), main, false)
			}
			return bystander(name(in, i), main)
		}
		if err := s.put(ctx, s.configMap("app", "0"), s.secret("app", "0")); err != nil {
			return nil, err
		}
		for i := range admissionAtOnce {
			if err := s.put(ctx, manifest(false, i), manifest(true, i)); err != nil {
				return nil, err
			}
		}
		if err := s.settled(ctx); err != nil {
			return nil, err
		}
		update := func(in bool, i, image int) (time.Duration, error) {
			d := manifest(in, i)
			d.Spec.Template.Spec.Containers[0].Image = fmt.Sprintf("registry.example.com/app:%d", image)
			started := time.Now()
			got, err := s.client.AppsV1().Deployments(s.namespace).Update(ctx, d, updatedBy)
			if err == nil && (got.Spec.Template.Annotations != nil) != in {
				err = fmt.Errorf("template annotations of %s = %v", d.Name, got.Spec.Template.Annotations)
			}
			return time.Since(started), err
		}
		one, err := oneAtATime(update)
		if err != nil {
			return nil, err
		}
		many, err := manyAtOnce(e, update)
		return append(one, many), err
	})
}

type updateFunc func(in bool, i, image int) (time.Duration, error)

func oneAtATime(update updateFunc) (rows []row, err error) {
	var took [2]samples // without and with opt-in
	for n := range admissionWarmUp + admissionRounds {
		for k, in := range []bool{false, true} {
			d, err := update(in, 0, n)
			if err != nil {
				return nil, err
			}
			if n >= admissionWarmUp {
				took[k].addTime(d, time.Millisecond)
			}
		}
	}
	for _, q := range []struct {
		name  string
		share float64
		limit limit
	}{{"p50", 0.5, limit{ratio: 2}}, {"p99", 0.99, limit{ratio: 2}}} {
		r := row{
			name: "update of a Deployment that opted in " + q.name, unit: "ms", n: admissionRounds, limit: q.limit,
			got: exactly(took[1].quantile(q.share)), floor: exactly(took[0].quantile(q.share)), floorName: "of one that did not",
		}
		say("%s: %v ms, of one that did not %v ms", r.name, r.got, r.floor)
		rows = append(rows, r)
	}
	rows[1].note = fmt.Sprintf("the webhook adds %.2f ms at the median, and %.2f ms at the 99th percentile.",
		took[1].quantile(0.5)-took[0].quantile(0.5), took[1].quantile(0.99)-took[0].quantile(0.99))
	return rows, nil
}

// manyAtOnce sends updates as fast as possible, in turns with and without the webhook.
func manyAtOnce(e *environment, update updateFunc) (row, error) {
	var took [2]samples
	var cpu samples
	for turn := range 6 {
		for k, in := range []bool{false, true} {
			before, err := e.subjectCPU()
			if err != nil {
				return row{}, err
			}
			started := time.Now()
			if err := ownersAtOnce(in, turn, update); err != nil {
				return row{}, err
			}
			took[k].addTime(time.Since(started)/admissionRounds, time.Microsecond)
			after, err := e.subjectCPU()
			if err != nil {
				return row{}, err
			}
			if in {
				cpu.addTime((after-before)/admissionRounds, time.Microsecond)
			}
		}
	}
	r := row{
		name: fmt.Sprintf("updates of Deployments that opted in, %d at once: each", admissionAtOnce), unit: "µs", n: 6, limit: limit{ratio: 2.5},
		got: took[1].summary(), floor: took[0].summary(), floorName: "of those that did not",
	}
	r.note = fmt.Sprintf("%.0f updates/s with the webhook, %.0f without; the server takes %.0f µs of processor time for each.",
		1e6/r.got.median, 1e6/r.floor.median, cpu.summary().median)
	say("%s: %v µs, without the webhook %v µs", r.name, r.got, r.floor)
	return r, nil
}

func ownersAtOnce(in bool, turn int, update updateFunc) error {
	var wg sync.WaitGroup
	errs := make([]error, admissionAtOnce)
	for i := range admissionAtOnce {
		wg.Go(func() {
			for n := range admissionRounds / admissionAtOnce {
				if _, err := update(in, i, 1_000_000+turn*admissionRounds+n); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// withoutWebhook calls a function while the webhook is not installed.
func (s *scene) withoutWebhook(ctx context.Context, act func() error) (err error) {
	configurations := s.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	installed, err := configurations.Get(ctx, install.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := configurations.Delete(ctx, install.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	defer func() {
		_, createErr := configurations.Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: install.Name}, Webhooks: installed.Webhooks,
		}, metav1.CreateOptions{})
		err = errors.Join(err, createErr, s.awaitWebhook(ctx, true))
	}()
	if err := s.awaitWebhook(ctx, false); err != nil {
		return err
	}
	return act()
}

// awaitWebhook waits until kube-apiserver calls the webhook, or no longer calls it.
func (s *scene) awaitWebhook(ctx context.Context, asked bool) error {
	var failed error
	err := poll(ctx, 100*time.Millisecond, func() bool {
		d, err := s.client.AppsV1().Deployments(s.namespace).Create(ctx, s.deployment("probe", reads(canary, ""), false),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		failed = err
		return err != nil || (d.Spec.Template.Annotations != nil) == asked
	})
	return errors.Join(err, failed)
}
