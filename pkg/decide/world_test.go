// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/limit"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

const namespace = ingesttest.Namespace

// epoch is the time at which worlds begin: a whole second, like the times of API objects.
var epoch = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// world is a cluster with one Deployment and its pods, and the decisions on it.
type world struct {
	*ingesttest.Cluster

	t        *testing.T
	defaults policy.Defaults
	key      byte // of the digester
	// From the next restart of the process on, read this scope, with no Secrets, or none of a type.
	scope          ingest.Scope
	withoutSecrets bool
	unread         corev1.SecretType
	now            time.Time

	deployment *appsv1.Deployment
	pods       []*corev1.Pod
	revisions  map[string]int // the ReplicaSets, by their templates
	rollouts   int            // the number of the last one
	created    int            // how many pods were created

	limits *limit.Set   // nil: none
	waves  decide.Waves // likewise
}

// newWorld returns a world with a Deployment in mode auto whose pod reads what spec does. The sources were written an hour ago, the pod was created half an
// hour ago, and the process starts now.
func newWorld(t *testing.T, spec corev1.PodSpec, sources ...ingesttest.Object) *world {
	t.Helper()
	x := &world{
		t: t, now: epoch.Add(-time.Hour), revisions: map[string]int{},
		defaults: policy.Defaults{Mode: policy.Off, Settle: time.Second, MinInterval: 10 * time.Second},
	}
	x.Cluster = ingesttest.New(t, x.clock())
	for _, s := range sources {
		x.Set(s)
	}
	x.now = epoch.Add(-time.Hour / 2)
	x.deployment = ingesttest.Deployment("web", spec)
	x.deployment.UID = "web-1"
	x.edit(func(*appsv1.Deployment) {})
	x.rollOut()
	x.now = epoch
	x.restart()
	return x
}

// clock returns a clock with the time of the world, for the API server and for processes.
func (x *world) clock() clock.PassiveClock { return worldClock{x} }

type worldClock struct{ *world }

func (c worldClock) Now() time.Time                  { return c.now }
func (c worldClock) Since(t time.Time) time.Duration { return c.now.Sub(t) }

// restart makes the process forget what it has seen and read everything again.
func (x *world) restart() {
	x.t.Helper()
	index := ingest.NewIndex(x.clock())
	index.SetDefaults(x.defaults)
	scope := x.scope
	scope.WithoutSecrets = x.withoutSecrets
	if x.unread != "" {
		scope.UnreadTypes = []string{string(x.unread)}
	}
	x.Start(index, scope, x.key)
	x.List()
}

// replaceKey gives the digester another key, which makes the process read everything again.
func (x *world) replaceKey() {
	x.key++
	x.restart()
}

// away lets changes happen while no process runs.
func (x *world) away(f func()) {
	x.t.Helper()
	x.Unseen(f)
	x.restart()
}

// namespaceAnnotations sets the annotations of the namespace.
func (x *world) namespaceAnnotations(a map[string]string) {
	x.t.Helper()
	x.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Annotations: a}})
}

// set creates or updates a source.
func (x *world) set(o ingesttest.Object) { x.Set(o) }

// remove deletes a source.
func (x *world) remove(kind dependency.SourceKind, name string) {
	x.t.Helper()
	if kind == dependency.ConfigMap {
		x.Delete(configMap(name))
	} else {
		x.Delete(secret(name))
	}
}

// edit changes the Deployment. If the pod template changes, the controller of Deployments notices at once, unless the Deployment is paused, and creates a
// ReplicaSet; rollOut replaces the pods.
func (x *world) edit(f func(*appsv1.Deployment)) {
	d := x.deployment.DeepCopy()
	f(d)
	if templateOf(d) != templateOf(x.deployment) || x.rollouts == 0 || x.deployment.Spec.Paused && !d.Spec.Paused {
		x.control(d)
	}
	x.deployment = d
	x.Set(d)
}

func templateOf(d *appsv1.Deployment) string {
	text, err := json.Marshal(d.Spec.Template)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// control does to a Deployment what its controller does.
func (x *world) control(d *appsv1.Deployment) {
	d.Generation++
	d.Status.ObservedGeneration = d.Generation
	template := templateOf(d)
	if !d.Spec.Paused {
		x.rollouts++
		if x.revisions[template] == 0 {
			x.revisions[template] = len(x.revisions) + 1
		}
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, kind.RevisionAnnotation, fmt.Sprint(x.rollouts))
		hash := x.hashOf(d)
		x.Set(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: "web-" + hash, UID: types.UID("set-" + hash), Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: hash},
			Annotations:     map[string]string{kind.RevisionAnnotation: fmt.Sprint(x.rollouts)},
			OwnerReferences: []metav1.OwnerReference{controller("apps/v1", "Deployment", "web", d.UID)},
		}})
	}
	x.count(d)
}

