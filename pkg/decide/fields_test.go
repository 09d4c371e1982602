// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/dependency/dependencytest"
	"github.com/configdep/configdep/pkg/fields"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

const accessKey = "spec.s3.accessKey = secret/bucket#key"

// harbor is a workload with fields that get their values from a Secret, and what is known about both.
type harbor struct {
	t        *testing.T
	digester *dependency.Digester
	content  string
	changed  time.Time // when the content changed, as far as it has been seen to change
	allowed  string
	marks    annotations
	states   map[string]dependency.FieldState
	traits   dependency.Traits
	defaults policy.Defaults
	owned    bool
	replicas int32
	pod      corev1.PodSpec
}

func newHarbor(t *testing.T) *harbor {
	t.Helper()
	return &harbor{
		t: t, digester: dependency.NewDigester(make([]byte, 32)), content: "AKIA", allowed: "harbor/registry#*",
		marks:    annotations{policy.FieldsAnnotation: accessKey},
		traits:   dependency.Traits{Rollable: true, Custom: true, UnknownPods: true, Fields: true, Restart: &dependency.Restart{}},
		defaults: policy.Defaults{Mode: policy.Off}, replicas: 1,
	}
}

func (h *harbor) evaluate() *decide.Evaluation {
	h.t.Helper()
	g := dependency.NewGraph()
	g.SetDigester(h.digester)
	if h.content != "" {
		bucket := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bucket", UID: "s", ResourceVersion: "5"}, Data: map[string][]byte{"key": []byte(h.content)}}
		s := dependencytest.Source(h.digester, bucket, policy.Dialects(nil).ReadSource(annotations{policy.AllowFieldsAnnotation: h.allowed}))
		if !h.changed.IsZero() {
			s.Remember(nil, g, dependency.Arrival{Live: true, Seen: h.changed})
		}
		g.SetSource(s)
	}
	w := policy.Dialects(nil).ReadWorkload(&dependency.Object{
		Kind: "Harbor", Template: &corev1.PodTemplateSpec{Spec: h.pod}, Traits: h.traits,
		Meta:   &metav1.ObjectMeta{Namespace: "shop", Name: "registry", UID: "w", ResourceVersion: "7", Annotations: h.marks},
		Status: dependency.Status{Replicas: h.replicas, Rollout: dependency.Rollout{Phase: dependency.RolloutComplete}},
		Fields: dependency.Fields{States: h.states, Owned: h.owned},
	})
	p := policy.Note(w, nil, h.defaults)
	g.SetWorkload(w, p.Patterns())
	return decide.Evaluator{Graph: g, Defaults: h.defaults}.Evaluate(w)
}

func recordFields(e *decide.Evaluation, values []fields.Value, conflict bool, problem string, at time.Time) *record.AppliedFields {
	r := e.FieldsRecorder()
	return r.Record(values, conflict, problem, at)
}

func (h *harbor) decide() decide.Decision { return h.evaluate().Decide(epoch) }

// write applies a patch of annotations.
func (h *harbor) write(data []byte, err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
	var p struct {
		Metadata struct{ Annotations map[string]*string }
	}
	if err := json.Unmarshal(data, &p); err != nil {
		h.t.Fatal(err)
	}
	for key, value := range p.Metadata.Annotations {
		if value == nil {
			delete(h.marks, key)
		} else {
			h.marks[key] = *value
		}
	}
}

// apply sets the field to the content of the Secret, or to another value, and records it.
func (h *harbor) apply(value string) {
	h.t.Helper()
	e := h.evaluate()
	values := []fields.Value{{Assignment: &e.Policy.Fields[0], Value: h.content}}
	h.write(e.Policy.RestartPatch(e.Workload, &record.Restart{
		Present: e.Present(), Last: record.NewAutomaticReload(nil, epoch, 0, "Secret/bucket"), Fields: recordFields(e, values, false, "", epoch), FieldsOnly: true,
	}))
	h.set(value, "")
}

// set gives the field a value and an owner.
func (h *harbor) set(value, owner string) {
	h.states = map[string]dependency.FieldState{"spec.s3.accessKey": {Value: record.FieldDigest(h.digester, "w", "spec.s3.accessKey", value), Owner: owner}}
	h.owned = owner == ""
}

