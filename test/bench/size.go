// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/test/hop"
	"github.com/configdep/configdep/test/install"
)

// The largest cluster, at scale 1.
var sizeShape = shape{workloads: 50_000, sources: 100_000, sourceBytes: 1 << 10}

const (
	sizeWatches = 2000 // total number of watches; of single namespaces, except for
	sizeWide    = 200  // of all namespaces
	// One in sizeGlobs namespaces is annotated with globs, which match all of its sources.
	sizeGlobs = 2
	// One in sizeOptedIn workloads has opted in.
	sizeOptedIn = 50

	// sizePhase is the duration of each phase: before the first rolling update, after each, and after the kill.
	sizePhase = time.Minute
	// sizeMinReady is minReadySeconds of the manifests: how long a replica must be ready before the next is replaced.
	sizeMinReady = 25 * time.Second
	// The numbers of changes per second, besides one of a source in a namespace with globs.
	sizeStatuses, sizeSources = 20, 5
	// sizeLimit is how long the watches may take to receive all changes at the end.
	sizeLimit = 5 * time.Minute
)

// sizes is the largest cluster with its replicas and watches.
type sizes struct {
	*environment
	replicas []*install.Replica
	hopper   *hop.Hopper
	objects  *spectacle
	all      []*spectator
	started  atomic.Int64 // number of changes

	delays struct {
		sync.Mutex
		samples
	}
}

// benchmarkSize runs two replicas in a cluster of sizeShape with many watches, through two rolling updates and a kill,
// and counts relists, missed changes and other effects that clients must not see.
func benchmarkSize(ctx context.Context, e *environment) (rows []row, err error) {
	if err := e.fill(ctx, sizeShape); err != nil {
		return nil, err
	}
	s := &sizes{environment: e}
	if err := s.annotate(ctx); err != nil {
		return nil, fmt.Errorf("opting in: %w", err)
	}
	began := time.Now()
	extra, err := e.install.StartExtra("size", install.ReplicaOptions{})
	if err != nil {
		return nil, err
	}
	defer extra.Kill()
	if err := extra.AwaitReady(ctx); err != nil {
		return nil, err
	}
	start := time.Since(began)
	// A replica rejects versions from before its start as too old, so wait before the first list.
	if err := sleep(ctx, sizeMinReady); err != nil {
		return nil, err
	}
	alone, err := memoryOf(extra.PID())
	if err != nil {
		return nil, err
	}
	rows = append(rows,
		row{name: "size: start until ready", unit: "s", n: 1, got: exactly(start.Seconds())},
		row{name: "size: memory without watches", unit: "MB", n: 1, got: exactly(alone.rss)},
		row{name: "size: memory peak until then", unit: "MB", n: 1, got: exactly(alone.peak)})
	s.replicas = []*install.Replica{e.server(), extra}
	if s.hopper, err = hop.New(s.replicas[0].Address(), s.replicas[1].Address()); err != nil {
		return nil, err
	}
	defer s.hopper.Close()
	ended, err := s.watch(ctx)
	if err != nil {
		return rows, err
	}
	defer ended()
	played, err := s.play(ctx)
	return append(rows, played...), err
}

