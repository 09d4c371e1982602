// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Limits on the references of a pod template that are kept. A volume with many sources that is mounted many
// times consumes each of them at each mount, so a small template could fill any memory; and the record of
// the sources must fit into an annotation.
const (
	// MaxSources is how many sources a template may consume.
	MaxSources = 500
	// MaxUses is in how many places it may consume them. A place that names keys counts for each.
	MaxUses = 5000
	// maxLooks is how many mounts are visited, once for each source of their volume.
	maxLooks = 10 * MaxUses
)

// References returns what pod templates and the object that has them consume, in the order of kind and name. The rules
// are those by which the kubelet makes environments and volumes. If there are more than
// MaxSources or MaxUses, the result is truncated. A use that several templates have in common is returned once.
func References(named []Named, pods ...*corev1.PodSpec) (references []Reference, truncated bool) {
	c := collector{index: map[sourceID]int{}}
	if len(named) > 0 || len(pods) > 1 {
		c.known = map[usage]bool{}
	}
	for i := range named {
		c.named(&named[i])
	}
	for _, pod := range pods {
		c.pod(pod)
	}
	for i := range c.references {
		c.references[i].RequiredKeys = sortedSet(c.references[i].RequiredKeys)
	}
	slices.SortFunc(c.references, compareReferences)
	return c.references, c.truncated
}

func (c *collector) named(n *Named) {
	use := Use{Type: ByObject, MountPath: n.Path, Optional: n.Optional}
	if n.Sets {
		use.Type = Field
	}
	if n.Key == "" {
		c.add(n.Kind, n.Name, use)
		return
	}
	use.Keys = []string{n.Key}
	c.add(n.Kind, n.Name, use, n.Key)
}

func (c *collector) pod(pod *corev1.PodSpec) {
	c.mounts = map[string][]mount{}
	containers := containersOf(pod)
	for i := range containers {
		c.environment(&containers[i])
		for j := range containers[i].VolumeMounts {
			m := &containers[i].VolumeMounts[j]
			c.mounts[m.Name] = append(c.mounts[m.Name], newMount(&containers[i], m))
		}
	}
	for i := range pod.Volumes {
		c.volume(&pod.Volumes[i])
	}
	for _, secret := range pod.ImagePullSecrets {
		// Without it the kubelet pulls anonymously, so pods do not need it to start.
		c.add(Secret, secret.Name, Use{Type: ImagePullSecret, Optional: true})
	}
}

// containersOf returns everything in a pod that has an environment and mounts: init
// containers and sidecars, containers, and, in pods, ephemeral containers.
func containersOf(pod *corev1.PodSpec) []corev1.Container {
	all := slices.Concat(pod.InitContainers, pod.Containers)
	for i := range pod.EphemeralContainers {
		all = append(all, corev1.Container(pod.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return all
}

type sourceID struct {
	kind SourceKind
	name string
}

// usage identifies a use of a source, with what it requires.
type usage struct {
	sourceID
	typ                                       UseType
	container, env, prefix, volume, mountPath string
	subPath, optional                         bool
	keys                                      string
}

// usageOf returns the identity of a use. Keys cannot contain the separators.
func usageOf(id sourceID, u *Use, requiredKeys []string) usage {
	keys := strings.Join(u.Keys, ",") + ";" + strings.Join(requiredKeys, ",")
	if u.Keys == nil {
		keys = "*" + keys
	}
	return usage{id, u.Type, u.Container, u.Env, u.Prefix, u.Volume, u.MountPath, u.SubPath, u.Optional, keys}
}

// collector gathers the uses of templates by source.
type collector struct {
	references []Reference
	index      map[sourceID]int
	known      map[usage]bool     // nil: all uses count
	mounts     map[string][]mount // of the current template, by volume
	uses       int
	looks      int
	truncated  bool // there is more than is kept
}

// maxName is how long the name of an object can be.
const maxName = validation.DNS1123SubdomainMaxLength

// add records a use. Keys that pods cannot start without are given separately from those
// that the use reads. A name that no object can have refers to nothing.
func (c *collector) add(kind SourceKind, name string, use Use, requiredKeys ...string) {
	if name == "" || len(name) > maxName {
		return
	}
	id := sourceID{kind, name}
	if c.known != nil && c.known[usageOf(id, &use, requiredKeys)] {
		return
	}
	i, found := c.index[id]
	uses := max(1, len(use.Keys), len(requiredKeys))
	if c.truncated = c.truncated || c.uses+uses > MaxUses || !found && len(c.references) == MaxSources; c.truncated {
		return
	}
	c.uses += uses
	if c.known != nil {
		c.known[usageOf(id, &use, requiredKeys)] = true
	}
	if !found {
		i = len(c.references)
		c.index[id] = i
		c.references = append(c.references, Reference{Kind: kind, Name: name})
	}
	r := &c.references[i]
	r.Uses = append(r.Uses, use)
	if !use.Optional {
		r.RequiredKeys = append(r.RequiredKeys, requiredKeys...)
	}
}

func (c *collector) environment(container *corev1.Container) {
	for i := range container.EnvFrom {
		from := &container.EnvFrom[i]
		use := Use{Type: EnvFrom, Container: container.Name, Prefix: from.Prefix}
		if ref := from.ConfigMapRef; ref != nil {
			use.Optional = isTrue(ref.Optional)
			c.add(ConfigMap, ref.Name, use)
		}
		if ref := from.SecretRef; ref != nil {
			use.Optional = isTrue(ref.Optional)
			c.add(Secret, ref.Name, use)
		}
	}
	for i := range container.Env {
		env := &container.Env[i]
		if env.ValueFrom == nil {
			continue
		}
		use := Use{Type: Env, Container: container.Name, Env: env.Name}
		if ref := env.ValueFrom.ConfigMapKeyRef; ref != nil {
			use.Keys, use.Optional = []string{ref.Key}, isTrue(ref.Optional)
			c.add(ConfigMap, ref.Name, use, ref.Key)
		}
		if ref := env.ValueFrom.SecretKeyRef; ref != nil {
			use.Keys, use.Optional = []string{ref.Key}, isTrue(ref.Optional)
			c.add(Secret, ref.Name, use, ref.Key)
		}
	}
}

func isTrue(b *bool) bool { return b != nil && *b }