func (h *harbor) want(state decide.State, reason string, action decide.Action) decide.Decision {
	h.t.Helper()
	d := h.decide()
	if d.State != state || d.Reason != reason || d.Action != action {
		h.t.Errorf("decision = %s/%s %q (%s), want %s/%s %q", d.State, d.Reason, d.Action, d.Message, state, reason, action)
	}
	return d
}

// Pods have nothing to do with a key that only a field gets its value from.
func TestFields_Missing(t *testing.T) {
	h := newHarbor(t)
	h.content = ""
	if d := h.want(decide.Blocked, decide.ReasonSourceMissing, decide.WriteRecord); !strings.HasPrefix(d.Message, "Secret bucket is missing: fields cannot be set. ") {
		t.Errorf("message = %s", d.Message)
	}
	h.content, h.marks = "AKIA", annotations{policy.FieldsAnnotation: "spec.s3.accessKey = secret/bucket#other"}
	if d := h.want(decide.Blocked, decide.ReasonKeyMissing, decide.WriteRecord); !strings.HasPrefix(d.Message, "Secret bucket lacks the key other: fields cannot be set. ") {
		t.Errorf("message = %s", d.Message)
	}
}

func TestFields_AreSetOnceAndWhenContentChanges(t *testing.T) {
	h := newHarbor(t)
	h.want(decide.Pending, decide.ReasonFieldsDue, decide.ApplyFields)
	e := h.evaluate()
	if diff := cmp.Diff([]dependency.Use{{Type: dependency.Field, MountPath: "spec.s3.accessKey", Keys: []string{"key"}}}, e.Sources[0].Uses); diff != "" || !e.Sources[0].Triggers {
		t.Errorf("triggers: %v, uses (-want +got):\n%s", e.Sources[0].Triggers, diff)
	}
	h.apply("AKIA")
	h.want(decide.InSync, decide.ReasonContentApplied, decide.None)
	h.content = "AKIB"
	d := h.want(decide.Pending, decide.ReasonSourceChanged, decide.RollOut)
	if d.Trigger != "Secret/bucket" || !d.FieldsOnly() {
		t.Errorf("trigger = %s, fields only: %v", d.Trigger, d.FieldsOnly())
	}
	h.apply("AKIB")
	h.want(decide.InSync, decide.ReasonContentApplied, decide.None)
	h.marks[policy.FieldsAnnotation] = accessKey + "\nspec.s3.other = secret/bucket#key"
	h.want(decide.Pending, decide.ReasonFieldsDue, decide.ApplyFields) // the annotation is another one
}

// With the strategy agent, a key that only a field gets its value from is set as with any other: no container reads it. Of pods without an agent,
// nothing is known.
func TestFields_WithTheStrategyAgent(t *testing.T) {
	h := newHarbor(t)
	h.traits.UnknownPods, h.marks[policy.StrategyAnnotation] = false, "agent"
	h.apply("AKIA")
	if d := h.want(decide.Pending, decide.ReasonAgentsSilent, decide.None); d.Message != "No pod has the label configdep.io/agent=true: nothing is known about pods without it." {
		t.Errorf("message = %s", d.Message)
	}
	h.content = "AKIB"
	if d := h.want(decide.Pending, decide.ReasonSourceChanged, decide.RollOut); !d.FieldsOnly() {
		t.Errorf("decision = %+v", d)
	}
	h.replicas = 0
	h.apply("AKIB")
	h.want(decide.InSync, decide.ReasonNoPods, decide.WriteRecord)
}

// A line that the annotation no longer has is given up, although all others have the values that they should have; and so is all that was set if it is not
// recorded what that was.
func TestFields_WithOneLineLess(t *testing.T) {
	h := newHarbor(t)
	h.marks[policy.FieldsAnnotation] = accessKey + "\nspec.s3.other = secret/bucket#key"
	h.apply("AKIA")
	h.marks[policy.FieldsAnnotation] = accessKey
	h.want(decide.Pending, decide.ReasonFieldsDue, decide.ApplyFields)
	if r := h.evaluate().FieldsRecorder(); !r.Released {
		t.Error("what was set is kept")
	}
	h.apply("AKIA")
	if r := h.evaluate().FieldsRecorder(); r.Released {
		t.Error("what is set is given up")
	}
	delete(h.marks, record.AppliedFieldsAnnotation)
	h.want(decide.Pending, decide.ReasonFieldsDue, decide.ApplyFields)
	if r := h.evaluate().FieldsRecorder(); !r.Released {
		t.Error("what was set is not known, and kept")
	}
}