// annotate opts workloads in, and gives globs to some namespaces.
func (s *sizes) annotate(ctx context.Context) error {
	say("opting in")
	optIn, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": dialects[s.dialect].auto}})
	if err != nil {
		return err
	}
	err = inParallel(ctx, 0, s.filled.workloads/sizeOptedIn, func(ctx context.Context, i int) error {
		i *= sizeOptedIn - 1 // spread over all namespaces
		_, err := s.client.AppsV1().Deployments(namespaceOf(i)).Patch(ctx, deploymentName(i), types.MergePatchType,
			optIn, metav1.PatchOptions{FieldManager: kubectl})
		return err
	})
	if err != nil {
		return err
	}
	return inParallel(ctx, 0, namespaces/sizeGlobs, func(ctx context.Context, i int) error {
		_, err := s.client.CoreV1().Namespaces().Patch(ctx, namespaceOf(i*sizeGlobs), types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"configdep.io/sources":"secret/*,configmap/*"}}}`), metav1.PatchOptions{FieldManager: kubectl})
		return err
	})
}

// watch starts all watches from the version of one list, as informers that have listed before.
func (s *sizes) watch(ctx context.Context) (end func(), err error) {
	say("starting %d watches, of which %d of all namespaces", s.count(sizeWatches), s.count(sizeWide))
	config := s.readerAtServer()
	lister, err := newRequester(ownConnection(s.hopper.Config(config)))
	if err != nil {
		return nil, err
	}
	content, err := lister.read(ctx, request{path: dependencies})
	if err != nil {
		return nil, err
	}
	if s.objects, err = newSpectacle(content); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var client *requester
	for i := range s.count(sizeWatches) {
		if i%crowdPerConnection == 0 {
			if client, err = newRequester(ownConnection(s.hopper.Config(config))); err != nil {
				cancel()
				wg.Wait()
				return nil, err
			}
		}
		path := dependencies
		if i >= s.count(sizeWide) {
			path = in(namespaceOf(i), dependencies)
		}
		one := s.objects.spectator(client, path)
		s.all = append(s.all, one)
		wg.Go(func() { one.run(ctx) })
	}
	end = func() { cancel(); wg.Wait() }
	if err := s.allOpen(ctx); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// allOpen waits until all watches are open.
func (s *sizes) allOpen(ctx context.Context) error {
	if err := poll(ctx, 100*time.Millisecond, func() bool { return s.objects.open.Load() == int64(len(s.all)) }); err != nil {
		return fmt.Errorf("%d of %d watches are open: %w", s.objects.open.Load(), len(s.all), err)
	}
	return nil
}

// play makes changes through all phases, and returns the rows with the results of the watches.
func (s *sizes) play(ctx context.Context) ([]row, error) {
	changing, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	failed := make(chan error, 1)
	change := func(each time.Duration, f func(context.Context, int) error) {
		wg.Go(func() {
			if err := s.change(changing, each, f); err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	change(time.Second/sizeStatuses, s.writeStatus)
	change(time.Second/sizeSources, s.writeSource)
	change(time.Second, s.writeGlobbed)

	phase := time.Duration(float64(sizePhase) * min(1, max(s.scale, 0.1)))
	pause := func(what string) error {
		for _, r := range s.replicas {
			if m, err := memoryOf(r.PID()); err == nil {
				say("memory of %s: %.0f MB, peak %.0f MB", r.Name(), m.rss, m.peak)
			}
		}
		say("%s; %d changes so far, %d watches are open, %d relists, %d retries", what,
			s.started.Load(), s.objects.open.Load(), s.objects.relists.Load(), s.objects.retries.Load())
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(phase):
			return nil
		}
	}
	before, err := s.cpuOfReplicas()
	if err != nil {
		return nil, err
	}
	var probes errgroup.Group
	probing, stopProbes := context.WithCancel(ctx)
	defer stopProbes()
	for _, r := range s.replicas {
		probes.Go(func() error { return s.probe(probing, r) })
	}
	err = pause("before the first rolling update")
	stopProbes()
	if err := errors.Join(err, probes.Wait()); err != nil {
		return nil, err
	}
	after, err := s.cpuOfReplicas()
	if err != nil {
		return nil, err
	}
	delays := s.delays.samples
	for i := range 2 {
		for _, r := range s.replicas {
			if err := errors.Join(r.Terminate(), r.Start(), r.AwaitReady(ctx)); err != nil {
				return nil, err
			}
			if err := sleep(ctx, sizeMinReady); err != nil {
				return nil, err
			}
		}
		if err := pause(fmt.Sprintf("after rolling update %d", i+1)); err != nil {
			return nil, err
		}
	}
	rolled := s.objects.relists.Load()
	s.replicas[0].Kill()
	if err := errors.Join(s.replicas[0].Start(), s.replicas[0].AwaitReady(ctx), pause("after the kill")); err != nil {
		return nil, err
	}
	// On a machine with few processors, the watches may take long to list.
	within, cancel := context.WithTimeout(ctx, sizeLimit)
	defer cancel()
	if err := s.allOpen(within); err != nil {
		return nil, err
	}
	stop()
	wg.Wait()
	var rss, peak samples
	for _, r := range s.replicas {
		m, err := memoryOf(r.PID())
		if err != nil {
			return nil, err
		}
		rss, peak = append(rss, m.rss), append(peak, m.peak)
	}
	missed, err := s.missed(ctx)
	if err != nil {
		return nil, err
	}
	cpu := samples{float64(after-before) / float64(time.Millisecond) / phase.Seconds() / float64(len(s.replicas))}
	rows := []row{
		{name: "size: delay until a watch shows a change, p99", unit: "ms", n: len(delays),
			got: summary{delays.quantile(0.99), delays.quantile(0.5), delays.quantile(0.999)}, limit: limit{value: 50}},
		{name: "size: relists through two rolling updates", unit: "lists", n: len(s.all), got: exactly(float64(rolled)), limit: limit{value: 0, exact: true}},
		{name: "size: relists after a kill", unit: "lists", n: len(s.all), got: exactly(float64(s.objects.relists.Load() - rolled))},
		{name: "size: calls of handlers that were missed", unit: "objects", n: len(s.all), got: exactly(float64(missed)), limit: limit{value: 0, exact: true}},
		{name: "size: versions that two states have", unit: "events", n: int(s.objects.events.Load()), got: exactly(float64(s.objects.repeated.Load())), limit: limit{value: 0, exact: true}},
		{name: "size: CPU of a replica in a second", unit: "ms", n: 1, got: cpu.summary()},
		{name: "size: memory of a replica", unit: "MB", n: len(rss), got: rss.summary()},
		{name: "size: memory peak of a replica", unit: "MB", n: len(peak), got: peak.summary()},
	}
	rows[0].note = fmt.Sprintf(`%v; one in %d namespaces has globs that match all of its sources, and one in %d workloads has opted in.
  %d watches, of which %d of all namespaces, each of a client that ignores an event with an unchanged version. Each second, %d
  statuses, %d sources, and one source that globs of all opted-in workloads in its namespace match are written; %d changes in
  total. The delay is from the answer of kube-apiserver to a separate write until a watch of a replica shows it, before the first
  rolling update; in brackets p50 and p99.9. Servers and clients share the processors. A client decodes only names and
  versions, because %d informers with all objects would not fit into the memory of the machine.`,
		s.filled, sizeGlobs, sizeOptedIn, s.count(sizeWatches), s.count(sizeWide), sizeStatuses, sizeSources, s.started.Load(), s.count(sizeWide))
	return rows, nil
}

func (s *sizes) cpuOfReplicas() (sum time.Duration, err error) {
	for _, r := range s.replicas {
		used, err := cpuTime(r.PID())
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// change calls a function at an interval until the context is done.
func (s *sizes) change(ctx context.Context, each time.Duration, f func(context.Context, int) error) error {
	tick := time.NewTicker(each)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := f(ctx, rand.IntN(s.filled.workloads)); err != nil && ctx.Err() == nil {
			return err
		}
		s.started.Add(1)
	}
}

// writeStatus writes the status of a Deployment as its controller does.
func (s *sizes) writeStatus(ctx context.Context, i int) error {
	status := fmt.Appendf(nil, `{"status":{"observedGeneration":%d,"replicas":2,"updatedReplicas":2,"readyReplicas":%d,"availableReplicas":%[2]d}}`,
		1+s.started.Load()%5, s.started.Load()%3)
	_, err := s.client.AppsV1().Deployments(namespaceOf(i)).Patch(ctx, deploymentName(i), types.MergePatchType, status,
		metav1.PatchOptions{FieldManager: "kube-controller-manager"}, "status")
	return err
}

// writeSource changes a Secret in a namespace without globs.
func (s *sizes) writeSource(ctx context.Context, i int) error {
	if i%sizeGlobs == 0 {
		i++
	}
	return s.writeSecret(ctx, i)
}

// writeGlobbed changes a Secret that globs match.
func (s *sizes) writeGlobbed(ctx context.Context, i int) error {
	return s.writeSecret(ctx, i-i%sizeGlobs)
}

func (s *sizes) writeSecret(ctx context.Context, i int) error {
	o := secret(i, sizeShape.sourceBytes)
	o.Data["KEY_3"] = []byte(strconv.FormatInt(s.started.Load(), 10))
	_, err := s.client.CoreV1().Secrets(namespaceOf(i)).Update(ctx, o, updatedBy)
	return err
}

// probe measures the time from a change until a watch of a replica shows it.
func (s *sizes) probe(ctx context.Context, r *install.Replica) error {
	config := r.RESTConfig()
	config.BearerToken = s.reader.BearerToken
	client, err := newRequester(ownConnection(config))
	if err != nil {
		return err
	}
	defer client.client.CloseIdleConnections()
	const namespace = metav1.NamespaceDefault
	d := deployment(0)
	d.Name = "probe-" + r.Name()
	if _, err := s.client.AppsV1().Deployments(namespace).Create(ctx, d, createdBy); err != nil {
		return err
	}
	defer func() {
		_ = s.client.AppsV1().Deployments(namespace).Delete(context.Background(), d.Name, metav1.DeleteOptions{})
	}()
	path := in(namespace, dependencies) + "?watch=true&resourceVersion=0&fieldSelector=metadata.name%3Ddeployment." + d.Name
	body, _, err := client.open(ctx, request{path: path})
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer body.Close()
	lines := newLines(body)
	for n := 1; ctx.Err() == nil; n++ {
		label := fmt.Appendf(nil, "%q:\"%d\"", changeLabel, n)
		_, err := s.client.AppsV1().Deployments(namespace).Patch(ctx, d.Name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{%s}}}`, label), metav1.PatchOptions{})
		written := time.Now()
		for seen := err != nil; !seen; {
			var line []byte
			line, err = lines.next()
			seen = err != nil || bytes.Contains(line, label)
		}
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return fmt.Errorf("probing %s: %w", r.Name(), err)
		}
		s.delays.Lock()
		s.delays.addTime(time.Since(written), time.Millisecond)
		s.delays.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// missed counts the objects for which watches do not have the final state, after the last change. The replicas may
