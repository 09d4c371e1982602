// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"cmp"
	"maps"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// The states of an object in the watch history of some minutes differ little: most changes are to the
// status.

// share replaces the parts of an object that are equal in its previous state by those, so that they
// are in memory once.
func share(o, before *v1alpha1.ConfigDependency) {
	if maps.Equal(o.Labels, before.Labels) {
		o.Labels = before.Labels
	}
	o.Spec.Sources = shareSlice(o.Spec.Sources, before.Spec.Sources)
	o.Status.Sources = shareSlice(o.Status.Sources, before.Status.Sources)
	o.Status.Patterns = shareSlice(o.Status.Patterns, before.Status.Patterns)
	if !shares(o.Status.Patterns, before.Status.Patterns) { // otherwise this would write to a slice that others already read
		for i := range min(len(o.Status.Patterns), len(before.Status.Patterns)) {
			o.Status.Patterns[i].Names = shareSlice(o.Status.Patterns[i].Names, before.Status.Patterns[i].Names)
		}
	}
	o.Spec.Reload.Exclude = shareSlice(o.Spec.Reload.Exclude, before.Spec.Reload.Exclude)
	o.Status.Policies = shareSlice(o.Status.Policies, before.Status.Policies)
	o.Status.Conditions = shareSlice(o.Status.Conditions, before.Status.Conditions)
	if !shares(o.Spec.Sources, before.Spec.Sources) {
		eachPair(o.Spec.Sources, before.Spec.Sources, func(s, was *v1alpha1.Source) { s.Usages = shareSlice(s.Usages, was.Usages) })
	}
}

func shareSlice[E any](now, before []E) []E {
	if reflect.DeepEqual(now, before) {
		return before
	}
	return now
}

// sizeOf returns the approximate memory of an object in bytes, without the parts that it shares with
// another state of the object, which may be nil. It counts every string: many come from annotations, which are as long as
// clients want.
func sizeOf(o, other *v1alpha1.ConfigDependency) int {
	if other == nil {
		other = &v1alpha1.ConfigDependency{}
	}
	n := sizeOfOne[v1alpha1.ConfigDependency]() + sizeOfMeta(&o.ObjectMeta) + sizeOfPolicy(&o.Spec.Reload)
	ref := &o.Spec.WorkloadRef
	n += len(ref.APIVersion) + len(ref.Kind) + len(ref.Name) + len(ref.UID)
	n += len(o.Status.State) + len(o.Status.Reason) + len(o.Status.Message) + len(o.Status.ConfigHash) + len(o.Status.RecordedHash)
	if last := o.Status.LastReload; last != nil {
		n += sizeOfOne[v1alpha1.LastReload]() + len(last.Trigger) + len(last.RequestedBy) + len(last.Reason)
	}
	if o.Status.StaleSince != nil {
		n += sizeOfOne[metav1.Time]()
	}
	if !shares(o.Spec.Sources, other.Spec.Sources) {
		n += sizeOfSlice(o.Spec.Sources, func(s *v1alpha1.Source) int {
			return len(s.Kind) + len(s.Name) + len(s.Reason) + len(s.DeclaredBy) + sizeOfStrings(s.Keys) + sizeOfSlice(s.Usages, sizeOfUsage)
		})
		eachPair(o.Spec.Sources, other.Spec.Sources, func(s, was *v1alpha1.Source) {
			if shares(s.Usages, was.Usages) {
				n -= sizeOfSlice(s.Usages, sizeOfUsage)
			}
		})
	}
	if !shares(o.Status.Sources, other.Status.Sources) {
		n += sizeOfSlice(o.Status.Sources, func(s *v1alpha1.SourceStatus) int {
			return len(s.Kind) + len(s.Name) + len(s.ResourceVersion) + sizeOfStrings(s.MissingKeys)
		})
	}
	if !shares(o.Status.Patterns, other.Status.Patterns) {
		n += sizeOfSlice(o.Status.Patterns, func(p *v1alpha1.PatternStatus) int { return len(p.Kind) + len(p.Pattern) + len(p.Reason) })
		for i := range o.Status.Patterns {
			if i >= len(other.Status.Patterns) || !shares(o.Status.Patterns[i].Names, other.Status.Patterns[i].Names) {
				n += sizeOfStrings(o.Status.Patterns[i].Names)
			}
		}
	}
	if !shares(o.Spec.Reload.Exclude, other.Spec.Reload.Exclude) {
		n += sizeOfStrings(o.Spec.Reload.Exclude)
	}
	if !shares(o.Status.Policies, other.Status.Policies) {
		n += sizeOfStrings(o.Status.Policies)
	}
	if !shares(o.Status.Conditions, other.Status.Conditions) {
		n += sizeOfSlice(o.Status.Conditions, func(c *metav1.Condition) int {
			n := len(c.Type) + len(c.Status) + len(c.Reason)
			if c.Message != o.Status.Message { // most conditions have that of the status, which is in memory once
				n += len(c.Message)
			}
			return n
		})
	}
	return n
}

// sizeOfMeta returns the size of what metadata refers to.
func sizeOfMeta(m *metav1.ObjectMeta) int {
	n := len(m.Namespace) + len(m.Name) + len(m.UID) + len(m.ResourceVersion)
	for k, v := range m.Labels {
		n += len(k) + len(v)
	}
	return n + sizeOfSlice(m.OwnerReferences, func(r *metav1.OwnerReference) int {
		return len(r.APIVersion) + len(r.Kind) + len(r.Name) + len(r.UID)
	})
}

// sizeOfPolicy returns the size of what a policy refers to, without what it excludes.
func sizeOfPolicy(p *v1alpha1.ReloadSettings) int {
	return len(p.Mode) + len(p.DeclaredBy) + len(p.Strategy)
}

func sizeOfUsage(u *v1alpha1.Usage) int {
	return len(u.Type) + len(u.Container) + len(u.Env) + len(u.Prefix) + len(u.Volume) + len(u.MountPath) + len(u.Path) + sizeOfStrings(u.Keys)
}

func sizeOfStrings(all []string) int {
	return sizeOfSlice(all, func(s *string) int { return len(*s) })
}

// sizeOfSlice returns the size of elements, including what they refer to.
func sizeOfSlice[E any](all []E, refersTo func(*E) int) int {
	n := len(all) * sizeOfOne[E]()
	for i := range all {
		n += refersTo(&all[i])
	}
	return n
}

func sizeOfOne[E any]() int { return int(reflect.TypeFor[E]().Size()) }

// shares reports whether two slices are the same in memory.
func shares[E any](a, b []E) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// eachPair calls f for the sources that are in both of two lists, which are ordered by kind and
// name.
func eachPair(all, others []v1alpha1.Source, f func(a, b *v1alpha1.Source)) {
	for i, j := 0, 0; i < len(all) && j < len(others); {
		a, b := &all[i], &others[j]
		switch c := cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name)); {
		case c < 0:
			i++
		case c > 0:
			j++
		default:
			f(a, b)
			i, j = i+1, j+1
		}
	}
}
