// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// epoch is a whole second, like the times of API objects.
var epoch = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

// scene is a workload with a pod that reads key a of Secret db. The Secret was written at second 0, in revision
// 100. The pod was created and started a minute later; nothing else is known.
type scene struct {
	mode     policy.Mode
	digester *dependency.Digester
	source   *dependency.Source
	gone     *dependency.Change // the source was deleted
	workload dependency.Workload
	pod      *corev1.Pod
	ordered  bool
	revision string
}

const secret = "db"

func fromEnv(key string, optional bool) corev1.Container {
	return corev1.Container{Name: "app", Env: []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{
		SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key, Optional: &optional}}}}}
}

func fromEnvFrom() corev1.Container {
	return corev1.Container{Name: "app", EnvFrom: []corev1.EnvFromSource{{
		SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}}}
}

func fromFiles(subPath string) corev1.Container {
	return corev1.Container{Name: "app", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v", SubPath: subPath}}}
}

var volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}}}

func newScene() *scene {
	x := &scene{
		mode: policy.Off, ordered: true, revision: "new",
		digester: dependency.NewDigester(make([]byte, dependency.KeySize)),
		pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: "web-1", Namespace: "shop", ResourceVersion: "150", CreationTimestamp: metav1.NewTime(at(60)),
				Labels: map[string]string{"pod-template-hash": "new"}, Annotations: map[string]string{},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{fromEnv("a", false)}},
		},
		workload: dependency.Workload{
			WorkloadKey: dependency.WorkloadKey{Kind: kind.Deployment, Namespace: "shop", Name: "web"}, UID: "web-uid", Traits: kind.Table(nil).Of(kind.Deployment).Traits,
			Annotations: map[string]string{},
		},
	}
	x.source = x.written(map[string]string{"a": "1", "b": "1"}, 0, 100)
	x.running("app", 60)
	return x
}

// written returns the Secret as of a time and a revision, before the server saw any change.
func (x *scene) written(data map[string]string, second int, version uint64) *dependency.Source {
	o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: secret, ResourceVersion: strconv.FormatUint(version, 10), CreationTimestamp: metav1.NewTime(at(-3600)),
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", Time: &metav1.Time{Time: at(second)}, FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}},
	}, Data: map[string][]byte{}}
	for k, v := range data {
		o.Data[k] = []byte(v)
	}
	s := dependency.FromSecret(x.digester, o, policy.Dialects(nil).ReadSource(o.Annotations))
	s.After(nil, nil, dependency.Arrival{})
	return s
}

// changes lets the server see new content, live unless the watch was broken.
func (x *scene) changes(data map[string]string, second int, version uint64, live bool) {
	s := x.written(data, second, version)
	s.After(x.source, nil, dependency.Arrival{Live: live, Seen: at(second).Add(300 * time.Millisecond)})
	x.source = s
}

// back lets the server see content change at second 70 and change back at second 80.
func (x *scene) back(there, back uint64) {
	x.changes(a2, 70, there, true)
	x.changes(map[string]string{"a": "1", "b": "1"}, 80, back, true)
}

// verified lets the controller record on the workload that it has verified the pods.
func (x *scene) verified(version uint64) {
	x.workload.Marks.Verified = at(200).Format(time.RFC3339Nano) + " 99"
	x.workload.RecordedAt.Version = version
}

// madeFor makes the pod belong to a template for the current content, from before the last write.
func (x *scene) madeFor(restarts int32) {
	x.records(0)
	x.rolledOut()
	x.created(-60)
	x.pod.Status.ContainerStatuses[0].RestartCount = restarts
}

// replaced lets the server see the Secret deleted at second 70, and created again with the same content.
func (x *scene) replaced(deleted, created uint64) {
	g := x.graph()
	g.DeleteSource(x.source.SourceKey, dependency.Change{Version: deleted, Exact: true, Seen: at(70)})
	s := x.written(map[string]string{"a": "1", "b": "1"}, 80, created)
	s.After(nil, g.DeletedBefore(s.SourceKey), dependency.Arrival{Live: true, Seen: at(80)})
	x.source = s
}

// appears lets the server see the Secret for the first time.
func (x *scene) appears(version uint64) {
	x.source = x.written(map[string]string{"a": "1", "b": "1"}, 80, version)
	x.source.After(nil, nil, dependency.Arrival{Live: true, Seen: at(80)})
}