// New content is set when a restart would come: once it has settled, and not sooner than the minimum interval allows.
func TestFields_WaitAsRestartsDo(t *testing.T) {
	h := newHarbor(t)
	h.apply("AKIA")
	h.marks[policy.SettleAnnotation], h.marks[policy.MinIntervalAnnotation] = "5s", "1m"
	h.content, h.changed = "AKIB", epoch.Add(2*time.Minute)
	for after, want := range map[time.Duration]decide.Decision{
		2 * time.Minute:                                 {State: decide.Settling, Reason: decide.ReasonSourceChanged, RecheckAt: epoch.Add(2*time.Minute + 5*time.Second)},
		2*time.Minute + 5*time.Second:                   {State: decide.Pending, Reason: decide.ReasonSourceChanged, Action: decide.RollOut},
		2*time.Minute + 5*time.Second - time.Nanosecond: {State: decide.Settling, Reason: decide.ReasonSourceChanged, RecheckAt: epoch.Add(2*time.Minute + 5*time.Second)},
	} {
		d := h.evaluate().Decide(epoch.Add(after))
		if d.State != want.State || d.Reason != want.Reason || d.Action != want.Action || !d.RecheckAt.Equal(want.RecheckAt) {
			t.Errorf("after %v: %s/%s %q again at %v, want %s/%s %q at %v", after, d.State, d.Reason, d.Action, d.RecheckAt, want.State, want.Reason, want.Action, want.RecheckAt)
		}
	}
	// The fields were set at epoch.
	h.changed = epoch.Add(10 * time.Second)
	d := h.evaluate().Decide(epoch.Add(30 * time.Second))
	if d.State != decide.Pending || d.Reason != decide.ReasonMinInterval || d.Action != decide.None || !d.RecheckAt.Equal(epoch.Add(time.Minute)) {
		t.Errorf("half a minute after the last time: %s/%s %q again at %v", d.State, d.Reason, d.Action, d.RecheckAt)
	}
}

func TestFields_AreWatched(t *testing.T) {
	h := newHarbor(t)
	h.apply("AKIA")
	h.set("changed", "")
	h.want(decide.Pending, decide.ReasonFieldsDue, decide.ApplyFields)
	h.states = nil // removed
	h.want(decide.Pending, decide.ReasonFieldsDue, decide.ApplyFields)
	h.set("changed", "kubectl-edit")
	if d := h.want(decide.Blocked, decide.ReasonFieldConflict, decide.None); !strings.Contains(d.Message, `"kubectl-edit" owns it`) {
		t.Errorf("message = %s", d.Message)
	}
	h.set("AKIA", "argocd") // which has the same value
	h.want(decide.InSync, decide.ReasonContentApplied, decide.None)
	h.content = "AKIB"
	h.want(decide.Pending, decide.ReasonSourceChanged, decide.RollOut)
}

// A value that is stored otherwise than it was set, though configdep owns the field, is not set again and again.
func TestFields_ChangedByTheAPIServer(t *testing.T) {
	h := newHarbor(t)
	h.apply("AKIA")
	h.set("akia", "")
	state := h.states["spec.s3.accessKey"]
	state.Own = true
	h.states["spec.s3.accessKey"] = state
	if d := h.want(decide.Blocked, decide.ReasonFieldsRefused, decide.None); !strings.Contains(d.Message, "spec.s3.accessKey was set, but has another value") || !d.RecheckAt.Equal(epoch.Add(10*time.Minute)) {
		t.Errorf("decision = %+v", d)
	}
	state.Value = dependency.Digest{} // and not that it is gone
	h.states["spec.s3.accessKey"] = state
	h.want(decide.Pending, decide.ReasonFieldsDue, decide.ApplyFields)
}

// A conflict whose other side cannot be seen is not tried again at once.
func TestFields_ConflictWithAnUnknownManager(t *testing.T) {
	h := newHarbor(t)
	h.apply("AKIA")
	h.set("theirs", "")
	h.conflict()
	h.want(decide.Blocked, decide.ReasonFieldConflict, decide.None)
	if d := h.evaluate().Decide(epoch.Add(10 * time.Minute)); d.Action != decide.ApplyFields {
		t.Errorf("decision = %+v", d)
	}
}

