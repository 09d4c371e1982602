// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// These benchmarks count rollouts: changes of pod templates in one watch. The right number is the same on any machine.

// rolloutRow returns a row with the number of rollouts that a watch has seen.
func rolloutRow(name string, got, want int, note string) row {
	return row{name: name + ": rollouts", n: 1, got: exactly(float64(got)), limit: limit{exact: true, value: float64(want)}, note: note}
}

// rolloutsOf acts, waits until the scene has settled, and returns the number of resulting rollouts.
func (s *scene) rolloutsOf(ctx context.Context, act func() error) (int, error) {
	before, _, err := s.rollouts()
	if err != nil {
		return 0, err
	}
	if err := errors.Join(act(), s.settled(ctx)); err != nil {
		return 0, err
	}
	after, _, err := s.rollouts()
	return after - before, err
}

// benchmarkDowntime changes sources while the subject is down.
func benchmarkDowntime(ctx context.Context, e *environment) ([]row, error) {
	return e.play(ctx, "downtime", func(s *scene) ([]row, error) {
		n := e.count(20)
		name := func(i int) string { return fmt.Sprintf("app-%d", i) }
		write := func(i int, value string) error {
			if i%2 == 0 {
				return s.put(ctx, s.configMap(name(i), value))
			}
			return s.put(ctx, s.secret(name(i), value))
		}
		for i := range n {
			main := reads(name(i), "")
			if i%2 == 1 {
				main = reads("", name(i))
			}
			if err := errors.Join(write(i, "0"), s.put(ctx, s.deployment(name(i), main, false))); err != nil {
				return nil, err
			}
		}
		if err := s.settled(ctx); err != nil {
			return nil, err
		}
		rollouts, err := s.rolloutsOf(ctx, func() error {
			e.subject.kill()
			for i := range n {
				if err := write(i, "1"); err != nil {
					return err
				}
			}
			return e.subject.start()
		})
		if err != nil {
			return nil, err
		}
		_, caught, err := s.rollouts() // there were none before
		if err != nil {
			return nil, err
		}
		return []row{
			{
				name: "changed while the subject was down: caught", n: 1, got: exactly(float64(caught)), limit: limit{exact: true, value: float64(n)},
				note: fmt.Sprintf("%d ConfigMaps and Secrets with one workload each; the subject was killed and started again.", n),
			},
			rolloutRow("changed while the subject was down", rollouts, n, ""),
		}, e.awaitServed(ctx)
	})
}

// benchmarkRecreated deletes a source and creates it again.
func benchmarkRecreated(ctx context.Context, e *environment) ([]row, error) {
	return e.play(ctx, "recreated", func(s *scene) ([]row, error) {
		const app = "app"
		if err := s.put(ctx, s.configMap(app, "0"), s.deployment(app, reads(app, ""), true)); err != nil {
			return nil, err
		}
		if err := s.settled(ctx); err != nil {
			return nil, err
		}
		recreate := func(value string) (rollouts int, err error) {
			return s.rolloutsOf(ctx, func() error {
				if err := s.client.CoreV1().ConfigMaps(s.namespace).Delete(ctx, app, metav1.DeleteOptions{}); err != nil {
					return err
				}
				if err := s.heard(ctx); err != nil {
					return err
				}
				return s.put(ctx, s.configMap(app, value))
			})
		}
		equal := 0
		for range 3 {
			n, err := recreate("0")
			if err != nil {
				return nil, err
			}
			equal += n
		}
		other, err := recreate("1")
		if err != nil {
			return nil, err
		}
		return []row{
			rolloutRow("source created again, equal, ×3", equal, 0, ""),
			rolloutRow("source created again, with other content", other, 1, ""),
		}, nil
	})
}

// benchmarkOptIn lets running workloads opt in.
func benchmarkOptIn(ctx context.Context, e *environment) ([]row, error) {
	return e.play(ctx, "optin", func(s *scene) ([]row, error) {
		n := e.count(200)
		name := func(i int) string { return fmt.Sprintf("app-%d", i) }
		write := func(optIn bool) error {
			return inParallel(ctx, 0, n, func(ctx context.Context, i int) error {
				d := bystander(name(i), reads(name(i), name(i)))
				if optIn {
					d = s.deployment(name(i), reads(name(i), name(i)), false)
				} else if err := s.put(ctx, s.configMap(name(i), "0"), s.secret(name(i), "0")); err != nil {
					return err
				}
				return s.put(ctx, d)
			})
		}
		if err := write(false); err != nil {
			return nil, err
		}
		if err := s.settled(ctx); err != nil {
			return nil, err
		}
		rollouts, err := s.rolloutsOf(ctx, func() error { return write(true) })
		return []row{rolloutRow(fmt.Sprintf("%d running workloads opt in", n), rollouts, 0, "")}, err
	})
}

