// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

const namespace = ingesttest.Namespace

// cluster is an API server, as far as the controller talks to it, an index that hears of
// every change at once, unless it is held back, and a controller. Time is that of the
// bubble of synctest that the test runs in.
type cluster struct {
	*ingesttest.Cluster // is used with mu held, if requests may be under way

	t          *testing.T
	start      time.Time
	client     *fake.Clientset
	controller *Controller
	log        lockedBuffer

	mu       sync.Mutex
	requests []request
	events   []string
	refuse   func(clienttesting.Action) error // of requests that change something
	owner    func()                           // is called a moment after each patch

	reactorsMu sync.Mutex
	reactors   []clienttesting.Reactor // the first that handles a request answers it; see intercept

	// clock is that of the processes, which may differ from that of the API server.
	clock clock.WithTicker
	// defaults are those of the next process.
	defaults policy.Defaults
	// noRevisions: the next process looks up no ControllerRevisions.
	noRevisions bool

	resign func() // ends what lead began last

	hear func(reason string) // of events; set while nothing is under way
}

// inCluster runs a test in a bubble, with a controller that is not running.
func inCluster(t *testing.T, test func(*cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{
			Cluster: ingesttest.New(t, clock.RealClock{}),
			t:       t, start: time.Now(), client: fake.NewClientset(), clock: clock.RealClock{},
			defaults: policy.Defaults{Mode: policy.Off, Settle: time.Second, MinInterval: 10 * time.Second},
		}
		c.Wrote = c.mirror
		c.client.PrependReactor("patch", "*", c.patch)
		c.client.PrependReactor("create", "pods", c.evict)
		c.client.PrependReactor("*", "*", c.react)
		c.newProcess()
		test(c)
	})
}

// intercept lets a reactor answer requests from now on, before those that were there: the client's
// own chain must not change while a controller runs.
func (c *cluster) intercept(verb, resource string, react clienttesting.ReactionFunc) {
	c.reactorsMu.Lock()
	defer c.reactorsMu.Unlock()
	c.reactors = append([]clienttesting.Reactor{&clienttesting.SimpleReactor{Verb: verb, Resource: resource, Reaction: react}}, c.reactors...)
}

func (c *cluster) react(a clienttesting.Action) (bool, runtime.Object, error) {
	c.reactorsMu.Lock()
	reactors := c.reactors
	c.reactorsMu.Unlock()
	for _, r := range reactors {
		if !r.Handles(a) {
			continue
		}
		if handled, o, err := r.React(a.DeepCopy()); handled {
			return handled, o, err
		}
	}
	return false, nil, nil
}

// newProcess makes a controller and an index that has read nothing.
func (c *cluster) newProcess() {
	c.controller = New(Config{
		Client: workloadtest.Client(c.client), Sink: notify.Sinks{notify.KubernetesEvents{Recorder: recorder{c}}, notify.Metrics{}}, Clock: c.clock, Workers: 2,
		NoRevisions: c.noRevisions,
	})
	index := ingest.NewIndex(c.clock, c.controller)
	index.SetDefaults(c.defaults)
	c.Start(index, ingest.Scope{}, 0)
}

// synced lets the index read everything that there is.
func (c *cluster) synced() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.List()
}

// lead runs the controller until the function that it returns is called, which waits for
// the end of it.
func (c *cluster) lead() (stop func()) {
	ctx, cancel := context.WithCancel(c.context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.controller.Run(ctx, c.Index())
	}()
	synctest.Wait()
	stop = func() {
		cancel()
		<-done
	}
	c.t.Cleanup(stop)
	c.resign = stop
	return stop
}

func (c *cluster) context() context.Context {
	return klog.NewContext(context.Background(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&c.log))))
}

// advance lets time pass, and waits until nothing is under way.
func (c *cluster) advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// adopted is a cluster whose controller leads and has recorded what a Deployment web runs
// with, the Secret db.
func adopted(c *cluster) (stop func()) {
	c.t.Helper()
	c.synced()
	c.set(secret("db", "1"))
	c.set(deployment("web", "db"))
	stop = c.lead()
	c.advance(time.Minute)
	if got := c.took(); len(got) != 1 || !strings.HasSuffix(got[0], "baseline web") {
		c.t.Fatalf("when the workload was adopted: %v", got)
	}
	return stop
}

// newLeader is a process that has begun after everything that there is.
func newLeader(c *cluster) {
	c.t.Helper()
	c.newProcess()
	c.synced()
	c.lead()
	c.advance(time.Minute)
	c.took()
	c.told()
}

// several is a process that does not know of one revision counter for all resources.
func several(c *cluster) {
	c.t.Helper()
	c.newProcess()
	c.Index().Reset() // forgets what a Replay takes for granted
	c.synced()
	c.Read(func(known policy.Evaluator) {
		if !known.Graph.SeveralCounters() {
			c.t.Fatal("versions of different resources are compared")
		}
	})
}

// present returns the record of what there is for the Deployment web.
func (c *cluster) present() (r policy.Record) {
	c.t.Helper()
	key := dependency.WorkloadKey{Kind: kind.Deployment, Namespace: namespace, Name: "web"}
	c.Read(func(known policy.Evaluator) { r = known.Evaluate(known.Graph.Workload(key)).Present() })
	return r
}

// decision returns what a view of the Deployment web would show.
func (c *cluster) decision() (d policy.Decision) {
	c.t.Helper()
	key := dependency.WorkloadKey{Kind: kind.Deployment, Namespace: namespace, Name: "web"}
	c.Read(func(known policy.Evaluator) {
		d = known.Evaluate(known.Graph.Workload(key)).Decide(policy.Observed{Now: c.clock.Now(), StandsBy: c.controller.StandsBy(), Inspected: c.controller.Found(key)})
	})
	return d
}

func (c *cluster) expectState(what string, state policy.State, reason string) {
	c.t.Helper()
	if d := c.decision(); d.State != state || d.Reason != reason {
		c.t.Fatalf("%s: %s/%s, want %s/%s", what, d.State, d.Reason, state, reason)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
