// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/configdep/configdep/pkg/apis/configdep"
)

var (
	// SchemeGroupVersion is the group and version of the types of this package.
	SchemeGroupVersion = schema.GroupVersion{Group: configdep.GroupName, Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes, addConversions)

	// AddToScheme registers the types of this package and the field labels that
	// their selectors accept.
	AddToScheme = schemeBuilder.AddToScheme
)

// Kind qualifies a kind of this group.
func Kind(kind string) schema.GroupKind {
	return SchemeGroupVersion.WithKind(kind).GroupKind()
}

// Resource qualifies a resource of this group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion, &ConfigDependency{}, &ConfigDependencyList{}, &Reload{}, &Approval{}, &ConfigDependencyPods{}, &ConfigDependencyPlan{}, &PlanOptions{})
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return scheme.AddFieldLabelConversionFunc(SchemeGroupVersion.WithKind("ConfigDependency"), convertFieldLabel)
}
