// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/kind"
	workloads "github.com/configdep/configdep/pkg/workload"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// Boat is a kind of custom resource that a descriptor describes. Its controller replaces pods as that of a Deployment does, with
// ReplicaSets. The pod template is at a nested path, and the object itself may name a Secret, which its controller passes to
// the last container.
const boat = "Boat"

const boatGroup = "sea.example.com"

// boatVersions are the versions of the definition, one of which is served at a time.
var boatVersions = []string{"v1", "v2"}

// kinds returns the kinds of workloads, of which each server has its own: it notes in which version one is served.
func (w *world) kinds() kind.Table {
	if !w.custom() {
		return nil
	}
	k, errs := kind.New(kind.Descriptor{
		Group: boatGroup, Kind: boat, Resource: "boats", Versions: boatVersions,
		PodTemplates: []kind.TemplatePath{{Path: ".spec.crew.template"}},
		Sources:      []kind.SourceFields{{Kind: "Secret", Name: ".spec.log.secretName", Optional: true}},
		Pods: &kind.Pods{Selector: ".spec.selector", Controller: kind.ControlledByReplicaSet,
			RevisionLabel: "controller-revision-hash", Revision: ".status.updateRevision"},
		Reload: kind.Reload{By: kind.ByTemplateAnnotation},
		Status: &kind.StatusPaths{ObservedGeneration: ".status.observedGeneration", Replicas: ".spec.replicas", Total: ".status.replicas",
			Updated: ".status.updatedReplicas", Ready: ".status.readyReplicas"},
	}, nil)
	if len(errs) > 0 {
		panic(errs)
	}
	return append(kind.BuiltIn(), k)
}

// custom reports whether the servers read a custom kind.
func (w *world) custom() bool {
	return slices.ContainsFunc(w.seeds, func(s seed) bool { return s.Kind == boat })
}

// streams returns how many of the streams the servers read.
func (w *world) streams() []streamID {
	if w.read == nil {
		for id := range streamCount {
			if id < ordinaryStreams || id == boats && w.custom() || id == agentPods && w.hasAgents() {
				w.read = append(w.read, id)
			}
		}
	}
	return w.read
}

// definition is the definition of the custom kind.
type definition struct {
	absent  bool
	version int // of boatVersions
	// denied: the servers may neither read nor write the objects.
	denied bool
}

// readable reports whether the objects of a stream can be read.
func (w *world) readable(id streamID) bool {
	return id != boats || !w.definition.absent && !w.definition.denied
}

// withdraw deletes the definition, and with it all objects, unless it is gone. If the watches end before that, no server reads
// that the objects were deleted.
func (w *world) withdraw(unseen bool) bool {
	if w.definition.absent {
		return false
	}
	w.definition.absent = true
	for slot, d := range w.workloads {
		if d != nil && d.kind == boat {
			w.deleteWorkload(slot)
		}
	}
	w.endWatches(unseen)
	w.oracle.tally.Withdrawals++
	return true
}

// define creates the definition, in another version than before if other.
func (w *world) define(other bool) bool {
	if !w.custom() || !w.definition.absent {
		return false
	}
	w.definition.absent = false
	if other {
		w.definition.version = 1 - w.definition.version
	}
	w.oracle.tally.Definitions++
	return true
}

// serveOther lets the API server serve the other version, and no longer the one before.
func (w *world) serveOther() bool {
	if !w.custom() || w.definition.absent {
		return false
	}
	w.definition.version = 1 - w.definition.version
	w.endWatches(false)
	w.oracle.tally.Versions++
	return true
}

// deny takes the right to read and write the objects away. A watch goes on until it ends.
func (w *world) deny(ends bool) bool {
	if !w.custom() || w.definition.denied {
		return false
	}
	w.definition.denied = true
	if ends {
		w.endWatches(false)
	}
	w.oracle.tally.Denials++
	return true
}

