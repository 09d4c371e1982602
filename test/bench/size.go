// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/test/hop"
	"github.com/configdep/configdep/test/install"
)

const (
	sizeWatches = 2000 // total number of watches; of single namespaces, except for
	sizeWide    = 200  // of all namespaces
	// One in sizeGlobs namespaces is annotated with globs, which match all of its sources.
	sizeGlobs = 2
	// One in sizeOptedIn workloads has opted in.
	sizeOptedIn = 50

	// sizePhase is the duration of each phase: before the first rolling update, and after each.
	sizePhase = time.Minute
	// sizeMinReady is minReadySeconds of the manifests: how long a replica must be ready before the next is replaced.
	sizeMinReady = 25 * time.Second
	// The numbers of changes per second, besides one of a source in a namespace with globs.
	sizeStatuses, sizePods, sizeSources = 20, 25, 5
	// sizeLimit is how long the watches may take to open, and to receive all changes at the end.
	sizeLimit = 5 * time.Minute
)

// sizes is the largest cluster with its replicas and watches.
type sizes struct {
	*environment
	replicas  []*install.Replica
	hopper    *hop.Hopper
	before    *copied
	followers []*follower
	open      atomic.Int64 // watches
	relists   atomic.Int64
	started   atomic.Int64 // number of changes

	delays struct {
		sync.Mutex
		samples
	}
}

// benchmarkSize runs two replicas in the largest cluster with many watches, through two rolling updates, and counts
// relists and missed changes.
func benchmarkSize(ctx context.Context, e *environment) (rows []row, err error) {
	if err := e.fill(ctx, largest); err != nil {
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
	s.replicas = []*install.Replica{e.server(), extra}
	if s.hopper, err = hop.New(s.replicas[0].Address(), s.replicas[1].Address()); err != nil {
		return nil, err
	}
	defer s.hopper.Close()
	ended, err := s.watch(ctx)
	if err != nil {
		return nil, err
	}
	defer ended()
	rows, err = s.play(ctx)
	return append(rows,
		row{name: "size: start until ready", unit: "s", n: 1, got: exactly(start.Seconds())},
		row{name: "size: memory without watches", unit: "MB", n: 1, got: exactly(alone.rss)},
		row{name: "size: memory peak until then", unit: "MB", n: 1, got: exactly(alone.peak)}), err
}

// annotate opts workloads in, and gives globs to some namespaces.
func (s *sizes) annotate(ctx context.Context) error {
	err := inParallel(ctx, s.filled.workloads/sizeOptedIn, func(ctx context.Context, i int) error {
		i *= sizeOptedIn - 1 // spread over all namespaces
		_, err := s.client.AppsV1().Deployments(namespaceOf(i)).Patch(ctx, deploymentName(i), types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"configdep.io/reload":"auto"}}}`), metav1.PatchOptions{FieldManager: kubectl})
		return err
	})
	if err != nil {
		return err
	}
	return inParallel(ctx, namespaces/sizeGlobs, func(ctx context.Context, i int) error {
		_, err := s.client.CoreV1().Namespaces().Patch(ctx, namespaceOf(i*sizeGlobs), types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"configdep.io/sources":"secret/*,configmap/*"}}}`), metav1.PatchOptions{FieldManager: kubectl})
		return err
	})
}