// conflict records that another manager owned the field when it was to be set.
func (h *harbor) conflict() {
	h.t.Helper()
	e := h.evaluate()
	values := []fields.Value{{Assignment: &e.Policy.Fields[0], Value: h.content}}
	h.write(record.FieldsPatch(e.Workload, recordFields(e, values, true, "", epoch)))
}

// A conflict that was found when new content was applied is recorded without the content: it remains due.
func TestFields_ConflictOfNewContent(t *testing.T) {
	h := newHarbor(t)
	h.apply("AKIA")
	h.content = "AKIB"
	h.set("AKIA", "argocd")
	h.conflict()
	if d := h.want(decide.Blocked, decide.ReasonFieldConflict, decide.None); !d.Stale || !d.RecheckAt.Equal(epoch.Add(10*time.Minute)) {
		t.Errorf("the content counts as applied, or is never tried again: %+v", d)
	}
	h.set("AKIA", "") // given up
	h.want(decide.Pending, decide.ReasonSourceChanged, decide.RollOut)
}

func TestFields_Problem(t *testing.T) {
	h := newHarbor(t)
	e := h.evaluate()
	h.write(record.FieldsPatch(e.Workload, recordFields(e, nil, false, "spec.s3.accessKey: there is no such field", epoch.Add(-time.Minute))))
	d := h.want(decide.Blocked, decide.ReasonFieldsRefused, decide.None)
	if want := epoch.Add(9 * time.Minute); !d.RecheckAt.Equal(want) || !strings.Contains(d.Message, "there is no such field") {
		t.Errorf("decision = %+v, want another try at %v", d, want)
	}
	if d := h.evaluate().Decide(d.RecheckAt); d.Action != decide.ApplyFields {
		t.Errorf("decision = %+v", d)
	}
	h.content = "AKIB"
	h.want(decide.Pending, decide.ReasonFieldsDue, decide.ApplyFields) // other content may be possible
}

// Who may edit a workload must not be able to read Secrets by it.
func TestFields_NeedConsent(t *testing.T) {
	for allowed, want := range map[string]bool{
		"": false, "harbor/other#key": false, "registry#key": false, "harbor#key": false, "*": false,
		"harbor/registry#key": true, "harbor/*#key": true, "x/y#key, harbor/reg*#k*": true, "*/*#*": true,
		"harbor/registry": false, "harbor/*": false, "harbor/registry#": false, "harbor/registry#other": false, "harbor/registry*key": false,
		"harbor/registry#key," + strings.Repeat("x", 4096): false,
	} {
		h := newHarbor(t)
		h.allowed = allowed
		d := h.decide()
		if (d.Reason != decide.ReasonFieldsNotAllowed) != want || !want && !strings.Contains(d.Message, "in the annotation configdep.io/allow-fields, Secret/bucket must list harbor/registry#key.") {
			t.Errorf("%q: decision = %+v, allowed: %v", allowed, d, want)
		}
	}
}

// What only pods read of a Secret needs no consent.
func TestFields_NeedConsentForFieldsAlone(t *testing.T) {
	h := newHarbor(t)
	h.allowed, h.pod = "harbor/registry#key", podOf(optionalEnv(dependency.Secret, "bucket", "other"))
	h.want(decide.Pending, decide.ReasonFieldsDue, decide.ApplyFields)
}

func TestFields_InvalidAnnotation(t *testing.T) {
	for value, want := range map[string]string{
		"spec.a":                            "must be FIELD = SOURCE",
		"spec.a = secret/other/bucket#key":  "is not the name of a Secret",
		strings.Repeat("#", 70*1024):        "must not have more than",
		"metadata.name = secret/bucket#key": "a field must be below spec",
	} {
		h := newHarbor(t)
		h.marks[policy.FieldsAnnotation] = value
		if d := h.want(decide.Blocked, decide.ReasonInvalidAnnotation, decide.None); !strings.Contains(d.Message, want) {
			t.Errorf("message = %s, want %s", d.Message, want)
		}
	}
	h := newHarbor(t)
	h.traits.Fields = false
	if d := h.want(decide.Blocked, decide.ReasonInvalidAnnotation, decide.None); !strings.Contains(d.Message, "fields of workloads of this kind cannot be set") {
		t.Errorf("message = %s", d.Message)
	}
}