func (w *world) grant() bool {
	was := w.definition.denied
	w.definition.denied = false
	return was
}

// endWatches ends the watches of the custom kind, and drops events that have not arrived if lost.
func (w *world) endWatches(lost bool) {
	for _, s := range w.servers {
		st := &s.streams[boats]
		if st.ended = true; lost {
			st.queue = nil
		}
	}
}

// refuses returns the error with which the API server answers a request for a resource, whatever its name.
func (w *world) refuses(resource schema.GroupVersionResource, name string) error {
	switch d := &w.definition; {
	case resource.Group != boatGroup:
		return nil
	case d.denied:
		return apierrors.NewForbidden(resource.GroupResource(), name, fmt.Errorf("no rule allows it"))
	case d.absent, resource.Version != boatVersions[d.version]:
		return apierrors.NewNotFound(resource.GroupResource(), name)
	}
	return nil
}

// boatObject is a Boat.
type boatObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Replicas int                   `json:"replicas"`
		Selector *metav1.LabelSelector `json:"selector"`
		Crew     struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"crew"`
		Log struct {
			SecretName string `json:"secretName,omitempty"`
		} `json:"log"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration int64  `json:"observedGeneration,omitempty"`
		Replicas           int    `json:"replicas"`
		UpdatedReplicas    int    `json:"updatedReplicas"`
		ReadyReplicas      int    `json:"readyReplicas"`
		UpdateRevision     string `json:"updateRevision,omitempty"`
	} `json:"status"`
}

// boat returns the manifest of a Boat as an API object.
func (m *manifest) boat(meta metav1.ObjectMeta, t corev1.PodTemplateSpec, selector *metav1.LabelSelector) runtime.Object {
	o := boatObject{TypeMeta: metav1.TypeMeta{APIVersion: boatGroup + "/" + boatVersions[0], Kind: boat}, ObjectMeta: meta}
	o.Spec.Replicas, o.Spec.Selector, o.Spec.Crew.Template = m.replicas, selector, t
	for _, u := range allUses[m.template.variant] {
		if u.how == named {
			o.Spec.Log.SecretName = sourceNames[u.source]
		}
	}
	p := &m.progress
	o.Status.ObservedGeneration, o.Status.Replicas, o.Status.UpdatedReplicas = p.observed, p.all, p.updated
	o.Status.ReadyReplicas, o.Status.UpdateRevision = p.ready, p.update
	data, err := json.Marshal(&o)
	if err != nil {
		panic(err)
	}
	out := &unstructured.Unstructured{}
	if err := out.UnmarshalJSON(data); err != nil {
		panic(err)
	}
	return out
}

// sent returns the object of an event as the server decodes it.
func (s *server) sent(e *event) runtime.Object {
	o := e.object()
	if custom, is := o.(*unstructured.Unstructured); is {
		return s.decode(custom)
	}
	return o
}

func (s *server) decode(o *unstructured.Unstructured) kind.Object {
	data, err := o.MarshalJSON()
	s.must(err)
	decoded, err := s.kinds.Of(boat).Decode(data)
	s.must(err)
	return decoded
}

// client returns the client of a server, for requests of its controller or for a Reload.
func (s *server) client(request *reloadRequest) workloads.Client {
	c := client{server: s, reload: request}
	out := workloadtest.Client(c)
	out.Objects, out.Kinds = objects{out.Objects, c}, s.kinds
	return out
}

// objects reads and patches workloads, custom resources among them.
type objects struct {
	workloads.Objects
	client client
}

// Get implements workload.Objects.
func (o objects) Get(ctx context.Context, k *kind.Kind, namespace, name string) (kind.Object, error) {
	if !k.Optional {
		return o.Objects.Get(ctx, k, namespace, name)
	}
	found, err := o.client.server.ask(clienttesting.NewGetAction(k.Served(), namespace, name), o.client.reload)
	if err != nil {
		return nil, err
	}
	return o.client.server.decode(found.(*unstructured.Unstructured)), nil
}