// watch starts all watches from the version of one list, as informers that have listed before.
func (s *sizes) watch(ctx context.Context) (end func(), err error) {
	say("starting %d watches, of which %d of all namespaces", s.count(sizeWatches), s.count(sizeWide))
	if s.before, err = copyAll(ctx, s.server()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	end = func() { cancel(); wg.Wait() }
	var client rest.Interface
	for i := range s.count(sizeWatches) {
		if i%watchesPerConnection == 0 {
			if client, err = newRequester(s.hopper.Config(s.server().AdminConfig())); err != nil {
				end()
				return nil, err
			}
		}
		f := &follower{sizes: s, client: client, path: dependencies, version: s.before.version, changed: map[string]held{}}
		if i >= s.count(sizeWide) {
			f.path, f.scope = in(namespaceOf(i)), namespaceOf(i)+"/"
		}
		s.followers = append(s.followers, f)
		wg.Go(func() { f.run(ctx) })
	}
	if err := s.allOpen(ctx); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// allOpen waits until all watches are open that need not list again.
func (s *sizes) allOpen(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sizeLimit)
	defer cancel()
	err := poll(ctx, 100*time.Millisecond, func() bool { return s.open.Load()+s.relists.Load() == int64(len(s.followers)) })
	if err != nil {
		return fmt.Errorf("%d of %d watches are open: %w", s.open.Load(), len(s.followers), err)
	}
	return nil
}

// play makes changes through all phases, and returns the rows with the results of the watches.
func (s *sizes) play(ctx context.Context) ([]row, error) {
	changing, stop := context.WithCancel(ctx)
	changes, changing := errgroup.WithContext(changing)
	defer func() { stop(); _ = changes.Wait() }()
	for each, change := range map[time.Duration]func(context.Context, int) error{
		time.Second / sizeStatuses: s.writeStatus, time.Second / sizePods: s.writePod, time.Second / sizeSources: s.writeSource, time.Second: s.writeGlobbed,
	} {
		changes.Go(func() error { return s.change(changing, each, change) })
	}
	phase := time.Duration(float64(sizePhase) * min(1, max(s.scale, 0.1)))
	pause := func(what string) error {
		say("%s; %d changes so far, %d watches are open, %d relists", what, s.started.Load(), s.open.Load(), s.relists.Load())
		return sleep(changing, phase) // a change that fails ends the pause
	}
	probing, stopProbes := context.WithCancel(ctx)
	defer stopProbes()
	var probes errgroup.Group
	for _, r := range s.replicas {
		probes.Go(func() error { return s.probe(probing, r) })
	}
	err := pause("before the first rolling update")
	stopProbes()
	if err := errors.Join(err, probes.Wait()); err != nil {
		return nil, err
	}
	delays := s.delays.samples
	for i := range 2 {
		for _, r := range s.replicas {
			if err := errors.Join(r.Terminate(), r.Start(), r.AwaitReady(ctx), sleep(ctx, sizeMinReady)); err != nil {
				return nil, err
			}
		}
		if err := pause(fmt.Sprintf("after rolling update %d", i+1)); err != nil {
			return nil, err
		}
	}
	if err := s.allOpen(ctx); err != nil {
		return nil, err
	}
	stop()
	if err := changes.Wait(); err != nil {
		return nil, err
	}
	var peak samples
	for _, r := range s.replicas {
		m, err := memoryOf(r.PID())
		if err != nil {
			return nil, err
		}
		peak = append(peak, m.peak)
	}
	missed, err := s.missed(ctx)
	if err != nil {
		return nil, err
	}
	n := len(s.followers)
	rows := []row{
		{
			name: "size: delay until a watch shows a change, p99", unit: "ms", n: len(delays),
			got: summary{delays.quantile(0.99), delays.quantile(0.5), delays.quantile(0.999)}, limit: limit{value: 50},
		},
		{name: "size: relists through two rolling updates", unit: "lists", n: n, got: exactly(float64(s.relists.Load())), limit: limit{exact: true}},
		{name: "size: calls of handlers that were missed", unit: "objects", n: n, got: exactly(float64(missed)), limit: limit{exact: true}},
		{name: "size: memory peak of a replica", unit: "MB", n: len(peak), got: peak.summary()},
	}
	rows[0].note = fmt.Sprintf(`%v; one in %d namespaces has globs that match all of its sources, and one in %d workloads has opted in.
  %d watches, of which %d of all namespaces, each of a client that ignores an event with an unchanged version. Each second, %d
  statuses of Deployments, %d of pods, %d sources, and one source that globs of all opted-in workloads in its namespace match are written; %d changes in
  total. The delay is from the answer of kube-apiserver to a separate write until a watch of a replica shows it, before the first
  rolling update; in brackets p50 and p99.9. Servers and clients share the processors. A client decodes only names and
  versions, because %d informers with all objects would not fit into the memory of the machine.`,
		s.filled, sizeGlobs, sizeOptedIn, s.count(sizeWatches), s.count(sizeWide), sizeStatuses, sizePods, sizeSources, s.started.Load(), s.count(sizeWide))
	return rows, nil
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

// writePod makes a pod ready, or not, as its kubelet does.
func (s *sizes) writePod(ctx context.Context, i int) error {
	ready := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[s.started.Load()%2 == 0]
	status := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q,"lastTransitionTime":%q}]}}`, ready, time.Now().UTC().Format(time.RFC3339))
	_, err := s.client.CoreV1().Pods(namespaceOf(i)).Patch(ctx, podOf(deployment(i), revision, i%podsOf).Name, types.StrategicMergePatchType, status,
		metav1.PatchOptions{FieldManager: "kubelet"}, "status")
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
	o := secret(i, largest.sourceBytes)
	o.Data["KEY_3"] = []byte(strconv.FormatInt(s.started.Load(), 10))
	_, err := s.client.CoreV1().Secrets(namespaceOf(i)).Update(ctx, o, updatedBy)
	return err
}

// probe measures the time from a change until a watch of a replica shows it, until the context is done.
func (s *sizes) probe(ctx context.Context, r *install.Replica) error {
	client, err := newRequester(r.AdminConfig())
	if err != nil {
		return err
	}
	const namespace, label = metav1.NamespaceDefault, "bench-change"
	d := deployment(0)
	d.Name = "probe-" + r.Name()
	if _, err := s.client.AppsV1().Deployments(namespace).Create(ctx, d, createdBy); err != nil {
		return err
	}
	body, err := get(client, in(namespace)+"?watch=true&resourceVersion=0&fieldSelector=metadata.name%3Ddeployment."+d.Name).Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	lines := linesOf(body)
	for n := 1; ctx.Err() == nil; n++ {
		changed := fmt.Appendf(nil, "%q:\"%d\"", label, n)
		_, err := s.client.AppsV1().Deployments(namespace).Patch(ctx, d.Name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{%s}}}`, changed), metav1.PatchOptions{})
		written := time.Now()
		for seen := err != nil; !seen; seen = bytes.Contains(lines.Bytes(), changed) {
			if !lines.Scan() {
				err = errors.Join(errors.New("the watch ended"), lines.Err())
				break
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("probing %s: %w", r.Name(), err)
		}
		s.delays.Lock()
		s.delays.addTime(time.Since(written), time.Millisecond)
		s.delays.Unlock()
		_ = sleep(ctx, 100*time.Millisecond)
	}
	return nil
}