// Without the annotation, fields are given up, even though nothing opts the workload in any longer.
func TestFields_AreReleased(t *testing.T) {
	h := newHarbor(t)
	h.apply("AKIA")
	delete(h.marks, policy.FieldsAnnotation)
	h.want(decide.Pending, decide.ReasonFieldsDue, decide.ReleaseFields)
	h.owned = false
	h.want(decide.Pending, decide.ReasonFieldsDue, decide.ReleaseFields) // the record is left
	h.write(record.FieldsPatch(h.evaluate().Workload, nil))
	h.want(decide.InSync, "NothingRead", decide.Forget)
	h.write(record.ForgetPatch(h.evaluate().Workload))
	h.want(decide.InSync, "NothingRead", decide.None)
	h.owned = true
	h.want(decide.Pending, decide.ReasonFieldsDue, decide.ReleaseFields) // the fields are left
}

// Off is off for fields, too; other sources do not count unless the workload opts in for them.
func TestFields_WithOtherAnnotations(t *testing.T) {
	h := newHarbor(t)
	h.marks[policy.ReloadAnnotation] = "off"
	h.want(decide.InSync, decide.ReasonContentApplied, decide.None)
	h.marks[policy.ReloadAnnotation] = "auto"
	h.want(decide.Pending, decide.ReasonFieldsDue, decide.ApplyFields)
	h.marks[policy.ExcludeAnnotation] = "secret/bucket"
	if e := h.evaluate(); e.Sources[0].Triggers || e.Sources[0].Reason != policy.ReasonExcluded {
		t.Errorf("source = %+v", e.Sources[0])
	}
	h.want(decide.Blocked, decide.ReasonFieldsRefused, decide.None)
}

// Invalid records of other clients count as none, however long they are.
func TestFields_InvalidRecord(t *testing.T) {
	for _, value := range []string{"x", "[]", `{"hash":1}`, `{"problem":"` + strings.Repeat("x", 600) + `"}`, strings.Repeat(" ", 40<<10) + "{}"} {
		h := newHarbor(t)
		h.apply("AKIA")
		h.marks[record.AppliedFieldsAnnotation] = value
		h.want(decide.Pending, decide.ReasonFieldsDue, decide.ApplyFields)
	}
}

// A record tells readers of the object nothing about values that are not in it: no value, no digest of one that was not set, and no digest
// that another object or field, which an attacker may write, would have as well.
func TestAppliedFields_AreNoOracle(t *testing.T) {
	const value, path = "s3cr3t-marker", "spec.s3.accessKey"
	digest := func(h *harbor, uid types.UID, path string) string {
		sum := record.FieldDigest(h.digester, uid, path, value)
		return hex.EncodeToString(sum[:])
	}
	for name, tt := range map[string]struct {
		conflict bool
		problem  string
		before   string // the value that the object has
		want     bool
	}{
		"set":                              {want: true},
		"refused":                          {problem: "the API server refuses them"},
		"a conflict":                       {conflict: true, before: "theirs"},
		"a conflict of another field":      {conflict: true, before: value, want: true},
		"a conflict, and there was none":   {conflict: true},
		"set, and another value was there": {before: "theirs", want: true},
	} {
		h := newHarbor(t)
		h.content = value
		if tt.before != "" {
			h.set(tt.before, "argocd")
		}
		e := h.evaluate()
		a := recordFields(e, []fields.Value{{Assignment: &e.Policy.Fields[0], Value: value}}, tt.conflict, tt.problem, epoch)
		want := map[string]string{}
		if tt.want {
			want[path] = digest(h, "w", path)
		}
		if diff := cmp.Diff(want, a.Values, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: digests (-want +got):\n%s", name, diff)
		}
		if digest(h, "other", path) == digest(h, "w", path) || digest(h, "w", "spec.other") == digest(h, "w", path) {
			t.Errorf("%s: the digest is the same in another object or field", name)
		}
	}
	h := newHarbor(t)
	h.content = value
	h.apply(value)
	if text := h.marks[record.AppliedFieldsAnnotation]; strings.Contains(text, value) {
		t.Errorf("record = %s", text)
	}
}
