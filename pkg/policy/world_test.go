// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"reflect"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

const namespace = "shop"

// epoch is when worlds begin: a whole second, like the times of API objects.
var epoch = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// world is a cluster as the index sees it, with one Deployment. Objects get versions and
// times as an API server gives them.
type world struct {
	t        *testing.T
	defaults Defaults
	key      byte   // of the digester
	client   string // the field manager of what is written
	// No Secrets are read, or none of a type.
	withoutSecrets bool
	unread         corev1.SecretType
	now            time.Time
	live           bool   // the first list has been read
	listed         bool   // a watch is broken, and everything is listed again
	cut            uint64 // the version up to which everything had been read then
	rekeyed        bool   // what is read again was read with another key of the hash

	graph       *dependency.Graph
	digester    *dependency.Digester
	version     uint64
	order       uint64
	deployment  *appsv1.Deployment
	sources     map[dependency.SourceKey]metav1.Object
	annotations map[string]string // of the namespace
	staleSince  time.Time
	verified    *bool
	// mixed are what a look at the pods finds to be read by some while it was different.
	mixed []string
	// recorded is the place in the order of reading at which record was decided on.
	recorded uint64
}

// newWorld returns a world with a Deployment that reads what pod does, in mode auto, and
// with sources that were written an hour ago.
func newWorld(t *testing.T, pod corev1.PodSpec, sources ...metav1.Object) *world {
	t.Helper()
	x := &world{
		t: t, client: "owner", now: epoch.Add(-time.Hour), version: 100,
		defaults: Defaults{Mode: Off, Settle: time.Second, MinInterval: 10 * time.Second},
		graph:    newGraph(dependency.NewDigester(make([]byte, dependency.KeySize))),
		digester: dependency.NewDigester(make([]byte, dependency.KeySize)),
		sources:  map[dependency.SourceKey]metav1.Object{},
	}
	for _, s := range sources {
		x.set(s)
	}
	x.deployment = &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "web", UID: "web-1", CreationTimestamp: metav1.NewTime(x.now),
			Annotations: map[string]string{ReloadAnnotation: "auto"},
		},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{Spec: pod},
		},
	}
	x.roll()
	x.edit(func(*appsv1.Deployment) {})
	x.graph.SetSince(dependency.Moment{Version: x.version, Order: x.order})
	x.now, x.live = epoch, true
	return x
}

// restart makes the process forget what it has seen and read everything again.
func (x *world) restart() {
	x.live, x.graph, x.staleSince = false, newGraph(x.digester), time.Time{}
	if x.withoutSecrets {
		x.graph.LeaveOut(dependency.Secret)
	}
	x.digester = dependency.NewDigester(append(make([]byte, dependency.KeySize-1), x.key))
	x.graph.SetDigester(x.digester)
	x.graph.SetNamespace(namespace, x.annotations)
	for _, s := range x.sources {
		x.read(s)
	}
	x.readDeployment()
	x.live = true
}

// replaceKey gives the digester another key, which makes the process read everything again.
func (x *world) replaceKey() {
	x.key++
	x.restart()
}

// away lets changes happen while no process looks.
func (x *world) away(f func()) {
	f()
	x.restart()
}

// broken lets changes happen while a watch is broken. A list shows what has become of everything.
func (x *world) broken(f func()) {
	graph, cut := x.graph, x.version
	x.graph = newGraph(x.digester)
	x.restart()
	f()
	x.graph, x.live, x.listed, x.cut = graph, false, true, cut
	for _, s := range x.sources {
		x.read(s)
	}
	var gone []dependency.SourceKey
	x.graph.EachSource(func(s *dependency.Source) {
		if x.sources[s.SourceKey] == nil {
			gone = append(gone, s.SourceKey)
		}
	})
	for _, key := range gone {
		x.graph.DeleteSource(key, dependency.Change{Version: x.version, Seen: x.now, Order: x.arrival().Order, After: cut})
	}
	x.readDeployment()
	x.live, x.listed, x.cut = true, false, 0
}

