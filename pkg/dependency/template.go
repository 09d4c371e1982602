// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"slices"

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

// References returns what a pod template consumes, in the order of kind and name. The rules
// are those by which the kubelet makes environments and volumes. If there are more than
// MaxSources or MaxUses, the result is truncated.
func References(pod *corev1.PodSpec) (references []Reference, truncated bool) {
	c := collector{index: map[sourceID]int{}, mounts: map[string][]mount{}}
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
	for i := range c.references {
		c.references[i].RequiredKeys = sortedSet(c.references[i].RequiredKeys)
	}
	slices.SortFunc(c.references, compareReferences)
	return c.references, c.truncated
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

// collector gathers the uses of a template by source.
type collector struct {
	references []Reference
	index      map[sourceID]int
	mounts     map[string][]mount // by volume
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
	i, found := c.index[id]
	uses := max(1, len(use.Keys), len(requiredKeys))
	if c.truncated = c.truncated || c.uses+uses > MaxUses || !found && len(c.references) == MaxSources; c.truncated {
		return
	}
	c.uses += uses
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