// Patch implements workload.Objects.
func (o objects) Patch(ctx context.Context, k *kind.Kind, namespace, name string, typ types.PatchType, data []byte, options metav1.PatchOptions) (metav1.Object, error) {
	if !k.Optional {
		return o.Objects.Patch(ctx, k, namespace, name, typ, data, options)
	}
	patched, err := o.client.server.ask(clienttesting.NewPatchActionWithOptions(k.Served(), namespace, name, typ, data, options), o.client.reload)
	if err != nil {
		return nil, err
	}
	return patched.(*unstructured.Unstructured), nil
}

// leaves reports whether the server reads a stream that cannot be read, and its watch has ended.
func (s *server) leaves(id streamID) bool {
	st := &s.streams[id]
	return !s.world.readable(id) && (st.listed == 0 || !s.view.absent[id] && (st.ended || st.relist))
}

// joins reports whether the server has yet to list a stream that can be read again, or in another version.
func (s *server) joins(id streamID) bool {
	return s.world.readable(id) && (s.view.absent[id] || s.streams[id].ended)
}

// leave applies that a stream cannot be read. What the server knew of its workloads is forgotten.
func (s *server) leave(id streamID) {
	s.streams[id] = stream{listed: s.world.revision}
	for slot, seed := range s.world.seeds {
		if _, known := s.view.templates[slot]; known && workloadStream(seed.Kind) == id {
			s.view.lookAtWorkload(&manifest{slot: slot}, false, true)
		}
	}
	s.view.absent[id] = true
	s.must(s.replay.Leave(s.world.nameOf(id)))
	s.world.logf("    server %d cannot read the %s", s.id, id)
	s.sync()
}

// join applies the version in which a stream is read from its next list.
func (s *server) join(id streamID) {
	if id != boats {
		return
	}
	s.must(s.replay.Serve(s.world.nameOf(id), boatVersions[s.world.definition.version]))
	if s.streams[id].ended = false; s.view.absent[id] && s.view.synced {
		s.view.joined[id] = s.world.revision
		s.world.oracle.tally.LateLists++
	}
	s.view.absent[id] = false
}

// nameOf returns the name of a stream in the index.
func (*world) nameOf(id streamID) string {
	switch id {
	case boats:
		return "boats." + boatGroup
	case agentPods:
		return ingest.AgentPods
	default:
		return id.String()
	}
}

// checkAbsent checks that no server knows a workload that does not exist or cannot be read, once all has reached it.
func (o *oracle) checkAbsent() {
	for slot, seed := range o.world.seeds {
		id := workloadStream(seed.Kind)
		if o.world.workloads[slot] != nil && o.world.readable(id) {
			continue
		}
		for _, s := range o.world.servers {
			if s.alive && s.view.synced && !s.lags() && s.knows(seed.Kind, slot) {
				o.fail("%s: server %d shows it, although it does not exist or cannot be read", workloadName(slot), s.id)
			}
		}
	}
}

// onlyBeforeList reports whether a server may not restart a workload, whatever its pods have read: all that counts changed before the
// server could list the kind, and no record tells of that. With several counters, the server does not know what came first.
func (o *oracle) onlyBeforeList(r *request, d *workload, rules rules, marks [sourceCount]mark) bool {
	joined := r.seen.joined[workloadStream(d.kind)]
	if joined == 0 || o.world.severalCounters() || o.world.restored > r.seen.begun || rules.glob || d.truth.mixed || r.seen.evicting(&d.manifest) {
		return false
	}
	rec, _ := o.remembered(&r.seen, &d.manifest)
	if strings.Contains(d.hash(), ".mixed") || saysLeft(d.hash()) {
		return false
	}
	scopes := rules.scopes(d.template.variant, &marks)
	for s := range scopes {
		told := rec != nil && rec.scopes[s].counts() // whether or not it is known to match now
		if told || scopes[s].counts() && r.seen.sources[s].changed > joined {
			return false
		}
	}
	return true
}