// readded lets the server see a key removed at second 70, and added again at second 80.
func (x *scene) readded(removed, added uint64) {
	x.changes(onlyA, 70, removed, true)
	x.changes(map[string]string{"a": "1", "b": "1"}, 80, added, true)
}

// running sets when a container was last started.
func (x *scene) running(name string, second int) {
	x.pod.Status.ContainerStatuses = append(x.pod.Status.ContainerStatuses, corev1.ContainerStatus{
		Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at(second))}}})
}

func (x *scene) restarted(second int) {
	x.pod.Status.ContainerStatuses = nil
	x.running("app", second)
}

// created changes the creation and the start time of the pod.
func (x *scene) created(second int) {
	x.pod.CreationTimestamp = metav1.NewTime(at(second))
	x.restarted(second)
}

func (x *scene) reads(containers ...corev1.Container) {
	x.pod.Spec.Containers, x.pod.Spec.Volumes = containers, volumes
}

// records opts the workload in, with a record of the current content.
func (x *scene) records(version uint64) {
	x.mode = policy.Auto
	present := x.evaluate(x.graph()).Present()
	x.remember(present, version)
}

func (x *scene) remember(r policy.Record, version uint64) {
	x.mode = policy.Auto
	patch, err := policy.BaselinePatch(&x.workload, r)
	if err != nil {
		panic(err)
	}
	x.workload.Marks = policy.MarksOf(annotationsOf(patch))
	x.workload.RecordedAt.Version = version
}

// rolledOut makes the pod belong to a template with the recorded hash.
func (x *scene) rolledOut() {
	x.pod.Annotations[policy.ConfigHashAnnotation] = x.workload.Marks.Hash
}

func (x *scene) graph() *dependency.Graph {
	g := dependency.NewGraph()
	g.SetDigester(x.digester)
	if x.source != nil {
		g.SetSource(x.source)
	}
	w := x.workload
	w.References, _ = dependency.References(nil, &x.pod.Spec)
	g.SetWorkload(&w, dependency.Patterns{})
	return g
}

func (x *scene) evaluate(g *dependency.Graph) *policy.Evaluation {
	return policy.Evaluator{Graph: g, Defaults: policy.Defaults{Mode: x.mode}}.Evaluate(g.Workload(x.workload.WorkloadKey))
}

func (x *scene) judge() PodVerdict {
	g := x.graph()
	k := Know(g, x.evaluate(g))
	if x.gone != nil {
		for i := range k.sources {
			k.sources[i].change = *x.gone
		}
	}
	k.Ordered, k.Revision = x.ordered, x.revision
	return k.Judge(FromPod(x.pod), nil)
}

var (
	a2    = map[string]string{"a": "2", "b": "1"}
	b2    = map[string]string{"a": "1", "b": "2"}
	a2b2  = map[string]string{"a": "2", "b": "2"}
	onlyA = map[string]string{"a": "1"}
)

