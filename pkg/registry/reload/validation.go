// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// maxReason is the maximum length of a reason, in characters. The reason goes into an event.
const maxReason = 256

// validate checks what can be checked from only the request.
func validate(request *v1alpha1.Reload, namespace, name string) error {
	if err := validateNames(&request.ObjectMeta, namespace, name); err != nil {
		return err
	}
	var errs field.ErrorList
	spec := field.NewPath("spec")
	switch request.Spec.Mode {
	case "", v1alpha1.ReloadAlways, v1alpha1.ReloadIfStale:
	default:
		errs = append(errs, field.NotSupported(spec.Child("mode"), request.Spec.Mode,
			[]v1alpha1.ReloadRequestMode{v1alpha1.ReloadAlways, v1alpha1.ReloadIfStale}))
	}
	return invalid("Reload", name, append(errs, validateReason(spec.Child("reason"), request.Spec.Reason)...))
}

// validateApproval checks what can be checked from only the request.
func validateApproval(request *v1alpha1.Approval, namespace, name string) error {
	if err := validateNames(&request.ObjectMeta, namespace, name); err != nil {
		return err
	}
	var errs field.ErrorList
	spec := field.NewPath("spec")
	switch request.Spec.Decision {
	case v1alpha1.ApprovalApproved, v1alpha1.ApprovalDenied:
	default:
		errs = append(errs, field.NotSupported(spec.Child("decision"), request.Spec.Decision,
			[]v1alpha1.ApprovalDecision{v1alpha1.ApprovalApproved, v1alpha1.ApprovalDenied}))
	}
	if request.Spec.ConfigHash == "" {
		errs = append(errs, field.Required(spec.Child("configHash"), "must be the status.configHash of the ConfigDependency"))
	}
	return invalid("Approval", name, append(errs, validateReason(spec.Child("reason"), request.Spec.Reason)...))
}

func validateNames(m *metav1.ObjectMeta, namespace, name string) error {
	if m.Name != "" && m.Name != name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name in the URL (%s)", m.Name, name))
	}
	if m.Namespace != "" && m.Namespace != namespace {
		return apierrors.NewBadRequest(fmt.Sprintf("the namespace of the object (%s) does not match the namespace in the URL (%s)", m.Namespace, namespace))
	}
	return nil
}

func validateReason(path *field.Path, reason string) (errs field.ErrorList) {
	if n := utf8.RuneCountInString(reason); n > maxReason {
		errs = append(errs, field.TooLongCharacters(path, "", maxReason))
	}
	if i := strings.IndexFunc(reason, misleads); i >= 0 {
		r, _ := utf8.DecodeRuneInString(reason[i:])
		errs = append(errs, field.Invalid(path, string(r), "must be a single line without control or invisible characters"))
	}
	return errs
}

func invalid(kind, name string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(v1alpha1.Kind(kind), name, errs)
}

// misleads reports whether a character is invisible, or can make printed text look like something else, such as another
// line.
func misleads(r rune) bool {
	const joiner, nonJoiner = '\u200d', '\u200c' // of emoji, and of letters in some languages
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) && r != joiner && r != nonJoiner
}

// validateKind refuses workloads that have no rollout.
func validateKind(all kind.Table, view *v1alpha1.ConfigDependency) error {
	ref := &view.Spec.WorkloadRef
	if k := all.OfReference(ref.APIVersion, ref.Kind); k != nil && k.Restarted() {
		return nil
	}
	return apierrors.NewInvalid(v1alpha1.Kind("ConfigDependency"), view.Name, field.ErrorList{
		field.Invalid(field.NewPath("metadata", "name"), view.Name,
			fmt.Sprintf("a %s cannot be restarted: only a %s can, and custom resources of some kinds", ref.Kind, oneOf(kind.Table(nil).Restarted()))),
	})
}

// oneOf renders names as "a, b or c".
func oneOf(kinds []dependency.WorkloadKind) string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// setDefaults sets the defaults of a request, so that admission sees them and the answer
// contains them.
func setDefaults(request *v1alpha1.Reload, namespace, name string) {
	request.Namespace, request.Name = namespace, name
	if request.Spec.Mode == "" {
		request.Spec.Mode = v1alpha1.ReloadAlways
	}
	request.Status = v1alpha1.ReloadStatus{}
}
