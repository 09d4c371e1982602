// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/configdep/configdep/pkg/admission"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/dependency/dependencytest"
	"github.com/configdep/configdep/pkg/policy"
)

// webhook is the mutating webhook, with the server that answers it.
type webhook struct {
	installed bool
	down      bool
	server    int
}

// finder looks up the current sources.
type finder struct{ w *world }

// Find implements admission.Finder.
func (f finder) Find(_ context.Context, digester *dependency.Digester, key dependency.SourceKey) (*dependency.Source, error) {
	for slot := range f.w.sources {
		s := &f.w.sources[slot]
		if sourceNames[slot] != key.Name || isSecret(slot) != (key.Kind == dependency.Secret) || !s.present {
			continue
		}
		switch o := s.object(slot).(type) {
		case *corev1.ConfigMap:
			return dependencytest.Source(digester, o, policy.Dialects(nil).ReadSource(o.Annotations)), nil
		case *corev1.Secret:
			return dependencytest.Source(digester, o, policy.Dialects(nil).ReadSource(o.Annotations)), nil
		}
	}
	return nil, nil //nolint:nilnil // no source, as admission.Finder has it
}

// admit calls the webhook for a workload that is about to be written by a client other than a server.
func (w *world) admit(d *workload, before *manifest) {
	s := w.servers[w.webhook.server%len(w.servers)]
	if !w.webhook.installed || w.webhook.down || !s.alive || d.deleting || d.runs() || customKinds[d.kind] != nil {
		return
	}
	operation := admissionv1.Create
	if before != nil {
		operation = admissionv1.Update
		took, lost := compareTemplates(&before.template, &d.template)
		metaTook, metaLost := compareMaps(before.annotations, d.annotations)
		if !took && !lost && !metaTook && !metaLost {
			return
		}
	}
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{UID: "1", Operation: operation, Namespace: namespace, Name: workloadName(d.slot),
			Kind: metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: d.kind}, Object: raw(&d.manifest)},
	}
	if before != nil {
		review.Request.OldObject = raw(before)
	}
	response := s.review(&review)
	if response == nil || len(response.Patch) == 0 {
		return
	}
	if !response.Allowed {
		w.oracle.fail("the webhook rejects %s", workloadName(d.slot))
	}
	w.patchAdmitted(d, response.Patch)
	w.oracle.admitted(s, d)
	w.logf("    the webhook, answered by server %d: %s", s.id, response.Patch)
	w.oracle.tally["admissions"]++
}

func raw(m *manifest) runtime.RawExtension {
	data, err := json.Marshal(m.object())
	if err != nil {
		panic(err)
	}
	return runtime.RawExtension{Raw: data}
}

// review sends a request to the handler of a server.
func (s *server) review(review *admissionv1.AdmissionReview) *admissionv1.AdmissionResponse {
	body, err := json.Marshal(review)
	if err != nil {
		panic(err)
	}
	handler := admission.NewHandler(admission.Config{
		Index: s.index, Finder: finder{s.world}, Clock: skewedClock{skew: s.world.skews.Servers[s.id]},
	})
	r := httptest.NewRequestWithContext(quiet, http.MethodPost, admission.Path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	var answer admissionv1.AdmissionReview
	if recorder.Code != http.StatusOK || json.Unmarshal(recorder.Body.Bytes(), &answer) != nil {
		s.world.oracle.fail("the webhook answers %d: %s", recorder.Code, recorder.Body)
		return nil
	}
	return answer.Response
}

// patchAdmitted applies a JSON patch, which may only set configdep's annotations: on the workload, and on its pod template.
func (w *world) patchAdmitted(d *workload, patch []byte) {
	var operations []struct {
		Op, Path string
		Value    any
	}
	if err := json.Unmarshal(patch, &operations); err != nil {
		w.oracle.fail("invalid patch of the webhook: %v", err)
	}
	for _, o := range operations {
		at, key, found := strings.Cut(o.Path, "/annotations/")
		if !found {
			continue // the map itself
		}
		key = strings.ReplaceAll(key, "~1", "/")
		if !strings.HasPrefix(key, "configdep.io/") {
			w.oracle.fail("the webhook patches %s", o.Path)
		}
		text, _ := o.Value.(string)
		switch at {
		case "/metadata":
			d.annotations = with(d.annotations, key, text)
		case "/spec/template/metadata":
			d.template.annotations = with(d.template.annotations, key, text)
		default:
			w.oracle.fail("the webhook patches %s", o.Path)
		}
	}
}
