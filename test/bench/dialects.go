// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/test/install"
)

const (
	dialectsRounds   = 3    // as many as there are readings
	dialectsPaused   = 1000 // workloads that are evaluated when a Secret changes, and not restarted
	dialectsChanges  = 10   // of that Secret, in each round
	dialectsRolled   = 200  // workloads that are restarted when another Secret changes
	dialectsRollouts = 3    // in each round
	dialectsLimit    = 2 * time.Minute
)

// reading is a replica that reads only one scene, whose workloads are annotated in one dialect.
type reading struct {
	*scene
	dialect
	replica *install.Replica
	paused  int // numbers of workloads
	rolled  int

	start, evaluation, rollouts samples // s of CPU
	rollout                     samples // ms until the last is patched
	inUse                       samples // bytes of memory
	allocated                   samples // KB, by an evaluation
}

// benchmarkDialects compares the cost of annotations of Reloader with that of configdep's own, and the cost of the latter with
// what they cost a server that reads no others.
func benchmarkDialects(ctx context.Context, e *environment) (rows []row, err error) {
	scenes := map[string]*scene{}
	for _, name := range []string{dialectNative, dialectReloader} {
		s, err := e.newScene(ctx, "dialect-"+name)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.end(ctx)) }()
		if err := s.fillDialect(ctx, dialects[name]); err != nil {
			return nil, fmt.Errorf("creating the objects of %s: %w", s.namespace, err)
		}
		scenes[name] = s
	}
	if err := e.idle(ctx); err != nil { // the server has recorded what the workloads run with
		return nil, err
	}
	e.server().Kill()
	empty, err := e.newReading("empty", &scene{environment: e, namespace: metav1.NamespaceDefault}, dialect{})
	if err != nil {
		return nil, err
	}
	other, err := e.newReading("other", scenes[dialectReloader], dialects[dialectReloader])
	if err != nil {
		return nil, err
	}
	own, err := e.newReading("own", scenes[dialectNative], dialects[dialectNative])
	if err != nil {
		return nil, err
	}
	alone, err := e.newReading("alone", scenes[dialectNative], dialects[dialectNative], "--dialects=")
	if err != nil {
		return nil, err
	}
	all := [dialectsRounds]*reading{other, own, alone}
	for round := range dialectsRounds {
		if err := empty.visit(ctx, func() error { return nil }); err != nil {
			return nil, err
		}
		for _, r := range slices.Concat(all[round:], all[:round]) { // so that none is always after the same
			if err := r.visit(ctx, func() error { return errors.Join(r.evaluate(ctx), r.restartAll(ctx)) }); err != nil {
				return nil, err
			}
		}
	}
	workloads := own.paused + own.rolled
	ofOne := func(r *reading) (out samples) {
		for _, inUse := range r.inUse {
			out = append(out, (inUse-empty.inUse.quantile(0.5))/1e3/float64(workloads))
		}
		return out
	}
	compare := func(name string, got, floor *reading, of string) []row {
		one := func(what, unit string, values func(*reading) samples, most float64) row { // most: of the ratio; 0: no limit
			r := row{
				name: name + ": " + what, unit: unit, n: len(values(got)), got: values(got).summary(),
				floor: values(floor).summary(), floorName: of, limit: limit{ratio: most},
			}
			say("%s: %v %s, %s %v", r.name, r.got, unit, of, r.floor)
			return r
		}
		return []row{
			one("start", "s CPU", func(r *reading) samples { return r.start }, 1.2),
			one(fmt.Sprintf("%d evaluations", own.paused*dialectsChanges), "s CPU", func(r *reading) samples { return r.evaluation }, 1.2),
			one(fmt.Sprintf("one Secret, %d Deployments", own.rolled), "ms", func(r *reading) samples { return r.rollout }, 0), // other programs on the machine disturb it most
			one(fmt.Sprintf("%d restarts", own.rolled*dialectsRollouts), "s CPU", func(r *reading) samples { return r.rollouts }, 1.2),
			one("allocated by an evaluation", "KB", func(r *reading) samples { return r.allocated }, 1.1),
			one("memory in use of a workload", "KB", ofOne, 1.1),
		}
	}
	rows = append(compare("annotations of Reloader", other, own, "the same with configdep's"),
		compare("all dialects, annotations of configdep", own, alone, "the same with --dialects=")...)
	rows[0].note = fmt.Sprintf(`a replica of its own reads only one namespace, with %d Deployments that are paused and %d that are not; a quarter each
  opts in by auto, by a list of names, by marked sources, and by auto with an exclusion. Starts and restarts last until the replica
  sends no more requests. Evaluations are those of the paused Deployments when their Secret changes, until a watch has received all events.
  Memory is heap and stacks after a garbage collection and after all of that, in addition to those of a replica without
  workloads.`, own.paused, own.rolled)
	if _, err := e.restart(ctx); err != nil {
		return nil, err
	}
	return rows, e.awaitServed(ctx)
}

