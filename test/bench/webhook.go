// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/install"
)

const rewriteTimes = 5

// benchmarkRewrite replaces a workload with its manifest after each restart, without the annotations that the subject
// has added, and then changes the manifest: without a webhook, and with it if the subject is the server.
func benchmarkRewrite(ctx context.Context, e *environment) ([]row, error) {
	return e.play(ctx, "rewrite", func(s *scene) (rows []row, err error) {
		rewrite := func(app, how string, want int) error {
			measured, err := s.rewrite(ctx, app, how, want)
			rows = append(rows, measured...)
			return err
		}
		// The owner takes the annotation off the template, which is a rollout that only a webhook can prevent.
		without := func() error { return rewrite("app", "without the webhook", 2*rewriteTimes) }
		if e.install == nil {
			return rows, without()
		}
		if err := s.withoutWebhook(ctx, without); err != nil {
			return rows, err
		}
		return rows, rewrite("app-with", "with the webhook", rewriteTimes)
	})
}

func (s *scene) rewrite(ctx context.Context, app, how string, want int) ([]row, error) {
	manifest := s.deployment(app, reads(app, ""), true)
	if err := errors.Join(s.put(ctx, s.configMap(app, "0"), manifest), s.settled(ctx)); err != nil {
		return nil, err
	}
	rewrites, err := s.rolloutsOf(ctx, func() error {
		for i := range rewriteTimes {
			_, err := s.follow(ctx, app, func() error { return s.put(ctx, s.configMap(app, strconv.Itoa(i+1))) })
			if err != nil && !errors.Is(err, errNoRestart) { // a missing restart shows in the number
				return err
			}
			if err := errors.Join(s.settled(ctx), s.put(ctx, manifest), s.settled(ctx)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	images, err := s.rolloutsOf(ctx, func() error {
		for i := range rewriteTimes {
			manifest.Spec.Template.Spec.Containers[0].Image = fmt.Sprintf("registry.example.com/app:1.%d", i)
			if err := errors.Join(s.put(ctx, manifest), s.settled(ctx)); err != nil {
				return err
			}
		}
		return nil
	})
	return []row{
		rolloutRow("5 restarts, each followed by the owner's equal manifest, "+how, rewrites, want),
		rolloutRow("then 5 changes of the image, "+how, images, rewriteTimes),
	}, err
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