// rekey gives the digester another key, with which everything is read again. What is known
// besides digests stays. Before that something happens, and between the sources and the Deployment
// something else.
func (x *world) rekey(key byte, before, between func(*world)) {
	vouched, order, graph := x.known().Vouch(x.workload()), x.order, x.graph
	x.graph = newGraph(x.digester)
	before(x)
	x.graph, x.key, x.listed, x.live, x.rekeyed = graph, key, true, false, true
	x.digester = dependency.NewDigester(append(make([]byte, dependency.KeySize-1), key))
	x.graph.SetDigester(x.digester)
	x.graph.SetNamespace(namespace, x.annotations)
	for _, s := range x.sources {
		x.read(s)
	}
	var gone []dependency.SourceKey
	x.graph.EachSource(func(s *dependency.Source) {
		if x.sources[s.SourceKey] == nil {
			gone = append(gone, s.SourceKey)
		}
	})
	for _, key := range gone {
		x.graph.DeleteSource(key, dependency.Change{Version: x.version, Seen: x.now, Order: x.arrival().Order})
	}
	x.live, x.rekeyed = true, false
	between(x)
	x.live, x.rekeyed = false, true
	x.readDeployment()
	x.live, x.listed, x.rekeyed = true, false, false
	w := x.workload()
	if vouched == nil {
		return
	}
	if next := vouched.Translate(x.known(), w, order); next != w {
		p := Note(next, w, x.annotations, x.defaults, w.ResourceVersion, dependency.Arrival{Order: x.order})
		x.graph.SetWorkload(next, p.Patterns())
	}
}

// namespaceAnnotations sets the annotations of the namespace.
func (x *world) namespaceAnnotations(a map[string]string) {
	x.version++
	x.annotations = a
	x.graph.SetNamespace(namespace, a)
	x.readDeployment()
}

// set creates or updates a source.
func (x *world) set(o metav1.Object) {
	o.SetNamespace(namespace)
	key := keyOf(o)
	x.version++
	o.SetResourceVersion(strconv.FormatUint(x.version, 10))
	old := x.sources[key]
	if old == nil {
		o.SetUID(types.UID(key.Name + "-" + o.GetResourceVersion()))
		o.SetCreationTimestamp(metav1.NewTime(x.now.Truncate(time.Second)))
	} else {
		o.SetUID(old.GetUID())
		o.SetCreationTimestamp(old.GetCreationTimestamp())
		o.SetManagedFields(old.GetManagedFields())
		// As the API server does it: the removal of a key is noted for no field manager.
		before, after := content(old), content(o)
		for k, v := range after {
			if w, found := before[k]; !found || v != w {
				o.SetManagedFields(x.managed(`{"f:data":{}}`))
			}
		}
	}
	x.sources[key] = o
	x.read(o)
}

// managed returns the entry that a write of some fields leaves now.
func (x *world) managed(fields string) []metav1.ManagedFieldsEntry {
	at := metav1.NewTime(x.now.Truncate(time.Second))
	return []metav1.ManagedFieldsEntry{{Manager: x.client, Time: &at, FieldsV1: metav1.NewFieldsV1(fields)}}
}

func content(o metav1.Object) map[string]string {
	if cm, ok := o.(*corev1.ConfigMap); ok {
		return cm.Data
	}
	out := map[string]string{}
	for k, v := range o.(*corev1.Secret).Data {
		out[k] = string(v)
	}
	return out
}

func keyOf(o metav1.Object) dependency.SourceKey {
	kind := dependency.Secret
	if _, ok := o.(*corev1.ConfigMap); ok {
		kind = dependency.ConfigMap
	}
	return dependency.SourceKey{Kind: kind, Namespace: namespace, Name: o.GetName()}
}