// hashOf returns the label of the pods of a template; "t0": its ReplicaSet has not been created.
func (x *world) hashOf(d *appsv1.Deployment) string {
	return fmt.Sprint("t", x.revisions[templateOf(d)])
}

// count completes the status of a Deployment.
func (x *world) count(d *appsv1.Deployment) {
	s, hash := &d.Status, x.hashOf(d)
	s.Replicas, s.UpdatedReplicas = int32(len(x.pods)), 0
	s.ReadyReplicas, s.AvailableReplicas = s.Replicas, s.Replicas
	for _, p := range x.pods {
		if p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == hash {
			s.UpdatedReplicas++
		}
	}
}

func controller(apiVersion, kind, name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid, Controller: new(true)}
}

// rollOut ends a rollout: it replaces the pods by ones of the current template. Those of this template stay.
func (x *world) rollOut() {
	x.rollOutSome(int(ptr.Deref(x.deployment.Spec.Replicas, 1)))
}

// rollOutSome replaces pods by ones of the current template until there are so many of these.
func (x *world) rollOutSome(n int) {
	hash, all := x.hashOf(x.deployment), int(ptr.Deref(x.deployment.Spec.Replicas, 1))
	old := slices.DeleteFunc(slices.Clone(x.pods), func(p *corev1.Pod) bool { return p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == hash })
	for len(x.pods)-len(old) < n {
		x.start()
	}
	for len(x.pods) > all && len(old) > 0 {
		x.stop(old[0].Name)
		old = old[1:]
	}
	d := x.deployment.DeepCopy()
	x.count(d)
	x.deployment = d
	x.Set(d)
}

// start creates a pod of the current template, whose containers start a second later.
func (x *world) start() *corev1.Pod {
	x.created++
	hash := x.hashOf(x.deployment)
	p := startedPod(fmt.Sprintf("web-%s-%d", hash, x.created), &x.deployment.Spec.Template, x.now.Add(time.Second))
	metav1.SetMetaDataLabel(&p.ObjectMeta, appsv1.DefaultDeploymentUniqueLabelKey, hash)
	p.OwnerReferences = []metav1.OwnerReference{controller("apps/v1", "ReplicaSet", "web-"+hash, types.UID("set-"+hash))}
	x.pods = append(x.pods, p)
	x.Set(p)
	return p
}

// startedPod returns a pod of a template, with the containers started at a time.
func startedPod(name string, template *corev1.PodTemplateSpec, at time.Time) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations)},
		Spec:       *template.Spec.DeepCopy(), Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for i := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: p.Spec.Containers[i].Name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at).Rfc3339Copy()}},
		})
	}
	return p
}

// stop deletes a pod.
func (x *world) stop(name string) {
	x.pods = slices.DeleteFunc(x.pods, func(p *corev1.Pod) bool { return p.Name == name })
	x.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// crash restarts the containers of the first pod.
func (x *world) crash() {
	x.pods[0] = x.pods[0].DeepCopy()
	for i := range x.pods[0].Status.ContainerStatuses {
		s := &x.pods[0].Status.ContainerStatuses[i]
		s.RestartCount++
		s.State.Running.StartedAt = metav1.NewTime(x.now).Rfc3339Copy()
	}
	x.Set(x.pods[0])
}

// scale gives the Deployment another number of pods.
func (x *world) scale(n int) {
	x.edit(func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(n)) })
	for len(x.pods) > n {
		x.stop(x.pods[len(x.pods)-1].Name)
	}
	for len(x.pods) < n {
		x.start()
	}
	x.edit(x.count)
}

// image gives the pod template another image, as an owner does.
func (x *world) image(image string) {
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = image })
}

// both returns a function that calls all functions in order.
func both(fs ...func(*world)) func(*world) {
	return func(x *world) {
		for _, f := range fs {
			f(x)
		}
	}
}

// annotate sets annotations of the Deployment; an empty value removes one.
func (x *world) annotate(pairs ...string) {
	x.edit(func(d *appsv1.Deployment) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i+1] == "" {
				delete(d.Annotations, pairs[i])
			} else {
				metav1.SetMetaDataAnnotation(&d.ObjectMeta, pairs[i], pairs[i+1])
			}
		}
	})
}

// patch applies a patch.
func (x *world) patch(data []byte, err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
	manager := x.Manager
	x.Manager = record.FieldManager
	defer func() { x.Manager = manager }()
	x.edit(func(d *appsv1.Deployment) { ingesttest.Patch(x.t, d, data) })
}