// differ in a few objects, because one that has just started has not seen the changes before.
func (s *sizes) missed(ctx context.Context) (missed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, sizeLimit)
	defer cancel()
	counted := false
	for {
		var truths []*spectacle
		for _, r := range s.replicas {
			truth, err := s.list(ctx, r)
			switch {
			case err != nil && counted:
				return missed, nil //nolint:nilerr // the time is up
			case err != nil:
				return 0, fmt.Errorf("listing at %s: %w", r.Name(), err)
			}
			truths = append(truths, truth)
		}
		missed, counted = 0, true
		for _, one := range s.all {
			missed += one.missing(truths)
		}
		say("the watches have missed changes of %d objects; the replicas differ in %d", missed, truths[0].differing(truths[1]))
		if missed == 0 || sleep(ctx, 10*time.Second) != nil {
			return missed, nil
		}
	}
}

// list lists the objects of a replica.
func (s *sizes) list(ctx context.Context, r *install.Replica) (*spectacle, error) {
	config := r.RESTConfig()
	config.BearerToken = s.reader.BearerToken
	client, err := newRequester(ownConnection(config))
	if err != nil {
		return nil, err
	}
	defer client.client.CloseIdleConnections()
	for {
		content, err := client.read(ctx, request{path: dependencies})
		if err == nil {
			return newSpectacle(content)
		}
		// A list may be rejected because of too many concurrent ones.
		if sleepErr := sleep(ctx, time.Second); sleepErr != nil {
			return nil, errors.Join(err, sleepErr)
		}
	}
}