// benchmarkPairs changes a ConfigMap and a Secret of one workload together.
func benchmarkPairs(ctx context.Context, e *environment) ([]row, error) {
	return e.play(ctx, "pairs", func(s *scene) ([]row, error) {
		n := e.count(20)
		name := func(i int) string { return fmt.Sprintf("app-%d", i) }
		write := func(value string) error {
			for i := range n {
				if err := s.put(ctx, s.configMap(name(i), value), s.secret(name(i), value)); err != nil {
					return err
				}
			}
			return nil
		}
		if err := write("0"); err != nil {
			return nil, err
		}
		for i := range n {
			if err := s.put(ctx, s.deployment(name(i), reads(name(i), name(i)), false)); err != nil {
				return nil, err
			}
		}
		if err := s.settled(ctx); err != nil {
			return nil, err
		}
		rollouts, err := s.rolloutsOf(ctx, func() error { return write("1") })
		return []row{rolloutRow(fmt.Sprintf("%d pairs of ConfigMap and Secret change together", n), rollouts, n, "")}, err
	})
}

// benchmarkUnread changes a key that a workload does not read, in a source of which it reads another key.
func benchmarkUnread(ctx context.Context, e *environment) ([]row, error) {
	return e.play(ctx, "unread", func(s *scene) ([]row, error) {
		const app = "app"
		main := reads("", "")
		main.Env = append(main.Env, readsKey(app, "VALUE"))
		if err := s.put(ctx, s.configMap(app, "0"), s.deployment(app, main, true)); err != nil {
			return nil, err
		}
		if err := s.settled(ctx); err != nil {
			return nil, err
		}
		rollouts, err := s.rolloutsOf(ctx, func() error {
			for i := range 5 {
				source := s.configMap(app, "0")
				source.Data["OTHER"] = "changed " + strconv.Itoa(i)
				if err := s.put(ctx, source); err != nil {
					return err
				}
				if err := s.heard(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		return []row{rolloutRow("5 updates of a key that is not read", rollouts, 0, "")}, err
	})
}

// benchmarkRewrite replaces a workload with its manifest after each restart, without the annotations that the subject
// has added, and then changes the manifest: without a webhook, and with it if the subject is the server.
func benchmarkRewrite(ctx context.Context, e *environment) ([]row, error) {
	return e.play(ctx, "rewrite", func(s *scene) (rows []row, err error) {
		rewrite := func(app, how string, rewrites int, note string) error {
			measured, err := s.rewrite(ctx, app, how, rewrites, note)
			rows = append(rows, measured...)
			return err
		}
		without := func() error {
			return rewrite("app", "without the webhook", 2*rewriteTimes,
				"the owner takes the annotation off the template, which is a rollout that only a webhook can prevent.")
		}
		if e.install == nil {
			return rows, without()
		}
		if err := s.withoutWebhook(ctx, without); err != nil {
			return rows, err
		}
		return rows, rewrite("app-with", "with the webhook", rewriteTimes, "")
	})
}

const rewriteTimes = 5

func (s *scene) rewrite(ctx context.Context, app, how string, want int, note string) ([]row, error) {
	manifest := s.deployment(app, reads(app, ""), true)
	if err := s.put(ctx, s.configMap(app, "0"), manifest); err != nil {
		return nil, err
	}
	if err := s.settled(ctx); err != nil {
		return nil, err
	}
	rewrites, images := 0, 0
	for i := range rewriteTimes {
		n, err := s.rolloutsOf(ctx, func() error {
			_, err := s.follow(ctx, app, func() error { return s.put(ctx, s.configMap(app, strconv.Itoa(i+1))) })
			if err != nil && !errors.Is(err, errNoRestart) { // a missing restart shows in the number
				return err
			}
			if err := s.settled(ctx); err != nil {
				return err
			}
			return s.put(ctx, manifest)
		})
		if err != nil {
			return nil, err
		}
		rewrites += n
	}
	for i := range rewriteTimes {
		manifest.Spec.Template.Spec.Containers[0].Image = fmt.Sprintf("registry.example.com/app:1.%d", i)
		n, err := s.rolloutsOf(ctx, func() error { return s.put(ctx, manifest) })
		if err != nil {
			return nil, err
		}
		images += n
	}
	return []row{
		rolloutRow("5 restarts, each followed by the owner's equal manifest, "+how, rewrites, want, note),
		rolloutRow("then 5 changes of the image, "+how, images, rewriteTimes, ""),
	}, nil
}
