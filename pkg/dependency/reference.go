// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"cmp"
	"slices"
)

// SourceKind is the kind of an object that a pod template consumes.
type SourceKind string

// The kinds of sources. Of SecretProviderClasses, only what pods have mounted is known.
const (
	ConfigMap           SourceKind = "ConfigMap"
	Secret              SourceKind = "Secret"
	SecretProviderClass SourceKind = "SecretProviderClass"
)

// Observed reports whether objects of the kind are read, so that it is known which are absent.
func (k SourceKind) Observed() bool { return k == ConfigMap || k == Secret }

// UseType is the way in which a pod template consumes a source.
type UseType string

// The ways of consuming a source.
const (
	Env             UseType = "Env"             // env.valueFrom
	EnvFrom         UseType = "EnvFrom"         // envFrom
	Volume          UseType = "Volume"          // configMap and secret volumes
	Projected       UseType = "Projected"       // a source of a projected volume
	CSI             UseType = "CSI"             // nodePublishSecretRef, secretProviderClass
	VolumeSecret    UseType = "VolumeSecret"    // the credential of another kind of volume
	ImagePullSecret UseType = "ImagePullSecret" // imagePullSecrets
	Annotation      UseType = "Annotation"      // named by an annotation
	ByObject        UseType = "Object"          // named by a field of the workload outside of its pod templates
	ByAgent         UseType = "Agent"           // applied by the config agents of the pods
	Field           UseType = "Field"           // the value of a field of the workload is set from it
)

// Use is one place of a pod template that consumes a source.
type Use struct {
	Type      UseType
	Container string // empty: the whole pod, or a volume that no container mounts
	Env       string // the variable (Env)
	Prefix    string // before each key (EnvFrom)
	Volume    string // the volume's name
	// MountPath is where the container mounts the volume. To save memory, it is also the path of the field (ByObject, Field).
	MountPath string
	Keys      []string // what is read, sorted; nil: all keys
	SubPath   bool     // a part of the volume: not updated in a running container
	Optional  bool     // pods start without the source or the key
}

// Reads reports whether the use passes content to a container, or to what acts for the workload.
func (u *Use) Reads() bool {
	switch u.Type {
	case Env, EnvFrom, Annotation, ByObject, Field:
		return true
	case Volume, Projected, CSI:
		return u.Container != ""
	default:
		return false
	}
}

// Named is a source that an object names itself, outside of its pod templates.
type Named struct {
	Kind SourceKind
	Name string
	// Key is what is read of it; empty: all keys.
	Key      string
	Optional bool
	// Path is where the object names it.
	Path string
	// Sets: the field at the path gets its value from the key.
	Sets bool
}

// Reference contains all uses of one source by the pod templates of one workload, and by the workload itself.
type Reference struct {
	Kind SourceKind
	Name string
	// Uses are in the order of the template.
	Uses []Use
	// RequiredKeys are the keys without which pods cannot start, sorted. They can be more
	// than the keys that are read: a volume needs all of its items, even if only some are
	// mounted.
	RequiredKeys []string
}

// Optional reports whether pods start without the source: every use of it is optional.
func (r *Reference) Optional() bool {
	for i := range r.Uses {
		if !r.Uses[i].Optional {
			return false
		}
	}
	return true
}

// Reads reports whether any use passes content to a container.
func (r *Reference) Reads() bool {
	return slices.ContainsFunc(r.Uses, func(u Use) bool { return u.Reads() })
}

// Sets reports whether a field gets its value from the source.
func (r *Reference) Sets() bool {
	return slices.ContainsFunc(r.Uses, func(u Use) bool { return u.Type == Field })
}

// Mountable reports whether a volume shows the content of the source, though perhaps no
// container mounts it.
func (r *Reference) Mountable() bool {
	return slices.ContainsFunc(r.Uses, func(u Use) bool {
		return u.Type == Volume || u.Type == Projected || u.Type == CSI && r.Kind == SecretProviderClass
	})
}

// Keys are the keys whose content reaches a container, sorted, or all of them. A reference that reads nothing has neither. Those of binaryData
// count as any others, though the kubelet makes no variables of them.
func (r *Reference) Keys() (keys []string, all bool) {
	for i := range r.Uses {
		u := &r.Uses[i]
		if !u.Reads() {
			continue
		}
		if u.Keys == nil {
			return nil, true
		}
		keys = append(keys, u.Keys...)
	}
	return sortedSet(keys), false
}

func compareReferences(a, b Reference) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

// sortedSet sorts keys and removes duplicates. It works in place.
func sortedSet(keys []string) []string {
	slices.Sort(keys)
	return slices.Compact(keys)
}