func (x *world) workload() *dependency.Workload {
	return x.graph().Workload(dependency.WorkloadKey{Kind: kind.Deployment, Namespace: namespace, Name: "web"})
}

func (x *world) evaluate() *decide.Evaluation {
	return x.known().Evaluate(x.workload())
}

func (x *world) decide() decide.Decision { return x.evaluate().Decide(x.now) }

// act carries out the decision as the controller does, and returns it. Pods stay as they are.
func (x *world) act() decide.Decision {
	x.t.Helper()
	d, e := x.decide(), x.evaluate()
	switch d.Action {
	case decide.WriteRecord:
		x.patch(record.Patch(e.Workload, d.Record))
	case decide.Forget:
		x.patch(record.ForgetPatch(e.Workload))
	case decide.RollOut:
		last := record.NewAutomaticReload(record.LastReloadOf(e.Workload), x.now, e.Policy.MinInterval, d.Trigger)
		always := e.Workload.Marks.TemplateHash == e.Hash
		x.patch(e.Policy.RestartPatch(e.Workload, &record.Restart{Present: e.Present(), Last: last, Changed: e.Changed(&d), Always: always}))
	}
	return d
}

// request restarts the workload on request.
func (x *world) request() {
	x.t.Helper()
	e := x.evaluate()
	last := record.NewRequestedReload(record.LastReloadOf(e.Workload), x.now, "ada", "")
	x.patch(e.Policy.RestartPatch(e.Workload, &record.Restart{Present: e.Present(), Last: last, Always: true}))
}

// adopt records the current content without a restart.
func (x *world) adopt() {
	x.t.Helper()
	if d := x.act(); d.Action != decide.WriteRecord {
		x.t.Fatalf("opting in: decision = %+v, want action WriteRecord", d)
	}
	if d := x.decide(); d.State != decide.InSync || d.Action != decide.None {
		x.t.Fatalf("after opting in: decision = %+v, want state InSync and no action", d)
	}
	x.tick(time.Minute)
}

// restarts carries out decisions, and rolls out, until there is nothing to be done. It returns the triggers of the restarts.
func (x *world) restarts() (triggers []string) {
	x.t.Helper()
	for range 10 {
		x.tick(time.Hour)
		d := x.act()
		switch d.Action {
		case decide.None:
			if d.RecheckAt.IsZero() {
				return triggers
			}
		case decide.RollOut:
			triggers = append(triggers, d.Trigger)
			x.tick(time.Minute)
			x.rollOut()
		}
	}
	x.t.Fatalf("there is always something to be done: %+v", x.decide())
	return nil
}

// wantRestarts expects restarts with these triggers, after which the workload is in sync.
func (x *world) wantRestarts(what string, triggers ...string) {
	x.t.Helper()
	if got := x.restarts(); !slices.Equal(got, triggers) {
		x.t.Errorf("%s: restarts for %q, want %q", what, got, triggers)
	}
	if d := x.decide(); d.State != decide.InSync || d.Action != decide.None {
		x.t.Errorf("%s: in the end: decision = %+v, want state InSync and no action", what, d)
	}
}

func (x *world) tick(d time.Duration) { x.now = x.now.Add(d) }

// outcome contains the fields of a decision that tests compare.
type outcome struct {
	State   decide.State
	Reason  string
	Action  decide.Action
	Trigger string
}

func outcomeOf(d decide.Decision) outcome { return outcome{d.State, d.Reason, d.Action, d.Trigger} }

// told compares what decisions say, and not what they are made of.
var told = cmp.Options{
	cmpopts.IgnoreUnexported(decide.Decision{}), cmpopts.IgnoreFields(decide.Decision{}, "Because", "Timed", "Pods", "Record"),
}

// want compares the decision.
func (x *world) want(what string, want outcome) decide.Decision {
	x.t.Helper()
	d := x.decide()
	if got := outcomeOf(d); got != want {
		x.t.Errorf("%s: decision = %+v (%s), want %+v", what, got, d.Message, want)
	}
	return d
}

// The most frequent outcomes.
var (
	nothing   = outcome{State: decide.InSync, Reason: "ContentApplied"}
	recording = outcome{State: decide.InSync, Reason: "ContentApplied", Action: decide.WriteRecord}
)

func rollOut(trigger string) outcome {
	return outcome{decide.Pending, "SourceChanged", decide.RollOut, trigger}
}

// known returns the evaluator of the index.
func (x *world) known() (known decide.Evaluator) {
	x.Index().SetDefaults(x.defaults) // as if they had always been the same
	x.Read(func(now decide.Evaluator) { known = now })
	if x.limits != nil {
		known.Graph.SetLimits(x.limits)
	}
	known.Waves = x.waves
	return known
}

func (x *world) graph() *dependency.Graph { return x.known().Graph }
