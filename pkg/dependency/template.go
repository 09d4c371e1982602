package dependency

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// References returns what a pod template consumes, in the order of kind and name. The
// rules are those by which the kubelet makes environments and volumes.
func References(pod *corev1.PodSpec) []Reference {
	c := collector{index: map[sourceID]int{}}
	containers := containersOf(pod)
	for i := range containers {
		c.environment(&containers[i])
	}
	for i := range pod.Volumes {
		c.volume(&pod.Volumes[i], containers)
	}
	for _, secret := range pod.ImagePullSecrets {
		// Without it the kubelet pulls anonymously, so pods do not need it to start.
		c.add(Secret, secret.Name, Use{Type: ImagePullSecret, Optional: true})
	}
	for i := range c.references {
		c.references[i].RequiredKeys = sortedSet(c.references[i].RequiredKeys)
	}
	slices.SortFunc(c.references, compareReferences)
	return c.references
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
}

// add records a use. Keys that pods cannot start without are named apart from those that
// the use reads. An empty name refers to nothing.
func (c *collector) add(kind SourceKind, name string, use Use, requiredKeys ...string) {
	if name == "" {
		return
	}
	id := sourceID{kind, name}
	i, found := c.index[id]
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