// missed counts the objects for which watches do not have the final state, after the last change. The replicas may
// differ in a few objects, because one that has just started has not seen the changes before.
func (s *sizes) missed(ctx context.Context) (missed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, sizeLimit)
	defer cancel()
	for {
		var truths [2]*copied
		for i, r := range s.replicas {
			// A list may be rejected because of too many concurrent ones.
			listed := poll(ctx, time.Second, func() bool { truths[i], err = copyAll(ctx, r); return err == nil })
			if listed != nil {
				return 0, fmt.Errorf("listing at %s: %w", r.Name(), errors.Join(listed, err))
			}
		}
		missed = 0
		for _, f := range s.followers {
			missed += f.missing(truths)
		}
		say("the watches have missed changes of %d objects", missed)
		if missed == 0 || sleep(ctx, 10*time.Second) != nil {
			return missed, nil
		}
	}
}

// copied is a list of all objects.
type copied struct {
	version string
	states  map[string]held // by namespace/name
}

// held is the state that a client has of an object: digests of its version and of the rest.
type held struct{ version, content uint64 }

var digests = maphash.MakeSeed()

func copyAll(ctx context.Context, r *install.Replica) (*copied, error) {
	client, err := newRequester(r.AdminConfig())
	if err != nil {
		return nil, err
	}
	all, err := list(ctx, client, dependencies)
	if err != nil {
		return nil, err
	}
	c := &copied{version: all.Metadata.ResourceVersion, states: make(map[string]held, len(all.Items))}
	for _, item := range all.Items {
		name, _, state, err := parseObject(item)
		if err != nil {
			return nil, err
		}
		c.states[name] = state
	}
	return c, nil
}

// parseObject parses an object as the server encodes it: metadata comes before all other fields that differ, and in it
// the name, the namespace and the version before any text that a user can write.
func parseObject(object []byte) (name, version string, state held, err error) {
	_, fields, _ := bytes.Cut(object, []byte(`"metadata":{`))
	value := func(field string) string {
		_, rest, _ := bytes.Cut(fields, []byte(`"`+field+`":"`))
		text, _, _ := bytes.Cut(rest, []byte(`"`))
		return string(text)
	}
	version = value("resourceVersion")
	if version == "" {
		return "", "", state, fmt.Errorf("%.200q has no version", object)
	}
	before, after, _ := bytes.Cut(fields, []byte(`"resourceVersion":"`+version+`"`))
	var h maphash.Hash
	h.SetSeed(digests)
	_, _ = h.Write(before)
	_, _ = h.Write(after)
	return value("namespace") + "/" + value("name"), version, held{maphash.String(digests, version), h.Sum64()}, nil
}

// follower watches as an informer that has listed before.
type follower struct {
	*sizes
	client  rest.Interface
	path    string
	scope   string // prefix of the names of its objects
	version string

	mu      sync.Mutex
	changed map[string]held // since the list
}

// run watches until the context is done. A follower that must list again ends: the benchmark has failed then.
func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.watch(ctx)
		switch {
		case err == nil: // a regular end
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
			f.relists.Add(1)
			return
		default:
			_ = sleep(ctx, 100*time.Millisecond)
		}
	}
}

// watch watches from the last version until the watch ends.
func (f *follower) watch(ctx context.Context) error {
	body, err := get(f.client, f.path+"?watch=true&allowWatchBookmarks=true&resourceVersion="+f.version).Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	f.open.Add(1)
	defer f.open.Add(-1)
	lines := linesOf(body)
	for lines.Scan() {
		if err := f.take(lines.Bytes()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// take handles an event as a handler of an informer does: it ignores an object with an unchanged version.
func (f *follower) take(line []byte) error {
	kind, object, err := parseEvent(line)
	if err != nil {
		return err
	}
	name, version, state, err := parseObject(object)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version = version
	if _, known := f.before.states[name]; known && f.state(name).version != state.version {
		if kind == "DELETED" {
			state.content = 0
		}
		f.changed[name] = state
	}
	return nil
}

// state returns the state that the follower has of an object.
func (f *follower) state(name string) held {
	if now, changed := f.changed[name]; changed {
		return now
	}
	return f.before.states[name]
}

// missing counts the objects whose state differs from all of the lists.
func (f *follower) missing(truths [2]*copied) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.before.states {
		has := f.state(name).content
		if strings.HasPrefix(name, f.scope) && has != truths[0].states[name].content && has != truths[1].states[name].content {
			n++
		}
	}
	return n
}