// read brings a source into the graph as ingest does.
func (x *world) read(o metav1.Object) {
	var s *dependency.Source
	switch o := o.(type) {
	case *corev1.ConfigMap:
		s = dependency.FromConfigMap(x.digester, o.DeepCopy(), ReadSource(o.Annotations))
	case *corev1.Secret:
		if x.withoutSecrets {
			return
		}
		s = dependency.FromSecret(x.digester, o.DeepCopy(), ReadSource(o.Annotations))
		if o.Type != "" && o.Type == x.unread {
			x.graph.SetUnread(&dependency.Unread{SourceKey: s.SourceKey, Type: string(o.Type), UID: s.UID, ResourceVersion: s.ResourceVersion, Created: s.Created}, x.arrival())
			return
		}
	}
	at := x.arrival()
	s.After(x.graph.Source(s.SourceKey), x.graph.DeletedBefore(s.SourceKey), at)
	x.graph.SetSource(s)
}

// remove deletes a source.
func (x *world) remove(kind dependency.SourceKind, name string) {
	x.version++
	key := dependency.SourceKey{Kind: kind, Namespace: namespace, Name: name}
	delete(x.sources, key)
	change := dependency.Change{Version: x.version, Seen: x.now, Order: x.arrival().Order}
	x.graph.DeleteSource(key, change)
	x.graph.DeleteUnread(key, string(x.unread), change)
}

// edit changes the Deployment and what an API server and a controller that is done at
// once make of that.
func (x *world) edit(f func(*appsv1.Deployment)) {
	d := x.deployment.DeepCopy()
	f(d)
	x.version++
	d.ResourceVersion = strconv.FormatUint(x.version, 10)
	if !reflect.DeepEqual(d.Spec.Template, x.deployment.Spec.Template) {
		d.ManagedFields = x.managed(`{"f:spec":{"f:template":{}}}`)
	}
	x.deployment = d
	x.readDeployment()
}

// roll makes the status say that all pods are new and available.
func (x *world) roll() {
	s := &x.deployment.Status
	s.Replicas, s.UpdatedReplicas, s.AvailableReplicas, s.ReadyReplicas = 1, 1, 1, 1
}

// both does one thing after the other.
func both(fs ...func(*world)) func(*world) {
	return func(x *world) {
		for _, f := range fs {
			f(x)
		}
	}
}

// arrival returns how the next thing is read.
func (x *world) arrival() dependency.Arrival {
	x.order++
	at := dependency.Arrival{Order: x.order, Rekeyed: x.rekeyed, After: x.cut}
	if x.live || x.listed {
		at.Live, at.Seen = x.live, x.now
	}
	return at
}

func (x *world) readDeployment() {
	w := readWorkload(x.deployment.DeepCopy())
	previous := x.graph.Workload(w.WorkloadKey)
	at := x.arrival()
	w.After(previous, at)
	p := Note(w, previous, x.graph.Namespace(namespace), x.defaults, strconv.FormatUint(x.version, 10), at)
	x.graph.SetWorkload(w, p.Patterns())
}

// annotate sets annotations of the Deployment; an empty value removes one.
func (x *world) annotate(pairs ...string) {
	x.edit(func(d *appsv1.Deployment) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i+1] == "" {
				delete(d.Annotations, pairs[i])
			} else {
				d.Annotations[pairs[i]] = pairs[i+1]
			}
		}
	})
}

// patch applies one of our patches, of which only annotations are expected.
func (x *world) patch(data []byte, err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
	var p struct {
		Metadata struct {
			UID             types.UID
			ResourceVersion string
			Annotations     map[string]*string
		}
		Spec struct {
			Template struct {
				Metadata struct{ Annotations map[string]*string }
			}
		}
	}
	if err := json.Unmarshal(data, &p); err != nil {
		x.t.Fatal(err)
	}
	if p.Metadata.UID != x.deployment.UID || p.Metadata.ResourceVersion != x.deployment.ResourceVersion {
		x.t.Fatalf("the patch %s is not bound to the object %s at %s", data, x.deployment.UID, x.deployment.ResourceVersion)
	}
	merge := func(into *map[string]string, changes map[string]*string) {
		for k, v := range changes {
			if *into == nil {
				*into = map[string]string{}
			}
			if v == nil {
				delete(*into, k)
			} else {
				(*into)[k] = *v
			}
		}
	}
	client := x.client
	x.client = FieldManager
	defer func() { x.client = client }()
	x.edit(func(d *appsv1.Deployment) {
		merge(&d.Annotations, p.Metadata.Annotations)
		merge(&d.Spec.Template.Annotations, p.Spec.Template.Metadata.Annotations)
	})
}

