// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/wave"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

const namespace = ingesttest.Namespace

// cluster is a fake API server, an index that receives every change immediately unless it is
// held back, and a controller. It uses the time of the synctest bubble in which the test
// runs.
type cluster struct {
	*ingesttest.Cluster // used with mu held if requests may be in flight

	t          *testing.T
	start      time.Time
	client     *client
	controller *Controller
	log        lockedBuffer

	mu       sync.Mutex
	requests []request
	events   []string
	refuse   func(clienttesting.Action) error // of write requests
	owner    func()                           // called ownerLatency after each patch

	// clock is the clock of the processes, which may differ from the clock of the API server.
	clock clock.WithTicker
	// defaults are the policy defaults of the next process.
	defaults policy.Defaults
	// running are the names of the pods of the workloads, by the names of these; nil: the test has its own.
	running map[string]string

	resign func() // ends the last term that lead began

	// atOnce is how many workloads the next process restarts at a time; 0: any number.
	atOnce int

	hear func(reason string) // of events; set while nothing is running
}

// client is a fake client without managed fields, which the cluster sets itself: fake.NewClientset would list all types of Kubernetes for
// each write, which takes half of the time of the tests.
type client struct {
	fake.Clientset
	tracker clienttesting.ObjectTracker
}

func newClient() *client {
	c := &client{tracker: clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())}
	c.AddReactor("*", "*", clienttesting.ObjectReaction(c.tracker))
	return c
}

// Tracker returns what is stored.
func (c *client) Tracker() clienttesting.ObjectTracker { return c.tracker }

// inCluster runs a test in a bubble, with a controller that is not running.
func inCluster(t *testing.T, test func(*cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{
			Cluster: ingesttest.New(t, clock.RealClock{}),
			t:       t, start: time.Now(), client: newClient(), clock: clock.RealClock{},
			running:  map[string]string{},
			defaults: policy.Defaults{Mode: policy.Off, Settle: time.Second, MinInterval: 10 * time.Second},
		}
		c.Wrote = c.mirror
		c.client.PrependReactor("patch", "*", c.patch)
		c.client.PrependReactor("create", "pods", c.evict)
		c.newProcess()
		test(c)
	})
}

// newProcess creates a controller and an empty index.
func (c *cluster) newProcess() {
	planner := wave.New(cmp.Or(c.atOnce, -1), c.clock, func(changed, admitted []dependency.WorkloadKey) { c.controller.Queue(slices.Concat(changed, admitted)) })
	c.controller = New(Config{
		Planner: planner, Client: workloadtest.Client(c.client), Sink: notify.Sinks{notify.KubernetesEvents{Recorder: recorder{c}}, notify.Metrics{}}, Clock: c.clock, Workers: 2, AdmissionPolicy: "configdep-apiserver-annotations",
	})
	index := ingest.NewIndex(c.clock, c.controller)
	index.SetDefaults(c.defaults)
	c.Start(index, ingest.Scope{}, 0)
}

// synced makes the index read the whole cluster.
func (c *cluster) synced() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.List()
}

// lead runs the controller until the returned function is called, which waits for Run to
// return.
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

// advance lets time pass, and waits until all goroutines are idle.
func (c *cluster) advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// adopted sets up a cluster whose controller leads and has recorded the content of a
// Deployment web, which reads the Secret db.
func adopted(c *cluster) (stop func()) {
	c.t.Helper()
	c.synced()
	c.set(secret("db", "1"))
	c.set(deployment("web", "db"))
	stop = c.lead()
	c.advance(time.Minute)
	if got := c.took(); len(got) != 1 || !strings.HasSuffix(got[0], "baseline web") {
		c.t.Fatalf("requests to adopt the workload = %v", got)
	}
	return stop
}

// nextLeader starts a process that knows nothing of what the last one has seen, and makes it lead instead.
func (c *cluster) nextLeader() {
	c.t.Helper()
	c.resign()
	c.newProcess()
	c.synced()
	c.lead()
}

// decision returns the decision that a view of the Deployment web would show.
func (c *cluster) decision() (d decide.Decision) {
	c.t.Helper()
	key := dependency.WorkloadKey{Kind: kind.Deployment, Namespace: namespace, Name: "web"}
	c.Read(func(known decide.Evaluator) {
		d = known.Evaluate(known.Graph.Workload(key)).Decide(c.clock.Now())
	})
	return d
}

func (c *cluster) expectState(what string, state decide.State, reason string) {
	c.t.Helper()
	if d := c.decision(); d.State != state || d.Reason != reason {
		c.t.Fatalf("%s: state and reason = %s/%s, want %s/%s", what, d.State, d.Reason, state, reason)
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
