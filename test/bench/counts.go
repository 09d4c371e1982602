// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// counts count rollouts: changes of pod templates in one watch. The right number is the same on any machine.
var counts = []benchmark{
	counting("downtime", "changed while the server was down", prepareDowntime, changeDuringDowntime, func(s *scene) int { return s.count(few) }),
	counting("recreated", "source created again, equal, ×3", prepareOne, recreateEqual, none),
	counting("recreated-changed", "source created again, with other content", prepareOne, recreateChanged, func(*scene) int { return 1 }),
	counting("optin", "running workloads opt in", prepareBystanders, optIn, none),
	counting("pairs", "pairs of ConfigMap and Secret change together", preparePairs, changePairs, func(s *scene) int { return s.count(few) }),
	counting("unread", "5 updates of a key that is not read", prepareKeyReader, changeUnread, none),
}

// counting returns a benchmark that prepares workloads, acts when the server has seen them, and counts the rollouts that
// result.
func counting(name, what string, prepare, act func(context.Context, *scene) error, want func(*scene) int) benchmark {
	return benchmark{name, func(ctx context.Context, e *environment) ([]row, error) {
		return e.play(ctx, name, func(s *scene) ([]row, error) {
			if err := errors.Join(prepare(ctx, s), s.settled(ctx)); err != nil {
				return nil, err
			}
			n, err := s.rolloutsOf(ctx, func() error { return act(ctx, s) })
			return []row{rolloutRow(what, n, want(s))}, errors.Join(err, e.awaitServed(ctx))
		})
	}}
}

func none(*scene) int { return 0 }

// rolloutRow returns a row with the number of rollouts that a watch has seen.
func rolloutRow(name string, got, want int) row {
	return row{name: name + ": rollouts", n: 1, got: exactly(float64(got)), limit: limit{exact: true, value: float64(want)}}
}

// rolloutsOf acts, waits until the scene has settled, and returns the number of resulting rollouts.
func (s *scene) rolloutsOf(ctx context.Context, act func() error) (int, error) {
	before, err := s.rollouts()
	if err != nil {
		return 0, err
	}
	if err := errors.Join(act(), s.settled(ctx)); err != nil {
		return 0, err
	}
	after, err := s.rollouts()
	return after - before, err
}

const (
	app  = "app"
	few  = 20
	many = 200
)

func appName(i int) string { return fmt.Sprintf("app-%02d", i) }

// prepareDowntime creates workloads, half of which read a ConfigMap and half a Secret.
func prepareDowntime(ctx context.Context, s *scene) error {
	for i := range s.count(few) {
		main := reads(appName(i), "")
		if i%2 == 1 {
			main = reads("", appName(i))
		}
		if err := errors.Join(writeEither(ctx, s, i, "0"), s.put(ctx, s.deployment(appName(i), main, false))); err != nil {
			return err
		}
	}
	return nil
}

func writeEither(ctx context.Context, s *scene, i int, value string) error {
	if i%2 == 1 {
		return s.put(ctx, s.secret(appName(i), value))
	}
	return s.put(ctx, s.configMap(appName(i), value))
}

func changeDuringDowntime(ctx context.Context, s *scene) error {
	s.server().Kill()
	for i := range s.count(few) {
		if err := writeEither(ctx, s, i, "1"); err != nil {
			return err
		}
	}
	return s.server().Start()
}

func prepareOne(ctx context.Context, s *scene) error {
	return s.put(ctx, s.configMap(app, "0"), s.deployment(app, reads(app, ""), true))
}

// recreate deletes a source and creates it again when the server has seen that.
func recreate(ctx context.Context, s *scene, value string) error {
	if err := s.client.CoreV1().ConfigMaps(s.namespace).Delete(ctx, app, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := s.heard(ctx); err != nil {
		return err
	}
	return s.put(ctx, s.configMap(app, value))
}

func recreateEqual(ctx context.Context, s *scene) error {
	for range 3 {
		if err := errors.Join(recreate(ctx, s, "0"), s.settled(ctx)); err != nil {
			return err
		}
	}
	return nil
}

func recreateChanged(ctx context.Context, s *scene) error { return recreate(ctx, s, "1") }

func prepareBystanders(ctx context.Context, s *scene) error {
	return inParallel(ctx, s.count(many), func(ctx context.Context, i int) error {
		return s.put(ctx, s.configMap(appName(i), "0"), s.secret(appName(i), "0"), bystander(appName(i), reads(appName(i), appName(i))))
	})
}

func optIn(ctx context.Context, s *scene) error {
	return inParallel(ctx, s.count(many), func(ctx context.Context, i int) error {
		return s.put(ctx, s.deployment(appName(i), reads(appName(i), appName(i)), false))
	})
}

func preparePairs(ctx context.Context, s *scene) error {
	if err := writePairs(ctx, s, "0"); err != nil {
		return err
	}
	for i := range s.count(few) {
		if err := s.put(ctx, s.deployment(appName(i), reads(appName(i), appName(i)), false)); err != nil {
			return err
		}
	}
	return nil
}

func writePairs(ctx context.Context, s *scene, value string) error {
	for i := range s.count(few) {
		if err := s.put(ctx, s.configMap(appName(i), value), s.secret(appName(i), value)); err != nil {
			return err
		}
	}
	return nil
}

func changePairs(ctx context.Context, s *scene) error { return writePairs(ctx, s, "1") }

// prepareKeyReader creates a workload that reads one of the keys of a ConfigMap.
func prepareKeyReader(ctx context.Context, s *scene) error {
	main := reads("", "")
	main.Env = []corev1.EnvVar{{Name: "VALUE", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: app}, Key: "VALUE",
	}}}}
	return s.put(ctx, s.configMap(app, "0"), s.deployment(app, main, true))
}

func changeUnread(ctx context.Context, s *scene) error {
	for i := range 5 {
		source := s.configMap(app, "0")
		source.Data["OTHER"] = "changed " + strconv.Itoa(i)
		if err := errors.Join(s.put(ctx, source), s.heard(ctx)); err != nil {
			return err
		}
	}
	return nil
}
