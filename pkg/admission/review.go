// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/configdep/configdep/pkg/kind"
)

// review is an AdmissionReview of which only the needed parts are decoded.
type review struct {
	metav1.TypeMeta `json:",inline"`

	Request *request `json:"request"`
}

type request struct {
	UID         types.UID               `json:"uid"`
	Kind        metav1.GroupVersionKind `json:"kind"`
	SubResource string                  `json:"subResource"`
	Name        string                  `json:"name"`
	Namespace   string                  `json:"namespace"`
	Operation   admissionv1.Operation   `json:"operation"`
	Object      json.RawMessage         `json:"object"`
	OldObject   json.RawMessage         `json:"oldObject"`
	Options     struct {                // of create, update and patch
		FieldManager string `json:"fieldManager"`
	} `json:"options"`

	kind           *kind.Kind
	object, before *shape // of Object, and of OldObject if it is updated
	malformed      error  // why there are none
}

// readReview reads an AdmissionReview of a workload of one of the kinds. It validates what the request says about itself before that is
// used.
func readReview(body []byte, kinds kind.Table) (*review, error) {
	v := &review{}
	if err := json.Unmarshal(body, v); err != nil {
		return nil, fmt.Errorf("reading the AdmissionReview: %w", err)
	}
	if gvk := v.GroupVersionKind(); gvk != admissionv1.SchemeGroupVersion.WithKind("AdmissionReview") || v.Request == nil {
		return nil, fmt.Errorf("expected an AdmissionReview of %s with a request, got %s", admissionv1.SchemeGroupVersion, gvk)
	}
	return v, v.Request.read(kinds)
}

// maxUID is an upper bound on the length of the UID of a request, which is returned in
// the answer.
const maxUID = 128

func (r *request) read(kinds kind.Table) error {
	switch {
	case r.UID == "":
		return errors.New("the request of the AdmissionReview has no uid")
	case len(r.UID) > maxUID:
		return fmt.Errorf("the uid of the request has more than %d bytes", maxUID)
	}
	if r.kind = kinds.OfGroupKind(schema.GroupKind{Group: r.Kind.Group, Kind: r.Kind.Kind}); r.kind == nil || !r.kind.Traits.Rollable || r.kind.Traits.Reruns {
		return fmt.Errorf("a %s is not a workload whose pods can be restarted", r.Kind.Kind)
	}
	if !isName(r.Namespace, validation.ValidateNamespaceName) {
		return fmt.Errorf("%q is not the name of a namespace", shortened(r.Namespace))
	}
	if r.Name != "" && !isName(r.Name, validation.NameIsDNSSubdomain) { // it may have yet to be generated
		return fmt.Errorf("%q is not the name of a workload", shortened(r.Name))
	}
	r.readObjects()
	return nil
}

// isName reports whether an object can have a name. It takes limited time.
func isName(name string, validate validation.ValidateNameFunc) bool {
	return len(name) <= utilvalidation.DNS1123SubdomainMaxLength && len(validate(name, false)) == 0
}

func (r *request) readObjects() {
	if r.object, r.malformed = readShape(r.kind, r.Object); r.malformed == nil && r.Operation == admissionv1.Update {
		r.before, r.malformed = readShape(r.kind, r.OldObject)
	}
	r.Object, r.OldObject = nil, nil // what matters of them has been copied
}

// operation returns the operation if it can start pods. A request may contain any string here, so metrics use this
// result.
func (r *request) operation() string {
	switch r.Operation {
	case admissionv1.Create, admissionv1.Update:
		return string(r.Operation)
	default:
		return ""
	}
}

// cost returns an upper bound on the memory that it takes to decode a request.
func (r *request) cost() int64 {
	if r.malformed != nil {
		return 0
	}
	cost := r.object.cost() + r.object.costOfTypes()
	if r.before != nil {
		cost += r.before.cost()
	}
	return cost
}

// tooLarge returns the error for a request that costs too much.
func (r *request) tooLarge() error {
	says := "too large to evaluate here: " + r.object.size()
	if r.before != nil {
		says += "; before: " + r.before.size()
	}
	return errors.New(says)
}