func (x *world) workload() *dependency.Workload {
	return x.graph.Workload(dependency.WorkloadKey{Kind: kind.Deployment, Namespace: namespace, Name: "web"})
}

func (x *world) evaluate() *Evaluation {
	return Evaluator{Graph: x.graph, Defaults: x.defaults}.Evaluate(x.workload())
}

func (x *world) decide() Decision {
	observed := Observed{Now: x.now, StaleSince: x.staleSince}
	d := x.evaluate().Decide(observed)
	if x.verified != nil {
		observed.Verified = &Verification{*x.verified, d.WrittenAt, x.workload().StartedBy}
		d = x.evaluate().Decide(observed)
	}
	switch {
	case !d.Stale:
		x.staleSince = time.Time{}
	case x.staleSince.IsZero():
		x.staleSince = x.now
	}
	return d
}

// act does what the decision asks for, as the controller does, and returns it.
func (x *world) act() Decision {
	x.t.Helper()
	d, e := x.decide(), x.evaluate()
	action := d.Action
	if action == Inspect {
		next := e.Decide(Observed{Now: x.now, StaleSince: x.staleSince, Inspected: &Inspection{Of: d.Excursions, StartedBy: x.workload().StartedBy, Mixed: x.mixed}})
		if action = next.Action; action == WriteMixed {
			x.patch(e.MixedPatch(next.Mixed))
		}
	}
	switch action {
	case WriteVerified:
		x.patch(VerifiedPatch(e.Workload, e.Present(), x.now))
	case WriteBaseline:
		x.patch(BaselinePatch(e.Workload, e.Present()))
	case RollOut:
		last := NewAutomaticReload(LastReloadOf(e.Workload), x.now, e.Policy.MinInterval, d.Trigger)
		always := e.Workload.Marks.TemplateHash == e.Hash
		x.patch(e.Policy.RestartPatch(e.Workload, &Restart{Present: e.Present(), Last: last, Always: always}))
	}
	return d
}

// adopt lets the current content be recorded, without a restart.
func (x *world) adopt() {
	x.t.Helper()
	if d := x.act(); d.Action != WriteBaseline {
		x.t.Fatalf("opting in led to %+v", d)
	}
	if d := x.decide(); d.State != InSync || d.Action != None {
		x.t.Fatalf("after opting in: %+v", d)
	}
	x.tick(time.Minute)
}

// record records the current content.
func (x *world) record() {
	x.t.Helper()
	x.recorded = x.graph.Order()
	if d := x.act(); d.Action != WriteBaseline {
		x.t.Fatalf("recording: %+v", d)
	}
}

func (x *world) tick(d time.Duration) { x.now = x.now.Add(d) }

// outcome is what tests look at in a decision.
type outcome struct {
	State   State
	Reason  string
	Action  Action
	Trigger string
}

func outcomeOf(d Decision) outcome { return outcome{d.State, d.Reason, d.Action, d.Trigger} }

// What decisions say most of the time.
var (
	nothing  = outcome{State: InSync, Reason: "ContentApplied"}
	baseline = outcome{State: InSync, Reason: "ContentApplied", Action: WriteBaseline}
	adoption = outcome{State: Pending, Reason: "NotRecorded", Action: WriteBaseline}
	restored = outcome{State: InSync, Reason: "RecordRemoved", Action: WriteBaseline}
)

// inspect is the outcome when content has changed and changed back.
func inspect(trigger string) outcome {
	return outcome{Pending, "Verifying", Inspect, trigger}
}

func rollOut(trigger string) outcome {
	return outcome{Pending, "SourceChanged", RollOut, trigger}
}

// newGraph returns a graph with nothing in it.
func newGraph(d *dependency.Digester) *dependency.Graph {
	g := dependency.NewGraph()
	g.SetDigester(d)
	return g
}

// known returns what the index gives access to.
func (x *world) known() Evaluator { return Evaluator{Graph: x.graph, Defaults: x.defaults} }
