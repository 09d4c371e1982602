// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/dependency/dependencytest"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

const namespace = ingesttest.Namespace

// admittedAt is when workloads are admitted.
var admittedAt = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

// cluster is the cluster of a handler: an index, and sources that the index does not have yet.
type cluster struct {
	*ingesttest.Cluster

	late   map[dependency.SourceKey]*dependency.Source
	broken error  // of look-ups
	found  func() // called after a look-up; nil: none
	finds  atomic.Int64
}

// newCluster returns a cluster that has been read.
func newCluster(t testing.TB, sources ...ingesttest.Object) *cluster {
	t.Helper()
	c := &cluster{Cluster: ingesttest.New(t, clock.RealClock{}), late: map[dependency.SourceKey]*dependency.Source{}}
	for _, s := range sources {
		c.Set(s)
	}
	c.begin(ingest.Scope{}, 0)
	c.List()
	return c
}

// begin begins to read the cluster again, with a key of the digests.
func (c *cluster) begin(scope ingest.Scope, key byte) {
	x := ingest.NewIndex(clock.RealClock{})
	x.SetDefaults(policy.Defaults{Mode: policy.Off})
	c.Start(x, scope, key)
}

func secret(name, key, value string) *corev1.Secret { return ingesttest.Secret(name, key, value) }

// lookedUp returns the result of a look-up of a Secret.
func lookedUp(s *corev1.Secret) *dependency.Source {
	s.Namespace = namespace
	return dependencytest.Source(ingesttest.DigesterOf(0), s, policy.Dialects(nil).ReadSource(s.Annotations))
}

// Read implements policy.Index.
func (c *cluster) Read(f func(decide.Evaluator)) bool { return c.Index().Read(f) }

func (c *cluster) Find(_ context.Context, _ *dependency.Digester, key dependency.SourceKey) (*dependency.Source, error) {
	c.finds.Add(1)
	if c.found != nil {
		defer c.found()
	}
	return c.late[key], c.broken
}

func (c *cluster) handler() *Handler {
	return NewHandler(Config{
		Index: c, Finder: c, Clock: clocktesting.NewFakePassiveClock(admittedAt), // so that a record has the same time each time
	})
}

// object is anything in JSON.
type object = map[string]any

func parse(t testing.TB, text string) object {
	t.Helper()
	var o object
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.UseNumber()
	if err := decoder.Decode(&o); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return o
}

func encode(t testing.TB, o any) []byte {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// asked returns a request for a Deployment; before is nil on create.
func asked(t testing.TB, o, before object) *admissionv1.AdmissionRequest {
	t.Helper()
	r := &admissionv1.AdmissionRequest{
		UID: types.UID("1"), Kind: metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
		Namespace: namespace, Name: "web", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: encode(t, o)},
	}
	if before != nil {
		r.Operation, r.OldObject = admissionv1.Update, runtime.RawExtension{Raw: encode(t, before)}
	}
	return r
}

// post sends a review through HTTP and returns the answer.
func (c *cluster) post(t testing.TB, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	return postTo(t, c.handler(), r)
}

func postTo(t testing.TB, handler *Handler, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	body := encode(t, &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: r,
	})
	made := httptest.NewRequest(http.MethodPost, Path, bytes.NewReader(body))
	made.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, made)
	if recorder.Code != http.StatusOK || recorder.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("response = %d: %s", recorder.Code, recorder.Body)
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &review); err != nil {
		t.Fatal(err)
	}
	if review.Kind != "AdmissionReview" || review.APIVersion != "admission.k8s.io/v1" || review.Request != nil {
		t.Errorf("response = %s", recorder.Body)
	}
	if got := review.Response; got == nil || got.UID != r.UID || !got.Allowed {
		t.Fatalf("response = %s", recorder.Body)
	}
	return review.Response
}

// admit returns a Deployment after admission.
func (c *cluster) admit(t testing.TB, o, before object) object {
	t.Helper()
	response := c.post(t, asked(t, o, before))
	raw := encode(t, o)
	if response.Patch != nil {
		if response.PatchType == nil || *response.PatchType != admissionv1.PatchTypeJSONPatch {
			t.Errorf("PatchType = %v", response.PatchType)
		}
		patch, err := jsonpatch.DecodePatch(response.Patch)
		if err != nil {
			t.Fatalf("%v in %s", err, response.Patch)
		}
		if raw, err = patch.Apply(raw); err != nil {
			t.Fatalf("error %v: cannot apply the patch %s to %s", err, response.Patch, raw)
		}
	}
	after := parse(t, string(raw))
	if diff := cmp.Diff(unmarkedAll(t, o), unmarkedAll(t, after)); diff != "" {
		t.Fatalf("more than configdep's annotations has changed (-written +admitted):\n%s", diff)
	}
	return after
}

// unmarkedAll returns a copy of a workload without configdep's annotations.
func unmarkedAll(t testing.TB, o object) object {
	t.Helper()
	o = parse(t, string(encode(t, o)))
	for _, at := range [][]string{{"metadata"}, {"spec", "template", "metadata"}} {
		parent, last := o, object(nil)
		for _, name := range at {
			last = parent
			next, _ := parent[name].(object)
			parent = next
		}
		annotations, _ := parent["annotations"].(object)
		for _, key := range []string{
			record.ConfigHashAnnotation, record.AppliedSourcesAnnotation, record.LastReloadAnnotation, record.RecreatingAnnotation, record.ReloadedAtAnnotation,
		} {
			delete(annotations, key)
		}
		if len(annotations) == 0 {
			delete(parent, "annotations")
		}
		if len(parent) == 0 {
			delete(last, "metadata")
		}
	}
	return o
}

func annotationsAt(o object, path ...string) map[string]string {
	for _, name := range path {
		o, _ = o[name].(object)
	}
	annotations, _ := o["annotations"].(object)
	out := map[string]string{}
	for key, value := range annotations {
		out[key], _ = value.(string)
	}
	return out
}

func onWorkload(o object) map[string]string { return annotationsAt(o, "metadata") }
func onTemplate(o object) map[string]string { return annotationsAt(o, "spec", "template", "metadata") }

var errBroken = errors.New("the API server does not answer")
