// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingesttest

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/kind"
)

// process reads a cluster.
type process struct {
	index   *ingest.Index
	streams []string // the streams that it reads, workloads last
	unread  []string // the types of Secrets that it does not read
	kinds   kind.Table
	replay  *ingest.Replay
	held    bool
	news    []func() // events that it has not read yet
}

const namespaces = "namespaces"

// Start starts to read the cluster with an index, which replaces the previous one. The index has read nothing yet.
// The digester has the key of DigesterOf.
func (c *Cluster) Start(x *ingest.Index, scope ingest.Scope, key byte) {
	x.Within(scope)
	c.process = &process{index: x, streams: streamsOf(scope), unread: scope.UnreadTypes, kinds: scope.Kinds}
	c.process.replayWith(key)
}

func (p *process) replayWith(key byte) {
	p.replay = ingest.NewReplay(p.index, DigesterOf(key))
}

// DigesterOf returns the digester whose key ends with a byte.
func DigesterOf(key byte) *dependency.Digester {
	return dependency.NewDigester(append(make([]byte, dependency.KeySize-1), key))
}

// Index returns the index that reads the cluster.
func (c *Cluster) Index() *ingest.Index { return c.process.index }

// Replay returns the input of the index, for events that a cluster does not create by itself.
func (c *Cluster) Replay() *ingest.Replay { return c.process.replay }

// Read calls f with the evaluator. The test fails if the index has not read everything.
func (c *Cluster) Read(f func(decide.Evaluator)) {
	if !c.Index().Read(f) {
		c.t.Helper()
		c.t.Fatal("the index has not read everything")
	}
}

// List lists all objects. Events that were not read yet are dropped.
func (c *Cluster) List() {
	c.t.Helper()
	c.list(c.process.streams...)
}

// Relist simulates that all watches break: the process reads all events so far, then f makes changes that it does
// not see, and then everything is listed again.
func (c *Cluster) Relist(f func()) {
	c.t.Helper()
	c.Bookmark()
	c.Unseen(f)
	c.list(c.process.streams...)
}

// Bookmark lets each watch send a bookmark: the process has heard of everything so far.
func (c *Cluster) Bookmark() {
	c.t.Helper()
	for _, s := range c.process.streams {
		c.check(c.process.replay.Bookmark(s, c.version()))
	}
}

// Unseen calls f while the process reads no events. f may start another process.
func (c *Cluster) Unseen(f func()) {
	before := c.process
	c.process = nil
	defer func() { c.process = before }()
	f()
}

// Rekey reads everything again with another key of the digests. It calls before at the start, and between after
// the sources and before the workloads.
func (c *Cluster) Rekey(key byte, before, between func()) {
	c.t.Helper()
	p := c.process
	p.index.Reset()
	c.Unseen(before)
	p.replayWith(key)
	workloads := slices.IndexFunc(p.streams, func(s string) bool { return s == "deployments" })
	c.list(p.streams[:workloads]...)
	between()
	c.list(p.streams[workloads:]...)
}

// Hold keeps events from the process, until Release or List.
func (c *Cluster) Hold() { c.process.held = true }

// Release lets the process read all held events.
func (c *Cluster) Release() {
	p := c.process
	p.held = false
	for _, news := range p.news {
		news()
	}
	p.news = nil
}

// Late makes a change whose event the process reads when come is called.
func (c *Cluster) Late(change func()) (come func()) {
	p := c.process
	held, before := p.held, p.news
	p.held, p.news = true, nil
	change()
	late := p.news
	p.held, p.news = held, before
	return func() {
		for _, news := range late {
			news()
		}
	}
}

// Forget drops the held events.
func (c *Cluster) Forget() { c.process.news = nil }

// tell passes an event to the process if it reads such objects, or holds the event.
func (c *Cluster) tell(resource string, o Object, event func(*ingest.Replay, runtime.Object) error) {
	p := c.process
	switch {
	case p == nil || !slices.Contains(p.streams, p.streamOf(resource, o)):
	case p.held:
		o = o.DeepCopyObject().(Object)
		p.news = append(p.news, func() { c.check(event(p.replay, o)) })
	default:
		c.check(event(p.replay, sent(o)))
	}
}

// streamsOf returns the names of all streams, workloads last.
func streamsOf(scope ingest.Scope) (all []string) {
	all = append(all, namespaces)
	if !scope.WithoutConfigMaps {
		all = append(all, "configmaps")
	}
	if !scope.WithoutSecrets {
		all = append(all, "secrets")
		for _, t := range scope.UnreadTypes {
			all = append(all, "secrets/"+t)
		}
	}
	if scope.PodStatuses {
		all = append(all, ingest.PodStatuses)
	}
	for _, k := range scope.Kinds.All() {
		if k.Name == kind.Pod || slices.Contains(scope.IgnoredWorkloads, k.Name) {
			continue
		}
		if k.Name == kind.Deployment {
			all = append(all, ingest.ReplicaSets)
		}
		all = append(all, ingest.StreamOf(k))
	}
	all = append(all, ingest.Pods)
	return all
}

// streamOf returns the name of the stream that contains an object of a resource.
func (p *process) streamOf(resource string, o Object) string {
	if s, ok := o.(*corev1.Secret); ok && slices.Contains(p.unread, string(s.Type)) {
		return "secrets/" + string(s.Type)
	}
	if k := p.kinds.OfObject(o); k != nil {
		return ingest.StreamOf(k)
	}
	return resource
}

// list lists the streams one after the other.
func (c *Cluster) list(streams ...string) {
	c.t.Helper()
	p := c.process
	p.held, p.news = false, nil
	lists := map[string][]runtime.Object{}
	for key, o := range c.objects {
		if s := p.streamOf(key.resource, o); slices.Contains(streams, s) {
			lists[s] = append(lists[s], sent(o))
		}
	}
	for _, s := range streams {
		c.check(p.replay.ListOf(s, c.version(), lists[s]...))
	}
}

// sent returns the object that a process receives, parts of which it may keep. Sources are encoded.
func sent(o Object) Object {
	switch o.(type) {
	case *corev1.ConfigMap, *corev1.Secret:
		return o
	}
	return o.DeepCopyObject().(Object)
}

// version returns the version of a list or a bookmark.
func (c *Cluster) version() string { return strconv.FormatUint(c.Version, 10) }

func (c *Cluster) check(err error) {
	if err != nil {
		c.t.Helper()
		c.t.Error(err)
	}
}