func pausedName(i int) string { return fmt.Sprintf("paused-%d", i) }
func rolledName(i int) string { return fmt.Sprintf("rolled-%d", i) }

// The Secrets of all paused Deployments and of all others.
const evaluated, rolling = "evaluated", "rolling"

// fillDialect creates the workloads of a reading and their sources.
func (s *scene) fillDialect(ctx context.Context, d dialect) error {
	if err := errors.Join(s.putMarked(ctx, d, evaluated, "0"), s.putMarked(ctx, d, rolling, "0")); err != nil {
		return err
	}
	create := func(n int, name func(int) string, secret string, paused bool) error {
		return inParallel(ctx, 0, n, func(ctx context.Context, i int) error {
			o := bystander(name(i), reads("", secret))
			o.Spec.Paused = paused
			switch i % 4 {
			case 0:
				o.Annotations = undelayed(d.auto)
			case 1:
				o.Annotations = undelayed(d.listed, d.named(secret, ""))
			case 2:
				o.Annotations = undelayed(d.matched)
			case 3:
				o.Annotations = undelayed(d.auto, d.except("none"))
			}
			return s.put(ctx, o)
		})
	}
	return errors.Join(create(s.count(dialectsPaused), pausedName, evaluated, true), create(s.count(dialectsRolled), rolledName, rolling, false))
}

// putMarked writes a Secret that is marked.
func (s *scene) putMarked(ctx context.Context, d dialect, name, value string) error {
	o := s.secret(name, value)
	o.Annotations = d.mark
	return s.put(ctx, o)
}

// newReading returns a reading whose replica is stopped.
func (e *environment) newReading(name string, s *scene, d dialect, args ...string) (*reading, error) {
	args = append([]string{"--leader-elect=false", "--namespaces=" + s.namespace}, args...)
	replica, err := e.install.StartExtra("dialects-"+name, install.ReplicaOptions{Args: args})
	if err != nil {
		return nil, err
	}
	replica.Kill()
	return &reading{scene: s, dialect: d, replica: replica, paused: e.count(dialectsPaused), rolled: e.count(dialectsRolled)}, nil
}

// visit measures a new process: its start, what act measures, and its memory afterwards.
func (r *reading) visit(ctx context.Context, act func() error) error {
	if _, err := r.startOf(ctx, r.replica); err != nil {
		return err
	}
	defer r.replica.Kill()
	if err := r.idle(ctx); err != nil {
		return err
	}
	started, err := cpuTime(r.replica.PID())
	if err != nil {
		return err
	}
	r.start.addTime(started, time.Second)
	if err := act(); err != nil {
		return err
	}
	profile, err := r.profile()
	if err != nil {
		return err
	}
	inUse, err := profile.memoryInUse(ctx)
	r.inUse = append(r.inUse, inUse)
	return err
}

// restartAll changes the Secret of the Deployments that are not paused and waits for their rollouts, several times.
func (r *reading) restartAll(ctx context.Context) error {
	return r.use(&r.rollouts, func() error {
		for range dialectsRollouts {
			took, err := r.followAll(ctx, r.rolled, rolledName, func() error { return r.change(ctx, rolling) })
			if err != nil {
				return err
			}
			r.rollout.addTime(took, time.Millisecond)
		}
		return r.idle(ctx)
	})
}

// use measures the CPU of the replica while a function runs.
func (r *reading) use(cpu *samples, f func() error) error {
	before, err := cpuTime(r.replica.PID())
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	after, err := cpuTime(r.replica.PID())
	cpu.addTime(after-before, time.Second)
	return err
}

// change changes a Secret.
func (r *reading) change(ctx context.Context, name string) error {
	return r.putMarked(ctx, r.dialect, name, strconv.FormatInt(time.Now().UnixNano(), 10))
}

// profile returns a reader of the replica's memory.
func (r *reading) profile() (*idler, error) {
	return r.newIdler("a replica", r.config(), dependencies, r.replica.PID())
}

// config returns the configuration of the reader for requests to the replica.
func (r *reading) config() *rest.Config {
	config := r.replica.RESTConfig()
	config.BearerToken = r.reader.BearerToken
	return config
}

// evaluate changes the Secret of the paused Deployments and waits for all events.
func (r *reading) evaluate(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, dialectsLimit, fmt.Errorf("the evaluations took more than %v", dialectsLimit))
	defer cancel()
	witness, err := (&stand{config: r.config, list: in(r.namespace, dependencies), size: 1}).gather(ctx, nil)
	if err != nil {
		return err
	}
	defer witness.disperse()
	profile, err := r.profile()
	if err != nil {
		return err
	}
	before, err := profile.memoryAllocated(ctx)
	if err != nil {
		return err
	}
	err = r.use(&r.evaluation, func() error {
		for range dialectsChanges {
			witness.expect(r.paused)
			if err := r.change(ctx, evaluated); err != nil {
				return err
			}
			if err := witness.await(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	after, err := profile.memoryAllocated(ctx)
	r.allocated = append(r.allocated, (after-before)/1e3/float64(r.paused*dialectsChanges))
	return err
}
