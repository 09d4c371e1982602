// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// Scope says which objects are read, and what of them. The zero value: all.
type Scope struct {
	// Namespaces are those that are read one by one; empty: all.
	Namespaces []string
	// IgnoredNamespaces are those of which no workload and no source is read, if Namespaces is empty.
	IgnoredNamespaces []string
	// NamespaceSelector selects, by their labels, the namespaces whose workloads are restarted automatically; nil: all. The
	// workloads of other namespaces are read, too.
	NamespaceSelector labels.Selector
	// SourceSelector selects, by their labels, the ConfigMaps and Secrets that are read; nil: all. It does not apply to
	// Secrets of UnreadTypes.
	SourceSelector labels.Selector
	// IgnoredWorkloads are the kinds of workloads that are not read.
	IgnoredWorkloads []dependency.WorkloadKind
	// WithoutConfigMaps: no ConfigMap is read, and WithoutSecrets: no Secret. Only one of them may be set.
	WithoutConfigMaps, WithoutSecrets bool
	// UnreadTypes are the types of Secrets of which only the metadata is read, so that only their existence is known.
	UnreadTypes []string
	// PodStatuses: what pods have mounted of SecretProviderClasses is read, while that resource is served.
	PodStatuses bool
	// Policies: ReloadPolicies are read, while that resource is served.
	Policies bool
	// Dialects are those whose annotations are read.
	Dialects policy.Dialects
	// Kinds are the kinds of workloads that are read, but for IgnoredWorkloads.
	Kinds kind.Table
}

// kinds returns the kinds of workloads that are read.
func (c Scope) kinds() []*kind.Kind {
	return slices.DeleteFunc(c.Kinds.All(), func(k *kind.Kind) bool { return slices.Contains(c.IgnoredWorkloads, k.Name) })
}

// without returns a stream of all namespaces except the given ones, whose objects the API server leaves out.
func (s *stream) without(namespaces []string) *stream {
	if len(namespaces) == 0 {
		return s
	}
	rest := *s
	terms := make([]string, 0, len(namespaces)+1)
	if s.fields != "" {
		terms = append(terms, s.fields)
	}
	for _, namespace := range namespaces {
		terms = append(terms, fields.OneTermNotEqualSelector(namespaceField, namespace).String())
	}
	rest.fields = strings.Join(terms, ",")
	return &rest
}

// namespaceField is the field of objects by which the API server selects namespaces.
const namespaceField = "metadata.namespace"

// partialKind is the kind of objects of which only the metadata is asked for.
const partialKind = "PartialObjectMetadata"

// accepts returns the media type in which a stream is asked for, of lists and of events.
func (s *stream) accepts(form string, list bool) string {
	if s.kind != partialKind {
		return form
	}
	kind := partialKind
	if list {
		kind += "List"
	}
	return strings.Join([]string{form, "as=" + kind, "g=" + metav1.GroupName, "v=v1"}, ";")
}