func TestJudge(t *testing.T) {
	tests := map[string]struct {
		do     func(*scene)
		state  State
		reason string
	}{
		// No change was seen.
		"created in a later second than the last write":                                          {func(*scene) {}, Current, ReasonStartedAfter},
		"created in the same second as the last write":                                           {func(x *scene) { x.created(0) }, Unknown, ReasonClockMargin},
		"created in the same second, started after the margin":                                   {func(x *scene) { x.created(0); x.restarted(7) }, Current, ReasonStartedAfter},
		"created in the same second, started within the margin":                                  {func(x *scene) { x.created(0); x.restarted(6) }, Unknown, ReasonClockMargin},
		"files, created in the same second, started before the kubelet must have refreshed them": {func(x *scene) { x.reads(fromFiles("")); x.created(0); x.restarted(100) }, Unknown, ReasonClockMargin},
		"files, created in the same second, started after the kubelet must have refreshed them":  {func(x *scene) { x.reads(fromFiles("")); x.created(0); x.restarted(122) }, Current, ReasonStartedAfter},
		"files, created in a later second":                                                       {func(x *scene) { x.reads(fromFiles("a")) }, Current, ReasonStartedAfter},
		"started long before the last write":                                                     {func(x *scene) { x.created(-60) }, Unknown, ReasonNothingRecorded},
		"started before the last write, within the margin":                                       {func(x *scene) { x.created(-6) }, Unknown, ReasonClockMargin},
		"started before the last write, outside the margin":                                      {func(x *scene) { x.created(-7) }, Unknown, ReasonNothingRecorded},
		"a start time that is not known":                                                         {func(x *scene) { x.created(0); x.pod.Status.ContainerStatuses[0].State = terminatedAt(nil) }, Unknown, ReasonClockMargin},
		// The order of revisions.
		"the template is later, in the same second":                      {func(x *scene) { x.created(0); x.workload.StartVersion = 101 }, Current, ReasonStartedAfter},
		"the content is later, in the same second":                       {func(x *scene) { x.created(0); x.workload.StartVersion = 100 }, Unknown, ReasonClockMargin},
		"a template with another revision counter":                       {func(x *scene) { x.created(0); x.workload.StartVersion, x.ordered = 101, false }, Unknown, ReasonClockMargin},
		"a pod of another template":                                      {func(x *scene) { x.created(0); x.workload.StartVersion, x.revision = 101, "newer" }, Unknown, ReasonClockMargin},
		"a template without a known revision":                            {func(x *scene) { x.created(0); x.workload.StartVersion, x.revision = 101, "" }, Unknown, ReasonClockMargin},
		"a pod older than its template":                                  {func(x *scene) { x.created(0); x.workload.StartVersion, x.workload.TemplateWritten = 101, at(1) }, Unknown, ReasonClockMargin},
		"a key that was written before the template":                     {func(x *scene) { x.changes(b2, 60, 120, true); x.workload.StartVersion = 110 }, Current, ReasonStartedAfter},
		"all keys are read, one of which was written after the template": {func(x *scene) { x.reads(fromEnvFrom()); x.changes(b2, 60, 120, true); x.workload.StartVersion = 110 }, Unknown, ReasonClockMargin},
		"a key that may have been removed after the template": {func(x *scene) {
			x.reads(fromEnv("c", true))
			x.changes(b2, 60, 120, true)
			x.workload.StartVersion = 110
		}, Unknown, ReasonOtherKeys},

		// A change was seen.
		"last write of the pod before the change":                                     {func(x *scene) { x.changes(a2, 60, 151, true) }, Stale, ReasonStartedBefore},
		"last write of the pod after the change, started around the change":           {func(x *scene) { x.changes(a2, 60, 149, true) }, Unknown, ReasonClockMargin},
		"last write of the pod after the change, started long before":                 {func(x *scene) { x.changes(a2, 70, 149, true) }, Stale, ReasonStartedBefore},
		"another revision counter, started around the change":                         {func(x *scene) { x.changes(a2, 60, 151, true); x.ordered = false }, Unknown, ReasonClockMargin},
		"another revision counter, started long before the change":                    {func(x *scene) { x.changes(a2, 70, 151, true); x.ordered = false }, Stale, ReasonStartedBefore},
		"a change during a broken watch":                                              {func(x *scene) { x.changes(a2, 60, 151, false) }, Unknown, ReasonClockMargin},
		"a change of another key":                                                     {func(x *scene) { x.changes(b2, 70, 151, true) }, Current, ReasonSameContent},
		"a change of another key, and of the key it is not known when it was written": {func(x *scene) { x.created(0); x.changes(b2, 70, 151, true) }, Unknown, ReasonOtherKeys},
		"a change of the key, then of another key":                                    {func(x *scene) { x.changes(a2, 70, 151, true); x.changes(a2b2, 80, 152, true) }, Stale, ReasonStartedBefore},
		"a change of another key, all keys are read":                                  {func(x *scene) { x.reads(fromEnvFrom()); x.changes(b2, 70, 151, true) }, Stale, ReasonStartedBefore},
		"another key is removed, all keys are read":                                   {func(x *scene) { x.reads(fromEnvFrom()); x.changes(onlyA, 0, 151, true); x.source.Change.Seen = at(70) }, Stale, ReasonStartedBefore},
		"another key is removed":                                                      {func(x *scene) { x.changes(onlyA, 0, 151, true); x.source.Change.Seen = at(70) }, Current, ReasonSameContent},
		"a change without managedFields": {func(x *scene) {
			x.created(-60)
			x.changes(a2, 70, 149, true)
			x.source.LastChanged = metav1.NewTime(at(-3600))
		}, Stale, ReasonStartedBefore},
		"started after another key was removed":             {func(x *scene) { x.reads(fromEnvFrom()); x.changes(onlyA, 0, 120, true); x.source.Change.Seen = at(50) }, Current, ReasonStartedAfter},
		"started around the removal of another key":         {func(x *scene) { x.reads(fromEnvFrom()); x.changes(onlyA, 0, 120, true); x.source.Change.Seen = at(58) }, Unknown, ReasonClockMargin},
		"the key is removed":                                {func(x *scene) { x.changes(map[string]string{"b": "1"}, 0, 151, true) }, Unknown, ReasonKeyMissing},
		"created after the change":                          {func(x *scene) { x.changes(a2, 60, 149, true); x.created(61) }, Current, ReasonStartedAfter},
		"restarted in place after the change":               {func(x *scene) { x.changes(a2, 70, 149, true); x.restarted(80) }, Current, ReasonStartedAfter},
		"restarted in place after the change, with files":   {func(x *scene) { x.reads(fromFiles("")); x.changes(a2, 70, 149, true); x.restarted(80) }, Unknown, ReasonClockMargin},
		"metadata written after a change that the pod read": {func(x *scene) { x.changes(a2, 30, 140, true); x.source.LastChanged = metav1.NewTime(at(600)) }, Current, ReasonStartedAfter},

		// Records.
		"recorded, then metadata written":   {func(x *scene) { x.records(0); x.created(-60) }, Unknown, ReasonRecordedLater},
		"rolled out, then metadata written": {func(x *scene) { x.records(0); x.rolledOut(); x.created(-60) }, Current, ReasonRecorded},
		"rolled out, restarted in place, then metadata written": {func(x *scene) {
			x.records(0)
			x.rolledOut()
			x.created(-60)
			x.pod.Status.ContainerStatuses[0].RestartCount = 1
		}, Unknown, ReasonRecordedLater},
		"a pod of an older template with the hash, then metadata written": {func(x *scene) { x.madeFor(0); x.revision = "newer" }, Unknown, ReasonRecordedLater},
		"changed while not watched":                                       {func(x *scene) { x.records(0); x.created(-60); x.source = x.written(a2, 0, 100) }, Stale, ReasonRecordDiffers},
		"changed while not watched, after a rollout":                      {func(x *scene) { x.records(0); x.rolledOut(); x.created(-60); x.source = x.written(a2, 0, 100) }, Stale, ReasonRecordDiffers},
		"an old pod, and the change is not remembered": {func(x *scene) {
			x.created(-60)
			x.records(0)
			x.rolledOut()
			x.source = x.written(a2, 0, 100)
			x.records(0)
			x.revision = "newer"
		}, Stale, ReasonRecordDiffers},
		"a pod of the current template, with another hash": {func(x *scene) {
			x.created(-60)
			x.records(0)
			x.rolledOut()
			x.source = x.written(a2, 0, 100)
			x.records(0)
		}, Unknown, ReasonRecordedLater},
		"metadata written during a broken watch": {func(x *scene) { x.changes(a2, 90, 149, false) }, Unknown, ReasonNothingRecorded},
		"rolled out for a change, within the margin": {func(x *scene) {
			x.changes(a2, 60, 120, true)
			x.records(121)
			x.rolledOut()
			x.workload.StartVersion = 121
		}, Current, ReasonStartedAfter},
		"rolled out before a change and a change back, recorded after": {func(x *scene) {
			x.records(0)
			x.rolledOut()
			x.changes(a2, 60, 120, true)
			x.changes(map[string]string{"a": "1", "b": "1"}, 60, 122, true)
			x.workload.RecordedAt.Version = 123
		}, Unknown, ReasonClockMargin},
		"changed again after the rollout": {func(x *scene) {
			x.changes(a2, 50, 120, true)
			x.records(121)
			x.rolledOut()
			x.changes(b2, 70, 151, true)
		}, Stale, ReasonStartedBefore},
		"changed and changed back":                                      {func(x *scene) { x.records(0); x.back(149, 152) }, Current, ReasonSameContent},
		"changed and changed back, rolled out":                          {func(x *scene) { x.records(0); x.rolledOut(); x.back(149, 152) }, Current, ReasonSameContent},
		"changed and changed back, rolled out and verified":             {func(x *scene) { x.records(0); x.rolledOut(); x.back(149, 152); x.verified(160) }, Current, ReasonSameContent},
		"changed and changed back, started in between":                  {func(x *scene) { x.records(0); x.back(149, 152); x.restarted(77) }, Stale, ReasonStartedBefore},
		"changed and changed back, started around the change":           {func(x *scene) { x.records(0); x.back(149, 153); x.restarted(72) }, Unknown, ReasonChangedBack},
		"changed and changed back, started around the change, verified": {func(x *scene) { x.records(0); x.back(149, 153); x.restarted(72); x.verified(160) }, Unknown, ReasonChangedBack},
		"changed and changed back twice":                                {func(x *scene) { x.records(0); x.back(149, 152); x.back(153, 154) }, Current, ReasonSameContent},
		"changed and changed back more often than is remembered": {func(x *scene) {
			x.records(0)
			for i := range uint64(4) {
				x.back(151+2*i, 152+2*i)
			}
			x.verified(170)
		}, Unknown, ReasonChangedBack},
		"changed and changed back, a pod from before the last write":                 {func(x *scene) { x.records(0); x.created(-60); x.back(149, 152) }, Unknown, ReasonChangedBack},
		"changed and changed back, a pod from before the last write, verified":       {func(x *scene) { x.records(0); x.created(-60); x.back(149, 152); x.verified(160) }, Unknown, ReasonChangedBack},
		"changed and changed back, a pod created for the record":                     {func(x *scene) { x.records(0); x.rolledOut(); x.created(-60); x.back(149, 152); x.verified(160) }, Current, ReasonRecorded},
		"changed and changed back, a pod created for the record, restarted in place": {func(x *scene) { x.madeFor(1); x.back(149, 152); x.verified(160) }, Unknown, ReasonChangedBack},
		"changed and changed back, a pod of an older template":                       {func(x *scene) { x.madeFor(0); x.revision = "newer"; x.back(149, 152); x.verified(160) }, Unknown, ReasonChangedBack},
		"changed and changed back, only the latter seen": {func(x *scene) {
			x.records(0)
			x.rolledOut()
			back := x.source
			x.source = x.written(a2, 70, 149)
			x.changes(map[string]string{"a": "1", "b": "1"}, 80, 152, true)
			x.source.LastChanged = back.LastChanged
			x.verified(160)
		}, Unknown, ReasonRecordedLater},
		"recorded after the change":                                   {func(x *scene) { x.changes(a2, 70, 151, true); x.records(160) }, Stale, ReasonStartedBefore},
		"recorded after the change, a pod from before the last write": {func(x *scene) { x.created(-60); x.changes(a2, 70, 151, true); x.records(160) }, Unknown, ReasonRecordedLater},
		"an old pod while new pods are created": {func(x *scene) {
			x.changes(a2, 70, 151, true)
			x.records(160)
			x.pod.Annotations[policy.ConfigHashAnnotation] = "v1.0.1"
		}, Stale, ReasonStartedBefore},
		"a record with another key of the hash": {func(x *scene) { x.records(0); x.rekey(); x.created(-60) }, Unknown, ReasonNothingRecorded},
		"a record that is not a hash":           {func(x *scene) { x.remember(policy.Record{Hash: "garbage"}, 0); x.created(-60) }, Unknown, ReasonNothingRecorded},

		// Missing sources.
		"the source is deleted":              {func(x *scene) { x.delete(70) }, Unknown, ReasonSourceMissing},
		"an optional source is deleted":      {func(x *scene) { x.reads(fromEnv("a", true)); x.delete(70) }, Stale, ReasonStartedBefore},
		"started without an optional source": {func(x *scene) { x.reads(fromEnv("a", true)); x.delete(50) }, Current, ReasonStartedAfter},
		"started without an optional source, which is created again": {func(x *scene) {
			x.reads(fromEnv("a", true))
			x.created(75)
			x.workload.StartVersion = 101
			x.replaced(149, 180)
		}, Unknown, ReasonOtherKeys},
		"started with an optional source, which is deleted and created again": {func(x *scene) { x.reads(fromEnv("a", true)); x.workload.StartVersion = 101; x.replaced(151, 180) }, Current, ReasonSameContent},
		"deleted and created again":        {func(x *scene) { x.reads(fromEnvFrom()); x.replaced(151, 180) }, Current, ReasonSameContent},
		"an optional source is created":    {func(x *scene) { x.reads(fromEnv("a", true)); x.appears(180) }, Stale, ReasonStartedBefore},
		"a key is removed and added again": {func(x *scene) { x.reads(fromEnv("b", true)); x.readded(151, 152) }, Current, ReasonSameContent},
		"started without an optional key, which is added again": {func(x *scene) {
			x.reads(fromEnv("b", true))
			x.created(75)
			x.workload.StartVersion = 101
			x.readded(149, 152)
		}, Unknown, ReasonChangedBack},
		"an optional source that never existed": {func(x *scene) { x.reads(fromEnv("a", true)); x.source = nil }, Current, ReasonStartedAfter},

		// What counts as read.
		"a container that reads nothing": {func(x *scene) { x.reads(corev1.Container{Name: "app"}) }, Current, ReasonNothingRead},
		"an ignored source":              {func(x *scene) { x.changes(a2, 70, 151, true); x.source.Ignored = true }, Current, ReasonNothingRead},
		"files with live volumes":        {func(x *scene) { x.liveVolumes(); x.reads(fromFiles("")); x.changes(a2, 70, 151, true) }, Current, ReasonNothingRead},
		"a subPath with live volumes":    {func(x *scene) { x.liveVolumes(); x.reads(fromFiles("a")); x.changes(a2, 70, 151, true) }, Stale, ReasonStartedBefore},
		"a source that an annotation names": {func(x *scene) {
			x.annotate(policy.SourcesAnnotation, "secret/db")
			x.reads(corev1.Container{Name: "app"})
			x.changes(a2, 70, 151, true)
		}, Stale, ReasonStartedBefore},
		"a source that only mode auto restarts for": {func(x *scene) { x.annotate(policy.ReloadAnnotation, "listed"); x.changes(a2, 70, 151, true) }, Current, ReasonNothingRead},

		// Containers.
		"a waiting container": {func(x *scene) {
			x.changes(a2, 70, 151, true)
			x.pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
		}, NotStarted, "CrashLoopBackOff"},
		"a pod without status": {func(x *scene) { x.pod.Status = corev1.PodStatus{} }, NotStarted, "NotStarted"},
		"a completed init container, and a container that reads nothing": {func(x *scene) {
			x.changes(a2, 70, 151, true)
			x.pod.Spec.InitContainers = []corev1.Container{fromEnv("a", false)}
			x.pod.Spec.InitContainers[0].Name = "init"
			x.reads(corev1.Container{Name: "app"})
			x.pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", State: terminatedAt(new(metav1.NewTime(at(59))))}}
		}, Stale, ReasonStartedBefore},
		"a container restarted in place beside one that was not": {func(x *scene) {
			side := fromEnv("a", false)
			side.Name = "side"
			x.reads(fromEnv("a", false), side)
			x.changes(a2, 70, 149, true)
			x.restarted(80)
			x.running("side", 60)
		}, Stale, ReasonStartedBefore},
		"a waiting container beside a current one": {func(x *scene) {
			side := fromEnv("a", false)
			side.Name = "side"
			x.reads(fromEnv("a", false), side)
		}, NotStarted, "NotStarted"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			x := newScene()
			tt.do(x)
			got := x.judge()
			if got.State != tt.state || got.Reason != tt.reason {
				t.Errorf("got %s, %s (%s); want %s, %s", got.State, got.Reason, got.Message, tt.state, tt.reason)
			}
			var want []string
			if tt.state == Stale {
				want = []string{"Secret/db"}
			}
			if diff := cmp.Diff(want, got.Stale); diff != "" {
				t.Errorf("stale sources (-want +got):\n%s", diff)
			}
		})
	}
}

func terminatedAt(started *metav1.Time) corev1.ContainerState {
	s := &corev1.ContainerStateTerminated{}
	if started != nil {
		s.StartedAt = *started
	}
	return corev1.ContainerState{Terminated: s}
}

func (x *scene) annotate(key, value string) {
	x.mode = policy.Auto
	x.workload.Annotations[key] = value
}

func (x *scene) liveVolumes() { x.annotate(policy.LiveVolumesAnnotation, "true") }

// delete deletes the source while the server watches.
func (x *scene) delete(second int) {
	x.source, x.gone = nil, &dependency.Change{Version: 149, Exact: true, Seen: at(second)}
}

// rekey replaces the cluster's key of the hash.
func (x *scene) rekey() {
	key := make([]byte, dependency.KeySize)
	key[0] = 1
	x.digester = dependency.NewDigester(key)
	x.source = x.written(map[string]string{"a": "1", "b": "1"}, 0, 100)
}

// annotationsOf returns the annotations that a merge patch sets.
func annotationsOf(patch []byte) map[string]string {
	var o struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(patch, &o); err != nil {
		panic(err)
	}
	return o.Metadata.Annotations
}