// addCustom makes workloads of a quarter of the histories Boats, whose definition comes and goes, changes its version, or cannot be read
// for a while, while content changes.
func (h *history) addCustom(begin int) {
	m := maker{rand.New(rand.NewPCG(h.Seed, 2)), h}
	if m.IntN(4) > 0 {
		return
	}
	slot := m.workload()
	for i := range h.Workloads {
		s := &h.Workloads[i]
		if i != slot && m.IntN(2) == 0 || s.Annotations[pausePeriod] != "" { // which is for Deployments
			continue
		}
		s.Kind = boat
		for v := range s.Variants {
			if m.IntN(3) > 0 {
				s.Variants[v] += ordinaryVariants // names a Secret itself
			}
		}
		if m.IntN(2) == 0 && s.Annotations[reloadAnnotation] == "" {
			s.Annotations[reloadAnnotation] = "auto"
		}
	}
	insert := func(at int, operations ...operation) int {
		h.Operations = slices.Insert(h.Operations, at, operations...)
		return at + len(operations)
	}
	meanwhile := func(at int) int {
		for range m.IntN(3) {
			at = insert(at, pick(m,
				operation{Do: "set key", A: pick(m, 2, 3, m.source()), B: m.IntN(keyCount), C: 1 + m.IntN(4)},
				operation{Do: "set image", A: slot, B: m.IntN(2), C: m.IntN(3)},
				operation{Do: "there and back", A: pick(m, 2, 3), B: m.IntN(keyCount), C: 1 + m.IntN(4)},
				operation{Do: "opt", A: slot, Annotation: reloadAnnotation, Text: pick(m, "auto", "off")},
				operation{Do: "hand over", A: m.server()}, operation{Do: "kill", A: m.server()}, operation{Do: "birth", A: m.server()},
				operation{Do: pick(m, "hold", "release", "relist"), A: m.server(), B: int(boats)},
				operation{Do: "wait", Wait: 5 * time.Second}, operation{Do: "calm"}))
		}
		return at
	}
	if m.IntN(6) == 0 {
		insert(0, operation{Do: "withdraw"})
		insert(begin+m.IntN(5), operation{Do: "define"}, operation{Do: "create workload", A: slot})
	}
	for range 1 + m.IntN(3) {
		at := begin + m.IntN(len(h.Operations)-begin+1)
		if m.IntN(2) == 0 {
			at = insert(at, operation{Do: "calm"})
		}
		switch m.IntN(5) {
		case 0, 1:
			at = meanwhile(insert(at, operation{Do: "withdraw", B: m.IntN(2)}))
			at = meanwhile(insert(at, operation{Do: "define", B: m.IntN(2)}))
			at = insert(at, operation{Do: "create workload", A: slot})
		case 2, 3:
			at = insert(at, operation{Do: "deny", B: 1 - m.IntN(4)/3})
			switch m.IntN(4) { // it has no record when it is listed
			case 0:
				at = insert(at, operation{Do: "recreate workload", A: slot})
			case 1:
				at = insert(at-1, operation{Do: "opt", A: slot, Annotation: reloadAnnotation, Text: "off"}, operation{Do: "rewrite", A: slot, B: 3, C: 1})
				at = insert(at+1, operation{Do: "opt", A: slot, Annotation: reloadAnnotation, Text: "auto"})
			}
			if m.IntN(2) == 0 { // which only the record tells
				at = insert(at, operation{Do: "wait", Wait: time.Second}, operation{Do: "set content", A: pick(m, 0, 2, 2, 3), Content: m.content()})
			}
			at = insert(meanwhile(at), operation{Do: "grant"})
		default:
			at = meanwhile(insert(at, operation{Do: "serve another version"}))
		}
		meanwhile(at)
	}
}
